"""The other way to commit a round: each container's worker by itself, as on Kafka, here on the embedded log.

`OwnPorts` commits its container's share in a transaction of its own, after it has checked epoch and bases, and `OwnStore`
only takes note; everything else is the runtime as it is. So what the ports promise is held apart from any broker.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace import wiring
from headrace.adapters.lmdb import TaskStore, open_task_store, opening
from headrace.adapters.lmdb.store_status import read_status
from headrace.adapters.log.job_store import LogJobStore
from headrace.adapters.log.system import LogSystem
from headrace.codec.documents import decode
from headrace.driver.maintenance.maintenance import Maintenance
from headrace.driver.rounds import retries
from headrace.driver.rounds.sub_topology_runner import SubTopologyRunner
from headrace.errors import FencedError, RoundFailedError, StoreDamagedError
from headrace.exchange.engine import ContainerWork, EngineFailure
from headrace.exchange.errors import error_of
from headrace.exchange.messages import Summary, TaskPlan, decoded_plan, decoded_summary, encoded
from headrace.model.change import ChangeKind, ChangeRequest
from headrace.model.checkpoint import Checkpoint, RoundId, StateFile
from headrace.model.commits import ContainerCommit, DriverLease, RoundCommit
from headrace.model.tasks import TaskName
from headrace.state_files.files import task_folder_of
from headrace.wiring.worker import entry as worker
from headrace.wiring.worker import worker_state
from headrace.wiring.worker.log_worker import LogWorkerPorts
from headrace.worker.checkpoints import round_id_of
from headrace.worker.inline_engine import InlineEngine

LETTERS = "abcdefgh"


class OwnStore(LogJobStore):
    """The driver of a system whose workers commit."""

    def commit_round(self, commit: RoundCommit) -> None:
        self.check_epoch(commit.round_id.epoch)
        stored = self.checkpoints()
        assert all(stored[checkpoint.task] == checkpoint for checkpoint in commit.checkpoints), "not committed"
        assert all(container.receipt == {"worker": os.getpid()} for container in commit.containers)


class OwnPorts(LogWorkerPorts):
    """A worker that commits."""

    def begin(self) -> list[Checkpoint] | None:
        with hr.open_system(f"log:{self._plan.terms}") as log:
            store = log.job_store(self._program.application)
            store.check_epoch(self._plan.epoch)
            stored = store.checkpoints()
        mine = [stored[TaskName.parse(task.name)] for task in self._plan.tasks]
        if all(str(checkpoint.round_id) == self._plan.round_id for checkpoint in mine):
            return mine
        found = {str(checkpoint.task): str(checkpoint.round_id) for checkpoint in mine}
        if found != {task.name: task.round_id for task in self._plan.tasks}:
            raise RoundFailedError(f"round {self._plan.round_id}: its tasks are at {found}")
        return None

    def write_state(self, task: TaskPlan, state: Any) -> tuple[Any, list[str]]:
        head, files = super().write_state(task, state)
        self._files_written = [*getattr(self, "_files_written", []), *files]
        return head, files

    def commit(self, checkpoints: list[Checkpoint]) -> Any:
        share = ContainerCommit(
            self._plan.lane, tuple(checkpoints), super().commit(checkpoints), tuple(getattr(self, "_files_written", ()))
        )
        bases: dict[TaskName, RoundId | None] = {
            TaskName.parse(task.name): round_id_of(task.round_id) for task in self._plan.tasks
        }
        with hr.open_system(f"log:{self._plan.terms}") as log:
            store = log.job_store(self._program.application)
            store.commit_round(RoundCommit(round_id_of(self._plan.round_id), (share,), bases))
        return {"worker": os.getpid()}

    def committed(self, checkpoints: list[Checkpoint]) -> None:
        for checkpoint in checkpoints:
            self.apply(str(checkpoint.task), checkpoint.head)


class FailingEngine(InlineEngine):
    """Runs the containers of a round one after the other; `fails(round, container)` ends the round before one of them."""

    def __init__(self, fails: Callable[[int, int], bool]) -> None:
        super().__init__(worker.run_container)
        self.slots = 3  # and so many containers per sub-topology
        self.rounds = 0
        self.failed = 0
        self.ran: list[tuple[bytes, Any]] = []
        self._fails = fails

    def run(
        self, sub_topology: str, round_id: str, works: Sequence[Sequence[ContainerWork]], program: Any
    ) -> list[bytes]:
        self.rounds += 1
        number, answers = self.rounds, []
        for position, work in enumerate(work for group in works for work in group):
            if self._fails(number, position):
                self.failed += 1
                raise EngineFailure("a container was lost")
            self.ran.append((work.payload, program))
            answers += super().run(sub_topology, round_id, [[work]], program)
        return answers


@pytest.fixture(autouse=True)
def no_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log takes a round for finished as a whole; here its containers commit one by one, and their files would be gone."""
    monkeypatch.setattr(LogSystem, "collect_garbage", lambda self: ())


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def own_store(self: LogSystem, application: str, exactly_once: bool) -> OwnStore:
        return OwnStore(self._catalog, application)

    monkeypatch.setattr(retries, "FAILURES_MAX", 50)
    original = LogSystem.job_store
    monkeypatch.setattr(LogSystem, "job_store", lambda s, a, *how: own_store(s, a, *how) if how else original(s, a))
    monkeypatch.setattr(worker, "ports_of", lambda plan, program, report, fetched: OwnPorts(plan, program, report))
    with hr.open_system(f"log:{tmp_path / 'log'}") as log:
        log.create_stream("in", 3)
    return tmp_path


