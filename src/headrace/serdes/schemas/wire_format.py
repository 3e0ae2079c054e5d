"""Confluent's wire format: a 0, four bytes of schema id, for Protobuf the path to the message, then the value."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from headrace.errors import SerdeError

_HEAD = struct.Struct(">bI")
_DEPTH_MAX = 64  # of messages declared inside messages
_VARINT_BYTES_MAX = 5


def framed(schema_id: int, body: bytes) -> bytes:
    """
    >>> framed(7, b"x")
    b'\\x00\\x00\\x00\\x00\\x07x'
    """
    return _HEAD.pack(0, schema_id) + body


def unframed(data: bytes) -> tuple[int, bytes]:
    """The schema id and what follows it.

    >>> unframed(b"\\0\\0\\0\\0\\7x")
    (7, b'x')
    """
    if len(data) < _HEAD.size or data[0] != 0:
        raise SerdeError(
            f"expected a 0 and 4 bytes of schema id, found {data[:5]!r} of {len(data)} bytes",
            "values that were written without a registry are read without one",
        )
    return _HEAD.unpack_from(data)[1], data[_HEAD.size :]


def message_path(indexes: Sequence[int]) -> bytes:
    """The place of the message in its file, as zigzag numbers after their count; the first message is a single 0.

    >>> message_path([0]), message_path([1, 0])
    (b'\\x00', b'\\x04\\x02\\x00')
    """
    if list(indexes) == [0]:
        return b"\0"
    return b"".join(_varint(2 * number) for number in [len(indexes), *indexes])


def split_message_path(data: bytes) -> tuple[list[int], bytes]:
    """
    >>> split_message_path(b"\\x04\\x02\\x00rest")
    ([1, 0], b'rest')
    """
    count, at = _number(data, 0)
    if count == 0:
        return [0], data[at:]
    if not 0 < count <= _DEPTH_MAX:
        raise SerdeError(f"expected the path to a message, found a path of {count} steps")
    path = []
    for _ in range(count):
        step, at = _number(data, at)
        path.append(step)
    return path, data[at:]


def _varint(number: int) -> bytes:
    result = bytearray()
    while number > 0x7F:
        result.append(number & 0x7F | 0x80)
        number >>= 7
    result.append(number)
    return bytes(result)


def _number(data: bytes, at: int) -> tuple[int, int]:
    """The zigzag number at `at`, and where it ends."""
    value = 0
    for place, byte in enumerate(data[at : at + _VARINT_BYTES_MAX]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at + place + 1
    raise SerdeError("expected the path to a message, found bytes that end within it")
