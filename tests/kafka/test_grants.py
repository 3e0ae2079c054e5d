"""Grants on a real broker: who may commit in a standalone group, whoever its leader is (protocol.md 7 and 8)."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from headrace.adapters.kafka import positions
from headrace.adapters.kafka.container_transaction import Lane, LaneTransaction, Verdict
from headrace.adapters.kafka.names import checkpoint_topic, metadata_topic
from headrace.adapters.kafka.positions import container_positions
from headrace.adapters.kafka.system import open_system
from headrace.codec.documents import encode
from headrace.core.group.grants import Grant
from headrace.errors import (
    FencedError,
    IncompatibleChangeError,
    JobHeldError,
    NotSupportedError,
    RoundFailedError,
    UnavailableError,
)
from headrace.model.checkpoint import Checkpoint, Head, RoundId, StateFile, StateFileKind
from headrace.model.commits import DriverLease
from headrace.model.job_model import ContainerModel, JobModel, SubTopologyModel, TaskModel
from headrace.model.streams import SSP
from headrace.model.tasks import PartitionGroup, TaskName
from headrace.ports.coordinator_store import CoordinatorStore
from headrace.ports.processor_store import ProcessorStore
from headrace.testing import KafkaServer
from support.broker import read_topic
from support.world import waited

FIRST = DriverLease("run-1", "host-1", 17, "1@1", "boot", 0)
NEXT = replace(FIRST, host="host-2", pid=18)  # of the same group
ALONE = replace(FIRST, run_id="run-2", host="host-3", pid=19)
A, B = (TaskName(PartitionGroup(number)) for number in range(2))
LONG_AFTER_US = 60_000_000


@pytest.fixture
def system(kafka_server: KafkaServer) -> Iterator[Any]:
    with open_system(f"kafka://{kafka_server.bootstrap}") as opened:
        yield opened


class Group:
    """An application of so many tasks, on a lane each; of two: A of processor a, B of processor b."""

    def __init__(self, system: Any, tasks: int = 2) -> None:
        self.system, self.name = system, f"grants-{uuid.uuid4().hex[:8]}"
        system.create_stream(f"{self.name}-input", tasks)
        self.tasks = [TaskName(PartitionGroup(number)) for number in range(tasks)]
        self.ssps = {task: SSP(system.name, f"{self.name}-input", number) for number, task in enumerate(self.tasks)}

    def model(self, version: int, owners: Sequence[str], since: Sequence[int]) -> JobModel:
        containers = tuple(
            ContainerModel(lane, (TaskModel(task, (self.ssps[task],)),), owners[lane], None, since[lane])
            for lane, task in enumerate(self.tasks)
        )
        subs, stream = (SubTopologyModel(None, containers),), self.ssps[A].stream
        return JobModel(self.name, version, subs, {stream: len(self.tasks)}, stream_ids={stream: "id"})

    def leader(self) -> CoordinatorStore:
        store: CoordinatorStore = self.system.job_store(self.name)
        return store

    def checkpoint(self, task: TaskName, round_id: RoundId, since: int, position: int) -> Checkpoint:
        return Checkpoint(task, round_id, since, {self.ssps[task]: position})

    def commit(self, base: Checkpoint, grant: int, number: int) -> Checkpoint:
        """A container's transaction under a grant, as its worker makes it: reads one record."""
        attempt, made = self.attempt(base, grant, number)
        attempt.begin()
        self.finish(attempt, made)
        return made

    def attempt(self, base: Checkpoint, grant: int, number: int) -> tuple[LaneTransaction, Checkpoint]:
        position = 1 + max(base.positions.values())
        made = self.checkpoint(base.task, RoundId(grant, None, number), base.job_model_version, position)
        lane = Lane(self.name, "source", self._lane(base), grant, str(made.round_id), self.system.client, 60_000)
        transaction = LaneTransaction(lane)
        assert transaction.check(self._positions(base)) is Verdict.WORK
        return transaction, made

    def finish(self, attempt: LaneTransaction, made: Checkpoint) -> None:
        attempt.commit(self._positions(made), [(str(made.task).encode(), encode(made))], checkpoint_topic(self.name))

    def _lane(self, checkpoint: Checkpoint) -> int:
        return self.tasks.index(checkpoint.task)

    def _positions(self, checkpoint: Checkpoint) -> list[positions.Position]:
        return container_positions(self.name, "source", self._lane(checkpoint), [checkpoint], ())


