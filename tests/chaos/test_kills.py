"""SIGKILL of the driver at every numbered step of the commit and of a start, and at random moments, on each system.

Nothing is lost or doubled. Each window's final result comes exactly once, whatever dies, with all of its records; and what a
`Processor` behind a repartition stream forwards is, record for record, what the aggregate beside it gives.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import pytest

import headrace as hr
from chaos.closing_job import GAP_US, WINDOW_US
from chaos.killing import every_step_landed, finish_and_judge, kill_at_moments, kill_at_steps, steps_of
from chaos.usual_job import everything
from chaos.world import EVERYTHING, SeededWorld
from support.checker import KillReport, Row
from support.children import Children
from support.fixtures import place_of

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]
SEED = 20260
WINDOWED = hr.Windowed(hr.String())
ADVANCE_US = 1_000_000
MOMENTS = 3


class Written:
    """What a job wrote that was killed at every step, and then finished."""

    def __init__(self, world: SeededWorld, report: KillReport) -> None:
        self.world, self.report = world, report
        self.records = [(row["key"].decode(), json.loads(row["value"]), row["timestamp_us"]) for row in world.rows("in")]

    def rows(self, part: str) -> list[Row]:
        return self.world.rows(part)

    def final(self, part: str) -> list[tuple[str, int, int, bytes]]:
        """The results of windows (key, start, end, value) but for those that the last records are in, sorted."""
        keys = [(WINDOWED.decode(row["key"]), row["value"]) for row in self.rows(part)]
        found = [(key.key, key.start_us, key.end_us, value) for key, value in keys]
        assert not [one for one in found if one[0].startswith("end")], "a window closed before its time"
        return sorted(found)


@pytest.fixture(scope="module", params=["kafka", "log"])
def written(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, module_children: Children
) -> Iterator[Written]:
    kind, report = request.param, KillReport()
    world = SeededWorld(tmp_path_factory.mktemp("killed"), place_of(request, kind), module_children, SEED, EVERYTHING)
    kill_at_steps(world, SEED, steps_of(kind), report)
    kill_at_moments(world, SEED, MOMENTS, (0.3, 2.0), report)
    world.end()
    finish_and_judge(world, report)
    yield Written(world, report)
    world.close()


def test_nothing_is_lost_or_doubled_when_the_driver_is_killed_at_every_step(written: Written) -> None:
    print(written.report)
    written.report.verify(landed_min=len(steps_of(written.world.place.kind)))
    every_step_landed(written.report, written.world.place.kind)


def windows_of(records: list[tuple[str, int, int]], size_us: int, advance_us: int) -> Iterator[tuple[str, int, int, int]]:
    """(key, start, end, n) of every window that a record (key, n, time) falls into."""
    for key, n, time_us in records:
        start = time_us - time_us % advance_us
        while start > time_us - size_us:
            yield key, start, start + size_us, n
            start -= advance_us


def test_each_window_is_given_once_with_all_its_records(written: Written) -> None:
    totals: dict[tuple[str, int, int], list[int]] = {}
    mine = [(key, value["n"], time_us) for key, value, time_us in written.records if not key.startswith("end")]
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
        if not key.startswith("end"):
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
    state = everything(written.world.run_of()).state("sums")
    assert {key: state.get(key) for key in totals} == totals
