"""Owns the one rule for names of streams, stores, applications and operators: they become file and topic names."""

from __future__ import annotations

import re

from headrace.errors import InvalidNameError

NAME_LENGTH_MAX = 200  # Kafka allows 249 for a topic; ours leaves room for "<application>-...-repartition"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
RESERVED = frozenset({"source", "coordinator"})


def checked_name(kind: str, name: object) -> str:
    """Return `name` if it may name a `kind` of thing, else raise `InvalidNameError`.

    >>> checked_name("stream", "flights")
    'flights'
    """
    if not isinstance(name, str) or not name:
        raise InvalidNameError(f"{kind} name {name!r}: expected a text that is not empty")
    if len(name) > NAME_LENGTH_MAX:
        raise InvalidNameError(f"{kind} name {name[:40]!r}…: {len(name)} characters, at most {NAME_LENGTH_MAX} are allowed")
    if not _NAME.fullmatch(name) or ".." in name:
        raise InvalidNameError(
            f"{kind} name {name!r} is not allowed",
            "use letters, digits, '_', '-' and single '.', and begin with a letter, a digit or '_'",
        )
    return name


def checked_own_name(kind: str, name: object) -> str:
    """Like `checked_name`, and refuse the names that Headrace keeps for itself."""
    checked = checked_name(kind, name)
    if checked in RESERVED:
        raise InvalidNameError(f"{kind} name {checked!r} is reserved", "choose another name")
    return checked
