"""The steps of a driver in the model of a change of factor: start 2 to 11, scale 1 to 5, rounds, garbage.

What it knows it has read when it took its epoch, or heard since; what is stored may have changed under it.
"""

from __future__ import annotations

from collections.abc import Iterator

from commit_model.elasticity_values import (
    KEYS,
    Attempt,
    Driver,
    ElasticityBounds,
    ElasticitySafeguards,
    ElasticityState,
    Made,
    Request,
    Round,
    files_of,
    is_aligned,
    note_of,
    recut,
)
from commit_model.elasticity_work import applied, is_hopeless, key_text, lanes_of, processed, round_over, with_made

Steps = Iterator[tuple[str, ElasticityState]]

DEAD = Driver("dead")


def driver_steps(state: ElasticityState, safeguards: ElasticitySafeguards, bounds: ElasticityBounds, index: int) -> Steps:
    """The next steps of the driver at `index`, in every order that its state allows."""
    driver, who = state.drivers[index], f"driver {index + 1}"
    yield from _started(state, safeguards, bounds, index, who)
    match driver.at:
        case "fence":
            ready = driver._replace(at="planning")
            yield f"[start 5] {who} fences the lanes", _fenced(state, safeguards, 0).with_driver(index, ready)
        case "planning":
            yield from _planned(state, safeguards, index, who)
        case "removed before":
            yield _decided(state, safeguards, index, who)
        case "half":
            yield _flipped(state, safeguards, index, who)
        case "removing":
            yield from _removed(state, index, who)
        case "running":
            yield from _running(state, safeguards, bounds, index, who)
        case "waiting":
            yield from _waiting(state, safeguards, bounds, index, who)
        case "collected":
            yield _round_committed(state, safeguards, index, who)
        case "given up":
            yield _recovered(state, safeguards, index, who)
    if driver.garbage:
        names = ", ".join(driver.garbage)
        yield f"{who} deletes {names}", state.without_files(driver.garbage).with_driver(index, driver._replace(garbage=()))


# --- start 2 to 7: the epoch, the fence, what is read ----------------------------------------------------------------


def _started(state: ElasticityState, safeguards: ElasticitySafeguards, bounds: ElasticityBounds, index: int, who: str) -> Steps:
    driver, stored = state.drivers[index], state.stored
    is_takeover = stored.epoch > 0 and (driver.at, driver.epoch) != ("yielded", stored.epoch)
    if driver.at in ("waiting", "fence") or (is_takeover and not state.takeovers):
        return  # a driver that is killed in a round is another driver's takeover
    epoch = stored.epoch + 1
    begun = Driver(
        at="planning",
        epoch=epoch,
        version=stored.version,
        base=stored.checkpoints,
        seen=stored.requests,
        done=stored.done if safeguards.ids_on_record else (),
        judged=driver.judged and driver.at == "yielded",
    )
    after = state.with_stored(epoch=epoch)._replace(takeovers=state.takeovers - is_takeover)
    positions = " and ".join(str(one.position) for one in stored.checkpoints)
    if safeguards.fence_before_read:
        after = _fenced(after, safeguards, begun.pending[-1].factor if begun.pending else stored.factor)
        text = f"[start 2-7] {who} takes epoch {epoch}, fences all lanes, reads positions {positions}"
    else:
        begun = begun._replace(at="fence")
        text = f"{who} takes epoch {epoch}, reads positions {positions} BEFORE it fences"
    yield text, after.with_driver(index, begun)


def settled(state: ElasticityState, safeguards: ElasticitySafeguards, bounds: ElasticityBounds) -> ElasticityState:
    """`state` without those that can do nothing any more that matters (see `elasticity_model`)."""
    attempts = tuple(one for one in state.attempts if not is_hopeless(state, safeguards, one))
    drivers = []
    for driver in state.drivers:
        if driver.at in ("off", "dead") or driver.epoch == state.stored.epoch:
            drivers.append(driver)
            continue
        match driver.at:
            case "running":
                ends = safeguards.asked_after_listing or driver.rounds > 0
            case "yielded" | "given up":
                ends = True
            case "planning":
                ends = bool(driver.pending) and safeguards.removed_after
            case "waiting":
                ends = safeguards.epoch_check if bounds.is_log else all(one.round != driver.round for one in attempts)
            case "collected":
                ends = safeguards.epoch_check
            case _:
                ends = False
        drivers.append(DEAD._replace(garbage=driver.garbage) if ends else driver)
    return state._replace(attempts=attempts, drivers=tuple(drivers))


