"""The steps of a driver in Kafka's model: starting (start 2 to 11), rounds, recovering, a producer given up.

As in `adapters.kafka.coordinator_store`, `adapters.kafka.processor_store` and `adapters.kafka.coordinator`: every transaction
of the coordinator writes the driver's epoch as the group's position too, and is refused once another driver has inited the
coordinator's id. What a driver does for its rounds is under the ids of its lanes.
"""

from __future__ import annotations

from collections.abc import Iterator

from commit_model.kafka_attempt import first_step
from commit_model.kafka_values import (
    NOBODY,
    Attempt,
    Checkpoint,
    Driver,
    KafkaBounds,
    KafkaSafeguards,
    Lane,
    Round,
    State,
    taken,
)

Steps = Iterator[tuple[str, State]]

DEAD = Driver("dead")


def driver_steps(state: State, safeguards: KafkaSafeguards, bounds: KafkaBounds, index: int) -> Steps:
    """The next steps of the driver at `index`, in every order that its place allows."""
    driver, who = state.drivers[index], f"driver {index + 1}"
    match driver.at:
        case "take" | "epoch" | "read back" | "fence" | "read" | "plan":
            yield from _started(state, safeguards, bounds, index, who)
        case "ready":
            if driver.base.position < bounds.records and len(state.attempts) < bounds.attempts:
                yield from _planned(state, safeguards, bounds, index, who)
        case "waiting":
            if driver.attempts < bounds.attempts_per_round and len(state.attempts) < bounds.attempts:
                yield from _retried(state, safeguards, bounds, index, who)
            yield f"{who} gives up its round", state.with_driver(index, _over(driver, "check"))
        case "check" | "fence to recover" | "read again" | "compare" | "take lane" | "look" | "read once more" | "seed":
            yield from _recovered(state, safeguards, bounds, index, who)
    if driver.at not in ("take", "dead") and driver.epoch:
        yield from _producer_lost(state, safeguards, index, who)


def _over(driver: Driver, at: str) -> Driver:
    return driver._replace(at=at, round=None, attempts=0, producer_of=None)


def start_order(safeguards: KafkaSafeguards) -> tuple[str, ...]:
    order = ["take", "epoch", "read back", "fence", "read", "plan", "ready"]
    if not safeguards.read_back_epoch:
        order.remove("read back")
    if not safeguards.epoch_before_fence:
        order.remove("fence")
        order.insert(1, "fence")
    if not safeguards.fence_before_read:
        order.remove("fence")
        order.insert(order.index("plan"), "fence")
    return tuple(order)


def _started(state: State, safeguards: KafkaSafeguards, bounds: KafkaBounds, index: int, who: str) -> Steps:
    driver, broker = state.drivers[index], state.broker
    order = start_order(safeguards)
    then = driver._replace(at=order[order.index(driver.at) + 1])
    match driver.at:
        case "take" if not _in_doubt(state):
            yield f"[start 2] {who} inits the coordinator's id", state.with_broker(coordinator=index).with_driver(index, then)
        case "epoch" if not _in_doubt(state):
            if broker.coordinator != index:
                yield f"[start 3] {who} is fenced and ends", state.with_driver(index, DEAD)
                return
            epoch = 1 + max(broker.epoch, broker.group_epoch)
            written = state.with_broker(epoch=epoch, group_epoch=epoch).with_driver(index, then._replace(epoch=epoch))
            yield f"[start 3] {who} writes epoch {epoch}", written
            if state.delays and broker.pending is None:
                later = written.with_delay(None, broker, touches_group=False)
                yield f"[start 3] {who} writes epoch {epoch}, to be read later", later
        case "read back" if not _in_doubt(state):
            mine = broker.epoch == driver.epoch == broker.group_epoch
            yield f"[start 4] {who} reads epoch {broker.epoch} back", state.with_driver(index, then if mine else DEAD)
        case "fence":
            lanes = (0, 1) if safeguards.lanes_recorded else (_own_lane(bounds, index),)
            yield from _fenced(state, safeguards, index, then, "[start 5]", lanes)
        case "read":
            for base in _checkpoints_read(state, safeguards):
                after = state.with_driver(index, then._replace(base=base))
                yield f"[start 6] {who} reads position {base.position} of round {base.round_key[0]}:{base.round_key[1]}", after
        case "plan":
            yield from _plan_committed(state, bounds, index, then, who)


def _own_lane(bounds: KafkaBounds, index: int) -> int:
    return index if bounds.moves_lane else 0


