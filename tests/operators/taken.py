"""In which order tasks have taken their records, round by round: what a model of a join is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import headrace as hr
from headrace.testing import Driver
from headrace.worker.task import TaskRun

Place = tuple[str, int, int]  # stream, partition, offset
Sent = tuple[str, str, Any, int]  # stream, key, value, time
Result = tuple[str, Any, int]  # key, value, time


class Taken:
    """Per task and round the places of the records taken, in order; a record that several operators read counts once."""

    def __init__(self) -> None:
        self._found: dict[TaskRun, list[tuple[int, Place]]] = {}

    def begin(self, run: TaskRun) -> None:
        self._found[run] = []

    def note(self, run: TaskRun, rows: Any) -> None:
        mine = self._found[run]
        for rank, ssp, offset in zip(rows.rank.tolist(), rows.ssp.tolist(), rows.offset.tolist(), strict=True):
            mine.append((rank, (*run.streams[ssp], offset)))

    def rounds(self) -> list[tuple[int | None, list[Place]]]:
        """Of every task's every round, in the order of time: the watermark from before it, and what it took."""
        return [
            (run.watermark_us, list(dict.fromkeys(place for _, place in sorted(found)))) for run, found in self._found.items()
        ]


@contextmanager
def taken() -> Iterator[Taken]:
    noted, begin, feed_ranked = Taken(), TaskRun.begin, TaskRun.feed_ranked

    def beginning(self: TaskRun) -> None:
        noted.begin(self)
        begin(self)

    def noting(self: TaskRun, endpoint: int, rows: Any, prepared: bool) -> None:
        noted.note(self, rows)
        feed_ranked(self, endpoint, rows, prepared)

    with mock.patch.object(TaskRun, "begin", beginning), mock.patch.object(TaskRun, "feed_ranked", noting):
        yield noted


def outcome(
    make: Callable[[], hr.App],
    runs: Sequence[tuple[bool, Sequence[Sent]]],
    per_round: int,
    partitions: int,
    outs: Sequence[str] = ("out",),
) -> tuple[list[list[Sent]], dict[str, list[Result]], list[int | None]]:
    """What the tasks took, round by round; what came out; and the watermark before each round.

    `runs`: whether the application is started anew, and what is sent (to `l` and `r`) before all of it is worked off.
    """
    sent: dict[Place, Sent] = {}
    overrides = [f"max_records_per_round={per_round}"]
    found: dict[str, list[Result]] = {}
    with TemporaryDirectory() as folder, taken() as noted:
        driver = Driver(make(), partitions=partitions, directory=Path(folder), overrides=overrides).open()
        try:
            for restarts, records in runs:
                if restarts:
                    driver.close()
                    driver = Driver(make(), partitions=partitions, directory=Path(folder), overrides=overrides).open()
                for stream, key, value, time in records:
                    driver.send(stream, key, value, at=time)
                driver.run()
            for stream in ("l", "r"):
                for r in driver.read(stream, from_start=True):
                    sent[stream, r.partition, r.offset] = (stream, r.key, r.value, r.timestamp_us)
            for out in outs:
                found[out] = [(r.key, r.value, r.timestamp_us) for r in driver.read(out, from_start=True)]
        finally:
            driver.close()
    rounds = noted.rounds()
    return [[sent[place] for place in places if place in sent] for _, places in rounds], found, [mark for mark, _ in rounds]


def by_key(results: list[Result]) -> dict[str, list[tuple[Any, int]]]:
    found: dict[str, list[tuple[Any, int]]] = {}
    for key, value, time in results:
        found.setdefault(key, []).append((value, time))
    return found
