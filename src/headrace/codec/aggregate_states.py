"""The stored form of named aggregates' states: a MessagePack list. A decimal in it is an extension of type 1: its text."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import msgspec

_DECIMAL = 1
_OWN = frozenset({Decimal, list, tuple})  # what may be or hold a decimal: msgspec makes a text of it, as those are that came
_encode = msgspec.msgpack.Encoder().encode


def encoded_states(states: Sequence[Any]) -> bytes:
    """
    >>> decoded_states(encoded_states([1, "0.30", Decimal("0.30"), [None, 0.5, Decimal(7)]]))
    [1, '0.30', Decimal('0.30'), [None, 0.5, Decimal('7')]]
    """
    return _encode([_stored(state) if type(state) in _OWN else state for state in states])


def decoded_states(data: bytes) -> list[Any]:
    return _decoder.decode(data)


def _stored(state: Any) -> Any:
    if isinstance(state, Decimal):
        return msgspec.msgpack.Ext(_DECIMAL, str(state).encode())
    return [_stored(part) if type(part) in _OWN else part for part in state]


def _restored(code: int, data: memoryview) -> Any:
    return Decimal(str(data, "ascii")) if code == _DECIMAL else msgspec.msgpack.Ext(code, bytes(data))


_decoder = msgspec.msgpack.Decoder(list[Any], ext_hook=_restored)
