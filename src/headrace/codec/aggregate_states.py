"""The stored form of named aggregates' states: a MessagePack list. A decimal in it is an extension of type 1, its text: msgspec
would make it a text like those that came."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import msgspec

_DECIMAL = 1
_encode = msgspec.msgpack.Encoder().encode


def encoded_states(states: Sequence[Any]) -> bytes:
    """
    >>> decoded_states(encoded_states([1, "0.30", Decimal("0.30"), [None, 0.5, Decimal(7)]]))
    [1, '0.30', Decimal('0.30'), [None, 0.5, Decimal('7')]]
    """
    return _encode(_stored(states) if _has_decimals(states) else states)


def decoded_states(data: bytes) -> list[Any]:
    return _decoder.decode(data)


def _has_decimals(states: Sequence[Any]) -> bool:
    for state in states:
        kind = type(state)
        if kind is Decimal or (kind is list and _has_decimals(state)):
            return True
    return False


def _stored(state: Any) -> Any:
    if isinstance(state, Decimal):
        return msgspec.msgpack.Ext(_DECIMAL, str(state).encode())
    return list(map(_stored, state)) if isinstance(state, (list, tuple)) else state


def _restored(code: int, data: memoryview) -> Any:
    return Decimal(str(data, "ascii")) if code == _DECIMAL else msgspec.msgpack.Ext(code, bytes(data))


_decoder = msgspec.msgpack.Decoder(list[Any], ext_hook=_restored)