@pytest.fixture
def group(system: Any) -> Group:
    return Group(system)


def begun(group: Group) -> tuple[CoordinatorStore, int, dict[TaskName, Checkpoint]]:
    """The first plan: its leader's store and epoch, and the checkpoints. Grants: a has 101, b 102."""
    store = group.leader()
    epoch = store.acquire(FIRST, 0, for_group=True)
    zero = RoundId(epoch, None, 0)
    checkpoints = {task: group.checkpoint(task, zero, 1, 0) for task in (A, B)}
    grants = {"a": Grant(101, "1"), "b": Grant(102, "2")}
    store.commit_job_model(epoch, group.model(1, ("a", "b"), (1, 1)), list(checkpoints.values()), grants=grants)
    return store, epoch, checkpoints


def test_processors_commit_under_their_grants_whoever_leads(group: Group) -> None:
    _, epoch, bases = begun(group)
    made = group.commit(bases[A], 101, 1)
    with pytest.raises(RoundFailedError, match=rf"under epoch {epoch}, in which grant {epoch} is not in force"):
        group.commit(made, epoch, 1)  # as a driver's round would be
    successor = group.leader()
    later = successor.acquire(NEXT, 1, for_group=True)
    assert later > 102 and successor.grants() == {"a": Grant(101, "1"), "b": Grant(102, "2")}
    made = group.commit(made, 101, 2)
    group.commit(bases[B], 102, 1)
    assert successor.checkpoints()[A] == made
    successor.heartbeat(later, 2)
    group.commit(made, 101, 3)


def test_the_files_of_checkpoints_that_came_and_went_are_told_once(group: Group) -> None:
    """A leader looks from time to time; between two looks a processor makes files, and folds them into another one."""

    def commit(grant: int, number: int, *names: str) -> None:
        nonlocal made
        attempt, later = group.attempt(made, grant, number)
        attempt.begin()
        made = replace(later, head=Head(number, tuple(StateFile(one, StateFileKind.DELTA, 1, 1, "c") for one in names)))
        group.finish(attempt, made)

    store, epoch, bases = begun(group)
    made = bases[A]
    assert store.replaced_files() == frozenset()
    commit(101, 1, "a")
    commit(101, 2, "a", "b")
    commit(101, 3, "c")
    assert store.checkpoints()[A] == made
    assert store.replaced_files() == {"a", "b"} and store.replaced_files() == frozenset()
    commit(101, 4, "c", "d")
    commit(101, 5, "e")
    store.checkpoints()
    assert store.replaced_files() == {"c", "d"}
    store.step_down(epoch)
    commit(101, 6, "f")
    waited(lambda: store.checkpoints()[A] == made)  # who leads no more waits for no transaction
    assert store.replaced_files() == frozenset(), "who leads no more collects nothing"


def test_a_leader_that_was_replaced_writes_nothing(group: Group) -> None:
    store, epoch, bases = begun(group)
    successor = group.leader()
    successor.acquire(NEXT, 1, for_group=True)
    with pytest.raises(FencedError):
        store.write_grants(epoch, {})
    with pytest.raises(FencedError):
        store.heartbeat(epoch, 2)
    group.commit(bases[A], 101, 1)


