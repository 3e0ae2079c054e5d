"""The open dead letters as they are looked at again and again: each look reads only what has come since the one before."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest

from headrace.client.dead_letters import DeadLetters
from headrace.client.letters import DeadLetter, LetterFilter

READ_MAX = 5_000  # records in one look: a long stream is read look by look
KEPT_BYTES_MAX = 64 * 1024 * 1024  # of the newest letters; of older ones only their number is known
_LETTER_BYTES = 1_000  # of one without its key, value and headers, about


@dataclass(frozen=True, slots=True)
class FoundLetters:
    """`letters`: the newest of those that were chosen, newest first; `matching`: how many were chosen; `open`: how many are
    open altogether. `why_not_whole`: why there may be more of them, empty where there are not."""

    letters: Sequence[DeadLetter]
    matching: int
    open: int
    why_not_whole: str = ""


class LetterIndex:
    """It keeps the newest open letters, up to `KEPT_BYTES_MAX`. It is not thread-safe."""

    def __init__(self, read_max: int = READ_MAX, kept_bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._read_max, self._kept_bytes_max = read_max, kept_bytes_max
        self._clear()

    def _clear(self) -> None:
        self._kept: dict[str, DeadLetter] = {}
        self._bytes = 0
        self._offsets: dict[int, array[int]] = {}  # by partition those of all letters: a count needs no more
        self._starts: dict[int, int] = {}  # by partition the first offset that was held at the last look
        self._read: dict[int, int] = {}  # by partition the first offset that was not read yet
        self._is_whole = False
        self._dealt_with = 0

    def look(self, letters: DeadLetters) -> None:
        """Learn what has come, and what was dealt with or has expired."""
        marks, bounds = letters.marks(), letters.bounds()
        if any(end > bounds.get(number, range(0)).stop for number, end in self._read.items()):
            self._clear()  # it is another stream of that name
        for id_ in [id_ for id_ in marks if id_ in self._kept]:
            self._drop(id_)
        starts = {number: held.start for number, held in bounds.items()}
        if starts != self._starts:
            for id_ in [one.id for one in self._kept.values() if one.offset < starts[one.partition]]:
                self._drop(id_)
        self._starts = starts
        self._is_whole = self._read_more(letters, marks, bounds)
        for number, held in bounds.items():
            offsets = self._offsets.get(number, array("q"))
            del offsets[: bisect_left(offsets, held.start)]
        self._dealt_with = sum(self._is_counted(id_) for id_ in marks)

    def _read_more(self, letters: DeadLetters, marks: Mapping[str, bytes], bounds: Mapping[int, range]) -> bool:
        """Whether all that is there was read."""
        left = self._read_max
        for number, held in sorted(bounds.items()):
            start = max(self._read.get(number, 0), held.start)
            if start >= held.stop:
                continue
            if left <= 0:
                return False
            for record, letter in letters.since({number: start}, marks):
                assert record.offset is not None
                if letter is not None:
                    self._offsets.setdefault(number, array("q")).append(record.offset)
                    self._keep(letter, marks)
                self._read[number] = record.offset + 1
                left -= 1
                if left <= 0 and record.offset + 1 < held.stop:
                    return False
            self._read[number] = max(held.stop, self._read.get(number, 0))  # behind the marker of a transaction
        return True

    def found(self, chosen: LetterFilter, most: int) -> FoundLetters:
        """The newest of these that are open, at most so many."""
        kept = self._kept.values()
        taken = [one for one in kept if chosen.takes(one)] if chosen.says_something else list(kept)
        open_ = sum(map(len, self._offsets.values())) - self._dealt_with
        why = "" if self._is_whole else "the stream is still being read"
        if self._is_whole and len(self._kept) < open_:
            why = f"only the newest {len(self._kept):,} are looked at here; `headrace dead-letters list` looks at all"
        return FoundLetters(nlargest(most, taken, key=lambda one: one.order), len(taken), open_, why)

    def _keep(self, letter: DeadLetter, marks: Mapping[str, bytes]) -> None:
        if letter.id in marks:
            return
        self._kept[letter.id] = letter
        self._bytes += _size(letter)
        if self._bytes > self._kept_bytes_max:
            for old in sorted(self._kept.values(), key=lambda one: one.order):
                if self._bytes <= self._kept_bytes_max * 3 // 4:  # not again at the next one
                    return
                self._drop(old.id)

    def _drop(self, id_: str) -> None:
        self._bytes -= _size(self._kept.pop(id_))

    def _is_counted(self, id_: str) -> bool:
        partition, _, offset = id_.partition(":")
        offsets = self._offsets.get(int(partition), array("q"))
        at = bisect_left(offsets, int(offset))
        return at < len(offsets) and offsets[at] == int(offset)


def _size(letter: DeadLetter) -> int:
    own = sum(len(name) + len(data or b"") for name, data in letter.headers)
    return _LETTER_BYTES + len(letter.key or b"") + len(letter.value or b"") + own + len(letter.message)
