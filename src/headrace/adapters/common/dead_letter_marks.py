"""What is stored of dead letters that are dealt with: one is never dealt with twice.

A mark says what was done, and is under STREAM-ID/PARTITION:OFFSET. So the mark of a stream that was deleted, or that was the
application's before, is none of a letter that is there now, and marks of two streams do not take each other's place. Older
versions wrote it under PARTITION:OFFSET, with the stream's id behind it, `retried@<id>`, or with none: such a mark counts
for any stream.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headrace.errors import FencedError


def mark_key(stream_id: str, letter: str) -> str:
    """Where the mark of a letter is, PARTITION:OFFSET, of this stream.

    >>> mark_key("new", "0:1")
    'new/0:1'
    """
    return f"{stream_id}/{letter}"


def marks_of(stored: Mapping[str, bytes], stream_id: str) -> dict[str, bytes]:
    """By letter of this stream what was done.

    >>> marks_of({"new/0:0": b"retried", "0:1": b"retried@new", "old/0:2": b"retried", "0:3": b"discarded"}, "new")
    {'0:0': b'retried', '0:1': b'retried', '0:3': b'discarded'}
    """
    return {
        _letter_of(key): mark.partition(b"@")[0] for key, mark in stored.items() if _stream_of(key, mark) in (stream_id, "")
    }


def foreign_ids(stored: Mapping[str, bytes], stream_id: str) -> set[str]:
    """The ids of the other streams that there are marks of.

    >>> foreign_ids({"new/0:0": b"retried", "0:1": b"retried@old", "0:2": b"retried"}, "new")
    {'old'}
    """
    return {_stream_of(key, mark) for key, mark in stored.items()} - {stream_id, ""}


def expired_marks(
    stored: Mapping[str, bytes], stream_id: str, held: Mapping[int, range], deleted: Collection[str]
) -> list[str]:
    """The keys of the marks that are of no more use: of letters that this stream does not hold any more, whose offsets are
    `held` by partition, and of streams that are `deleted`, by id.

    >>> stored = {"new/0:4": b"retried", "0:5": b"retried", "new/0:6": b"retried", "old/0:9": b"retried"}
    >>> expired_marks({**stored, "0:1": b"retried@past"}, "new", {0: range(6, 9)}, {"past"})
    ['0:1', '0:5', 'new/0:4']
    """

    def is_held(letter: str) -> bool:
        partition, _, offset = letter.partition(":")
        return int(offset) >= held.get(int(partition), range(0)).start

    streams = {key: _stream_of(key, mark) for key, mark in stored.items()}
    expired = {key for key, stream in streams.items() if stream in (stream_id, "") and not is_held(_letter_of(key))}
    return sorted(expired | {key for key, stream in streams.items() if stream in deleted})


def refuse_marked(marks: Mapping[str, bytes | None], stored: Mapping[str, bytes], application: str) -> None:
    """`FencedError` where one of the letters that are to be marked has a mark."""
    done = sorted(key for key, mark in marks.items() if mark is not None and _is_marked(key, mark, stored))
    if done:
        raise FencedError(
            f"application {application!r}: dead letter {_letter_of(done[0])} was dealt with meanwhile by somebody else",
            "list them again: each is put back, or discarded, once",
        )


def _is_marked(key: str, mark: bytes, stored: Mapping[str, bytes]) -> bool:
    """In either form."""
    stream, letter = _stream_of(key, mark), _letter_of(key)
    found = {_stream_of(one, stored[one]) for one in (key, letter, mark_key(stream, letter)) if one in stored}
    return bool(found if stream == "" else found & {stream, ""})


def _letter_of(key: str) -> str:
    return key.rpartition("/")[2]


def _stream_of(key: str, mark: bytes) -> str:
    """The id of the stream; empty where the mark is of an older version, and does not say."""
    return key.rpartition("/")[0] or mark.partition(b"@")[2].decode(errors="replace")