def test_a_plan_moves_a_task_and_the_other_works_on(group: Group) -> None:
    store, epoch, bases = begun(group)
    made = group.commit(bases[A], 101, 1)
    sleeping, late = group.attempt(bases[B], 102, 1)  # it stays; its transaction is open all through the change
    sleeping.begin()
    store.write_grants(epoch, {"b": Grant(102, "2")})
    with pytest.raises(RoundFailedError, match="grant 101 is not in force"):
        group.attempt(made, 101, 2)
    store.fence(epoch, {"source": [0]})
    moved = group.checkpoint(A, made.round_id, 2, 1)
    grants = {"b": Grant(102, "2"), "c": Grant(103, "3")}
    group.finish(sleeping, late)  # the leader reads the topic of checkpoints to its end, and waits for what is open there
    store.commit_job_model(epoch, group.model(2, ("c", "b"), (2, 1)), [moved], grants=grants)
    group.commit(late, 102, 2)
    after = group.commit(moved, 103, 1)
    assert store.checkpoints()[A] == after
    assert store.checkpoints()[B].round_id == RoundId(102, None, 2), "the plan has written nothing of it"
    owner, lost = group.attempt(after, 103, 2)
    owner.begin()
    with pytest.raises(RoundFailedError, match="grant 101 is not in force"):
        group.attempt(after, 101, 3)  # it takes the lane, and looks then
    with pytest.raises(RoundFailedError):
        group.finish(owner, lost)  # one round is lost
    assert store.checkpoints()[A] == after
    last = group.commit(after, 103, 3)
    assert store.checkpoints()[A] == last, "and no data"


def test_one_that_gets_a_task_works_on_until_it_begins_with_both(group: Group) -> None:
    """Task A goes to the processor of B, onto its lane: what that has open stays open, under its former number."""
    store, epoch, bases = begun(group)
    made = group.commit(bases[A], 101, 1)
    store.write_grants(epoch, {"b": Grant(102, "2")})
    store.fence(epoch, {"source": [0]})
    open_, late = group.attempt(bases[B], 102, 1)
    open_.begin()
    group.finish(open_, late)
    orphan, never = group.attempt(late, 102, 2)  # begun before the plan, and it sleeps
    moved = group.checkpoint(A, made.round_id, 1, 1)
    (container,) = group.model(2, ("b", "b"), (1, 1)).sub_topologies[0].containers[1:]
    both = replace(container, tasks=tuple(TaskModel(task, (group.ssps[task],)) for task in (A, B)))
    model = replace(group.model(2, ("b", "b"), (1, 1)), sub_topologies=(SubTopologyModel(None, (both,)),))
    store.commit_job_model(epoch, model, [moved], grants={"b": Grant(103, "2", former=102)})
    assert store.checkpoints() == {A: moved, B: late}, "nothing of B is written"
    processor = group.system.processor_store(group.name)
    processor.begin(103, model, "b")
    assert processor.recover(103, None) == {A: moved, B: late}
    orphan.begin()
    with pytest.raises(RoundFailedError):
        group.finish(orphan, never)
    after = group.commit(late, 103, 1)
    assert store.checkpoints() == {A: moved, B: after}
    with pytest.raises(RoundFailedError, match="it builds on"):
        group.attempt(late, 102, 3)  # its number is in force, and what it builds on is over
    successor = group.leader()
    successor.acquire(NEXT, 1, for_group=True)
    assert successor.grants() == {"b": Grant(103, "2", former=102)}
    assert successor.numbers_used() > 103


def test_a_plan_that_moves_one_task_of_many_writes_nothing_of_the_others(system: Any, kafka_server: KafkaServer) -> None:
    group = Group(system, 64)
    ids, moved = [f"p{number}" for number in range(64)], group.tasks[0]
    store = group.leader()
    epoch = store.acquire(FIRST, 0, for_group=True)
    grants = {id_: Grant(101 + number, id_) for number, id_ in enumerate(ids)}
    bases = {task: group.checkpoint(task, RoundId(epoch, None, 0), 1, 0) for task in group.tasks}
    store.commit_job_model(epoch, group.model(1, ids, [1] * 64), list(bases.values()), grants=grants)
    kept = {id_: grant for id_, grant in grants.items() if id_ not in ("p0", "p1")}
    working = {number: group.commit(bases[group.tasks[number]], 101 + number, 1) for number in (2, 33, 63)}
    store.write_grants(epoch, kept)
    store.fence(epoch, {"source": [0, 1]})
    working = {number: group.commit(made, 101 + number, 2) for number, made in working.items()}
    stored = store.checkpoints()
    written = written_checkpoints(group, kafka_server)
    now = {**stored, moved: replace(stored[moved], job_model_version=2)}
    model = group.model(2, ["p1", *ids[1:]], [2] + [1] * 63)
    given = {**kept, "p1": Grant(200, "p1")}
    store.commit_job_model(epoch, model, list(now.values()), stored=stored, grants=given)
    assert written_checkpoints(group, kafka_server) - written == Counter({str(moved): 1})
    for number, made in working.items():
        last = group.commit(made, 101 + number, 3)  # each builds on the one before: there is no gap
        assert store.checkpoints()[last.task] == last and last.positions[group.ssps[last.task]] == 3
    assert store.checkpoints()[group.tasks[7]] == bases[group.tasks[7]]