def _fenced(state: ElasticityState, safeguards: ElasticitySafeguards, factor: int) -> ElasticityState:
    """Who has inited a lane that is fenced is at its end. `factor`: of the tasks that will be, 0: all lanes."""
    lanes = range(factor) if factor and not safeguards.all_lanes_fenced else range(len(KEYS))
    left = tuple(attempt for attempt in state.attempts if attempt.made is None or attempt.lane not in lanes)
    return state._replace(attempts=left)


def _recovered(state: ElasticityState, safeguards: ElasticitySafeguards, index: int, who: str) -> tuple[str, ElasticityState]:
    driver, stored = state.drivers[index], state.stored
    if driver.epoch != stored.epoch:
        return f"{who} finds epoch {stored.epoch} and ends", state.with_driver(index, DEAD)
    positions = " and ".join(str(one.position) for one in stored.checkpoints)
    after = round_over(_fenced(state, safeguards, 0), safeguards, index, stored.checkpoints)
    return f"{who} fences all lanes and reads positions {positions} again", after


# --- start 8 to 11: the plan; scale 5: requests ---------------------------------------------------------------


def _planned(state: ElasticityState, safeguards: ElasticitySafeguards, index: int, who: str) -> Steps:
    driver = state.drivers[index]
    if not driver.pending:
        removes = tuple(request.id for request in driver.seen)
        yield f"{who} continues with its job model", state.with_driver(index, _after_plan(driver, removes))
        return
    wanted = driver.pending[-1].factor
    is_judged = safeguards.judged_after_fence or not driver.judged
    if wanted < driver.factor and not is_aligned(driver.base) and is_judged:
        target = max(one.position for one in driver.base)
        waits = driver._replace(at="running", target=target)
        yield f"[start 8] {who} finds siblings apart, keeps the factor, target {target}", state.with_driver(index, waits)
    elif not safeguards.removed_after:
        ready = driver._replace(at="removed before")
        left = tuple(request for request in state.stored.requests if request not in driver.pending)
        yield f"{who} removes the requests FIRST", state.with_stored(requests=left).with_driver(index, ready)
    else:
        yield _decided(state, safeguards, index, who)


def _decided(state: ElasticityState, safeguards: ElasticitySafeguards, index: int, who: str) -> tuple[str, ElasticityState]:
    """The plan's transaction: of a new factor, or where nothing is to change only of the ids."""
    driver, stored = state.drivers[index], state.stored
    wanted = driver.pending[-1].factor
    if driver.epoch != stored.epoch:
        return f"[start 9] {who} is fenced and ends", state.with_driver(index, DEAD)
    if wanted == driver.factor:
        ids = [request.id for request in driver.pending]
        return f"{who} puts requests {ids} on record, the factor stays {wanted}", _recorded(state, index)
    if safeguards.one_transaction:
        return _flipped(state, safeguards, index, who)
    half = state.with_stored(version=stored.version + 1, factor=wanted).with_driver(index, driver._replace(at="half"))
    return f"[start 9] {who} commits job model {stored.version + 1} of factor {wanted} ALONE", half


def _flipped(state: ElasticityState, safeguards: ElasticitySafeguards, index: int, who: str) -> tuple[str, ElasticityState]:
    driver, stored = state.drivers[index], state.stored
    wanted, version = driver.pending[-1].factor, driver.version + 1
    wrong = state.wrong
    if any(request.id == driver.pending[-1].id for request in state.decided):
        wrong = f"request {driver.pending[-1].id} is applied again"
    checkpoints = recut(driver.base, wanted, driver.epoch, safeguards)
    notes = tuple(note_of(checkpoints[lane], version) if lane < wanted else stored.notes[lane] for lane in range(len(KEYS)))
    kept = recut(stored.kept, wanted, driver.epoch, safeguards) if stored.kept and is_aligned(stored.kept) else ()
    flipped = state.with_driver(index, driver._replace(version=version, base=checkpoints)).with_stored(
        version=version, factor=wanted, checkpoints=checkpoints, notes=notes, kept=kept
    )
    positions = " and ".join(str(one.position) for one in checkpoints)
    label = f"[start 9] {who} commits job model {version}: factor {wanted}, at {positions}"
    return label, _recorded(flipped, index)._replace(wrong=wrong)


def _recorded(state: ElasticityState, index: int) -> ElasticityState:
    """With the ids of the requests that the plan answers on record; they are to be removed."""
    driver = state.drivers[index]
    ids = {request.id for request in driver.pending}
    decided = tuple(sorted({*state.decided, *driver.pending}))
    done = tuple(sorted({*state.stored.done, *ids}))
    after = state.with_stored(done=done)._replace(decided=decided)
    removes = tuple(request.id for request in driver.seen)
    return after.with_driver(index, _after_plan(driver._replace(done=tuple(sorted({*driver.done, *ids}))), removes))


