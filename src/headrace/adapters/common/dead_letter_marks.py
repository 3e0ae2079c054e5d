"""What is stored of dead letters that are dealt with: one is never dealt with twice.

A mark is under PARTITION:OFFSET and says what was done, and of which stream the letter is, by the stream's id:
`retried@<id>`. So the mark of a stream that was deleted, or that was the application's before, is none of a letter that is
there now. Older versions wrote no id: such a mark counts for any stream.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.errors import FencedError


def mark_of(done: str, stream_id: str) -> bytes:
    return f"{done}@{stream_id}".encode()


def marks_of(stored: Mapping[str, bytes], stream_id: str) -> dict[str, bytes]:
    """By letter of this stream what was done.

    >>> marks_of({"0:1": b"retried@new", "0:2": b"retried@old", "0:3": b"discarded"}, "new")
    {'0:1': b'retried', '0:3': b'discarded'}
    """
    return {id_: mark.partition(b"@")[0] for id_, mark in stored.items() if _stream_of(mark) in (stream_id.encode(), b"")}


def refuse_marked(marks: Mapping[str, bytes | None], stored: Mapping[str, bytes], application: str) -> None:
    """`FencedError` where one of the letters that are to be marked has a mark."""
    done = sorted(id_ for id_, mark in marks.items() if mark is not None and _is_of_same(stored.get(id_), mark))
    if done:
        raise FencedError(
            f"application {application!r}: dead letter {done[0]} was dealt with meanwhile by somebody else",
            "list them again: each is put back, or discarded, once",
        )


def _is_of_same(stored: bytes | None, mark: bytes) -> bool:
    return stored is not None and (_stream_of(stored) == _stream_of(mark) or b"" in (_stream_of(stored), _stream_of(mark)))


def _stream_of(mark: bytes) -> bytes:
    """Empty where it does not say."""
    return mark.partition(b"@")[2]
