"""What the driver measures of rounds: each record fetched once, loads of the last seconds, what is published, and sinks."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace.cli.commands import application as commands
from headrace.core.metrics.observations import OBSERVED_TASKS_MAX
from headrace.core.metrics.table import METRICS, MetricKind, MetricLabel, sum_and_max
from headrace.driver.job import Job
from headrace.driver.metrics.observing import observation_of, published_metrics, shown_metrics
from headrace.driver.metrics.recent_metrics import RecentMetrics
from headrace.driver.metrics.round_meter import RoundMeter
from headrace.driver.planning.job_plan import Pace
from headrace.driver.rounds.planned_round import PlannedRound, RoundInputs
from headrace.exchange.engine import ContainerWork, InputSlice
from headrace.exchange.messages import ContainerMeasures, Summary, TaskMeasures
from headrace.model.checkpoint import RoundId
from headrace.model.job_model import ContainerModel, SubTopologyModel, TaskModel
from headrace.model.streams import SSP
from headrace.model.tasks import KeyBucket, PartitionGroup, TaskName
from headrace.testing import Driver
from headrace.wiring import config_of
from headrace.wiring.launch import launched
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine
from support.world import waited

S_NS = 1_000_000_000


def counting(**keys: Any) -> hr.App:
    app = hr.App("counting", **keys)
    app.stream("in", key=hr.String(), value=hr.Long()).group_by_key().count(store="counts")
    return app


def worked(app: hr.App, records: int = 400, partitions: int = 2) -> RecentMetrics:
    """The metrics after some rounds of the application."""
    with Driver(app, partitions=partitions) as driver:
        for start in range(0, records, 100):
            for n in range(start, start + 100):
                driver.send("in", f"k{n % 23}", n)
            driver.run()
        assert driver._job is not None
        return driver._job.backend.metrics


# --- from the worker ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("factor", "containers"), [(1, 1), (4, 1), (4, 2), (8, 4)])
def test_a_record_is_fetched_once_and_processed_once(factor: int, containers: int) -> None:
    values = worked(counting(elasticity_factor=factor, containers=containers)).values("source")
    assert values["container-count"][""] == containers
    assert sum(values["records-fetched"].values()) == sum(values["records-processed"].values()) == 400
    assert values["task-count"][""] == 2 * factor
    assert any(values["keyhash-compute-ns"].values()) == (factor > 1)


def test_a_record_that_two_streams_of_the_topology_begin_with_is_fetched_once() -> None:
    app = hr.App("two", elasticity_factor=2)
    records = app.stream("in", key=hr.String(), value=hr.Long())
    records.group_by_key().count(store="counts")
    records.filter(lambda record: record.value > 200).group_by_key().count(store="large")
    values = worked(app).values("source")
    assert sum(values["records-fetched"].values()) == 400


def test_tasks_have_the_metrics_that_the_seed_names() -> None:
    values = worked(counting(elasticity_factor=4)).values("source")
    tasks = {f"Partition_{partition}-{bucket}-4" for partition in range(2) for bucket in range(4)}
    for name in ("process-ns", "store-identify-ns", "disk-usage", "get-ns", "put-ns", "gets", "puts"):
        assert values[name].keys() == tasks, name  # type: ignore[index]
        assert all(0 < value < 1e12 for value in values[name].values()), name  # type: ignore[index]
    for name in ("total-input-consumption-ns", "commit-ns", "round-ns"):
        assert all(0 < value < 1e12 for value in values[name].values()), name  # type: ignore[index]
    assert sum(values["container-process-ns"].values()) == sum(values["process-ns"].values())
    assert sum(values["process-ns"].values()) <= values["round-ns"][""]


def test_functions_that_wait_show_in_the_wait_of_their_task() -> None:
    def slowly(record: Any) -> int:
        time.sleep(0.002)
        return 1

    app = hr.App("waiting")
    app.stream("in", key=hr.String(), value=hr.Long()).map_values(slowly, value=hr.Long()).to("out")
    values = worked(app, records=100, partitions=1).values("source")
    process_ns, wait_ns = values["process-ns"]["Partition_0"], values["wait-ns"]["Partition_0"]
    assert 0.1 * S_NS < wait_ns <= process_ns, "100 times 2 ms"


# --- loads --------------------------------------------------------------------------------------------------------------


class Listening:
    """A sink that adds up what it gets."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.sums: dict[tuple[str, str, str], float] = {}

    def begin(self, sub_topology: str) -> None:
        self.begun.append(sub_topology)

    def record(self, sub_topology: str, values: Any, began_s: float, ended_s: float) -> None:
        assert began_s <= ended_s
        for name, by_label in values.items():
            for label, value in by_label.items():
                is_gauge = METRICS[name].kind is MetricKind.GAUGE
                before = 0 if is_gauge else self.sums.get((sub_topology, name, label), 0)
                self.sums[sub_topology, name, label] = before + value


