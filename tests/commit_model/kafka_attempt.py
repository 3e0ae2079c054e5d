"""The steps of a container's attempt in Kafka's model: container steps 1 to 11 of protocol.md.

As in `adapters.kafka.container_transaction` and `wiring.worker.kafka_worker`. An attempt is never told that its round is over.
"""

from __future__ import annotations

from collections.abc import Iterator

from commit_model.kafka_values import (
    NOBODY,
    Attempt,
    Checkpoint,
    KafkaSafeguards,
    Lane,
    Note,
    Round,
    State,
    folded,
    names_of,
    taken,
)
from commit_model.log_values import Counts, Store, applied, worked_off

Steps = Iterator[tuple[str, State]]

_ORDER = ("init", "epoch", "positions", "send", "commit", "apply")
_LOOKS_FIRST = ("epoch", "positions", "init", "send", "commit", "apply")


def first_step(safeguards: KafkaSafeguards) -> str:
    return _order(safeguards)[0]


def attempt_steps(state: State, safeguards: KafkaSafeguards, index: int, attempt: Attempt) -> Steps:
    """The next steps of the attempt at `index`: none while the broker makes it wait."""
    who = f"attempt {index + 1} of round {attempt.round.key[0]}:{attempt.round.key[1]}"
    match attempt.at:
        case "init":
            yield from _inited(state, safeguards, index, attempt, who)
        case "epoch":
            yield from _epoch_read(state, safeguards, index, attempt, who)
        case "positions":
            yield from _positions_read(state, safeguards, index, attempt, who)
        case "send":
            yield _sent(state, safeguards, index, attempt, who)
        case "commit":
            yield from _committed(state, safeguards, index, attempt, who)
        case "positions alone":
            yield _positions_committed(state, index, attempt, who)
        case "apply":
            yield _applied(state, safeguards, index, attempt, who)


def _order(safeguards: KafkaSafeguards) -> tuple[str, ...]:
    return _ORDER if safeguards.init_before_check else _LOOKS_FIRST


def _after(safeguards: KafkaSafeguards, at: str) -> str:
    order = _order(safeguards)
    return order[order.index(at) + 1]


def _inited(state: State, safeguards: KafkaSafeguards, index: int, attempt: Attempt, who: str) -> Steps:
    lane, then = attempt.round.lane, _after(safeguards, "init")
    kept = 0 if attempt.process is None else state.kept[attempt.process]
    let_go = _keeping(state, attempt.process, NOBODY)
    if kept and (attempt.round.producer_of == attempt.process or not safeguards.reuse_by_last_committer):
        reusing = attempt._replace(at=then, producer=kept)
        yield f"[kafka 1] {who} takes the producer of attempt {kept} again", let_go.with_attempt(index, reusing)
        return
    if _is_pending(state, lane):
        return  # an init waits until the markers of the transaction before are written
    after = taken(let_go, safeguards, lane, index + 1)
    yield (
        f"[kafka 1] {who} inits lane {lane}",
        after.with_attempt(index, attempt._replace(at=then, producer=index + 1)),
    )


def _epoch_read(state: State, safeguards: KafkaSafeguards, index: int, attempt: Attempt, who: str) -> Steps:
    pending = state.broker.pending
    in_doubt = pending is not None and pending.lane is None
    if in_doubt and safeguards.stable_positions:
        return
    epoch = pending.epoch if in_doubt and pending is not None else state.broker.group_epoch
    if safeguards.epoch_check and epoch != attempt.round.key[0]:
        yield f"[kafka 2] {who} finds epoch {epoch} and stops", _ended(state, index, attempt)
    else:
        then = attempt._replace(at=_after(safeguards, "epoch"))
        yield f"[kafka 2] {who} finds epoch {epoch}", state.with_attempt(index, then)


def _positions_read(state: State, safeguards: KafkaSafeguards, index: int, attempt: Attempt, who: str) -> Steps:
    broker = state.broker
    if state.is_topic_in_doubt and safeguards.stable_positions:
        return
    pending = broker.pending
    found = pending.group if pending is not None and pending.touches_group else broker.group
    round_ = attempt.round
    if found is not None and found[1] == round_.key and safeguards.base_check:
        yield f"[kafka 2] {who} finds that its round has committed", _answered_done(state, safeguards, index, attempt)
    elif safeguards.base_check and not _is_base(safeguards, found, round_.base):
        yield f"[kafka 2] {who} finds {_text(found)}, not its base, and fails", _ended(state, index, attempt)
    elif safeguards.fenced_never_inits and attempt.producer not in (NOBODY, broker.lanes[round_.lane].owner):
        yield f"[kafka 2] {who} finds its base, is fenced and fails", _ended(state, index, attempt)
    else:
        then = attempt._replace(at=_after(safeguards, "positions"))
        yield f"[kafka 2] {who} finds its base, {_text(found)}", state.with_attempt(index, then)


def _is_base(safeguards: KafkaSafeguards, found: Note | None, base: Checkpoint) -> bool:
    compared = 3 if safeguards.version_stamp else 2
    return found is not None and found[:compared] == base.note[:compared]


def _answered_done(state: State, safeguards: KafkaSafeguards, index: int, attempt: Attempt) -> State:
    topic = state.broker.topic
    after = _ended(state, index, attempt)
    if not safeguards.done_answers or topic.round_key != attempt.round.key:
        return after
    return _heard(after, attempt.round, topic, None)


