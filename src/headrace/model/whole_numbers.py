"""Whole numbers as programs write them in texts."""

from __future__ import annotations

from headrace.model.durations import INT64_MAX


def whole_number_of(text: str, most: int = INT64_MAX) -> int | None:
    """The number from 0 to `most` that a text of ASCII digits is; None for any other. A longer text than that of `most` is
    none: Python refuses to read thousands of digits.

    >>> whole_number_of("12"), whole_number_of("0012", 1_000), whole_number_of("0000100", 1_000), whole_number_of("9" * 5_000)
    (12, 12, None, None)
    >>> whole_number_of("-1"), whole_number_of("1_0"), whole_number_of(""), whole_number_of("1001", 1_000)
    (None, None, None, None)
    """
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most))):
        return None
    number = int(text)
    return number if number <= most else None
