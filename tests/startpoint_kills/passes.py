"""Judges what a job read of each partition, pass by pass: by the rows of its input and of what it wrote, and by what is on
record of its startpoints. It imports nothing of Headrace.

The job writes each record's partition and offset (`jobs.located`). A startpoint on record says where the position was
(`before`) and where it went (`offset`), so of every partition all offsets that were processed are known, in their order.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from support.checker import offsets_of

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Jump:
    """A position that went from `before` to `offset`, by a startpoint that began the replay of this number (or none)."""

    id: str
    partition: int
    before: int
    offset: int
    replay: int | None


def jumps_of(records: Mapping[str, bytes]) -> list[Jump]:
    """What the startpoints on record came to, in the order in which they were taken up; all of them were spent."""
    found = []
    for id_, text in records.items():
        record = json.loads(text)
        assert record["became"] == "applied", f"startpoint {id_} is not spent: {record}"
        (one,) = record["resolutions"]
        partition = int(record["entry"]["ssp"].rpartition(".")[2])
        jump = Jump(id_, partition, one["before"], one["offset"], record["replay"])
        found.append((record["taken_up_at_us"], jump))
    return [jump for _, jump in sorted(found, key=lambda pair: (pair[0], pair[1].id))]


def one_pass_each(inputs: Iterable[Row], passed: Iterable[Row], jumps: Sequence[Jump]) -> int:
    """Per partition: each record up to a jump, then from where it went; in order, each once per pass, none left out. What
    was read again, and nothing else, has the header with the number of the last replay."""
    written, processed = offsets_of(inputs), _processed(passed)
    checks = 0
    for partition, offsets in written.items():
        mine = [jump for jump in jumps if jump.partition == partition]
        expected, found = _expected(offsets, mine), processed.get(partition, [])
        differs = next((i for i, pair in enumerate(zip(expected, found, strict=False)) if pair[0] != pair[1]), len(found))
        assert found == expected, (
            f"partition {partition}: read {len(found)} records, expected {len(expected)}; from number {differs} on it read "
            f"{found[differs:][:8]}, expected {expected[differs:][:8]}; jumps: {mine}"
        )
        checks += len(found)
    assert processed.keys() <= written.keys(), f"partitions of nothing: {sorted(processed.keys() - written.keys())}"
    return checks


def _expected(offsets: Sequence[int], jumps: Iterable[Jump]) -> list[tuple[int, list[bytes]]]:
    """What is read of a partition that holds `offsets`, and the marks that it is written with."""
    found: list[tuple[int, list[bytes]]] = []
    position, until, mark = 0, 0, b""

    def read_on(end: int) -> None:
        found.extend((offset, [mark] if offset < until else []) for offset in offsets if position <= offset < end)

    for jump in jumps:
        read_on(jump.before)
        position = jump.offset
        if jump.offset < jump.before:
            until, mark = max(until, jump.before), str(jump.replay).encode()
    read_on(offsets[-1] + 1)
    return found


def _processed(rows: Iterable[Row]) -> dict[int, list[tuple[int, list[bytes]]]]:
    found: dict[int, list[tuple[int, list[bytes]]]] = {}
    for row in rows:
        place = json.loads(row["value"])
        marks = [value for name, value in row["headers"] if name == "headrace.replay"]
        found.setdefault(place["partition"], []).append((place["offset"], marks))
    return found