def written_checkpoints(group: Group, kafka_server: KafkaServer) -> Counter[str]:
    """How often a checkpoint of each task was written."""
    rows = read_topic(kafka_server.client_settings(), checkpoint_topic(group.name))
    return Counter(row["key"].decode() for row in rows)


def test_a_leader_that_slept_through_another_ones_plan_finds_that_it_was_replaced(group: Group) -> None:
    """The checkpoints are of a job model that it does not know: none of its own is missing."""
    store, _, bases = begun(group)
    assert store.checkpoints() == bases
    give_a_to_c(group, bases)
    with pytest.raises(FencedError, match="another driver has taken over"):
        store.checkpoints()


def test_a_processor_that_loses_a_task_while_it_recovers_is_fenced(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, bases = begun(group)
    rounds = group.system.processor_store(group.name)
    rounds.begin(101, group.model(1, ("a", "b"), (1, 1)), "a")
    monkeypatch.setattr(rounds._fencing, "fence", lambda lanes: give_a_to_c(group, bases))  # its grant was looked at before
    with pytest.raises(FencedError, match="grant 101 of this processor is not in force"):
        rounds.recover(101, None)


def test_a_plan_is_committed_though_a_stream_was_recreated_with_fewer_partitions(group: Group) -> None:
    """No broker takes the position of a partition that is not there; its checkpoint is kept."""
    store, epoch, bases = begun(group)
    group.system.delete_stream(group.ssps[B].stream)
    group.system.create_stream(group.ssps[B].stream, 1)
    kept = {"a": Grant(101, "1")}
    store.write_grants(epoch, kept)
    store.fence(epoch, {"source": [1]})
    moved = replace(bases[B], job_model_version=2)
    model = group.model(2, ("a", "c"), (1, 2))
    store.commit_job_model(epoch, model, [moved], stored=bases, grants={**kept, "c": Grant(103, "3")})
    assert store.checkpoints() == {A: bases[A], B: moved}


def give_a_to_c(group: Group, bases: dict[TaskName, Checkpoint]) -> None:
    """A new leader takes over, and commits a plan."""
    successor = group.leader()
    epoch = successor.acquire(NEXT, 1, for_group=True)
    kept = {"b": Grant(102, "2")}
    successor.write_grants(epoch, kept)
    successor.fence(epoch, {"source": [0]})
    moved = replace(bases[A], job_model_version=2)
    model = group.model(2, ("c", "b"), (2, 1))
    successor.commit_job_model(epoch, model, [moved], stored=bases, grants={**kept, "c": Grant(104, "3")})


def test_an_attempt_that_slept_through_a_change_is_fenced(group: Group) -> None:
    store, epoch, bases = begun(group)
    attempt, made = group.attempt(bases[A], 101, 1)
    attempt.begin()
    store.write_grants(epoch, {"b": Grant(102, "2")})
    store.fence(epoch, {"source": [0]})
    moved = group.checkpoint(A, bases[A].round_id, 2, 0)
    store.commit_job_model(
        epoch, group.model(2, ("c", "b"), (2, 1)), [moved], grants={"b": Grant(102, "2"), "c": Grant(103, "3")}
    )
    with pytest.raises(RoundFailedError):
        group.finish(attempt, made)
    assert store.checkpoints()[A] == moved
    group.commit(moved, 103, 1)


def test_a_driver_that_takes_over_ends_all_grants_and_the_other_way_round(group: Group) -> None:
    _, _, bases = begun(group)
    alone = group.leader()
    with pytest.raises(JobHeldError):
        alone.acquire(ALONE, 1)
    later = alone.acquire(ALONE, LONG_AFTER_US)
    assert later > 102 and alone.grants() is None
    with pytest.raises(RoundFailedError, match=rf"is in epoch {later}, the round is of 101"):
        group.attempt(bases[A], 101, 1)
    made = group.commit(bases[A], later, 1)
    again = group.leader()
    newest = again.acquire(replace(FIRST, run_id="run-3"), 2 * LONG_AFTER_US, for_group=True)
    assert newest > later and again.grants() == {}
    with pytest.raises(RoundFailedError, match=f"grant {later} is not in force"):
        group.attempt(made, later, 2)


@pytest.mark.parametrize("left", ["", "a", "b"], ids=["of all", "of the one with the highest", "of the other"])
def test_numbers_are_never_given_twice(group: Group, left: str) -> None:
    """Whosever grants are taken back, and whatever is given to those that are left."""
    store, epoch, _ = begun(group)
    assert store.numbers_used() == 102
    stay = {id_: grant for id_, grant in (store.grants() or {}).items() if id_ == left}
    store.write_grants(epoch, stay)
    assert store.numbers_used() == 102, "what was taken back is not given again"
    store.heartbeat(epoch, 1)
    store.write_grants(epoch, stay)
    assert store.numbers_used() == 102
    successor = group.leader()
    assert successor.acquire(NEXT, 1, for_group=True) == 103
    successor.write_grants(103, stay)
    assert successor.numbers_used() == 103


def test_a_processor_sees_that_its_grant_was_taken_back(group: Group) -> None:
    store, epoch, bases = begun(group)
    rounds = group.system.processor_store(group.name)
    rounds.begin(101, group.model(1, ("a", "b"), (1, 1)), "a")
    rounds.check_epoch(101)
    assert rounds.recover(101, None) == {A: bases[A]}, "its own tasks alone"
    assert rounds.heard(None) == [bases[B]]
    made = group.commit(bases[B], 102, 1)
    assert heard_by(rounds) == [made] and rounds.heard(None) == []
    store.write_grants(epoch, {"b": Grant(102, "2")})
    with pytest.raises(FencedError, match="grant 101 of this processor is not in force"):
        rounds.check_epoch(101)
    with pytest.raises(FencedError):
        rounds.recover(101, None)


def heard_by(rounds: ProcessorStore) -> Sequence[Checkpoint]:
    """What it hears next: records of a transaction may be readable a moment after its commit has returned."""
    until_s = time.monotonic() + 30.0
    while not (found := rounds.heard(None)) and time.monotonic() < until_s:
        time.sleep(0.01)
    return found


def test_recovering_fences_no_other_processor(group: Group) -> None:
    store, _, bases = begun(group)
    rounds = group.system.processor_store(group.name)
    rounds.begin(101, group.model(1, ("a", "b"), (1, 1)), "a")
    attempt, made = group.attempt(bases[B], 102, 1)
    rounds.recover(101, None)
    attempt.begin()
    group.finish(attempt, made)
    assert store.checkpoints()[B] == made


def test_heartbeats_put_no_grant_in_force_again(group: Group) -> None:
    store, epoch, bases = begun(group)
    store.write_grants(epoch, {})
    for beat in range(3):
        store.heartbeat(epoch, beat)
    with pytest.raises(RoundFailedError):
        group.attempt(bases[A], 101, 1)
    assert group.leader().grants() == {}


@pytest.mark.parametrize("is_open", [False, True], ids=["no transaction is open", "its leader was killed in one"])
def test_processors_at_work_keep_a_single_driver_out(group: Group, is_open: bool) -> None:
    """They have lost their leader, and are about to have another. One that has left is none."""
    store: Any = begun(group)[0]
    if is_open:
        producer = store._job.coordinator._producer
        producer.begin_transaction()
        producer.produce(metadata_topic(group.name), key=b"job/nothing", value=b"1", partition=0)
        producer.flush(5)
    processor = group.system.processor_store(group.name)
    for id_, ago_us in (("a", 20_000_000), ("b", 1_000_000)):
        processor.publish_processor(id_, {"updated_us": LONG_AFTER_US - ago_us})
    with pytest.raises(JobHeldError, match="is run by a group, of which these processors work: b"):
        group.leader().acquire(ALONE, LONG_AFTER_US)
    processor.publish_processor("b", None)
    group.leader().acquire(ALONE, LONG_AFTER_US)


def test_more_processors_than_a_broker_can_note_are_refused_before_anything_is_written(group: Group) -> None:
    store, epoch, bases = begun(group)
    with pytest.raises(NotSupportedError, match="a group of 900 processors"):
        store.write_grants(epoch, {f"p{number}": Grant(100_000 + number, str(number)) for number in range(900)})
    group.commit(bases[A], 101, 1)


@pytest.mark.parametrize("who", ["the leader that has planned", "another processor", "a leader that has taken over"])
def test_a_stream_that_was_recreated_is_seen_by_each_process(group: Group, kafka_server: KafkaServer, who: str) -> None:
    """It has as many partitions as before, and more records than were read of the one that is gone."""
    store, stream = group.leader(), group.ssps[A].stream
    epoch = store.acquire(FIRST, 0, for_group=True)
    model = replace(group.model(1, ("a", "b"), (1, 1)), stream_ids={stream: group.system.describe_stream(stream).id})
    bases = [group.checkpoint(task, RoundId(epoch, None, 0), 1, 5) for task in (A, B)]
    group.system.produce(stream, [(None, b"%d" % number) for number in range(20)])
    store.commit_job_model(epoch, model, bases, grants={"a": Grant(101, "1"), "b": Grant(102, "2")})
    with open_system(f"kafka://{kafka_server.bootstrap}") as own:
        system = group.system if who == "the leader that has planned" else own
        if who == "a leader that has taken over":
            own.job_store(group.name).acquire(NEXT, 1, for_group=True)
        rounds = system.processor_store(group.name)
        rounds.begin(102, model, "b")
        rounds.recover(102, None)
        assert system.end_offsets(stream)
        with open_system(f"kafka://{kafka_server.bootstrap}") as operator:
            operator.delete_stream(stream)
            operator.create_stream(stream, 2)
            operator.produce(stream, [(None, b"%d" % number) for number in range(20)])
        with pytest.raises(IncompatibleChangeError, match="was deleted and recreated"):
            system.end_offsets(stream)


# --- a broker that does not give positions -----------------------------------------------------------------------------


class Away:
    """A consumer whose group's broker is away."""

    def committed(self, *_: Any, **__: Any) -> Any:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))


