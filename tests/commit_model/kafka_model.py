"""The model of Kafka's commit (protocol.md 2, 6 to 12, 15, 17): its initial state, all steps, the invariants.

How the labels of steps map to the numbered steps of protocol.md, "Steps", Kafka:

| protocol | step of the model |
|---|---|
| start 1 heartbeat | left out: any driver may start at any time, the worst case |
| start 2 to 6 | one step each; all lanes are fenced in one, as one task is on one lane |
| start 7 to 10 | resolving and translating touch nothing shared; the plan's transaction; read back: a fenced driver ends |
| container 1, 2 | init; read the epoch; read the positions: three steps |
| container 3 to 7 | one step: what is sent into an open transaction shows only as positions in doubt and an offset held back |
| container 8, 9 | commit, known; or its answer is lost; or it can be read only after a step of its own (markers) |
| container 10, 11 | apply and answer, one step: an answer that comes later is a driver that gives up before |
| recover | look at the epoch, fence the lane, read the topic, compare the group |
| recover: a lost position | init the lane, look at the epoch, read once more, commit it under the lane |

**Pauses and crashes need no steps**, as in the embedded log's model: a process that is never scheduled again is a crashed
one, and a driver may give up a round at any time. A transaction that its timeout ends is one that a fence ends.

**What is left out, and why that is honest.** A fenced attempt that has looked is dropped at once: the broker refuses all
it sends, and its answer is as good as none. What it does to the local store before (open it, rebuild it) is in the
embedded log's model, as are files that go missing and torn reads; here a store is opened and read in one step.
Producer epochs are who inited last: nothing else of them is ever compared. One task, on one lane of two: lanes meet only
where a task moves.

**Redundant at this size.** `stable_positions` and `read_back_epoch` cover for each other: who fences waits for markers,
so only the epoch's own transaction can be in doubt when a worker looks. `version_stamp`: a version comes with an epoch,
and the epoch is checked; where an epoch can go back (`ask_after_retaking` out) the stamp alone keeps the outputs right.
`done_answers` keeps a retried Spark task from failing its round, not data. `fence_to_recover`: what an older attempt still
commits is found by who builds on another base; the fence ends what a reader would wait for. `reuse_by_last_committer`: a
producer that somebody's init has fenced cannot commit; the rule saves the round that would fail. `ask_before_retaking`: what
is asked after is what counts; the rule saves a successor from being fenced.
"""

from __future__ import annotations

from collections.abc import Iterator

from commit_model.kafka_attempt import attempt_steps
from commit_model.kafka_driver import driver_steps
from commit_model.kafka_values import (
    FRESH,
    Broker,
    Driver,
    KafkaBounds,
    KafkaSafeguards,
    Lane,
    State,
    folded,
    names_of,
)
from commit_model.log_values import EMPTY, Store, worked_off


class KafkaModel:
    """Kafka's commit with `safeguards`, in a world of `bounds`; a `Model` for `explore`.

    `outputs_only`: look at nothing but what readers of the outputs see, past whatever else is broken by then.
    """

    def __init__(
        self, bounds: KafkaBounds, safeguards: KafkaSafeguards | None = None, *, outputs_only: bool = False
    ) -> None:
        self.bounds = bounds
        self.safeguards = safeguards or KafkaSafeguards()
        self.outputs_only = outputs_only
        self._verdicts: dict[object, str | None] = {}

    def initial(self) -> list[State]:
        bounds = self.bounds
        broker = Broker(
            coordinator=-1,
            epoch=0,
            group_epoch=0,
            model=(0, 0),
            recorded=(),
            lanes=(Lane(), Lane()),
            topic=FRESH,
            dirty=None,
            group=FRESH.note,
            outputs=(),
            pending=None,
            input_open=bounds.input_open,
        )
        return [
            State(
                broker=broker,
                store=Store((), EMPTY),
                drivers=(Driver(),) * bounds.drivers,
                attempts=(),
                kept=(0, 0),
                answers_lost=bounds.answers_lost,
                heartbeats_lost=bounds.heartbeats_lost,
                delays=bounds.delays,
                expiries=bounds.expiries,
            )
        ]

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        for index in range(len(state.drivers)):
            yield from driver_steps(state, self.safeguards, self.bounds, index)
        for index, attempt in enumerate(state.attempts):
            if attempt is not None:
                yield from attempt_steps(state, self.safeguards, index, attempt)
        broker = state.broker
        if broker.pending is not None:
            yield "the markers are written", state.with_broker(pending=None)
        if state.expiries and broker.group is not None and broker.recorded:
            yield "the group's position expires", state.with_broker(group=None)._replace(expiries=state.expiries - 1)
        if broker.input_open:
            yield "the transaction on the input commits", state.with_broker(input_open=False)

    def broken(self, state: State) -> str | None:
        # Drivers and attempts have no part in the invariants, and most states share the rest.
        broker = state.broker
        shared = (broker.epoch, broker.group_epoch, broker.topic, broker.group, broker.outputs, state.store, state.foul)
        if shared not in self._verdicts:
            self._verdicts[shared] = self._violation(state)
        return self._verdicts[shared]

    def _violation(self, state: State) -> str | None:
        if self.outputs_only:
            return _wrong_outputs(state)
        return state.foul or _wrong_epoch(state) or _wrong_outputs(state) or _wrong_positions(state) or _wrong_state(state)

    def finished(self, state: State) -> bool:
        return state.broker.topic.position == self.bounds.records


def _wrong_epoch(state: State) -> str | None:
    broker = state.broker
    if broker.group_epoch != broker.epoch:
        return f"the epoch that workers read went back to {broker.group_epoch}, the plan is of {broker.epoch}"
    return None


def _wrong_outputs(state: State) -> str | None:
    position, found = state.broker.topic.position, state.broker.outputs
    _, _, expected = worked_off(EMPTY, 0, position)
    if found == expected:
        return None
    records = [record for record, _ in found]
    duplicates = sorted({record for record in records if records.count(record) > 1})
    missing = sorted(set(range(position)).difference(records))
    what = f"records {missing} are lost" if missing else "they differ"
    if duplicates:
        what = f"records {duplicates} are there twice"
    return f"the outputs are not those of records [0, {position}): {what}; found {found}, expected {expected}"


def _wrong_positions(state: State) -> str | None:
    broker = state.broker
    if broker.group is not None and broker.group != broker.topic.note:
        return f"the group's position is {broker.group}, the checkpoint of record is {broker.topic.note}"
    return None


def _wrong_state(state: State) -> str | None:
    topic, store = state.broker.topic, state.store
    for version, (name, base, _) in enumerate(topic.head):
        if base != names_of(topic.head)[:version]:
            return f"no chain: segment {name} builds on {base}, follows {names_of(topic.head)[:version]}"
    expected, _, _ = worked_off(EMPTY, 0, topic.position)
    if folded(topic.head) != expected:
        return f"the state at position {topic.position} is {folded(topic.head)}, expected {expected}"
    at = len(store.head)
    if names_of(topic.head)[:at] != store.head:
        return f"the store is at {store.head}, which no checkpoint builds on"
    if store.counts != folded(topic.head[:at]):
        return f"the store at {store.head} holds {store.counts}, expected {folded(topic.head[:at])}"
    return None
