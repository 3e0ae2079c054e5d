"""How values become JSON text: in which order their fields are, and that no NaN is written.

msgspec writes NaN and infinity as `null`. So a text without the word cannot hold one, and only where it occurs is the value
looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from math import isfinite
from typing import Any, Literal

import msgspec

from headrace.errors import SerdeError

_BUILTIN = (bytes, datetime, date, Decimal)  # what stays itself when an object is taken apart
_NULL = b"null"
_CONTAINERS = frozenset({dict, list, tuple})
_NO_FLOATS = frozenset({str, int, bool, type(None), *_BUILTIN})
NOT_FINITE = "there is no NaN and no infinity in JSON"

Sorted = Literal["all", "maps", "as given"]
_ORDERS: dict[Sorted, Literal["sorted", "deterministic"] | None] = {"all": "sorted", "maps": "deterministic", "as given": None}


class Text:
    """Writes values; `order` says which of their fields are sorted: all, only the keys of dicts, or none."""

    __slots__ = ("_encoder", "_order")

    def __init__(self, order: Sorted) -> None:
        self._order = _ORDERS[order]
        self._encoder = msgspec.json.Encoder(enc_hook=_plain, order=self._order)

    def of(self, value: Any, *, are_finite: bool, as_lines: bool = False) -> bytes:
        """A value, or `as_lines` a list of them, a line each; raises what msgspec raises, and `SerdeError` for NaN and infinity
        unless there is known to be none."""
        write: Callable[[Any], bytes] = self._encoder.encode_lines if as_lines else self._encoder.encode
        try:
            text = write(value)
        except TypeError:
            if self._order is None:
                raise
            # Keys that are no text cannot be sorted as they are: as text they can.
            plain = msgspec.to_builtins(value, str_keys=True, order=self._order, enc_hook=_plain)
            text = _AS_IS.encode_lines(plain) if as_lines else _AS_IS.encode(plain)
        if not are_finite and _NULL in text and (found := _not_finite_in((value,))) is not None:
            hint = "write None where that is what it means, or filter such records out"
            raise SerdeError(f"json: {NOT_FINITE}, found {found}", hint)
        return text


_AS_IS = msgspec.json.Encoder()


def taken_apart(value: Any) -> Any:
    """A value of any class that has JSON as dicts, lists and scalars."""
    return msgspec.to_builtins(value, builtin_types=_BUILTIN, enc_hook=_plain)


def _plain(value: Any) -> Any:
    """numpy's scalars and arrays as Python's; the rest is refused."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"values of type {type(value).__qualname__} have no JSON")


def _not_finite_in(items: Any) -> float | None:
    """A NaN or an infinity somewhere in `items`, None if there is none."""
    for item in items.values() if type(items) is dict else items:
        kind = type(item)
        if kind in _NO_FLOATS:
            continue
        if kind is float:
            if not isfinite(item):
                return float(item)
        elif (found := _not_finite_in(item if kind in _CONTAINERS else (taken_apart(item),))) is not None:
            return found
    return None
