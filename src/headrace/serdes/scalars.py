"""The serdes of values without parts, in Kafka's wire formats: `Bytes`, `String`, `Long`, `Int`, `Short`, `Double`, `Float`,
`Boolean`.

Instances are values: equal, hashable, and written `String()`. Arrays go through numpy, never element by element, except
to find out which elements were at fault.
"""

from __future__ import annotations

import numbers
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Generic

from headrace.errors import SerdeError
from headrace.model.serde import Failures
from headrace.serdes.binary_arrays import as_array, as_binary, nulled, packed, unpacked, valid_of
from headrace.serdes.ddl import ScalarType, to_arrow_type
from headrace.serdes.deferred import pa
from headrace.serdes.typed import V

_SHOWN = 40  # bytes or characters of a value in an error


def shown(value: object) -> str:
    """`value` as an error shows it: its repr, cut short."""
    text = repr(value[: 2 * _SHOWN] if isinstance(value, (bytes, str)) else value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


Raised = tuple[type[Exception], ...]


def each(function: Callable[[Any], Any], values: Iterable[Any], raised: Raised = ()) -> tuple[list[Any], Failures]:
    """`function` of every value that is not None; the slow way, which knows who failed. `raised`: what is no value's fault."""
    results: list[Any] = []
    failures: Failures = []
    for index, value in enumerate(values):
        try:
            results.append(None if value is None else function(value))
        except raised:
            raise
        except Exception as error:
            results.append(None)
            failures.append((index, error))
    return results, failures


def encoded_each(encode: Callable[[Any], Any], values: Iterable[Any], raised: Raised = ()) -> tuple[pa.Array, Failures]:
    """The same as a binary array."""
    results, failures = each(encode, values, raised)
    return pa.array(results, pa.binary()), failures


class Scalar(ABC, Generic[V]):
    """What the serdes here share. `KINDS`: the classes whose values Arrow takes as `encode` does. `ARRAYS`: the test in
    `pyarrow.types` of arrays that are cast to its own type."""

    __slots__ = ()
    form: str
    spark_type: str
    KINDS: ClassVar[tuple[type, ...]]
    ARRAYS: ClassVar[str] = "is_integer"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    @abstractmethod
    def encode(self, value: V) -> bytes:
        """The bytes of one value; `SerdeError` names the value."""

    @abstractmethod
    def encode_arrow(self, values: pa.Array) -> tuple[pa.Array, Failures]: ...

    @abstractmethod
    def decode_arrow(self, data: pa.Array) -> tuple[pa.Array, Failures]: ...

    def encode_many(self, values: Sequence[Any]) -> tuple[pa.Array, Failures]:
        if set(map(type, values)) <= {type(None), *self.KINDS}:  # 17 ns per value
            try:
                return self.encode_arrow(pa.array(values, self._arrow_type))
            except (pa.ArrowException, OverflowError, UnicodeEncodeError):
                pass  # a number is out of range, or a text has a lone surrogate
        return encoded_each(self.encode, values)

    def decode_many(self, data: pa.Array) -> tuple[list[V | None], Failures]:
        values, failures = self.decode_arrow(data)
        return values.to_pylist(), failures

    @property
    def _arrow_type(self) -> pa.DataType:
        return to_arrow_type(ScalarType(self.spark_type))

    def _cast(self, values: pa.Array) -> pa.Array:
        """`values` as one array of the type; an array of another kind is no matter of values, and so it raises."""
        values, wanted = as_array(values), self._arrow_type
        if values.type == wanted:
            return values
        try:
            if getattr(pa.types, self.ARRAYS)(values.type) or pa.types.is_null(values.type):
                return values.cast(wanted)
        except pa.ArrowInvalid as error:
            raise _OutOfRangeError(f"{self.form}: expected an array of {wanted}: {error}") from None
        raise SerdeError(
            f"{self.form}: expected an array of {wanted}, found {values.type}",
            f"cast the expression to {self.spark_type}, or name the serde of its own type",
        )


class _OutOfRangeError(SerdeError):
    """Some value of an array of the right kind does not fit."""


class Bytes(Scalar[bytes]):
    """Bytes as they are."""

    __slots__ = ()
    form = "bytes"
    spark_type = "binary"
    KINDS = (bytes,)

    def encode(self, value: bytes) -> bytes:
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
        hint = "use String() for text" if isinstance(value, str) else None
        raise SerdeError(f"bytes: expected bytes, found {type(value).__name__} {shown(value)}", hint)

    def decode(self, data: bytes) -> bytes:
        return data

    def encode_arrow(self, values: pa.Array) -> tuple[pa.Array, Failures]:
        return as_binary(values), []

    def decode_arrow(self, data: pa.Array) -> tuple[pa.Array, Failures]:
        return self.encode_arrow(data)


class String(Scalar[str]):
    """Text in UTF-8, checked in both directions: bytes that are no UTF-8 are a failure, not a replacement character."""

    __slots__ = ()
    form = "string"
    spark_type = "string"
    KINDS = (str,)
    ARRAYS = "is_string"

    def encode(self, value: str) -> bytes:
        if not isinstance(value, str):
            hint = {bytes: "use Bytes() for bytes", int: "use Long() for whole numbers"}.get(type(value))
            raise SerdeError(f"string: expected str, found {type(value).__name__} {shown(value)}", hint)
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise SerdeError(
                f"string: {shown(value)} has no UTF-8: {error.reason} at {error.start}",
                "remove the lone surrogate, or use Bytes()",
            ) from None

    def decode(self, data: bytes) -> str:
        try:
            return str(data, "utf-8")
        except UnicodeDecodeError as error:
            raise SerdeError(
                f"string: expected UTF-8, found {shown(data)}: {error.reason} at byte {error.start}",
                "declare the stream with Bytes() if it holds no text",
            ) from None

    def encode_arrow(self, values: pa.Array) -> tuple[pa.Array, Failures]:
        values = as_array(values)
        return as_binary(values.cast(pa.string()) if pa.types.is_large_string(values.type) else self._cast(values)), []

    def decode_arrow(self, data: pa.Array) -> tuple[pa.Array, Failures]:
        data = as_binary(data)
        try:
            return data.cast(pa.string()), []
        except pa.ArrowInvalid:
            failures = each(self.decode, data.to_pylist())[1]
            return nulled(data, [index for index, _ in failures]).cast(pa.string()), failures


class _Number(Scalar[V]):
    """A number of fixed width, most significant byte first."""

    __slots__ = ()
    DTYPE: ClassVar[str]
    PACKER: ClassVar[struct.Struct]

    def decode(self, data: bytes) -> V:
        if len(data) != self.PACKER.size:
            raise self._wrong_length(data)
        value: V = self.PACKER.unpack(data)[0]
        return value

    def _wrong_length(self, data: bytes) -> SerdeError:
        printable = data.isascii() and data[:_SHOWN].decode("ascii").isprintable() and bool(data)
        return SerdeError(
            f"{self.form}: expected {self.PACKER.size} bytes, found {len(data)}: {shown(data)}",
            "these look like text: use String()" if printable else None,
        )

    def encode_arrow(self, values: pa.Array) -> tuple[pa.Array, Failures]:
        try:
            typed = self._cast(values)
        except _OutOfRangeError:  # which of them is it?
            return encoded_each(self.encode, values.to_pylist())
        present = valid_of(typed)
        filled = typed.fill_null(pa.scalar(0).cast(typed.type)) if typed.null_count else typed
        return packed(filled.to_numpy(zero_copy_only=False), present, self.DTYPE), []

    def decode_arrow(self, data: pa.Array) -> tuple[pa.Array, Failures]:
        data = as_binary(data)
        values, present, wrong = unpacked(data, self.DTYPE)
        failures: Failures = [(int(i), self._wrong_length(data[int(i)].as_py())) for i in wrong.nonzero()[0]]
        return pa.array(values, mask=None if bool(present.all()) else ~present), failures


class _Whole(_Number[int]):
    __slots__ = ()
    KINDS = (int,)

    def encode(self, value: int) -> bytes:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            hint = "use Double() for fractions" if isinstance(value, float) else None
            hint = "use Boolean() for true and false" if isinstance(value, bool) else hint
            raise SerdeError(f"{self.form}: expected int, found {type(value).__name__} {shown(value)}", hint)
        try:
            return self.PACKER.pack(value)
        except struct.error:
            bits = 8 * self.PACKER.size
            hint = "use Long()" if bits < 64 else "use String() or Json() for numbers of any size"
            raise SerdeError(f"{self.form}: {shown(value)} does not fit into {bits} bits with a sign", hint) from None


class Long(_Whole):
    """A whole number in 8 bytes with a sign, most significant first. Python's int is a Long; a bool is none."""

    __slots__ = ()
    form = "long"
    spark_type = "bigint"
    DTYPE = ">i8"
    PACKER = struct.Struct(">q")


class Int(_Whole):
    """A whole number in 4 bytes with a sign, most significant first, as Spark's `int` and Java's."""

    __slots__ = ()
    form = "int"
    spark_type = "int"
    DTYPE = ">i4"
    PACKER = struct.Struct(">i")


class Short(_Whole):
    """A whole number in 2 bytes with a sign, most significant first, as Spark's `smallint` and Java's short."""

    __slots__ = ()
    form = "short"
    spark_type = "smallint"
    DTYPE = ">i2"
    PACKER = struct.Struct(">h")


class _Fraction(_Number[float]):
    __slots__ = ()
    ARRAYS = "is_floating"

    def encode(self, value: float) -> bytes:
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise SerdeError(f"{self.form}: expected float, found {type(value).__name__} {shown(value)}")
        try:
            return self.PACKER.pack(value)
        except (OverflowError, struct.error):
            raise SerdeError(
                f"{self.form}: {shown(value)} is beyond the range of a {self.form}",
                "use Double(), or filter such values out before",
            ) from None


class Double(_Fraction):
    """An IEEE-754 number in 8 bytes, most significant first; takes whole numbers too."""

    __slots__ = ()
    form = "double"
    spark_type = "double"
    DTYPE = ">f8"
    PACKER = struct.Struct(">d")
    KINDS = (float, int)


class Float(_Fraction):
    """An IEEE-754 number in 4 bytes, most significant first; takes doubles and whole numbers too, and rounds them."""

    __slots__ = ()
    form = "float"
    spark_type = "float"
    DTYPE = ">f4"
    PACKER = struct.Struct(">f")
    KINDS = ()  # Arrow makes infinity of what is too large

    def encode_arrow(self, values: pa.Array) -> tuple[pa.Array, Failures]:
        values = as_array(values)
        if not pa.types.is_float64(values.type):
            return super().encode_arrow(values)
        if bool(pa.compute.any(pa.compute.greater(pa.compute.abs(values), _FLOAT_MAX)).as_py()):
            return encoded_each(self.encode, values.to_pylist())  # some are infinite, or too large
        return super().encode_arrow(values)


_FLOAT_MAX = 3.4028234663852886e38


class Boolean(_Number[bool]):
    """True or False in one byte, 1 or 0."""

    __slots__ = ()
    form = "boolean"
    spark_type = "boolean"
    DTYPE = ">u1"
    PACKER = struct.Struct(">?")
    KINDS = (bool,)
    ARRAYS = "is_boolean"

    def encode(self, value: bool) -> bytes:
        if not isinstance(value, bool):
            raise SerdeError(f"boolean: expected bool, found {type(value).__name__} {shown(value)}")
        return self.PACKER.pack(value)

    def decode(self, data: bytes) -> bool:
        if len(data) == 1 and data > b"\1":
            raise self._neither(data)
        return super().decode(data)

    def _neither(self, data: bytes) -> SerdeError:
        return SerdeError(f"boolean: expected byte 0 or 1, found {shown(data)}")

    def decode_arrow(self, data: pa.Array) -> tuple[pa.Array, Failures]:
        data = as_binary(data)
        numbers_, failures = super().decode_arrow(data)
        neither = pa.compute.greater(numbers_, 1)
        if bool(pa.compute.any(neither).as_py()):
            wrong = [index for index, found in enumerate(neither.to_pylist()) if found]
            failures = sorted([*failures, *((at, self._neither(data[at].as_py())) for at in wrong)], key=lambda one: one[0])
            numbers_ = nulled(numbers_, wrong)
        return numbers_.cast(pa.bool_()), failures
