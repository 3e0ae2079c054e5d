r"""Text for people, made safe: whatever a record, a name or an exception holds, a terminal shows it and does not obey it.

A character that a terminal acts on is written as its code, `\u001b`: C0 and C1 controls (ESC, BEL, the 8-bit CSI), DEL, what
changes the direction of writing, separators of lines that are no line feed, and halves of surrogate pairs. So is what no
terminal shows, since two names that look alike would differ by it: zero-width spaces, soft hyphens, byte order marks, tags.
(Joiners stay: Persian, Hindi and emoji are spelt with them.) That is JSON's own form, a surrogate pair where the code has more
than four digits, so JSON that is printed stays JSON, with the same value.

What Headrace prints goes through a `SafeStream`; nothing else has to think of it. This is the lowest module of all.
"""

from __future__ import annotations

import codecs
import io
import re
from typing import Any, TextIO

_ACTED_ON = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_NOT_SEEN = "\u00ad\u180e\u200b\u2060-\u2064\u206a-\u206f\ufeff\U000e0000-\U000e007f"
_UNSAFE = re.compile(rf"[{_ACTED_ON}{_NOT_SEEN}]|\r(?!\n)")  # before a line feed it does nothing
_UNSAFE_IN_A_LINE = re.compile(rf"[{_ACTED_ON}{_NOT_SEEN}\r\n\t]")


def safe_text(text: str) -> str:
    r"""`text` with every unsafe character as its code; line feeds and tabs stay.

    >>> safe_text("a\x1b[31mb\u202ec\td")
    'a\\u001b[31mb\\u202ec\td'
    """
    return _UNSAFE.sub(_code, text)


def safe_line(text: str) -> str:
    r"""The same for what must stay in its line, such as a cell of a table: line feeds and tabs are codes too.

    >>> safe_line("a\nb\tc")
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
    number = ord(found[0])
    if number > 0xFFFF:
        high, low = divmod(number - 0x10000, 0x400)
        return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"
    return {"\n": "\\n", "\t": "\\t"}.get(found[0], f"\\u{number:04x}")


class SafeStream:
    """A text stream whose every write is `safe_text`, and what its encoding does not have is escaped. The rest is as it was.
    `raw` is the stream itself, for control sequences of our own. Bytes that are written to `buffer` are made safe too."""

    def __init__(self, raw: TextIO) -> None:
        self.raw = raw
        self._buffer: _SafeBuffer | None = None

    @property
    def buffer(self) -> _SafeBuffer:
        """The stream of bytes below, for a program that makes a text stream of its own: none where `raw` has none."""
        if self._buffer is None:
            _ = self.raw.buffer  # an AttributeError names what is missing
            self._buffer = _SafeBuffer(self)
        return self._buffer

    def detach(self) -> _SafeBuffer:
        """The same. This stream can still be written to: Headrace's own output needs it."""
        self.flush()
        return self.buffer

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        safe = safe_text(text)
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
        return getattr(self.raw, name)


class _SafeBuffer(io.BufferedIOBase):
    r"""The bytes of a `SafeStream`: they are read in its encoding and written as its text; what is no text is `\x9b`.

    It is no terminal, since control sequences have no effect. Closing it leaves the stream open, as Python closes a text
    stream that a program has put over it and dropped.
    """

    def __init__(self, stream: SafeStream) -> None:
        self._stream = stream
        encoding = codecs.lookup(stream.raw.encoding or "utf-8").name
        encoding = "utf-8" if encoding == "ascii" else encoding  # who has ASCII and writes more writes UTF-8
        self._decoder = codecs.getincrementaldecoder(encoding)("backslashreplace")

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.raw.fileno()

    def write(self, data: Any) -> int:
        if isinstance(data, str):
            raise TypeError("a bytes-like object is required, not 'str'")
        held = bytes(data)
        self._stream.write(self._decoder.decode(held))
        return len(held)

    def flush(self) -> None:
        if not self._stream.raw.closed:
            self._stream.raw.flush()

    def close(self) -> None:
        if not self._stream.raw.closed:
            self._stream.write(self._decoder.decode(b"", True))  # a character that was cut short
            self.flush()


def raw_of(stream: Any) -> Any:
    """The stream that takes control sequences: what a `SafeStream` writes to, else `stream` itself."""
    return stream.raw if isinstance(stream, SafeStream) else stream
