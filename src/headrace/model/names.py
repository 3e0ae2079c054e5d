"""The one rule for names of streams, stores, applications and operators: they become file and topic names."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from headrace.errors import InvalidNameError

NAME_LENGTH_MAX = 200  # Kafka allows 249 for a topic; ours leaves room for "<application>-...-repartition"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_ALLOWED = "use letters, digits, '_', '-' and single '.', and begin with a letter, a digit or '_'"
RESERVED = frozenset({"source", "coordinator"})
LOOKED_UP_LENGTH_MAX = 249  # of a topic that others have made


def checked_name(kind: str, name: object) -> str:
    """Return `name` if it may name a `kind` of thing, else raise `InvalidNameError`.

    >>> checked_name("stream", "flights")
    'flights'
    """
    return _checked(kind, name, NAME_LENGTH_MAX, is_name)


def is_name(text: str) -> bool:
    """Whether it may name a thing."""
    return 0 < len(text) <= NAME_LENGTH_MAX and _NAME.fullmatch(text) is not None and ".." not in text


def checked_to_look_up(kind: str, name: object) -> str:
    """Return `name` if a `kind` of thing may be looked up by it, however it was named by those who made it: a text that is
    not empty, not too long, and has no control characters or bytes that are no UTF-8. Else `InvalidNameError`.

    >>> checked_to_look_up("stream", ".theirs")
    '.theirs'
    """
    return _checked(kind, name, LOOKED_UP_LENGTH_MAX, str.isprintable)


def _checked(kind: str, name: object, most: int, is_allowed: Callable[[str], bool]) -> str:
    if not isinstance(name, str) or not name:
        raise InvalidNameError(f"{kind} name {name!r}: expected a text that is not empty", _ALLOWED)
    if len(name) > most:
        text = f"{kind} name {name[:40]!r}…: {len(name)} characters, at most {most} are allowed"
        raise InvalidNameError(text, _ALLOWED)
    if not is_allowed(name):
        raise InvalidNameError(f"{kind} name {name!r} is not allowed", _ALLOWED)
    return name


def few(named: Sequence[str], most: int = 8) -> str:
    """The first of many, for one sentence.

    >>> few(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    more = len(named) - most
    return ", ".join(named[:most]) + (f" and {more:,} more" if more > 0 else "")


def partitions_text(count: int) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"


def checked_own_name(kind: str, name: object) -> str:
    """Like `checked_name`, and refuse the names that Headrace keeps for itself."""
    checked = checked_name(kind, name)
    if checked in RESERVED:
        raise InvalidNameError(f"{kind} name {checked!r} is reserved", "choose another name")
    return checked
