"""Putting into words what users' code raised and gave: text of bounded size that can be written as UTF-8, whatever
their classes do when they are converted."""

from __future__ import annotations

import traceback
from typing import Any

MESSAGE_CHARS_MAX = 4_000
TRACEBACK_CHARS_MAX = 16_000
ERROR_CHARS_MAX = 300  # of the last error of a task, of which the status has one for each
_SHOWN_CHARS_MAX = 80
_FRAME = ("Traceback (most recent call last)", 'File "')


def cut(text: str, chars_max: int = MESSAGE_CHARS_MAX) -> str:
    r"""`text` with its middle left out where it is long, and without lone surrogates, which are no UTF-8.

    >>> cut("bad \ud800"), cut("abcdefgh", 4)
    ('bad \\ud800', 'ab ... 4 characters left out ... gh')
    """
    if len(text) > chars_max:
        half = chars_max // 2
        text = f"{text[:half]} ... {len(text) - 2 * half:,} characters left out ... {text[-half:]}"
    return text.encode("utf-8", "backslashreplace").decode()


def in_a_line(text: str) -> str:
    r"""A message for the cell of a table. Of one that holds frames of Python it is the last line, which says what was raised.

    >>> in_a_line('Traceback (most recent call last):\n  File "a.py", line 1\n    x\nOSError: full'), in_a_line("no\n  in b")
    ('OSError: full', 'no in b')
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if any(line.startswith(_FRAME) for line in lines) else " ".join(lines)


def message_of(error: BaseException) -> str:
    """What `error` says of itself; where its class cannot even do that, this is said."""
    try:
        return cut(str(error))
    except BaseException as another:  # a class of the user's: anything may come
        return f"(no message: {type(error).__name__}.__str__ raised {type(another).__name__})"


def first_line_of(error: BaseException) -> str:
    """The same in one line; the name of its class where there is none.

    >>> first_line_of(OSError("no room\\nmore")), first_line_of(MemoryError())
    ('no room', 'MemoryError')
    """
    return message_of(error).partition("\n")[0] or type(error).__name__


def traceback_of(error: BaseException, frames: Any) -> str:
    """The traceback from `frames` on, and the error; empty where it was never raised."""
    if error.__traceback__ is None:
        return ""
    return cut("".join(traceback.format_exception(type(error), error, frames)), TRACEBACK_CHARS_MAX)


def shown(value: Any) -> str:
    """`repr` of a user's value for a message, cut off where it is long."""
    try:
        return cut(f"{value!r:.{_SHOWN_CHARS_MAX}}")
    except BaseException as error:  # a class of the user's: anything may come
        return f"a {type(value).__name__} whose __repr__ raised {type(error).__name__}"