@pytest.mark.parametrize("of", ["coordinator", "source"])
@pytest.mark.parametrize("ask", ["numbers used", "grants", "check", "recovery"])
def test_positions_that_cannot_be_read_are_waited_for(
    group: Group, ask: str, of: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other brokers answer: it is the one of a group that is away. A processor waits for it, as for any system."""
    store, epoch, _ = begun(group)
    rounds = group.system.processor_store(group.name)
    rounds.begin(101, group.model(1, ("a", "b"), (1, 1)), "a")
    asked: dict[str, Callable[[], object]] = {
        "numbers used": store.numbers_used,
        "grants": lambda: store.write_grants(epoch, {"a": Grant(101, "1")}),
        "check": lambda: rounds.check_epoch(101),
        "recovery": lambda: rounds.recover(101, None),
    }
    away, right = f"{group.name}.{of}", positions.consumer_of
    with monkeypatch.context() as patched:
        patched.setattr(positions, "consumer_of", lambda client, name: Away() if name == away else right(client, name))
        if of == "coordinator" or ask == "recovery":
            with pytest.raises(UnavailableError, match=f"positions of group '{away}' cannot be read"):
                asked[ask]()
        else:
            asked[ask]()
    asked[ask]()
    assert rounds.recover(101, None)[A].round_id.epoch == epoch
