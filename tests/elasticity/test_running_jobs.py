"""Jobs on the embedded log whose factor changes while they run: tasks that slow functions put apart, changes that wait,
requests one after the other, back pressure, and what is seen of them from outside."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import pytest
import xxhash

import headrace as hr
from headrace.client.startpoints import Startpoints
from headrace.client.state_reader import open_state
from headrace.wiring import config_of
from support.world import Place, World, source_of, waited

TEXT, LONG = hr.String(), hr.Long()
KEYS = [f"k{number}" for number in range(24)]


class Scaled(World):
    """A count of one stream of two partitions."""

    NAME = "scaled"
    STREAMS: ClassVar = {"in": 2, "out": 2}
    KEYS: ClassVar = {"trigger_interval_ms": 5, "containers": 1}

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, Place())
        self.sent = 0

    def send(self, count: int, system: Any = None) -> None:
        rows = [(KEYS[number % len(KEYS)], number) for number in range(self.sent, self.sent + count)]
        self.sent += count
        (system or self.system).produce("in", rows, key=TEXT, value=LONG)

    def counting(self, function: Any, **keys: Any) -> hr.App:
        app = self.app(self.name, **keys)
        rows = app.stream("in", key=TEXT, value=LONG).map_values(function, value=LONG)
        rows.to("out")
        rows.group_by_key().count(store="counts")
        return app

    def set(self, factor: int) -> None:
        with hr.elasticity(self.name, self.url) as scales:
            scales.set(factor)

    def history(self) -> list[tuple[str, str, str]]:
        with hr.elasticity(self.name, self.url) as scales:
            return [(one.before, one.after, one.outcome.value) for one in scales.history()]

    def applied(self) -> list[str]:
        return [after for _, after, outcome in self.history() if outcome == "applied"]

    def factors(self) -> set[int]:
        return {int(parts[2]) if len(parts := task.split("-")) == 3 else 1 for task in self.checkpoints()}

    def positions(self) -> set[int]:
        return {position for one in self.checkpoints().values() for position in one["positions"].values()}

    def model_version(self) -> int:
        return max(int(one["job_model_version"]) for one in self.checkpoints().values())

    def counts(self, app: hr.App) -> dict[str, int]:
        return {str(row["key"]): int(row["value"]) for row in open_state(app, "counts").to_arrow().to_pylist()}


@pytest.fixture
def world(tmp_path: Path) -> Any:
    with Scaled(tmp_path) as made:
        yield made


def test_sixteen_slow_tasks_are_merged_under_load_and_no_function_is_called_twice(
    world: Scaled, caplog: pytest.LogCaptureFixture
) -> None:
    """Each is cut at a row of its own: rounds bring them together first."""
    caplog.set_level("INFO", "headrace.job")
    calls, lock, is_slow = Counter[tuple[str, int]](), threading.Lock(), threading.Event()

    def slow(record: Any) -> int:
        with lock:
            calls[record.key, record.value] += 1
        if is_slow.is_set():
            time.sleep(0.003)
        return int(record.value)

    app = world.counting(slow, elasticity_factor=16, task_threads=16)
    world.send(8_000)
    is_slow.set()
    with world.running(app) as job:
        with world.producing(lambda system: world.send(10, system), 0.02):
            waited(lambda: sum(calls.values()) > 500, job)
            for factor in (1, 16, 2):
                world.set(factor)
                waited(lambda: world.factors() == {factor}, job)  # noqa: B023
                records = sum(calls.values())
                waited(lambda: sum(calls.values()) > records + 500, job)  # noqa: B023
        is_slow.clear()
        waited(lambda: source_of(job)["lag"] == 0, job)  # a stop in a round would call functions again
    together = [record for record in caplog.records if "brings the tasks of sub-topology source together" in record.message]
    assert together, "no task was behind others"
    assert [(after, outcome) for _, after, outcome in world.history()] == [
        (f"factor {factor}, 1 container", "applied") for factor in (1, 16, 2)
    ]
    assert calls == Counter((KEYS[number % len(KEYS)], number) for number in range(world.sent))
    found = [(record.key, record.value) for record in world.read("out")]
    for key in KEYS:
        mine = [value for of, value in found if of == key]
        assert mine == [number for number in range(world.sent) if KEYS[number % len(KEYS)] == key]
    assert world.counts(app) == Counter(KEYS[number % len(KEYS)] for number in range(world.sent))


def bucket_of(key: str, factor: int = 4) -> int:
    return xxhash.xxh64(key.encode(), seed=42).intdigest() % factor


def test_a_merge_waits_for_a_task_that_was_set_far_back_and_can_be_withdrawn(world: Scaled) -> None:
    is_slow = threading.Event()

    def slow_again(record: Any) -> int:
        if is_slow.is_set() and bucket_of(record.key) == 1:
            time.sleep(0.002)
        return int(record.value)

    app = world.counting(slow_again, elasticity_factor=4, max_records_per_round=60)
    world.send(2_400)
    world.run(app)
    partition_of = {record.key: record.partition for record in world.read("in")}
    late = [key for key in KEYS if bucket_of(key) == 1 and partition_of[key] == 0]
    assert late and len(late) < len(KEYS)
    is_slow.set()
    with world.running(app) as job:
        waited(lambda: "source" in job.status()["sub_topologies"], job)
        with Startpoints(world.name, config_of(app), app.topology(), world.system) as points:
            points.set("in", "earliest", partition=0, task="Partition_0-1-4")
        waited(lambda: len(world.positions()) > 2, job)
        version = world.model_version()
        world.set(1)
        said = waited(lambda: source_of(job)["scale_waits_for"], job)
        assert "factor 1 waits until tasks that are to be merged are together: Partition_0-1-4 is behind, by " in said
        assert int(said.rpartition("by ")[2].split()[0].replace(",", "")) > 60
        with hr.elasticity(world.name, world.url) as scales:
            (effect,) = scales.preview(1).effects
            assert [str(task) for task in effect.behind] == ["Partition_0-1-4"]
        world.send(600)
        others = [key for key in KEYS if partition_of[key] == 1]
        waited(lambda: all(world.counts(app)[key] == 125 for key in others), job, otherwise="tasks of the other partition wait")
        assert source_of(job)["scale_waits_for"], "all this while it has waited"
        world.set(4)
        waited(lambda: not world.has_open_requests() and not source_of(job)["scale_waits_for"], job)
        assert world.model_version() == version, "withdrawn: there was no other job model"
        assert [outcome for *_, outcome in world.history()] == ["superseded"]
        is_slow.clear()
    world.run(app)
    assert world.counts(app) == {key: 125 + (100 if key in late else 0) for key in KEYS}


def test_of_requests_one_after_the_other_the_last_counts_and_the_same_again_pauses_nothing(world: Scaled) -> None:
    app = world.counting(lambda record: record.value)
    with world.running(app) as job, world.producing(lambda system: world.send(10, system), 0.02):
        waited(lambda: source_of(job)["records"] > 20, job)
        for factor in (8, 2, 8):
            world.set(factor)
        waited(lambda: world.factors() == {8} and not world.has_open_requests(), job)
        version, applied = world.model_version(), world.applied()
        assert 1 <= len(applied) <= 3 and applied[-1] == "factor 8, 1 container"
        assert len(world.history()) == 3, "one that a later one has overtaken is on record, too"
        for _ in range(2):
            world.set(8)
        waited(lambda: not world.has_open_requests(), job)
        assert (world.model_version(), world.applied()) == (version, applied)
    world.run(app)
    assert world.counts(app) == Counter(KEYS[number % len(KEYS)] for number in range(world.sent))


def test_what_is_set_while_a_job_is_stopped_and_an_edited_configuration_are_each_applied_once(world: Scaled) -> None:
    world.send(240)
    for keys, before, factor in (
        ({}, None, 1),
        ({}, 8, 8),
        ({}, None, 8),  # a start keeps it
        ({"elasticity_factor": 2}, None, 2),  # an edit counts
        ({"elasticity_factor": 2}, 4, 4),
        ({"elasticity_factor": 8}, 16, 16),  # what was set is the later of the two
        ({"elasticity_factor": 8}, None, 16),
    ):
        if before is not None:
            world.set(before)
        app = world.counting(lambda record: record.value, **keys)
        world.run(app)
        assert world.factors() == {factor}, keys
        assert not world.has_open_requests()
        with hr.elasticity(world.name, world.url) as scales:
            (view,) = scales.scales()
            assert (view.scale.factor, view.configured.factor) == (factor, keys.get("elasticity_factor", 1))
    assert [(before, after) for before, after, _ in world.history()] == [
        (f"factor {before}, 1 container", f"factor {after}, 1 container") for before, after in ((1, 8), (8, 2), (2, 4), (4, 16))
    ]
    assert world.counts(app) == dict.fromkeys(KEYS, 10)


def test_what_is_read_from_outside_is_whole_while_the_factor_changes(world: Scaled) -> None:
    """Nothing is sent meanwhile, so that state and lag have one right value at every moment."""
    app = world.counting(lambda record: record.value)
    world.send(240)
    seen = Counter[int]()
    with world.running(app) as job:
        waited(lambda: source_of(job)["records"] == 240, job)
        stop = threading.Event()

        def change() -> None:
            for factor in (8, 2, 16, 1, 4):
                world.set(factor)
                waited(lambda: world.factors() == {factor} or stop.is_set(), job)  # noqa: B023
            stop.set()

        changing = threading.Thread(target=change)
        changing.start()
        try:
            view = open_state(app, "counts")
            while not stop.is_set():
                assert world.counts(app) == dict.fromkeys(KEYS, 10)
                assert [view.get(key) for key in KEYS[:3]] == [10, 10, 10]
                assert view.get("never") is None
                seen[len(world.checkpoints())] += 1
        finally:
            stop.set()
            changing.join()
    assert len(seen) >= 3, "it did not change while it was read"


def test_lag_is_that_of_partitions_whatever_the_factor(world: Scaled) -> None:
    is_open = threading.Event()

    def gated(record: Any) -> int:
        is_open.wait(20)
        return int(record.value)

    app = world.counting(gated, elasticity_factor=8)
    world.send(240)
    with world.running(app) as job:
        waited(lambda: source_of(job).get("lag") == 240, job)
        is_open.set()
        waited(lambda: source_of(job)["lag"] == 0, job)
    world.send(24)
    with hr.autosizing(world.name, world.url) as scales:
        (observed,) = scales.observations()
    assert observed.lag == 24


def test_a_reader_that_is_behind_is_merged_while_its_writer_is_held_back(world: Scaled) -> None:
    """Back pressure holds the writer, and rounds that bring tasks together run all the same. What is purged is behind all
    positions and kept versions."""
    app = world.app(world.name, max_lag=50, max_records_per_round=40, keep_state_versions=3, state_version_interval_s=0.1)
    rows = app.stream("in", key=TEXT, value=LONG)

    def slow(record: Any) -> int:
        time.sleep(0.0005)
        return int(record.value)

    grouped = rows.repartition(hr.Repartitioned(name="again", number_of_partitions=2)).map_values(slow, value=LONG)
    grouped.group_by_key().count(store="counts")
    world.send(1_000)
    with world.running(app) as job:
        waited(lambda: "again" in job.status()["sub_topologies"], job)
        for factor in (8, 2, 8, 1):
            waited(lambda: "again, which is" in source_of(job)["waiting_for"], job)
            with hr.elasticity(world.name, world.url) as scales:
                scales.set(factor, sub_topology="again")
            waited(lambda: status_of(job, "again")["elasticity_factor"] == factor, job)  # noqa: B023
            world.send(300)
            purged = world.system.beginning_offsets(f"{world.name}-again-repartition")
            lowest = {
                partition: min(
                    position
                    for one in world.checkpoints().values()
                    for ssp, position in one["positions"].items()
                    if f"again-repartition.{partition}" in ssp
                )
                for partition in purged
            }
            assert all(purged[partition] <= lowest[partition] for partition in purged)
    world.run(app)
    assert world.counts(app) == Counter(KEYS[number % len(KEYS)] for number in range(world.sent))


def status_of(job: Any, name: str) -> dict[str, Any]:
    return dict(job.status()["sub_topologies"][name])


def test_the_local_stores_of_the_last_factor_are_sealed_at_the_end(world: Scaled) -> None:
    """Those of the first are not all that there is to seal: the next run would scan the others."""
    app = world.counting(lambda record: int(record.value))
    world.send(200)
    with world.running(app) as job:
        waited(lambda: len(list(world.read("out"))) == 200, job)
        world.set(2)
        waited(lambda: world.factors() == {2}, job)
        world.send(200)
        waited(lambda: len(list(world.read("out"))) == 400, job)
    marks = {path.parent.name: json.loads(path.read_text()) for path in (world.folder / "stores").rglob("mark.json")}
    tasks = [f"Partition_{partition}-{bucket}-2" for partition in range(2) for bucket in range(2)]
    assert {task for task, mark in marks.items() if mark["content"]} >= set(tasks), marks.keys()
