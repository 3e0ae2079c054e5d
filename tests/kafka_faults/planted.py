"""Mistakes that somebody could make in Headrace, by name: each must be seen by the suite's checker, or by an error.

`plant(name)` puts one into this process. They reach into Headrace on purpose, and nothing but tests loads them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from headrace.adapters.kafka import clients, compacted, fetching, system
from headrace.adapters.kafka import container_transaction as lanes
from headrace.adapters.kafka.coordinator_store import KafkaCoordinatorStore
from headrace.adapters.kafka.lane_fencing import LaneFencing
from headrace.adapters.kafka.messages import messages_of
from headrace.adapters.lmdb import opening
from headrace.driver.rounds import round_planner
from headrace.errors import RoundFailedError
from headrace.model.checkpoint import Head, identity_of
from headrace.wiring.worker.kafka_worker import KafkaWorkerPorts
from headrace.worker.state import task_state

BUGS: dict[str, Callable[[], None]] = {}


def plant(name: str) -> None:
    BUGS[name]()


def _bug(name: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def noted(make: Callable[[], None]) -> Callable[[], None]:
        BUGS[name] = make
        return make

    return noted


def _put(owner: Any, name: str, value: Any) -> None:
    setattr(owner, name, value)


# --- the transaction ------------------------------------------------------------------------------------------------


@_bug("commit before output")
def _commit_before_output() -> None:
    """Positions and checkpoints are committed, and outputs come in a transaction after that."""
    write, commit = KafkaWorkerPorts.write_outputs, KafkaWorkerPorts.commit

    def later(self: Any, outputs: Any) -> None:
        self.held_back = outputs

    def commit_first(self: Any, checkpoints: Any) -> Any:
        transaction, producer = self._transaction, self._transaction._producer
        receipt = commit(self, checkpoints)
        transaction._producer = producer
        producer.begin_transaction()
        write(self, self.held_back)
        producer.commit_transaction(30.0)
        return receipt

    _put(KafkaWorkerPorts, "write_outputs", later)
    _put(KafkaWorkerPorts, "commit", commit_first)


@_bug("outputs outside the transaction")
def _outputs_outside() -> None:
    def plainly(self: Any, outputs: Any) -> None:
        producer = clients.new_producer(self._client, None, 0)
        for stream, batch, partitions in outputs.batches():
            clients.produce_all(producer, stream, messages_of(batch, partitions), [], 30.0)
        producer.flush(30)

    _put(KafkaWorkerPorts, "write_outputs", plainly)


@_bug("checkpoint outside the transaction")
def _checkpoint_outside() -> None:
    commit = lanes.LaneTransaction.commit

    def split(self: Any, positions: Any, checkpoints: Any, topic: str) -> None:
        producer = clients.new_producer(self._lane.client, None, 0)
        for key, value in checkpoints:
            producer.produce(topic, key=key, value=value, partition=0)
        producer.flush(30)
        commit(self, positions, [], topic)

    _put(lanes.LaneTransaction, "commit", split)


@_bug("work again with a new producer after a fence")
def _again_after_a_fence() -> None:
    """What was fenced takes the lane once more, and commits the same."""
    commit, produce = lanes.LaneTransaction.commit, lanes.LaneTransaction.produce
    sent: dict[int, list[Any]] = {}

    def kept(self: Any, topic: str, partition: int, messages: Any) -> None:
        held = list(messages)
        sent.setdefault(id(self), []).append((topic, partition, held))
        produce(self, topic, partition, held)

    def twice(self: Any, positions: Any, checkpoints: Any, topic: str) -> None:
        outputs, records = list(sent.get(id(self), [])), list(checkpoints)
        try:
            commit(self, positions, records, topic)
        except RoundFailedError:
            self._producer = clients.new_producer(self._lane.client, self._lane.transactional_id, self._lane.timeout_ms)
            self._producer.init_transactions(30)
            self._producer.begin_transaction()
            for output in outputs:
                produce(self, *output)
            commit(self, positions, records, topic)

    _put(lanes.LaneTransaction, "produce", kept)
    _put(lanes.LaneTransaction, "commit", twice)


# --- fence, epoch, base ---------------------------------------------------------------------------------------------


@_bug("skip the fence")
def _skip_the_fence() -> None:
    """What an old driver has open stays so, and its successor waits for it."""
    _put(LaneFencing, "fence", lambda self, lanes: None)


@_bug("forget a lane")
def _forget_a_lane() -> None:
    fence = LaneFencing.fence
    _put(LaneFencing, "fence", lambda self, lanes: fence(self, {title: list(mine)[:-1] for title, mine in lanes.items()}))


@_bug("no check of epoch and base")
def _no_checks() -> None:
    _put(lanes.LaneTransaction, "_check_epoch", lambda self: None)
    _put(lanes.LaneTransaction, "_verdict", lambda self, base: lanes.Verdict.WORK)


@_bug("no check of the epoch")
def _no_epoch_check() -> None:
    _put(lanes.LaneTransaction, "_check_epoch", lambda self: None)


@_bug("read the epoch before the init")
def _epoch_before_init() -> None:
    """Epoch and positions are looked at, and then the lane is taken."""
    check = lanes.LaneTransaction.check

    def early(self: Any, base: Any) -> Any:
        self._check_epoch()
        verdict = self._verdict(base)
        self._check_epoch = lambda: None
        self._verdict = lambda base: verdict
        return check(self, base)

    _put(lanes.LaneTransaction, "check", early)


@_bug("take over from a driver that lives")
def _no_heartbeat_check() -> None:
    _put(KafkaCoordinatorStore, "_checked_free", lambda self, stands, holder, now_us: now_us)


# --- what is read ---------------------------------------------------------------------------------------------------


@_bug("read unstable checkpoints")
def _unstable() -> None:
    """What is in a transaction that was never committed counts as a checkpoint."""
    _put(compacted, "reader", lambda client, group, isolation: clients.reader(client, group, isolation="read_uncommitted"))


@_bug("read up to the high watermark, committed or not")
def _dirty_reads() -> None:
    _put(system.KafkaSystem, "end_offsets", system.KafkaSystem.high_watermarks)
    _put(fetching, "reader", partial(clients.reader, isolation="read_uncommitted"))


@_bug("begin a range one record late")
def _late_range() -> None:
    ranges_of = round_planner.ranges_of

    def late(*arguments: Any) -> Any:
        return [replace(r, start=min(r.end, r.start + 1)) if r.start else r for r in ranges_of(*arguments)]

    _put(round_planner, "ranges_of", late)


@_bug("off by one in the position")
def _off_by_one() -> None:
    commit = KafkaWorkerPorts.commit

    def short(self: Any, checkpoints: Any) -> Any:
        moved = [
            replace(c, positions={s: max(0, o - (c.round_id.number == 1)) for s, o in c.positions.items()}) for c in checkpoints
        ]
        checkpoints[:] = moved
        return commit(self, checkpoints)

    _put(KafkaWorkerPorts, "commit", short)


# --- state ----------------------------------------------------------------------------------------------------------


@_bug("reuse a stale store")
def _stale_store() -> None:
    """A store is used as it is, whatever state it holds."""
    _put(opening._Opening, "_caught_up", lambda self, environment: True)
    init = task_state.TaskState.__init__

    class Blind:
        def __init__(self, store: Any, identity: str) -> None:
            self._store, self.identity = store, identity

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

    def blindly(self: Any, store: Any, base: Any) -> None:
        init(self, Blind(store, identity_of(base)), base)

    _put(task_state.TaskState, "__init__", blindly)


@_bug("apply a delta twice")
def _apply_twice() -> None:
    """The delta is in the store before it is committed, which nothing there tells: the same round is added once more."""
    write = KafkaWorkerPorts.write_state

    def write_and_apply(self: Any, task: Any, state: Any) -> Any:
        written = write(self, task, state)
        environment = state._store._environment
        state._store.end()
        file = written[0].files[-1]
        identity = state._store.identity
        environment.apply(identity, identity, lambda: self._files().batches(file))
        state._store.begin()
        return written

    _put(KafkaWorkerPorts, "write_state", write_and_apply)


@_bug("lose the last segment")
def _lose_a_segment() -> None:
    write = task_state.TaskState.write

    def without_it(self: Any, *arguments: Any, **named: Any) -> Any:
        head = write(self, *arguments, **named)
        return Head(head.version, head.files[:-1]) if head is not None and len(head.files) > 1 else head

    _put(task_state.TaskState, "write", without_it)
