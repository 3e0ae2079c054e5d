r"""Text for people, made safe: whatever a record, a name or an exception holds, a terminal shows it and does not obey it.

A character that a terminal acts on is written as its code, `\u001b`: C0 and C1 controls (ESC, BEL, the 8-bit CSI), DEL, what
changes the direction of writing, separators of lines that are no line feed, and halves of surrogate pairs. That is JSON's
own form, so JSON that is printed stays JSON, with the same value.

What Headrace prints goes through a `VisibleStream`; nothing else has to think of it. This is the lowest module of all.
"""

from __future__ import annotations

import re
from typing import Any, TextIO

_ACTED_ON = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_UNSAFE = re.compile(rf"[{_ACTED_ON}]|\r(?!\n)")  # before a line feed it does nothing
_UNSAFE_IN_A_LINE = re.compile(rf"[{_ACTED_ON}\r\n\t]")


def visible(text: str) -> str:
    r"""`text` with every unsafe character as its code; line feeds and tabs stay.

    >>> visible("a\x1b[31mb\u202ec\td")
    'a\\u001b[31mb\\u202ec\td'
    """
    return _UNSAFE.sub(_code, text)


def visible_line(text: str) -> str:
    r"""The same for what must stay in its line, such as a cell of a table: line feeds and tabs are codes too.

    >>> visible_line("a\nb\tc")
    'a\\nb\\tc'
    """
    return _UNSAFE_IN_A_LINE.sub(_code, text)


def indented(text: str) -> str:
    r"""A message whose further lines are set in, so that none of them passes for a line of our own.

    >>> indented("it failed\nhint: do harm")
    'it failed\n  hint: do harm'
    """
    return text.replace("\n", "\n  ")


def _code(found: re.Match[str]) -> str:
    character = found[0]
    return {"\n": "\\n", "\t": "\\t"}.get(character, f"\\u{ord(character):04x}")


class VisibleStream:
    """A text stream whose every write is `visible`, and what its encoding does not have is escaped. The rest is as it was.

    `raw` is the stream itself, for control sequences of our own.
    """

    def __init__(self, raw: TextIO) -> None:
        self.raw = raw

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        safe = visible(text)
        try:
            self.raw.write(safe)
        except UnicodeEncodeError:
            encoding = self.raw.encoding or "ascii"
            self.raw.write(safe.encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":  # bytes would get past us
            raise AttributeError(name)
        return getattr(self.raw, name)


def raw_of(stream: Any) -> Any:
    """The stream that takes control sequences: what a `VisibleStream` writes to, else `stream` itself."""
    return stream.raw if isinstance(stream, VisibleStream) else stream
