"""SIGKILL of the driver at every numbered step while windows and sessions close, and while a `Processor` keeps state.

Each window's final result comes exactly once, whatever dies, with all of its records; and what a `Processor` behind a
repartition stream forwards is, record for record, what the aggregate beside it gives.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from chaos.checker import KillReport, Row, read_stream
from chaos.children import Children
from chaos.closings import GAP_US, WINDOW_US, closings
from chaos.killing import LOG_STEPS, START_STEPS, Producer, every_step_landed, kill_at_steps, told

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]
SEED = 20265
STEPS = (*LOG_STEPS, *START_STEPS)
NAME = "job"
WINDOWED = hr.Windowed(hr.String())
ADVANCE_US = 1_000_000


class Written:
    """What a job wrote that was killed at every step, and then finished."""

    def __init__(self, log: Path, app: hr.App) -> None:
        self.log, self.app = log, app
        self.records = [
            (row["key"].decode(), json.loads(row["value"]), row["timestamp_us"]) for row in read_stream(log, "in")
        ]

    def rows(self, part: str) -> list[Row]:
        return read_stream(self.log, f"{part}-{NAME}")

    def final(self, part: str) -> list[tuple[str, int, int, Any]]:
        """The results of windows (key, start, end, value) but for those that the last records are in, sorted."""
        keys = [(WINDOWED.decode(row["key"]), row["value"]) for row in self.rows(part)]
        found = [(key.key, key.start_us, key.end_us, value) for key, value in keys]
        assert not [one for one in found if one[0] == "end"], "a window closed before its time"
        return sorted(found)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    folder = tmp_path_factory.mktemp("closings")
    draw = random.Random(SEED)
    report = KillReport()
    log = folder / "data"
    producer = Producer(log, SEED)
    order = list(STEPS)
    draw.shuffle(order)
    with Children(folder) as children:
        kill_at_steps(children, log, producer, draw, order, report, name=NAME, build="closings")
        producer.end()
        last = children.run_of(log, NAME, build="closings")
        assert children.finish(last) == 0, told(last)
    producer.close()
    every_step_landed(report, STEPS)
    return Written(log, closings(last))


def windows_of(records: list[tuple[str, int, int]], size_us: int, advance_us: int) -> Iterator[tuple[str, int, int, int]]:
    """(key, start, end, n) of every window that a record (key, n, time) falls into."""
    for key, n, time_us in records:
        start = time_us - time_us % advance_us
        while start > time_us - size_us:
            yield key, start, start + size_us, n
            start -= advance_us


def test_each_window_is_given_once_with_all_its_records(written: Written) -> None:
    totals: dict[tuple[str, int, int], list[int]] = {}
    mine = [(key, value["n"], time_us) for key, value, time_us in written.records if key != "end"]
    for *window, n in windows_of(mine, WINDOW_US, WINDOW_US):
        totals.setdefault(tuple(window), []).append(n)
    found = [(*window, json.loads(value)) for *window, value in written.final("closed")]
    assert found == sorted((*window, {"n": len(ns), "total": sum(ns)}) for window, ns in totals.items())
    assert len(found) > 300


def test_windows_behind_a_repartition_close_once_too(written: Written) -> None:
    mine = [(value["g"], 1, time_us) for _, value, time_us in written.records if value["g"] != "end"]
    counts = Counter(window[:3] for window in windows_of(mine, WINDOW_US, ADVANCE_US))
    found = [(*window, int.from_bytes(value, "big")) for *window, value in written.final("suppressed")]
    assert found == sorted((*window, count) for window, count in counts.items())
    assert len(found) > 150


def test_each_session_is_given_once_when_it_is_over(written: Written) -> None:
    times: dict[str, list[int]] = {}
    for key, _, time_us in written.records:
        if key != "end":
            times.setdefault(key, []).append(time_us)
    sessions: list[tuple[str, int, int, int]] = []
    for key, of_key in times.items():
        start = end = min(of_key)
        count = 0
        for time_us in sorted(of_key):
            if time_us - end > GAP_US:
                sessions.append((key, start, end, count))
                start, count = time_us, 0
            end, count = time_us, count + 1
        sessions.append((key, start, end, count))
    found = [(*window, int.from_bytes(value, "big")) for *window, value in written.final("over")]
    assert found == sorted(sessions)
    assert len(found) > 300 and max(count for *_, count in found) > 1


def test_a_processor_forwards_record_for_record_what_the_aggregate_gives(written: Written) -> None:
    ours, own = (
        [(row["partition"], row["key"], json.loads(row["value"]), row["timestamp_us"]) for row in written.rows(part)]
        for part in ("ours", "own")
    )
    assert own == ours
    assert Counter(key.decode() for _, key, *_ in own) == Counter(value["g"] for _, value, _ in written.records)
    totals: dict[str, dict[str, int]] = {}
    for _, value, _ in written.records:
        total = totals.setdefault(value["g"], {"n": 0, "total": 0})
        total["n"] += 1
        total["total"] += value["n"]
    last = {key.decode(): {name: value[name] for name in ("n", "total")} for _, key, value, _ in own}
    assert last == totals
    assert {key: written.app.state("sums").get(key) for key in totals} == totals