def _after_plan(driver: Driver, removes: tuple[int, ...]) -> Driver:
    return driver._replace(at="removing" if removes else "running", removes=removes, target=-1)


def _removed(state: ElasticityState, index: int, who: str) -> Steps:
    """One request after the other, in any order; it may fail, and a driver that was deposed may do it."""
    driver = state.drivers[index]
    for id_ in driver.removes:
        left = tuple(request for request in state.stored.requests if request.id != id_)
        removes = tuple(other for other in driver.removes if other != id_)
        then = driver._replace(at="removing" if removes else "running", removes=removes)
        yield f"[scale 5] {who} removes request {id_}", state.with_stored(requests=left).with_driver(index, then)
    resigned = driver._replace(at="running", removes=())
    yield f"{who} cannot remove the requests, and continues", state.with_driver(index, resigned)


# --- scale 1 to 3: requests that a running job sees, and the end of its generation -----------------------------------


def _running(state: ElasticityState, safeguards: ElasticitySafeguards, bounds: ElasticityBounds, index: int, who: str) -> Steps:
    driver, stored = state.drivers[index], state.stored
    if any(request not in driver.seen for request in stored.requests):
        yield _seen(state, safeguards, index, who)
    if driver.target >= 0 and is_aligned(driver.base):
        yielded = driver._replace(at="yielded", judged=True)
        yield f"[scale 3] {who} finds its siblings together and ends its generation", state.with_driver(index, yielded)
        return
    yield from _kept_and_listed(state, safeguards, index, who)
    positions = [one.position for one in driver.base]
    start = min(positions) if safeguards.lowest_start else max(positions)
    end = min(start + bounds.records_per_round_max, bounds.records)
    if driver.target >= 0:  # a sibling may be past it: an attempt that was believed dead has committed
        end = max(driver.target, *positions) if safeguards.target_follows else driver.target
    if start < end:
        number = driver.rounds + 1
        round_ = Round(index, (driver.epoch, number), driver.version, start, end, driver.base)
        lanes = lanes_of(round_)
        attempts = tuple(int(lane in lanes) for lane in range(driver.factor))
        after = state.with_driver(index, driver._replace(at="waiting", rounds=number, round=round_, attempts=attempts))
        if not bounds.is_log:
            after = after.with_attempts(*(Attempt(round_, lane) for lane in lanes))
        closing = "closing " if driver.target >= 0 else ""
        yield f"[start 12, log 1] {who} plans {closing}round {key_text(round_)}: [{start}, {end})", after


def _seen(state: ElasticityState, safeguards: ElasticitySafeguards, index: int, who: str) -> tuple[str, ElasticityState]:
    stored = state.stored
    driver = state.drivers[index]._replace(seen=stored.requests)
    ids = [request.id for request in driver.pending]
    if not ids:
        return f"[scale 1] {who} sees requests that are on record", state.with_driver(index, driver)
    wanted = driver.pending[-1].factor
    label = f"[scale 1] {who} sees requests {ids}"
    if wanted == driver.factor:
        if driver.epoch != stored.epoch:
            return f"{label}, is fenced and ends", state.with_driver(index, DEAD)
        return f"{label}, puts them on record: the factor is {wanted}", _recorded(state.with_driver(index, driver), index)
    if wanted > driver.factor or not safeguards.aligned_first:
        yielded = driver._replace(at="yielded", target=-1, judged=not safeguards.aligned_first)
        return f"{label}, ends its generation", state.with_driver(index, yielded)
    target = max(one.position for one in driver.base)
    return f"{label}, sets target {target}", state.with_driver(index, driver._replace(target=target))


# --- rounds ---------------------------------------------------------------------------------------------------------


