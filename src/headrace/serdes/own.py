"""`OwnSerde`: the base of serdes that users write."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import wraps
from inspect import isfunction
from typing import Any, ClassVar, Generic

from headrace.errors import SchemaError, SerdeError
from headrace.model.serde import Failures
from headrace.serdes.binary_arrays import as_array, as_binary
from headrace.serdes.ddl import from_arrow_type, parse_type, to_arrow_type
from headrace.serdes.deferred import pa
from headrace.serdes.scalars import each, encoded_each, shown
from headrace.serdes.typed import V


class OwnSerde(ABC, Generic[V]):
    """A serde of one's own: `form`, `encode` and `decode`, and it is taken wherever a serde is.

    `form` names the bytes, as a class attribute: letters, digits, `-`, `_` and `.`. A store keeps it with its bytes, and is
    refused where the application has another: change it when the bytes change. With `spark_type`, the Spark type of the
    values in DDL such as `bigint`, expressions read and write it as well; without it they see the bytes, and cannot write
    it. Where values come in batches, each goes through `encode` or `decode`, unless `encode_many`, `decode_many`,
    `encode_arrow` or `decode_arrow` is given as well: see `Serde`. None is never passed in, and no bytes come out for
    nothing but null: an `encode` that gives None is an error of the record.

    Equal arguments make equal serdes, as they are compared by their class, `form` and attributes.

        class Celsius(hr.OwnSerde[float]):
            form = "celsius"

            def encode(self, value: float) -> bytes:
                return str(round(value * 10)).encode()

            def decode(self, data: bytes) -> float:
                return int(data) / 10
    """

    form: ClassVar[str] = ""
    spark_type: ClassVar[str | None] = None

    @abstractmethod
    def encode(self, value: V) -> bytes:
        """The bytes of one value, which is not None. What it raises is an error of that record alone."""

    @abstractmethod
    def decode(self, data: bytes) -> V:
        """The value of some bytes. What it raises is an error of that record alone."""

    def encode_many(self, values: Sequence[V | None]) -> tuple[pa.Array, Failures]:
        return encoded_each(self.encode, values)

    def decode_many(self, data: pa.Array) -> tuple[list[V | None], Failures]:
        return each(self.decode, as_binary(data).to_pylist())

    def encode_arrow(self, values: pa.Array) -> tuple[pa.Array, Failures]:
        return self.encode_many(self._typed(as_array(values)).to_pylist())

    def decode_arrow(self, data: pa.Array) -> tuple[pa.Array, Failures]:
        wanted = self._arrow_type()
        values, failures = self.decode_many(data)
        return pa.array(values, wanted), failures

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, checked in (("encode", _checked), ("encode_many", _checked_many), ("encode_arrow", _checked_many)):
            if isfunction(vars(cls).get(name)):
                setattr(cls, name, checked(vars(cls)[name]))

    def _arrow_type(self) -> pa.DataType:
        if self.spark_type is None:
            raise SchemaError(
                f"{self!r}: it has no `spark_type`, and so no Arrow column",
                f'say which type its values have: spark_type = "double" in class {type(self).__name__}',
            )
        return to_arrow_type(parse_type(self.spark_type))

    def _typed(self, values: pa.Array) -> pa.Array:
        """`values` as an array of the Spark type; `SerdeError` for one of another kind. Without a Spark type they come of a
        batch function, and are what it means."""
        if self.spark_type is None or pa.types.is_null(values.type):
            return values
        wanted = self._arrow_type()
        if values.type == wanted:
            return values
        if _is_number(values.type) and _is_number(wanted):
            try:
                return values.cast(wanted)
            except pa.ArrowInvalid:  # some value does not fit: `encode` says which
                return values
        found = from_arrow_type(values.type)
        if found != parse_type(self.spark_type):
            raise SerdeError(
                f"{self.form}: expected an array of {wanted}, found {values.type}", f"cast the expression to {self.spark_type}"
            )
        return values  # what differs are names within lists, or the size of offsets

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash((type(self), self.form))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def _parts(self) -> tuple[str, dict[str, Any]]:
        return self.form, vars(self)


def _is_number(arrow_type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(arrow_type) or pa.types.is_floating(arrow_type))


def _checked(encode: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """`encode` of a user's class; what is no bytes is refused, None above all: it would be a null, which deletes."""

    @wraps(encode)
    def checked(self: Any, value: Any) -> Any:
        data = encode(self, value)
        if not isinstance(data, bytes):
            raise _no_bytes(self, "encode", value, data)
        return data

    return checked


def _checked_many(encode: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The same of `encode_many` or `encode_arrow`: a null where there is a value, and no failure, is one."""

    @wraps(encode)
    def checked(self: Any, values: Any) -> tuple[Any, Failures]:
        data, failures = encode(self, values)
        if len(data) != len(values):
            raise SerdeError(f"{self!r}: {encode.__name__} of {len(values)} values gave {len(data)}")
        if not data.null_count:
            return data, failures
        failed = {index for index, _ in failures}
        given = values if isinstance(values, (list, tuple)) else values.to_pylist()
        nulls = [at for at, is_null in enumerate(data.is_null().to_pylist()) if is_null and given[at] is not None]
        more = [(at, _no_bytes(self, encode.__name__, given[at], None)) for at in nulls if at not in failed]
        return data, sorted([*failures, *more], key=lambda failure: failure[0])

    return checked


def _no_bytes(serde: Any, method: str, value: Any, data: Any) -> SerdeError:
    return SerdeError(
        f"{serde.form}: expected bytes of {method}, found {type(data).__name__} for {shown(value)}",
        "raise an error where a value has no bytes; a function that gives None writes a null" if data is None else None,
    )


_METHODS = ("encode", "decode", "encode_many", "decode_many", "encode_arrow", "decode_arrow")
_FORM = re.compile(r"[A-Za-z0-9_.-]{1,100}")


def unfit(given: Any) -> str | None:
    """Why an object is no serde, None where it is one."""
    missing = [name for name in _METHODS if not callable(getattr(given, name, None))]
    if {"encode", "decode"} & set(missing):
        return f"it has no {' and no '.join(name for name in ('encode', 'decode') if name in missing)}"
    if missing:
        return f"it has no {missing[0]}: derive its class from hr.OwnSerde, which has that"
    form, spark_type = getattr(given, "form", None), getattr(given, "spark_type", None)
    if not isinstance(form, str) or not form:
        return 'its `form`, the name of its bytes, is not set: for example form = "celsius"'
    if isinstance(given, OwnSerde) and _FORM.fullmatch(form) is None:
        return f"its form {form!r} has other characters than letters, digits, `-`, `_` and `.`"
    if spark_type is not None:
        try:
            parse_type(spark_type)
        except SchemaError as error:
            return f"its spark_type: {error.message}"
    return None
