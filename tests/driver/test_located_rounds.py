"""What a round comes to where some of its containers have not taken part, and what a plan where executors come and go."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import wiring
from headrace.driver.maintenance.maintenance import Maintenance
from headrace.driver.rounds import round_planner
from headrace.driver.rounds.sub_topology_runner import SubTopologyRunner
from headrace.exchange.engine import ContainerWork, EngineFailure, RestoreWork
from headrace.exchange.messages import Summary, decoded_summary, encoded
from headrace.exchange.store_restoring import decoded_stores_to_restore
from headrace.model.checkpoint import Head
from headrace.model.tasks import TaskName
from headrace.wiring.worker.worker_state import forget
from support.located import LOCATIONS
from support.located_job import NAME, Clustered, Place, clustered, done, engine_is_busy, job_model, source_of, until

TEXT = hr.String()


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Clustered]:
    yield clustered(monkeypatch)
    forget(NAME, str(tmp_path / "state"))


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The executors that are there: a test may take some away."""
    found = dict(LOCATIONS)
    monkeypatch.setattr(Clustered, "locations", lambda self: dict(found))
    monkeypatch.setattr(Clustered, "slots", property(lambda self: sum(found.values()) or 2))
    return found


def heads_of(place: Place) -> dict[str, Head]:
    with hr.open_system(place.url) as system:
        return {str(task): one.head for task, one in system.job_store(place.name).checkpoints().items() if one.head is not None}