def _sent(state: State, safeguards: KafkaSafeguards, index: int, attempt: Attempt, who: str) -> tuple[str, State]:
    round_ = attempt.round
    base, lane = round_.base, state.broker.lanes[round_.lane]
    store = _opened(state.store, base)
    visible = min(round_.end, 1) if state.broker.input_open else round_.end
    _, delta, outputs = worked_off(store.counts, base.position, visible)
    segment = (f"s{index + 1}", names_of(base.head), delta)
    made = Checkpoint(round_.end, (*base.head, segment), round_.key, base.version)
    after = state._replace(store=store)
    if lane.owner == attempt.producer:
        after = after.with_lane(round_.lane, lane._replace(is_open=True))
        if not safeguards.committed_checkpoints:
            after = after.with_broker(dirty=made)
    return (
        f"[kafka 3-7] {who} processes [{base.position}, {round_.end}), writes {segment[0]}, sends all of it",
        after.with_attempt(index, attempt._replace(at="commit", made=made, outputs=outputs)),
    )


def _opened(store: Store, base: Checkpoint) -> Store:
    """The store at `base`: what it lacks is put in; one that is elsewhere is rebuilt from the segments."""
    wanted = names_of(base.head)
    if wanted[: len(store.head)] != store.head:
        return Store(wanted, folded(base.head))
    counts: Counts = store.counts
    for _, _, delta in base.head[len(store.head) :]:
        counts = applied(counts, delta)
    return Store(wanted, counts)


def _committed(state: State, safeguards: KafkaSafeguards, index: int, attempt: Attempt, who: str) -> Steps:
    number, broker = attempt.round.lane, state.broker
    lane = broker.lanes[number]
    if lane.owner != attempt.producer:
        if safeguards.fenced_never_inits:
            yield f"[kafka 8] {who} is fenced and fails", _ended(state, index, attempt)
        elif not _is_pending(state, number):
            again = taken(state, safeguards, number, index + 1).with_lane(number, Lane(index + 1, True))
            retaken = attempt._replace(producer=index + 1)
            yield f"{who} is fenced, inits AGAIN, sends the same", again.with_attempt(index, retaken)
        return
    if broker.pending is not None and broker.pending.lane == number:
        return
    made = attempt.made
    assert made is not None
    done = state.with_lane(number, lane._replace(is_open=False))
    done = done.with_broker(outputs=broker.outputs + attempt.outputs)
    if not safeguards.one_transaction:
        alone = done.with_attempt(index, attempt._replace(at="positions alone", outputs=()))
        yield f"[kafka 8, 9] {who} commits its outputs ALONE", alone
        return
    done = done.with_broker(topic=made, group=made.note, dirty=None)
    if broker.pending is not None and broker.pending.touches_group:  # the later commit counts
        done = done.with_broker(pending=broker.pending._replace(group=made.note))
    after = done.with_attempt(index, attempt._replace(at="apply", outputs=()))
    yield f"[kafka 8, 9] {who} commits position {made.position}", _keeping(after, attempt.process, attempt.producer)
    if state.answers_lost:
        unsure = _ended(done._replace(answers_lost=state.answers_lost - 1), index, attempt)
        yield f"[kafka 8] {who} commits position {made.position} and does not learn that it did", unsure
    if state.delays and broker.pending is None:
        later = after.with_delay(number, broker, touches_group=True)
        yield f"[kafka 8, 9] {who} commits position {made.position}, to be read later", later


def _keeping(state: State, process: int | None, kept: int) -> State:
    if process is None:
        return state
    return state._replace(kept=(kept, state.kept[1]) if process == 0 else (state.kept[0], kept))


def _positions_committed(state: State, index: int, attempt: Attempt, who: str) -> tuple[str, State]:
    made = attempt.made
    assert made is not None
    after = state.with_broker(topic=made, group=made.note)
    return f"{who} commits position {made.position} after its outputs", after.with_attempt(index, attempt._replace(at="apply"))


def _applied(state: State, safeguards: KafkaSafeguards, index: int, attempt: Attempt, who: str) -> tuple[str, State]:
    made = attempt.made
    assert made is not None
    name, base, delta = made.head[-1]
    at = state.store.head
    after = _heard(state.with_attempt(index, None), attempt.round, made, attempt.process)
    if safeguards.compare_and_set and at != base:
        return f"[kafka 10, 11] {who} skips {name}: the store is at {at}; answers", after
    store = Store((*base, name), applied(state.store.counts, delta))
    return f"[kafka 10, 11] {who} applies {name} to the store at {at}; answers", after._replace(store=store)


def _heard(state: State, round_: Round, checkpoint: Checkpoint, process: int | None) -> State:
    """The driver takes the answer if it waits for this round; no driver waits for a zombie's."""
    driver = state.drivers[round_.driver]
    if driver.at != "waiting" or driver.round != round_:
        return state
    ready = driver._replace(at="ready", base=checkpoint, round=None, attempts=0, producer_of=process)
    return state.with_driver(round_.driver, ready)


def _ended(state: State, index: int, attempt: Attempt) -> State:
    """Without the attempt; its lane is free if it was the last."""
    after = state.with_attempt(index, None)
    lane = state.broker.lanes[attempt.round.lane]
    if attempt.producer != NOBODY and lane.owner == attempt.producer and not lane.is_open:
        return after.with_lane(attempt.round.lane, Lane())
    return after


def _is_pending(state: State, lane: int) -> bool:
    return state.broker.pending is not None and state.broker.pending.lane == lane


def _text(note: Note | None) -> str:
    return "nothing" if note is None else f"{note[0]} of round {note[1][0]}:{note[1][1]}"
