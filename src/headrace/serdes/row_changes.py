"""What a table sends to its groups, `RowChange`, of one row in one group; and the row as it was sent. Their serdes are put in
by `KTable.group_by`.

`RowChanges`: a byte, 1 where there is an old value, 2 where there is a new one, 3 for both; with both, the length of the old
one's bytes, 4 bytes, most significant first; then the bytes. `Placements`: the length of the bytes of the group's key, 4 bytes,
these, and the value's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, NamedTuple

from headrace.errors import SchemaError, SerdeError
from headrace.model.serde import Failures, Serde
from headrace.serdes.binary_arrays import as_array, as_binary
from headrace.serdes.deferred import pa
from headrace.serdes.scalars import each, encoded_each

_LENGTH = Struct(">I")
NOT_OURS = "another program wrote to an internal stream: only Headrace may have the right to"
_OLD, _NEW = 1, 2


class RowChange(NamedTuple):
    """What a row of a group was and is; None: it was not in the group, or is not any more."""

    old: Any
    new: Any


def packed_change(old: bytes | None, new: bytes | None) -> bytes:
    """
    >>> packed_change(b"a", None), packed_change(b"a", b"b")
    (b'\\x01a', b'\\x03\\x00\\x00\\x00\\x01ab')
    """
    if old is None:
        assert new is not None, "a change of nothing"
        return b"\2" + new
    return b"\1" + old if new is None else b"\3" + _LENGTH.pack(len(old)) + old + new


def unpacked_change(data: bytes) -> tuple[bytes | None, bytes | None]:
    """The bytes of the old and of the new value; the inverse of `packed_change`."""
    kind = data[0] if data else 0
    if kind == _OLD:
        return data[1:], None
    if kind == _NEW:
        return None, data[1:]
    if kind != _OLD | _NEW or len(data) < 1 + _LENGTH.size:
        raise SerdeError(f"a change of a row: expected 1, 2 or 3 as its first byte, found {data[:8]!r}", NOT_OURS)
    end = 1 + _LENGTH.size + _LENGTH.unpack_from(data, 1)[0]
    if end > len(data):
        raise SerdeError(f"a change of a row: expected {end} bytes and more, found {len(data)}", NOT_OURS)
    return data[1 + _LENGTH.size : end], data[end:]


def packed_place(group: bytes, value: bytes) -> bytes:
    return _LENGTH.pack(len(group)) + group + value


def unpacked_place(data: bytes) -> tuple[bytes, bytes]:
    """The bytes of the group's key and of the value; the inverse of `packed_place`."""
    end = _LENGTH.size + _LENGTH.unpack_from(data)[0] if len(data) >= _LENGTH.size else _LENGTH.size
    if end > len(data):
        raise SerdeError(f"a row of a group: expected {end} bytes and more, found {len(data)}", NOT_OURS)
    return data[_LENGTH.size : end], data[end:]


class Pairs:
    """What serdes of several values in one have in common: one goes after the other, and Spark has no type for them."""

    form: str
    spark_type: str | None = None
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]

    def encode_many(self, values: Sequence[Any]) -> tuple[pa.Array, Failures]:
        return encoded_each(self.encode, values)

    def decode_many(self, data: pa.Array) -> tuple[list[Any], Failures]:
        return each(self.decode, as_binary(data).to_pylist())

    def encode_arrow(self, values: pa.Array) -> tuple[pa.Array, Failures]:
        return self.encode_many(as_array(values).to_pylist())

    def decode_arrow(self, data: pa.Array) -> tuple[pa.Array, Failures]:
        raise SchemaError(
            f"{self.form}: it has no Spark type, and so no Arrow column",
            "use a function in place of the Spark expression",
        )

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.form == getattr(other, "form", None)

    def __hash__(self) -> int:
        return hash(self.form)


class RowChanges(Pairs):
    """The serde of changes of rows whose values `inner` encodes."""

    def __init__(self, inner: Serde) -> None:
        self.inner = inner
        self.form = f"change<{inner.form}>"

    def encode(self, value: RowChange) -> bytes:
        return packed_change(*(None if side is None else self.inner.encode(side) for side in value))

    def decode(self, data: bytes) -> RowChange:
        return RowChange(*(None if side is None else self.inner.decode(side) for side in unpacked_change(data)))


class Placements(Pairs):
    """The serde of rows as a store keeps them that remembers where they were sent: the key of the group that a row is in,
    which `group` encodes, and the row's value."""

    def __init__(self, group: Serde, inner: Serde) -> None:
        self.group, self.inner = group, inner
        self.form = f"placed<{group.form};{inner.form}>"

    def encode(self, value: dict[str, Any]) -> bytes:
        return packed_place(self.group.encode(value["group"]), self.inner.encode(value["value"]))

    def decode(self, data: bytes) -> dict[str, Any]:
        group, value = unpacked_place(data)
        return {"group": self.group.decode(group), "value": self.inner.decode(value)}
