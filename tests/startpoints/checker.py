"""Judges what a job processed of a stream whose positions startpoints have set, by what the system itself holds.

It imports nothing of Headrace. A row is one of `startpoints.reading` or `chaos.checker.read_stream`. The job under
test writes one record for each that it reads, with the value `<stream>:<partition>:<offset>`, to a stream of one partition.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]
Place = tuple[str, int]  # a stream's partition


@dataclass(frozen=True)
class Pass:
    """One way through a partition: from its first offset not below one of `first`, up to `end` (None: anywhere).

    `after`: how many of its records were processed before it can have begun. Without that a pass that was never made looks
    like one before which nothing was read: [0, 1, 2] may be all of the first, or 0 of the first and then one from 1 on.
    """

    first: range
    end: int | None = None
    after: int = 0


def passed_from(first: int, end: int | None = None, after: int = 0) -> Pass:
    return Pass(range(first, first + 1), end, after)


def passed_within(low: int, high: int, after: int = 0) -> Pass:
    """A pass that begins somewhere in low..high, where nobody can know better: what was resolved while records came."""
    return Pass(range(low, high + 1), None, after)


def first_at(rows: Iterable[Row], partition: int, time_us: int, end: int) -> int:
    """The offset of the first record that is not older than a time; `end` where there is none."""
    times = [(row["offset"], row["timestamp_us"]) for row in rows if row["partition"] == partition]
    return next((offset for offset, found_us in times if found_us >= time_us), end)


def processed_in(rows: Iterable[Row]) -> list[tuple[str, int, int]]:
    """What a job processed, in its order: (stream, partition, offset)."""
    found = []
    for row in rows:
        stream, partition, offset = row["value"].decode().rsplit(":", 2)
        found.append((stream, int(partition), int(offset)))
    return found


def by_place(processed: Iterable[tuple[str, int, int]]) -> dict[Place, list[int]]:
    found: dict[Place, list[int]] = {}
    for stream, partition, offset in processed:
        found.setdefault((stream, partition), []).append(offset)
    return found


def passes_made(processed: Sequence[int], there: Sequence[int], passes: Sequence[Pass]) -> int:
    """The processed offsets of one partition are these passes, one after the other, each in order, without gaps and once
    through; the last one reaches the last offset of `there`, all that the partition holds. How many were compared."""
    end = there[-1] + 1 if there else 0
    stands = _opened({(-1, len(there))}, there, passes, 0)  # (number of the pass, index in `there` of what comes next)
    for count, offset in enumerate(processed):
        after = {(number, at + 1) for number, at in stands if number >= 0 and at < len(there) and there[at] == offset}
        assert after, (
            f"offset {offset} was processed as number {count}, behind {list(processed[max(0, count - 5) : count])}; expected "
            f"one of {sorted({there[at] if at < len(there) else end for number, at in stands if number >= 0})} "
            f"(pass, next: {sorted(stands)})"
        )
        stands = _opened(after, there, passes, count + 1)
    done = {at for number, at in stands if number == len(passes) - 1}
    assert len(there) in done, (
        f"{len(processed)} offsets were processed, the last {list(processed[-5:])}: expected all of {len(passes)} passes up to "
        f"{end}, found (pass, next) {sorted(stands)} of {len(there)}"
    )
    return len(processed)


def _opened(
    stands: Collection[tuple[int, int]], there: Sequence[int], passes: Sequence[Pass], count: int
) -> set[tuple[int, int]]:
    """With the passes that may begin where others stand, when `count` records were processed."""
    found, fresh = set(stands), set(stands)
    while fresh:
        number, at = fresh.pop()
        if number + 1 == len(passes) or count < passes[number + 1].after:
            continue
        ends_at = passes[number].end if number >= 0 else None
        if ends_at is not None and at != bisect_left(there, ends_at):
            continue
        for start in {bisect_left(there, first) for first in passes[number + 1].first}:
            if (number + 1, start) not in found:
                found.add((number + 1, start))
                fresh.add((number + 1, start))
    return found


def alone(
    processed: Sequence[tuple[str, int, int]], partition: int, bootstrapped: str, first: int, last: int, other: str
) -> int:
    """No record of `other` was processed between the record `first` of the pass of a bootstrapped stream that came last,
    and its record `last`; both of one task. How many of the bootstrapped stream there are."""
    mine = [(stream, offset) for stream, number, offset in processed if number == partition and stream in (bootstrapped, other)]
    begun = max(at for at, found in enumerate(mine) if found == (bootstrapped, first))
    ended = mine.index((bootstrapped, last), begun)
    between = [offset for stream, offset in mine[begun : ended + 1] if stream == other]
    assert not between, f"partition {partition}: {between[:5]} of {other!r} came while {bootstrapped!r} was bootstrapped"
    return ended + 1 - begun
