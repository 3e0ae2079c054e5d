"""`MessagePack`: values of a class, or any, in the MessagePack format. msgspec reads and writes."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Sequence
from typing import Any, Generic, overload

import msgspec

from headrace.errors import SchemaError, SerdeError
from headrace.model.serde import Failures
from headrace.serdes import ddl
from headrace.serdes.binary_arrays import as_array, as_binary
from headrace.serdes.deferred import pa
from headrace.serdes.json_types import ClassType, OfClass, lacks_fields, name_of_class, type_of_class, without_zeros
from headrace.serdes.scalars import each, encoded_each, shown
from headrace.serdes.typed import V

_ARROW_TAKES = (bytes, datetime.datetime, datetime.date, decimal.Decimal)
_ENCODER = msgspec.msgpack.Encoder(order="deterministic")


class MessagePack(OfClass, Generic[V]):
    """MessagePack as `T`: a msgspec.Struct, a dataclass, a TypedDict, a union or list of such, or any value at all.

    With a class the values are instances of it, with its own defaults; bytes that hold another are a failure. Aware datetimes
    are MessagePack's timestamps, others are texts. Equal values are equal bytes: fields are written in declared order, the keys
    of dicts sorted. One value and nothing after it.
    """

    __slots__ = ("_decoder", "_given")

    @overload
    def __init__(self, T: type[V]) -> None: ...  # noqa: N803 - the name in the public interface
    @overload
    def __init__(self: MessagePack[Any], T: Any = None) -> None: ...  # noqa: N803

    def __init__(self, T: Any = None) -> None:  # noqa: N803
        self._given = T
        self._of_class = ClassType(None)
        if T is None:
            self._decoder = msgspec.msgpack.Decoder()
            return
        if isinstance(T, str):
            raise SchemaError(
                f"MessagePack({T!r}): expected a class",
                "give a msgspec.Struct, a dataclass, a TypedDict, or nothing for any value",
            )
        self._of_class = type_of_class(T)
        self._decoder = msgspec.msgpack.Decoder(T)

    @property
    def form(self) -> str:
        return "messagepack" if self._given is None else f"messagepack<{name_of_class(self._given)}>"

    @property
    def spark_type(self) -> str | None:
        return None if self._of_class.type is None else ddl.to_ddl(self._of_class.type)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MessagePack) and self._given == other._given

    def __hash__(self) -> int:
        return hash((MessagePack, self._given))

    def __repr__(self) -> str:
        return f"MessagePack({'' if self._given is None else name_of_class(self._given)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (MessagePack, (self._given,))

    def encode(self, value: V) -> bytes:
        try:
            if self._given is not None:
                value = msgspec.convert(value, self._given, from_attributes=True)  # of a dict: equal values are equal bytes
            return _ENCODER.encode(value)
        except Exception as error:
            raise SerdeError(f"{self.form}: {error or type(error).__name__}; found {shown(value)}") from None

    def decode(self, data: bytes) -> V:
        try:
            found: V = self._decoder.decode(data)
        except Exception as error:
            raise SerdeError(f"{self.form}: {error or type(error).__name__}; found {shown(data)}") from None
        return found

    def encode_many(self, values: Sequence[Any]) -> tuple[pa.Array, Failures]:
        return encoded_each(self.encode, values)

    def decode_many(self, data: pa.Array) -> tuple[list[V | None], Failures]:
        return each(self.decode, as_binary(data).to_pylist())

    def encode_arrow(self, values: pa.Array) -> tuple[pa.Array, Failures]:
        if self.untyped_fields:
            raise lacks_fields(self)
        given = self._given
        rows = as_array(values).to_pylist()
        rows = list(map(without_zeros, rows)) if self.is_loose else rows
        if given is None:
            return self.encode_many(rows)
        return encoded_each(lambda row: self.encode(msgspec.convert(row, given)), rows)

    def decode_arrow(self, data: pa.Array) -> tuple[pa.Array, Failures]:
        spark_type = self._of_class.type
        if spark_type is None:
            raise SchemaError(
                f"{self!r}: its values have no one Spark type, and so no Arrow column",
                "name a class: MessagePack(Flight)",
            )
        values, failures = self.decode_many(data)
        rows = [None if value is None else msgspec.to_builtins(value, builtin_types=_ARROW_TAKES) for value in values]
        arrow_type = ddl.to_arrow_type(spark_type)
        try:
            return pa.array(rows, arrow_type), failures
        except pa.ArrowException:  # a decimal has too many digits: whose?
            wrong = each(lambda row: pa.array([row], arrow_type), rows)[1]
            for at, _ in wrong:
                rows[at] = None
            more: Failures = [(at, SerdeError(f"{self.form}: {error}")) for at, error in wrong]
            return pa.array(rows, arrow_type), sorted([*failures, *more], key=lambda failure: failure[0])