def model_of(tasks: int, containers: int = 1) -> SubTopologyModel:
    """Virtual tasks of partition 0, which go round the containers."""
    factor = 1 << max(1, (tasks - 1).bit_length())
    every = [TaskName(PartitionGroup(0), None, KeyBucket(index, factor)) for index in range(tasks)]
    models = [TaskModel(name, (SSP("log", "in", 0),)) for name in every]
    found = tuple(ContainerModel(lane, tuple(models[lane::containers])) for lane in range(containers))
    return SubTopologyModel(None, found, factor)


class Rounds:
    """Rounds at made-up times, with made-up measures."""

    def __init__(self, tasks: int, containers: int = 1, sinks: Sequence[Any] = ()) -> None:
        self.metrics, self.model = RecentMetrics(), model_of(tasks, containers)
        self.meter = RoundMeter(self.model, frozenset(), (self.metrics, *sinks), 0.0)
        self.at = 0

    def round(self, began_s: float, ended_s: float, busy: dict[int, float], records: int = 0, threads: int = 1) -> None:
        """`busy`: by the number of the task for how many seconds it was processed, half of that waiting."""
        self.meter.began(began_s)
        summaries = []
        for container in self.model.containers:
            mine = [
                TaskMeasures(str(task.name), records, round(busy[index] * S_NS), round(busy[index] * S_NS / 2))
                for task in container.tasks
                if task.name.bucket is not None and (index := task.name.bucket.index) in busy
            ]
            summaries.append(Summary(container.lane, measures=ContainerMeasures(threads, commit_ns=S_NS // 10, tasks=mine)))
        self.meter.committed(PlannedRound(RoundId(1, None, 1), (), {}, ()), summaries, (), 0.1, ended_s)

    def observed(self, now_s: float) -> Any:
        positions = SimpleNamespace(lags_by_task=lambda ends: {task.name: 7 for task in self.model.tasks})
        runner: Any = SimpleNamespace(
            meter=self.meter,
            model=self.model,
            task_positions=positions,
            progress=SimpleNamespace(lag=7),
            is_replaying=False,
        )
        return observation_of(runner, self.metrics, 2, now_s)


def test_shares_are_of_the_time_and_of_the_threads() -> None:
    rounds = Rounds(tasks=4, containers=2)
    rounds.round(0, 10, {0: 8, 2: 8, 1: 4, 3: 0}, records=100, threads=2)
    seen = rounds.observed(10)
    assert (seen.observed_s, seen.slots, seen.threads, seen.task_count) == (10, 2, 2, 4)
    assert seen.last_10_s == seen.last_60_s, "the plan is 10 s old"
    assert [task.last_10_s.busy_share for task in seen.tasks] == pytest.approx([0.8, 0.8, 0.4, 0.0])
    assert seen.tasks[0].last_10_s.wait_share == pytest.approx(0.4)
    assert seen.tasks[0].last_10_s.records_per_s == pytest.approx(10)
    load = seen.last_10_s
    assert (load.busy_share, load.wait_share, load.round_share) == pytest.approx((0.8, 0.4, 1.0)), "16 s of 2 threads"
    assert load.commit_share == pytest.approx(0.02) and load.hot_share == pytest.approx(8 / 5)
    later = rounds.observed(60)
    assert later.last_10_s.busy_share == 0 and later.last_10_s.hot_share is None
    assert later.last_60_s.busy_share == pytest.approx(16 / 2 / 60)


def test_what_a_running_round_does_is_not_known_and_does_not_look_like_nothing() -> None:
    rounds = Rounds(tasks=1)
    rounds.round(0, 20, {0: 18})
    rounds.meter.began(20)
    assert rounds.observed(39).last_10_s.busy_share == pytest.approx(0.9)
    rounds.meter.failed(39)
    assert rounds.observed(39).last_10_s.busy_share == 0
    assert rounds.metrics.values("source")["rounds-failed"] == {"": 1}


def test_incoming_is_what_the_inputs_have_grown_by() -> None:
    rounds, ssp = Rounds(tasks=1), SSP("log", "in", 0)
    positions: Any = SimpleNamespace(
        lags_by_task=lambda ends: {},
        leads=dict,
        time_lags_us=lambda ends, now_us: {},
        slowest_watermark_us=lambda idle: None,
    )
    assert rounds.observed(1).last_10_s.incoming_per_s is None
    for now_s, end in ((1, 1_000), (2, 1_000), (6, 1_500)):
        rounds.meter.looked(RoundInputs({ssp: end}, frozenset(), 0), positions, now_s)
    assert rounds.observed(6).last_10_s.incoming_per_s == pytest.approx(500 / 6)


def test_what_is_restored_in_the_background_is_counted_and_what_is_left_shown() -> None:
    rounds = Rounds(tasks=1)
    for read, left in ((0, 0), (30, 70), (70, 0), (0, 0)):
        rounds.meter.restored(read, left, 1.0)
    values = rounds.metrics.values("source")
    assert (values["restored-bytes"], values["restore-left-bytes"]) == ({"": 100}, {"": 0})


def test_a_new_plan_begins_at_0() -> None:
    listening = Listening()
    rounds = Rounds(tasks=2, sinks=[listening])
    rounds.round(0, 10, {0: 5, 1: 5})
    RoundMeter(model_of(1), frozenset(), (rounds.metrics, listening), 20.0)
    assert "process-ns" not in rounds.metrics.values("source") and listening.begun == ["source", "source"]
    assert rounds.metrics.within("source", 0, 20)["process-ns"] == {}


def test_every_sink_gets_what_the_driver_keeps() -> None:
    listening = Listening()
    rounds = Rounds(tasks=3, containers=2, sinks=[listening])
    for number in range(5):
        rounds.round(number, number + 1, {0: 0.5, 1: 0.25, 2: number / 10})
    kept = rounds.metrics.values("source")
    assert {("source", name, label): v for name, by in kept.items() for label, v in by.items()} == listening.sums


# --- what the engine reads ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("by_engine", "chained", "expected"), [(True, (), 50), (False, ("in",), 50), (False, (), 0)])
def test_what_is_read_for_several_containers_counts_once(by_engine: bool, chained: tuple[str, ...], expected: int) -> None:
    halves = [(InputSlice(0, "in", 0, 10, 50, KeyBucket(n, 2)), InputSlice(1, "in", 1, 0, 10)) for n in range(2)]
    works = tuple((ContainerWork(lane, b"", None, 50, inputs, by_engine),) for lane, inputs in enumerate(halves))
    metrics = RecentMetrics()
    meter = RoundMeter(model_of(2, 2), frozenset(chained), (metrics,), 0.0)
    meter.committed(PlannedRound(RoundId(1, None, 1), (), {}, works), (), (), 0.1, 1.0)
    assert metrics.values("source").get("engine-records-fetched", {"": 0})[""] == expected


@pytest.mark.parametrize("tasks", [2, OBSERVED_TASKS_MAX + 2])
def test_what_was_read_in_the_last_minute_is_known_over_a_change_of_the_plan(tasks: int) -> None:
    """A rate of the group is by that: what the metrics have begins again with each plan."""
    rounds = Rounds(tasks)
    rounds.round(0, 10, {0: 1, 1: 1}, records=300)
    rounds.metrics.begin("source")
    rounds.round(30, 40, {0: 1, 1: 1}, records=200)
    assert sum(rounds.metrics.within("source", 0, 40)["records-processed"].values()) < 1000
    assert rounds.metrics.read_within("source", 0, 40) == 1000
    assert (rounds.metrics.read_within("source", 35, 95), rounds.metrics.read_within("another", 0, 40)) == (200, 0)


# --- what is published --------------------------------------------------------------------------------------------------


def published(tasks: int) -> tuple[dict[str, Any], Rounds]:
    rounds = Rounds(tasks)
    rounds.round(0, 10, {index: 1 + index / tasks for index in range(tasks)}, records=123_456_789)
    seen = rounds.observed(10)
    return {"metrics": shown_metrics(rounds.metrics, seen), **published_metrics(rounds.metrics, seen)}, rounds


def test_a_thousand_tasks_fit_a_status_record_and_one_more_are_summed_up() -> None:
    found, rounds = published(OBSERVED_TASKS_MAX)
    assert len(found["task_metrics"]["rows"]) == OBSERVED_TASKS_MAX
    assert len(json.dumps(found)) < 300_000
    many, others = published(OBSERVED_TASKS_MAX + 1)
    assert many["task_metrics"]["rows"] == {} and len(json.dumps(many)) < 5_000
    assert many["metrics"].keys() == found["metrics"].keys() - {"lag"}, "lags are looked at less often"
    assert many["metrics"]["process-ns"]["max"] == pytest.approx(found["metrics"]["process-ns"]["max"], rel=0.01)
    assert many["metrics"]["hot-share-10s"] == pytest.approx(found["metrics"]["hot-share-10s"], rel=0.01)
    kept = others.metrics.values("source").items()
    labels = {label for name, by_label in kept for label in by_label if METRICS[name].label is MetricLabel.TASK}
    assert labels == {"sum", "max"} and rounds.metrics.values("source")["process-ns"].keys() != labels


def test_the_sum_and_the_highest_of_a_round() -> None:
    assert sum_and_max("process-ns", {"a": 1, "b": 3}) == {"sum": 4, "max": 3}
    assert sum_and_max("lead", {}) == {"max": 0}


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    """A job in this process, without Spark."""
    monkeypatch.chdir(tmp_path)
    with hr.open_system("log:./data") as system:
        system.create_stream("in", 2)
        system.produce("in", [(f"k{n % 7}", n) for n in range(500)], key=hr.String(), value=hr.Long())
    app = counting(system="log:./data", trigger_interval_ms=5)
    pace = Pace(0.005, 30.0, 1 << 62, 30.0, 30.0)
    job = Job(launched(app, config_of(app), InlineEngine(run_container), lambda line: None), pace, None).start()
    try:
        yield job
    finally:
        job.stop()


def shown(*arguments: str) -> Any:
    found = CliRunner().invoke(commands, [*arguments, "--application", "counting", "--system", "log:./data", "--json"])
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


def test_status_and_tasks_of_another_process_show_them_and_a_change_is_measured(running: Job) -> None:
    def fetched() -> int:
        return shown("status")["sub_topologies"]["source"].get("metrics", {}).get("records-fetched", {}).get("sum", 0)

    waited(lambda: fetched() == 500, running)
    status, tasks = shown("status"), shown("tasks")["tasks"]
    source = status["sub_topologies"]["source"]
    assert status["metrics"]["job-model-generation-ns"] > 0 and status["metrics"]["plan-changes"] == 0
    assert source["metrics"]["records-processed"]["sum"] == 500 and source["metrics"]["task-count"] == 2
    assert not {"task_metrics", "job_metrics"} & source.keys()
    assert sum(task["metrics"]["records-processed"] for task in tasks) == 500
    assert {task["metrics"]["lag"] for task in tasks} == {0} and all(task["metrics"]["process-ns"] > 0 for task in tasks)
    (seen,) = running.observations()
    assert (seen.sub_topology, seen.elasticity_factor, seen.last_pause_s, seen.is_changing) == ("source", 1, None, False)
    running.set_elasticity(4)
    waited(lambda: running.observations()[0].elasticity_factor == 4 and running.observations()[0].last_pause_s, running)
    waited(lambda: not running.observations()[0].is_changing, running)
    (seen,) = running.observations()
    assert len(seen.tasks) == seen.task_count == 8 and seen.last_pause_s is not None and 0 < seen.last_pause_s < 60
    waited(lambda: shown("status")["metrics"].get("plan-changes") == 1, running)
    changed = shown("status")["metrics"]
    assert changed["change-pause-ns"] == pytest.approx(seen.last_pause_s * S_NS)
    assert {"end of the rounds", "fence", "plan"} <= changed["change-phase-ns"].keys()
    assert 0 < changed["checkpoint-compute-ns"] < changed["job-model-generation-ns"]
    waited(lambda: len([task for task in shown("tasks")["tasks"] if task["metrics"]]) == 8, running)
