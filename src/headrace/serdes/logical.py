"""The serdes of values that have other bytes than numbers or texts of their own: `UUID`, `Timestamp`, `Decimal`.

Kafka's clients write a UUID as its text. A timestamp is a `Long`, of µs. A decimal is as Kafka Connect has it: the whole number
that it is without its point, in as few bytes as that takes.
"""

from __future__ import annotations

import decimal
import struct
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from headrace.errors import SchemaError, SerdeError
from headrace.model.serde import Failures
from headrace.serdes.binary_arrays import as_array_of, as_binary, nulled, packed, unpacked, valid_of
from headrace.serdes.ddl import DECIMAL_PRECISION_MAX
from headrace.serdes.deferred import pa
from headrace.serdes.scalars import Scalar, String, each, encoded_each, shown

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LONG = struct.Struct(">q")
_UUID_PATTERN = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
_MOST_US = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LEAST_US = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND


class UUID(Scalar[uuid.UUID]):
    """A `uuid.UUID` as its text of 36 characters, as Kafka's own `UUIDSerializer` writes it. In Spark it is a string."""

    __slots__ = ()
    form = "uuid"
    spark_type = "string"
    KINDS = ()
    ARRAYS = "is_string"

    def encode(self, value: uuid.UUID) -> bytes:
        if not isinstance(value, uuid.UUID):
            hint = "make one of it: uuid.UUID(text)" if isinstance(value, str) else None
            raise SerdeError(f"uuid: expected uuid.UUID, found {type(value).__name__} {shown(value)}", hint)
        return str(value).encode()

    def decode(self, data: bytes) -> uuid.UUID:
        text = str(data, "ascii", "replace")
        try:
            found = uuid.UUID(text)
        except ValueError:
            raise _no_uuid(data) from None
        if str(found) != text.lower():
            raise _no_uuid(data)  # in braces, or without dashes
        return found

    def encode_many(self, values: Sequence[Any]) -> tuple[pa.Array, Failures]:
        return encoded_each(self.encode, values)

    def decode_many(self, data: pa.Array) -> tuple[list[uuid.UUID | None], Failures]:
        return each(self.decode, as_binary(data).to_pylist())

    def encode_arrow(self, values: pa.Array) -> tuple[pa.Array, Failures]:
        return self._of_texts(String().encode_arrow(values)[0])

    def decode_arrow(self, data: pa.Array) -> tuple[pa.Array, Failures]:
        found, failures = self._of_texts(as_binary(data))
        return found.cast(pa.string()), failures

    def _of_texts(self, texts: pa.Array) -> tuple[pa.Array, Failures]:
        """These, with nulls where they are no UUID."""
        wrong = pa.compute.invert(pa.compute.match_substring_regex(texts, _UUID_PATTERN)).fill_null(False)
        failures: Failures = [(at, _no_uuid(texts[at].as_py())) for at, is_wrong in enumerate(wrong.to_pylist()) if is_wrong]
        return (nulled(texts, [at for at, _ in failures]) if failures else texts), failures


def _no_uuid(data: bytes) -> SerdeError:
    return SerdeError(
        f"uuid: expected a text such as 6f1d9a52-0c5b-4f0e-9d3e-2f8f4a1c7b60, found {shown(data)}",
        "declare the stream with Bytes() or String() if it holds others",
    )