def application(place: Path, **keys: Any) -> hr.App:
    app = hr.App(
        "own",
        system=f"log:{place / 'log'}",
        local_store_dir=str(place / "stores"),
        state_uri=str(place / "state"),
        max_records_per_round=20,
        **keys,
    )
    stream = app.stream("in", key=hr.String(), value=hr.String())
    stream.to("copy")
    keyed = stream.select_key(lambda r: r.value[0], key=hr.String()).repartition(name="by-letter")
    keyed.group_by_key().count(store="counts").to_stream().to("counts-out")
    return app


def produce(place: Path, count: int) -> list[str]:
    values = [f"{LETTERS[number % len(LETTERS)]}{number}" for number in range(count)]
    with hr.open_system(f"log:{place / 'log'}") as log:
        log.produce("in", [(value, value) for value in values], key=hr.String(), value=hr.String())
    return values


def judge(place: Path, values: list[str], is_sliced: bool = False) -> None:
    """Every record came out once, in order (of each key, where a partition is cut into slices: a key has one record here); each
    letter was counted one by one."""
    ordered: Callable[[list[str]], list[str]] = sorted if is_sliced else list
    with hr.open_system(f"log:{place / 'log'}") as log:
        for partition in range(3):
            read = [record.value for record in log.consume("in", partitions=[partition])]
            copied = [record.value for record in log.consume("copy", partitions=[partition])]
            assert read and ordered(copied) == ordered(read)
        counts: dict[str, list[int]] = {}
        for record in log.consume("counts-out", key=hr.String(), value=hr.Long()):
            counts.setdefault(record.key, []).append(record.value)
    for letter in LETTERS:
        assert counts[letter] == sorted(set(counts[letter]))
        assert counts[letter][-1] == sum(value[0] == letter for value in values)


def run(place: Path, engine: FailingEngine, **keys: Any) -> None:
    job = wiring.start(application(place, **keys), "caught-up", engine=engine)
    try:
        job.wait(120)
    finally:
        job.stop()


def test_rounds_whose_containers_commit_by_themselves(place: Path) -> None:
    values = produce(place, 100)
    engine = FailingEngine(lambda number, position: False)
    run(place, engine)
    judge(place, values)
    assert engine.rounds < len(engine.ran), "no round had several containers"