def _plan_committed(state: State, bounds: KafkaBounds, index: int, then: Driver, who: str) -> Steps:
    if _in_doubt(state):
        return
    lane, (version, lane_before) = _own_lane(bounds, index), state.broker.model
    version += lane != lane_before or version == 0
    base = then.base._replace(version=version)
    written = _transacted(state, index, then._replace(base=base))
    if written.drivers[index].at != "dead":
        recorded = tuple(sorted({*state.broker.recorded, lane}))
        written = written.with_broker(model=(version, lane), recorded=recorded, topic=base, group=base.note, dirty=None)
    text = f"[start 9, 10] {who} commits job model {version}, its task on lane {lane} at position {base.position}"
    yield text, written
    if _can_delay(state, written, index):
        yield f"{text}, the group to be read later", written.with_delay(None, state.broker, touches_group=True)


def _transacted(state: State, index: int, then: Driver) -> State:
    """What every transaction of the coordinator does; a fenced driver ends instead."""
    if state.broker.coordinator != index:
        return state.with_driver(index, DEAD)
    driver = state.drivers[index]
    foul = f"driver {index + 1} of epoch {driver.epoch} writes in epoch {state.broker.epoch}"
    after = state.with_driver(index, then).with_broker(group_epoch=driver.epoch)
    return after._replace(foul=foul) if driver.epoch < state.broker.epoch else after


def _in_doubt(state: State) -> bool:
    """Whether a transaction of the coordinator has not ended: the next one, and an init of its id, wait."""
    return state.broker.pending is not None and state.broker.pending.lane is None


def _can_delay(state: State, written: State, index: int) -> bool:
    return state.delays > 0 and state.broker.pending is None and written.drivers[index].at != "dead"


def _fenced(
    state: State, safeguards: KafkaSafeguards, index: int, then: Driver, step: str, lanes: tuple[int, ...]
) -> Steps:
    pending = state.broker.pending
    known = [lane for lane in lanes if not safeguards.lanes_recorded or lane in state.broker.recorded]
    if pending is not None and pending.lane in known:
        return
    after = state.with_driver(index, then)
    for lane in known:
        after = taken(after, safeguards, lane, NOBODY)
    text = " and ".join(map(str, known)) or "none"
    yield f"{step} driver {index + 1} fences lanes: {text}", after


def _checkpoints_read(state: State, safeguards: KafkaSafeguards) -> list[Checkpoint]:
    broker = state.broker
    if not safeguards.committed_checkpoints:
        return [broker.dirty or broker.topic]
    # Read up to all that is written: a transaction that is open there, or whose markers are not written, is waited for.
    return [] if state.is_topic_in_doubt else [broker.topic]


# --- rounds ---------------------------------------------------------------------------------------------------------


def _planned(state: State, safeguards: KafkaSafeguards, bounds: KafkaBounds, index: int, who: str) -> Steps:
    driver = state.drivers[index]
    limit = 1 if state.broker.input_open and safeguards.end_at_stable_offset else bounds.records
    end = min(driver.base.position + bounds.records_per_round_max, limit)
    if end <= driver.base.position:
        return
    lane, key = _own_lane(bounds, index), (driver.epoch, driver.rounds + 1)
    round_ = Round(index, key, lane, driver.base, end, driver.producer_of)
    waiting = driver._replace(at="waiting", round=round_, attempts=1, rounds=driver.rounds + 1)
    for process in _processes(state, bounds):
        attempt = Attempt(round_, process, first_step(safeguards))
        after = state.with_driver(index, waiting)._replace(attempts=(*state.attempts, attempt))
        first = f"starts attempt {len(after.attempts)}{_in(process)}"
        yield f"[start 12] {who} plans round {key[0]}:{key[1]}, [{driver.base.position}, {end}), {first}", after


def _retried(state: State, safeguards: KafkaSafeguards, bounds: KafkaBounds, index: int, who: str) -> Steps:
    driver = state.drivers[index]
    assert driver.round is not None
    for process in _processes(state, bounds):
        attempt = Attempt(driver.round, process, first_step(safeguards))
        again = state.with_driver(index, driver._replace(attempts=driver.attempts + 1))
        after = again._replace(attempts=(*state.attempts, attempt))
        yield f"Spark starts attempt {len(after.attempts)} of {who}'s round{_in(process)}", after


def _processes(state: State, bounds: KafkaBounds) -> tuple[int | None, ...]:
    """Where the next attempt may run. The two are alike: the first attempt of all runs in the one that is called 0."""
    if not bounds.reuses:
        return (None,)
    return (0, 1) if state.attempts else (0,)


def _in(process: int | None) -> str:
    return "" if process is None else f" in process {process}"


# --- after a round that failed ----------------------------------------------------------------------------------------


