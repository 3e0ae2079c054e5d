"""Owns the hint for a name that is not there: what looks like it, and how it comes to be there."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_ALIKE = 0.7  # of all letters; at less, words are taken for each other that only share an ending


def hint_of_missing(name: str, names: Iterable[str], create: str) -> str:
    """`create` says how to make it.

    >>> hint_of_missing("flight", ["flights", "sales"], "create it first")
    "did you mean 'flights'? Or create it first"
    >>> hint_of_missing("lines", ["sales"], "create it first")
    'create it first'
    """
    near = difflib.get_close_matches(name, sorted(names), 3, _ALIKE)
    return f"did you mean {' or '.join(map(repr, near))}? Or {create}" if near else create