class Openings:
    """Notes per round which tasks' stores were opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, engine: FailingEngine) -> None:
        self.seen: list[tuple[int, str]] = []
        opened = worker_state.open_task_store

        def noted(folder: Path, *arguments: Any, **named: Any) -> Any:
            self.seen.append((engine.rounds, folder.name))
            return opened(folder, *arguments, **named)

        monkeypatch.setattr(worker_state, "open_task_store", noted)


class NoFiles:
    """A store that asks for a state file has not been brought to where it is said to be."""

    def batches(self, file: StateFile) -> Iterator[pa.RecordBatch]:
        raise AssertionError(f"state file {file.name} was not applied")


def test_a_store_is_opened_once_a_round_and_left_where_the_round_came_to(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = produce(place, 100)
    engine = FailingEngine(lambda number, position: False)
    openings = Openings(monkeypatch, engine)
    run(place, engine)
    judge(place, values)
    assert openings.seen and len(openings.seen) == len(set(openings.seen)), "a store was opened twice in a round"
    with hr.open_system(f"log:{place / 'log'}") as log:
        heads = {task: c.head for task, c in log.job_store("own").checkpoints().items() if c.head is not None}
    assert len(heads) == 3 and max(head.version for head in heads.values()) > 1
    for task, head in heads.items():
        folder = place / "stores" / task_folder_of("own", task)
        mark = read_status(folder)
        assert mark is not None and mark.in_use is None
        with open_task_store(folder, head, NoFiles(), run_id=mark.run_id, boot_id=mark.boot_id) as store:
            assert (store.identity, store.notes) == (head.identity, [])


def test_damage_that_an_apply_meets_costs_one_store_and_no_round(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = produce(place, 100)
    engine = FailingEngine(lambda number, position: False)
    apply, met = TaskStore.apply, []

    def meeting(self: TaskStore, *arguments: Any) -> bool:
        if not met:
            met.append(self.folder.parent.name)
            raise StoreDamagedError("its page 7 is not there")
        return apply(self, *arguments)

    monkeypatch.setattr(TaskStore, "apply", meeting)
    rebuilt: list[str] = []
    remove = opening._Opening._rebuilt
    monkeypatch.setattr(opening._Opening, "_rebuilt", lambda o: (rebuilt.append(o.place.name), remove(o))[1])
    run(place, engine)
    judge(place, values)
    assert met and rebuilt.count(met[0]) == 2, "when it was new, and after it was found damaged"
    assert len(rebuilt) == 4 and len(set(rebuilt)) == 3
    assert engine.failed == 0


def test_where_some_containers_committed_and_others_not_each_task_goes_on_from_its_own(place: Path) -> None:
    values = produce(place, 100)
    engine = FailingEngine(lambda number, position: position > 0 and number % 2 == 1)
    run(place, engine)
    judge(place, values)
    assert engine.failed > 3


@pytest.mark.parametrize("is_failing", [False, True])
def test_slices_of_which_some_have_committed_each_continue_from_their_own(place: Path, is_failing: bool) -> None:
    """Two containers per partition. One that has read a range is not in the round that the other reads it in."""
    values = produce(place, 100)
    engine = FailingEngine(lambda number, position: is_failing and position > 0 and number % 2 == 1)
    run(place, engine, elasticity_factor=4, containers=6)
    judge(place, values, is_sliced=True)
    plans = [decoded_plan(payload) for payload, _ in engine.ran]
    assert {len(plan.tasks) for plan in plans} == {2}
    assert {plan.lane for plan in plans} == set(range(6))
    assert (engine.failed > 3) is is_failing
    for plan in plans:
        for piece in plan.ranges:
            assert any(task.positions[piece.ssp] < piece.end for task in plan.tasks), "a range that all its tasks have read"
    starts = [(piece.start, min(task.positions[piece.ssp] for task in plan.tasks)) for plan in plans for piece in plan.ranges]
    assert is_failing or all(start == position for start, position in starts)


def test_an_attempt_that_is_run_again_answers_what_it_has_committed(place: Path) -> None:
    values = produce(place, 60)
    again: list[tuple[list[bytes], list[bytes]]] = []

    class Twice(FailingEngine):
        def run(self, *arguments: Any) -> list[bytes]:
            first, second = super().run(*arguments), super().run(*arguments)
            for answers in zip(first, second, strict=True):
                one, other = (decoded_summary(answer) for answer in answers)
                assert other.error is None
                again.append(([bytes(c) for c in one.checkpoints], [bytes(c) for c in other.checkpoints]))
            return first

    run(place, Twice(lambda number, position: False))
    judge(place, values)
    assert again and all(checkpoints_in(first) == checkpoints_in(second) for first, second in again)


def run_elsewhere(lane: int) -> Summary:
    return Summary(lane, declined="host-2")


def without_its_state(lane: int) -> Summary:
    return Summary(lane, missing={"Partition_0": 1_000})


class Losing(FailingEngine):
    """All containers commit; of those of a round that `loses` names is heard what `declined` gives for a lane, and `meanwhile`
    is called then."""

    def __init__(self, loses: Callable[[int], slice | None], declined: Callable[[int], Summary] = run_elsewhere) -> None:
        super().__init__(lambda number, position: False)
        self.loses, self.declined = loses, declined
        self.meanwhile: Callable[[], object] = lambda: None

    def run(self, *arguments: Any) -> list[bytes]:
        answers = super().run(*arguments)
        unknown = self.loses(self.rounds)
        if unknown is not None:
            answers[unknown] = [encoded(self.declined(decoded_summary(one).lane)) for one in answers[unknown]]
            self.meanwhile()
        return answers


@pytest.mark.parametrize("is_replanned", [False, True], ids=["no plan is due", "a plan is due"])
@pytest.mark.parametrize("unknown", [slice(-1, None), slice(None)], ids=["the last", "all"])
@pytest.mark.parametrize("declined", [run_elsewhere, without_its_state])
def test_what_containers_have_committed_without_a_word_is_known_when_the_round_has_ended(
    place: Path, monkeypatch: pytest.MonkeyPatch, declined: Callable[[int], Summary], unknown: slice, is_replanned: bool
) -> None:
    """A container commits and its executor dies; Spark runs it again elsewhere, or on another executor there, which has not its
    stores, and it declines. A version of the state that is kept now has what that container has written."""
    values, committed, known = produce(place, 100), Maintenance.committed, list[bool]()

    def compared(self: Maintenance, runner: SubTopologyRunner) -> None:
        stored = self._store.checkpoints()
        known.append(all(stored[task] == checkpoint for task, checkpoint in runner.checkpoints.items()))
        committed(self, runner)

    monkeypatch.setattr(Maintenance, "committed", compared)
    engine = Losing(lambda number: unknown if number % 3 == 0 else None, declined)
    job = wiring.start(application(place), "caught-up", engine=engine)

    def replan() -> None:
        job._changing = (ChangeRequest(ChangeKind.REBALANCE, "an executor was lost"),)
        job._generation.yield_soon()

    if is_replanned:
        engine.meanwhile = replan
    try:
        job.wait(120)
    finally:
        job.stop()
    judge(place, values)
    assert engine.rounds > 6 and known and all(known)


def test_a_run_that_reads_what_it_writes_reads_what_was_written_without_a_word(place: Path) -> None:
    produced = [(str(number), 1) for number in range(30)]
    with hr.open_system(f"log:{place / 'log'}") as log:
        log.produce("in", produced, key=hr.String(), value=hr.Long())
    app = hr.App("own", system=f"log:{place / 'log'}", local_store_dir=str(place / "stores"), state_uri=str(place / "state"))
    numbers = app.stream("in", key=hr.String(), value=hr.Long())
    numbers.filter(lambda one: one.value > 0).map_values(lambda one: one.value - 1, value=hr.Long()).to("in", feedback=True)
    job = wiring.start(app, "caught-up", engine=Losing(lambda number: slice(None) if number == 1 else None))
    try:
        job.wait(60)
    finally:
        job.stop()
    with hr.open_system(f"log:{place / 'log'}") as log:
        read = [one.positions for one in log.job_store("own").checkpoints().values()]
        assert sum(sum(positions.values()) for positions in read) == 60 == sum(log.end_offsets("in").values())


def checkpoints_in(documents: list[bytes]) -> list[Checkpoint]:
    return [decode(Checkpoint, data, "checkpoint") for data in documents]


def test_an_attempt_that_wakes_after_others_have_committed_changes_nothing(place: Path) -> None:
    values = produce(place, 60)
    engine = FailingEngine(lambda number, position: False)
    run(place, engine)
    with hr.open_system(f"log:{place / 'log'}") as log:
        before = log.job_store("own").checkpoints()
    first = engine.ran[0]
    # Its base is no more the current one, and its epoch is still in force.
    assert isinstance(error_of(decoded_summary(worker.run_container(*first)).error or ""), RoundFailedError)
    with hr.open_system(f"log:{place / 'log'}") as log:
        log.job_store("own").acquire(DriverLease("other", "host", 1, "1@1", "boot", 0), 1)
        error = error_of(decoded_summary(worker.run_container(*first)).error or "")
        assert isinstance(error, FencedError)
        assert log.job_store("own").checkpoints() == before
    judge(place, values)