class Timestamp(Scalar[datetime]):
    """A moment as a whole number of µs since 1970 in 8 bytes with a sign, most significant first. In Python it is an aware
    datetime, which comes back in UTC."""

    __slots__ = ()
    form = "timestamp"
    spark_type = "timestamp"
    KINDS = ()
    ARRAYS = "is_timestamp"

    def encode(self, value: datetime) -> bytes:
        if not isinstance(value, datetime) or value.tzinfo is None:
            is_naive = isinstance(value, datetime)
            found = f"one without a time zone, {value!r}" if is_naive else f"{type(value).__name__} {shown(value)}"
            hint = "say which it is in: value.replace(tzinfo=datetime.UTC)" if is_naive else None
            raise SerdeError(f"timestamp: expected an aware datetime, found {found}", hint)
        return _LONG.pack((value - _EPOCH) // _MICROSECOND)

    def decode(self, data: bytes) -> datetime:
        if len(data) != _LONG.size:
            raise SerdeError(f"timestamp: expected {_LONG.size} bytes, found {len(data)}: {shown(data)}")
        (time_us,) = _LONG.unpack(data)
        if not _LEAST_US <= time_us <= _MOST_US:
            raise self._beyond(time_us)
        return _EPOCH + timedelta(microseconds=time_us)

    def _beyond(self, time_us: int) -> SerdeError:
        return SerdeError(f"timestamp: {time_us} µs since 1970 is not in the years 1 to 9999", "use Long() for such numbers")

    def encode_many(self, values: Sequence[Any]) -> tuple[pa.Array, Failures]:
        return encoded_each(self.encode, values)

    def decode_many(self, data: pa.Array) -> tuple[list[datetime | None], Failures]:
        return each(self.decode, as_binary(data).to_pylist())

    def encode_arrow(self, values: pa.Array) -> tuple[pa.Array, Failures]:
        micros = self._cast(values).cast(pa.int64())
        present = valid_of(micros)
        return packed(micros.fill_null(0).to_numpy(zero_copy_only=False), present, ">i8"), []

    def decode_arrow(self, data: pa.Array) -> tuple[pa.Array, Failures]:
        data = as_binary(data)
        micros, present, wrong = unpacked(data, ">i8")
        wrong |= present & ((micros < _LEAST_US) | (micros > _MOST_US))
        failures = each(self.decode, [data[int(at)].as_py() for at in wrong.nonzero()[0]])[1]
        found: Failures = [(int(wrong.nonzero()[0][at]), error) for at, error in failures]
        absent = ~present | wrong
        array = pa.array(micros, mask=absent if bool(absent.any()) else None)
        return array.cast(pa.timestamp("us", "UTC")), found


class Decimal(Scalar[decimal.Decimal]):
    """A number of at most `precision` digits (1 to 38), `scale` of them behind the point, exactly. Bytes: the number without
    its point, in two's complement, most significant byte first, in as few bytes as it takes, as Kafka Connect's `Decimal`."""

    __slots__ = ("precision", "scale")
    KINDS = ()
    ARRAYS = "is_decimal"

    def __init__(self, precision: int, scale: int = 0) -> None:
        if not (1 <= precision <= DECIMAL_PRECISION_MAX and 0 <= scale <= precision):
            raise SchemaError(
                f"Decimal({precision}, {scale}): expected 1 to {DECIMAL_PRECISION_MAX} digits, 0 to all of them behind it",
                "for example Decimal(10, 2) for amounts below 100 million with cents",
            )
        self.precision, self.scale = precision, scale

    @property
    def form(self) -> str:  # type: ignore[override]
        return f"decimal({self.precision},{self.scale})"

    @property
    def spark_type(self) -> str:  # type: ignore[override]
        return self.form

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Decimal) and self.form == other.form

    def __hash__(self) -> int:
        return hash((Decimal, self.precision, self.scale))

    def __repr__(self) -> str:
        return f"Decimal({self.precision}, {self.scale})"

    @property
    def _arrow_type(self) -> pa.DataType:
        return pa.decimal128(self.precision, self.scale)

    def encode(self, value: decimal.Decimal) -> bytes:
        if isinstance(value, bool) or not isinstance(value, (decimal.Decimal, int)):
            hint = f"make one of it: decimal.Decimal({str(value)!r})" if isinstance(value, float) else None
            raise SerdeError(f"{self.form}: expected decimal.Decimal, found {type(value).__name__} {shown(value)}", hint)
        whole = self._whole_of(decimal.Decimal(value))
        if whole is None:
            raise SerdeError(
                f"{self.form}: {shown(value)} does not fit exactly",
                f"round it first (quantize), or take more digits than {self.precision}, {self.scale} behind the point",
            )
        return whole.to_bytes((whole if whole >= 0 else ~whole).bit_length() // 8 + 1, "big", signed=True)

    def _whole_of(self, value: decimal.Decimal) -> int | None:
        """The number without its point; None where it has other digits, or is none."""
        sign, digits, exponent = value.as_tuple()
        if not isinstance(exponent, int):
            return None  # infinite, or no number
        number, shift = int("".join(map(str, digits)) or "0"), exponent + self.scale
        if shift > self.precision and number:
            return None
        if shift < 0:
            number, rest = divmod(number, 10 ** min(-shift, len(digits) + 1))
            if rest:
                return None
        else:
            number *= 10 ** min(shift, self.precision)
        return None if number >= 10**self.precision else -number if sign else number

    def decode(self, data: bytes) -> decimal.Decimal:
        number = int.from_bytes(data, "big", signed=True)
        if not data or abs(number) >= 10**self.precision:
            found = f"one of {len(data)} bytes" if len(data) > DECIMAL_PRECISION_MAX else str(number) if data else "no bytes"
            raise SerdeError(f"{self.form}: expected a whole number of at most {self.precision} digits, found {found}")
        return decimal.Decimal((number < 0, tuple(map(int, str(abs(number)))), -self.scale))

    def encode_many(self, values: Sequence[Any]) -> tuple[pa.Array, Failures]:
        return encoded_each(self.encode, values)

    def decode_many(self, data: pa.Array) -> tuple[list[decimal.Decimal | None], Failures]:
        return each(self.decode, as_binary(data).to_pylist())

    def encode_arrow(self, values: pa.Array) -> tuple[pa.Array, Failures]:
        typed = as_array_of(values.type, values, self.form)
        if not pa.types.is_decimal(typed.type) and not pa.types.is_null(typed.type):
            self._cast(typed)  # says what is wrong
        return encoded_each(self.encode, typed.to_pylist())

    def decode_arrow(self, data: pa.Array) -> tuple[pa.Array, Failures]:
        values, failures = self.decode_many(data)
        return pa.array(values, self._arrow_type), failures