def _recovered(state: State, safeguards: KafkaSafeguards, bounds: KafkaBounds, index: int, who: str) -> Steps:
    driver, lane = state.drivers[index], _own_lane(bounds, index)
    match driver.at:
        case "check" | "look" if not _in_doubt(state):
            first = "fence to recover" if safeguards.fence_to_recover else "read again"
            then, looks = ("read once more", safeguards.look_before_seed) if driver.at == "look" else (first, True)
            is_ours = state.broker.group_epoch == driver.epoch or not looks
            after = state.with_driver(index, driver._replace(at=then) if is_ours else DEAD)
            yield f"{who} looks at the epoch of its lanes: {state.broker.group_epoch}", after
        case "fence to recover":
            yield from _fenced(state, safeguards, index, driver._replace(at="read again"), "recover:", (lane,))
        case "read again" | "read once more":
            at = "compare" if driver.at == "read again" else "seed"
            for base in _checkpoints_read(state, safeguards):
                yield f"{who} reads position {base.position} again", state.with_driver(index, driver._replace(at=at, base=base))
        case "compare":
            yield from _compared(state, safeguards, index, who)
        case "take lane" if state.broker.pending is None or state.broker.pending.lane != lane:
            after = taken(state.with_driver(index, driver._replace(at="look")), safeguards, lane, _producer_of(index))
            yield f"{who} inits lane {lane}", after
        case "seed":
            yield from _seeded(state, safeguards, index, lane, who)


def _producer_of(index: int) -> int:
    """The owner of a lane that a driver has inited."""
    return -1 - index


def _compared(state: State, safeguards: KafkaSafeguards, index: int, who: str) -> Steps:
    driver, broker = state.drivers[index], state.broker
    if state.is_topic_in_doubt and safeguards.stable_positions:
        return
    pending = broker.pending
    found = pending.group if pending is not None and pending.touches_group else broker.group
    if found == driver.base.note:
        yield f"{who} finds the group where the topic is", state.with_driver(index, driver._replace(at="ready"))
        return
    lost = driver._replace(at="take lane" if safeguards.seed_by_lane else "seed")
    yield f"{who} finds the group without that position", state.with_driver(index, lost)


def _seeded(state: State, safeguards: KafkaSafeguards, index: int, lane: int, who: str) -> Steps:
    """The lost position is set under the lane's id, or where that safeguard is out under the coordinator's."""
    driver = state.drivers[index]
    text = f"{who} seeds the group with position {driver.base.position}"
    if safeguards.seed_by_lane:
        if state.broker.lanes[lane].owner != _producer_of(index):
            yield f"{who} has lost lane {lane}, and reads again", state.with_driver(index, driver._replace(at="read again"))
            return
        seeded = state.with_driver(index, driver._replace(at="ready")).with_lane(lane, Lane())
    elif driver.producer == "live" and not _in_doubt(state):
        seeded = _transacted(state, index, driver._replace(at="ready"))
    else:
        return
    if seeded.drivers[index].at != "dead":
        seeded = seeded.with_broker(group=driver.base.note)
    yield text, seeded
    if _can_delay(state, seeded, index):
        owner = lane if safeguards.seed_by_lane else None
        yield f"{text}, to be read later", seeded.with_delay(owner, state.broker, touches_group=True)


# --- a coordinator's producer whose last transaction has no known outcome ----------------------------------------------


def _producer_lost(state: State, safeguards: KafkaSafeguards, index: int, who: str) -> Steps:
    """A heartbeat's answer is lost, and the id is taken once more; the driver does other things meanwhile."""
    driver, broker = state.drivers[index], state.broker
    deposed = broker.epoch > driver.epoch
    match driver.producer:
        case "live" if state.heartbeats_lost and broker.coordinator == index and driver.at in _BEATS:
            asks = "lost" if safeguards.ask_before_retaking else "asked"
            lost = state.with_driver(index, driver._replace(producer=asks))
            yield f"{who} loses its producer in a heartbeat", lost._replace(heartbeats_lost=state.heartbeats_lost - 1)
        case "lost":
            asked = DEAD if deposed else driver._replace(producer="asked")
            yield f"{who} looks at the epoch: {broker.epoch}", state.with_driver(index, asked)
        case "asked" if not _in_doubt(state):
            then = driver._replace(producer="taken" if safeguards.ask_after_retaking else "beats")
            yield f"{who} inits the coordinator's id once more", state.with_broker(coordinator=index).with_driver(index, then)
        case "taken":
            kept = DEAD if deposed else driver._replace(producer="beats")
            yield f"{who} looks at the epoch after that: {broker.epoch}", state.with_driver(index, kept)
        case "beats" if not _in_doubt(state):
            yield f"{who} writes its heartbeat", _transacted(state, index, driver._replace(producer="live"))


_BEATS = frozenset({"ready", "waiting", "check", "read again", "compare", "take lane", "look", "read once more", "seed"})