@pytest.mark.parametrize("policy", ["earliest", "latest"])
def test_what_one_has_lost_the_others_of_its_partition_do_not_skip(
    tmp_path: Path, engine: Clustered, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    """Virtual tasks of one partition in two lanes, one of which sits out. What that had not read is deleted meanwhile."""
    monkeypatch.setattr(round_planner, "BEGINNINGS_US", 0)
    place = Place(tmp_path, 1)
    keys = {"elasticity_factor": 2, "containers": 2, "max_records_per_round": 40, "on_lost_offsets": policy}
    place.produce()
    place.caught_up(engine, **keys)
    for task in [task for one in job_model(place) if one["location"] == "east" for task in one["tasks"]]:
        place.lose(task)
    engine.is_held = True
    job = place.start(engine, **keys)
    try:
        before = dict(place.sent)
        place.produce()
        theirs = until(lambda: (one := done(place, before)) and not engine_is_busy(engine) and one)
        with hr.open_system(place.url) as log:
            log.purge(place.input, log.end_offsets(place.input))
        place.produce(400)
        until(lambda: not engine_is_busy(engine))
        assert {key: place.counted()[key] for key in theirs} == {key: place.sent[key] for key in theirs}
        engine.is_held = False
        until(lambda: source_of(job)["lag"] == 0)
        assert source_of(job)["counters"]["lost_offsets"] == 100, "of the two those that were deleted"
        others = place.sent.keys() - theirs
        assert {key: place.counted()[key] for key in others} == {key: place.sent[key] - 10 for key in others}
    finally:
        job.stop()


@pytest.mark.kafka
def test_a_store_that_a_lost_attempt_has_brought_to_its_next_head_is_not_restored_to_the_one_before(
    tmp_path: Path, engine: Clustered, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two containers of one Spark task: the worker dies behind the commit of the first, and Spark tries both again."""
    place = Place(tmp_path, 2, f"kafka://{request.getfixturevalue('kafka_server').bootstrap}")
    place.produce()
    place.caught_up(engine)
    before, again = heads_of(place), list[Summary]()
    asked: list[Mapping[str, Head]] = []
    restore = Clustered.restore

    def run(self: Clustered, sub: str, round_id: str, works: Sequence[Sequence[ContainerWork]], program: Any) -> list[bytes]:
        mine = [work for group in works for work in group]
        answers = [self.at_home(work, program) for work in mine]
        if not again:
            answers = [self.at_home(work, program) for work in mine]
            again.extend(map(decoded_summary, answers))
        return answers

    def restored(self: Clustered, works: Sequence[RestoreWork]) -> Sequence[bytes]:
        asked.extend(decoded_stores_to_restore(work.payload).heads for work in works)
        return restore(self, works)

    monkeypatch.setattr(Clustered, "run", run)
    monkeypatch.setattr(Clustered, "restore", restored)
    job = place.start(engine)
    try:
        place.produce()
        until(lambda: asked and place.counted() == place.sent)
        assert len(again) == 2 and all(before[task] != head for one in asked for task, head in one.items())
        assert "stores_restored" not in source_of(job)["counters"]
    finally:
        job.stop()


def test_a_plan_that_is_made_while_no_executor_is_there_keeps_tasks_where_they_are(
    tmp_path: Path, engine: Clustered, there: dict[str, int]
) -> None:
    place = Place(tmp_path, 2)
    place.produce()
    job = place.start(engine, processor_return_wait_s=0)
    try:
        until(lambda: place.counted() == place.sent)
        there.clear()
        until(lambda: "an executor" in source_of(job)["waiting_for"] or place.produce(1))
        job.set_elasticity(factor=2)
        until(lambda: job.status()["job_model"] == 2)
        assert {one["location"] for one in job_model(place)} == set(LOCATIONS)
        there.update(LOCATIONS)
        place.produce()
        until(lambda: place.counted() == place.sent)
        assert job.is_running
    finally:
        job.stop()


def test_tasks_that_each_read_everything_stay_as_many_when_a_host_is_lost(
    tmp_path: Path, engine: Clustered, there: dict[str, int]
) -> None:
    url = f"log:{tmp_path / 'log'}"
    with hr.open_system(url) as log:
        log.create_stream("in", 1)
        log.create_stream("out", 1)
    app = hr.App(NAME, url, ssp_grouper="all_ssps_to_every_task", processor_return_wait_s=0.5, trigger_interval_ms=5)
    app.stream("in", key=TEXT, value=TEXT).to("out")

    def send(value: str) -> None:
        with hr.open_system(url) as log:
            log.produce("in", [(value, value)], key=TEXT, value=TEXT)

    def came() -> Counter[str]:
        with hr.open_system(url) as log:
            return Counter(record.value for record in log.consume("out", value=TEXT))

    job = wiring.start(app, engine=engine)
    try:
        send("a")
        until(lambda: came() == {"a": 2})
        del there["west"]
        send("b")  # before the tasks move, and after
        until(lambda: job.status()["job_model"] == 2)
        send("c")
        until(lambda: came() == dict.fromkeys("abc", 2))
        there["west"] = 1
        until(lambda: job.status()["job_model"] == 3)
        send("d")
        until(lambda: came()["d"] == 2)
        assert came() == dict.fromkeys("abcd", 2)
    finally:
        job.stop()


RAISED = EngineFailure("x is no number", in_expression=True, error_class="CAST_INVALID_INPUT")


class Lossy(Clustered):
    """In its first round an expression raises at east, where Spark tries its container elsewhere, and that declines; the one at
    west is lost, once it has committed, and is away for some rounds."""

    def __init__(self) -> None:
        super().__init__()
        self.failed = ""
        self.away = 0

    def locations(self) -> Mapping[str, int]:
        return LOCATIONS if not self.away else {"east": 1}

    def run(self, sub_topology: str, round_id: str, works: Sequence[Sequence[ContainerWork]], program: Any) -> list[bytes]:
        mine, self.away = [work for group in works for work in group], max(0, self.away - 1)
        if self.failed or len(mine) < 2:
            return super().run(sub_topology, round_id, works, program)
        self.failed, self.away = round_id, 4
        (self.bad,) = [work for work in mine if work.location == "east"]
        (west,) = [work for work in mine if work.location == "west"]
        super().run(sub_topology, round_id, [[west]], program)
        return [encoded(Summary(self.bad.lane, declined="west")), encoded(Summary(west.lane, lost=True))]

    def failed_at(self, round_id: str) -> Mapping[str, EngineFailure]:
        return {"east": RAISED} if round_id == self.failed else {}

    def probe(self, work: ContainerWork, program: Any) -> EngineFailure | None:
        time.sleep(0.1)  # on Spark each is a job; by the end of the search it is seen that west is away
        (one,), (bad,) = work.inputs, self.bad.inputs
        return RAISED if one.partition == bad.partition and one.start <= bad.start < one.end else None


@pytest.mark.kafka
def test_what_is_kept_behind_a_bad_record_is_of_what_lost_containers_have_committed(
    tmp_path: Path, engine: Clustered, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path, 2, f"kafka://{request.getfixturevalue('kafka_server').bootstrap}")
    with hr.open_system(place.url) as system:
        system.create_stream(f"dead-{tmp_path.name}", 2)
    place.produce()
    committed, wrong = Maintenance.committed, list[dict[TaskName, Any]]()

    def compared(self: Maintenance, runner: SubTopologyRunner) -> None:
        with hr.open_system(place.url) as system:
            stored = system.job_store(place.name).checkpoints()
        if runner.sub.name is None:
            wrong.append({task: one for task, one in runner.checkpoints.items() if stored[task].positions != one.positions})
        committed(self, runner)

    monkeypatch.setattr(Maintenance, "committed", compared)
    lossy = Lossy()
    keys = {"dead_letter_stream": f"dead-{tmp_path.name}", "max_records_per_round": 10, "state_version_interval_s": 0.01}
    job = place.start(lossy, **keys)
    try:
        until(lambda: len(wrong) > 6)
        assert lossy.failed and not any(wrong)
    finally:
        job.stop()