def _waiting(state: ElasticityState, safeguards: ElasticitySafeguards, bounds: ElasticityBounds, index: int, who: str) -> Steps:
    driver, round_ = state.drivers[index], state.drivers[index].round
    assert round_ is not None
    unheard = [lane for lane in lanes_of(round_) if all(one.bucket != lane for one in driver.heard)]
    live = {attempt.lane for attempt in state.attempts if attempt.round == round_}
    has_failed = not bounds.is_log and any(lane not in live for lane in unheard)
    given_up = driver._replace(at="given up", round=None, attempts=(), heard=())
    if has_failed:
        ended = state._replace(attempts=tuple(one for one in state.attempts if one.round != round_))
        yield f"{who} gives round {key_text(round_)} up, its attempts have ended", ended.with_driver(index, given_up)
    if state.rounds_given_up:
        less = state._replace(rounds_given_up=state.rounds_given_up - 1)
        yield f"{who} gives round {key_text(round_)} up, its attempts go on", less.with_driver(index, given_up)
    if bounds.is_log:
        for text, worked, made in _all_processed(state, safeguards, bounds, round_):
            collected = driver._replace(at="collected", heard=made)
            yield f"[log 2-8] round {key_text(round_)}: {text}", worked.with_driver(index, collected)
        return
    for lane in unheard:
        if driver.attempts[lane] < bounds.attempts_per_lane:
            more = tuple(count + (one == lane) for one, count in enumerate(driver.attempts))
            after = state.with_driver(index, driver._replace(attempts=more)).with_attempts(Attempt(round_, lane))
            yield f"Spark starts another attempt of lane {lane} of round {key_text(round_)}", after


def _all_processed(
    state: ElasticityState, safeguards: ElasticitySafeguards, bounds: ElasticityBounds, round_: Round
) -> Iterator[tuple[str, ElasticityState, tuple[Made, ...]]]:
    """On the embedded log: what the tasks of all containers make, each cut at any row."""
    worlds: list[tuple[list[str], ElasticityState, tuple[Made, ...]]] = [([], state, ())]
    for bucket in lanes_of(round_):
        worlds = [
            ([*texts, text], after, (*made, one))
            for (texts, before, made) in worlds
            for text, after, one in processed(before, safeguards, bounds, round_, bucket)
            if one is not None
        ]
    for texts, after, made in worlds:
        yield "; ".join(texts), after, made


def _round_committed(
    state: ElasticityState, safeguards: ElasticitySafeguards, index: int, who: str
) -> tuple[str, ElasticityState]:
    """The embedded log: the driver's transaction."""
    driver, stored, round_ = state.drivers[index], state.stored, state.drivers[index].round
    assert round_ is not None
    dead = state.with_driver(index, DEAD)
    if safeguards.epoch_check and driver.epoch != stored.epoch:
        return f"[log 9, 10] {who} finds epoch {stored.epoch} and ends", dead
    if safeguards.version_stamp and round_.version != stored.version:
        return f"[log 9, 10] {who} finds another job model and ends", dead
    made = driver.heard
    found = {bucket: checkpoint.note for bucket, checkpoint in enumerate(stored.checkpoints)}
    others = [one for one in made if found.get(one.bucket) != round_.base[one.bucket].note]
    if safeguards.base_check and (others or len(found) != len(round_.base)):
        return f"[log 9, 10] {who} finds another base and ends", dead
    if any(stored.values(name) is None for name in files_of(one.checkpoint for one in made)):
        return f"[log 9, 10] {who} misses a file and ends", dead
    after = applied(state, round_, made)
    current = with_made(driver.base, made)
    positions = " and ".join(str(one.position) for one in current)
    return f"[log 9-12] {who} commits {positions}", round_over(after, safeguards, index, current)


# --- kept versions, and files that nothing names ------------------------------------------------------------------------


def _kept_and_listed(state: ElasticityState, safeguards: ElasticitySafeguards, index: int, who: str) -> Steps:
    driver, stored = state.drivers[index], state.stored
    is_ours = driver.epoch == stored.epoch
    if is_ours and state.keeps and not stored.kept and files_of(driver.base):
        kept = state.with_stored(kept=driver.base)._replace(keeps=state.keeps - 1)
        yield f"{who} keeps a version at {driver.base[0].position}", kept
    if is_ours and stored.kept:
        unneeded = files_of(stored.kept) - files_of(driver.base)
        garbage = tuple(sorted({*driver.garbage, *unneeded}))
        dropped = state.with_stored(kept=()).with_driver(index, driver._replace(garbage=garbage))
        yield f"{who} drops the kept version", dropped
    if driver.rounds == 0 and (is_ours or not safeguards.asked_after_listing):
        live = files_of(driver.base) | (files_of(stored.kept) if safeguards.kept_is_live else set())
        orphans = {name for name, _ in stored.files} - live
        if orphans - set(driver.garbage):
            found = state.with_driver(index, driver._replace(garbage=tuple(sorted({*driver.garbage, *orphans}))))
            yield f"{who} lists orphans: {', '.join(sorted(orphans))}", found


def requests_of(factors: tuple[int, ...]) -> tuple[Request, ...]:
    """What users will ask for, in this order."""
    return tuple(Request(number, factor) for number, factor in enumerate(factors, 1))
