"""Owns `Secrets`: the values that must not reach a log line, an error or a status, and how a text is cleaned of them."""

from __future__ import annotations

from collections.abc import Iterable

HIDDEN = "***"
_SHORTEST = 3  # a shorter text is found in half of all words, and guards nothing


class Secrets:
    """The secret values of one connection. Its own `repr` says how many there are, and nothing of them."""

    __slots__ = ("_values",)

    def __init__(self, values: Iterable[str] = ()) -> None:
        # the longest first: where one is part of another, nothing of the longer one must be left
        self._values = sorted({value for value in values if len(value) >= _SHORTEST}, key=lambda v: (-len(v), v))

    def cleaned(self, text: str) -> str:
        """`text` with every secret in it replaced.

        >>> Secrets(["tiger"]).cleaned("user scott, password tiger")
        'user scott, password ***'
        """
        for value in self._values:
            text = text.replace(value, HIDDEN)
        return text

    def __repr__(self) -> str:
        return f"Secrets({len(self._values)} hidden)"
