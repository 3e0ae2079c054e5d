"""The steps of a driver in the embedded log's model: starting (start 3 to 9), log steps 1 and 9 to 12, collection.

A SQLite write transaction excludes every other one (`BEGIN IMMEDIATE`), so what it reads cannot change under it; files
and stores can. It is two steps here, entering with its checks (9, 10) and writing (11, 12), with a kill in between.
"""

from __future__ import annotations

from collections.abc import Iterator

from commit_model.log_values import (
    Attempt,
    Bounds,
    Catalog,
    Checkpoint,
    Driver,
    Round,
    Safeguards,
    State,
    named_files,
)

Steps = Iterator[tuple[str, State]]


def driver_steps(state: State, safeguards: Safeguards, bounds: Bounds, index: int) -> Steps:
    """The next steps of the driver at `index`, in every order that its place allows."""
    driver, who = state.drivers[index], f"driver {index + 1}"
    match driver.at:
        case "off" | "acquired" | "has read" | "translating":
            yield from _start(state, safeguards, bounds, index, who)
        case "ready":
            if driver.base.position < bounds.records and len(state.attempts) < bounds.attempts:
                yield _planned(state, bounds, index, who)
        case "waiting":
            yield from _retried(state, bounds, index)
        case "collected":
            if state.catalog.writer is None:
                yield _began(state, safeguards, index, who)
        case "positions":
            if state.catalog.writer is None:
                yield _positions_committed(state, index, who)
        case "in transaction":
            yield from _committed(state, safeguards, index, who)
    if driver.at in ("waiting", "collected") and state.catalog.epoch < bounds.epochs:
        over = Driver(rounds=driver.rounds)
        yield f"{who} gives up round {_text(driver.round)} and starts over", state.with_driver(index, over)
    if bounds.collects and driver.at in ("ready", "waiting", "collected"):
        yield from _collected(state, safeguards, index, who)


def _start(state: State, safeguards: Safeguards, bounds: Bounds, index: int, who: str) -> Steps:
    driver, catalog = state.drivers[index], state.catalog
    acquires_now = "off" if safeguards.read_after_acquire else "has read"
    reads_now = "acquired" if safeguards.read_after_acquire else "off"
    brings_model = bounds.new_job_model and index == 1 and catalog.model == 0
    started = "translating" if brings_model else "ready"
    if driver.at == acquires_now and catalog.writer is None and catalog.epoch < bounds.epochs:
        epoch = catalog.epoch + 1
        at = "acquired" if safeguards.read_after_acquire else started
        after = state.with_driver(index, driver._replace(at=at, epoch=epoch))
        yield f"[start 3] {who} acquires epoch {epoch}", after._replace(catalog=catalog._replace(epoch=epoch))
    elif driver.at == reads_now:
        base = _row(catalog, catalog.model)
        at = started if safeguards.read_after_acquire else "has read"
        after = state.with_driver(index, driver._replace(at=at, model=catalog.model, base=base))
        yield f"[start 6] {who} reads the checkpoint: position {base.position}", after
    elif driver.at == "translating" and catalog.writer is None:
        if safeguards.epoch_check and driver.epoch != catalog.epoch:
            yield f"[start 9] {who} is fenced and stops", state.with_driver(index, Driver("dead"))
            return
        after = state.with_driver(index, driver._replace(at="ready", model=1))
        changed = catalog._replace(model=1, rows=(catalog.rows[0], driver.base))
        yield (
            f"[start 8, 9] {who} commits a new job model, its task at position {driver.base.position}",
            after._replace(catalog=changed),
        )


def _planned(state: State, bounds: Bounds, index: int, who: str) -> tuple[str, State]:
    driver = state.drivers[index]
    start, number = driver.base.position, driver.rounds + 1
    end = min(start + bounds.records_per_round_max, bounds.records)
    round_ = Round(index, (driver.epoch, number), driver.model, driver.base, end)
    after = state.with_driver(index, driver._replace(at="waiting", rounds=number, round=round_, attempts=1))
    return (
        f"[log 1] {who} plans round {_text(round_)}: [{start}, {end}), starts attempt {len(state.attempts) + 1}",
        after._replace(attempts=(*after.attempts, Attempt(len(state.attempts) + 1, round_))),
    )


def _retried(state: State, bounds: Bounds, index: int) -> Steps:
    driver, number = state.drivers[index], len(state.attempts) + 1
    if driver.round is not None and driver.attempts < bounds.attempts_per_round and number <= bounds.attempts:
        after = state.with_driver(index, driver._replace(attempts=driver.attempts + 1))
        attempts = (*state.attempts, Attempt(number, driver.round))
        yield f"Spark starts attempt {number} of round {_text(driver.round)}", after._replace(attempts=attempts)


def _began(state: State, safeguards: Safeguards, index: int, who: str) -> tuple[str, State]:
    driver, catalog = state.drivers[index], state.catalog
    round_ = driver.round
    assert round_ is not None
    if safeguards.epoch_check and driver.epoch != catalog.epoch:
        return (
            f"[log 9, 10] {who} finds epoch {catalog.epoch}, not its {driver.epoch}, and stops",
            state.with_driver(index, Driver("dead")),
        )
    over = Driver(rounds=driver.rounds)
    if safeguards.base_check and catalog.rows[round_.model] != round_.base:
        return (
            f"[log 9, 10] {who} finds another base than round {_text(round_)}'s and starts over",
            state.with_driver(index, over),
        )
    named = [name for summary in driver.summaries for name in (summary.segment, summary.output)]
    if safeguards.stat_files and (missing := [name for name in named if state.file(name) is None]):
        return (
            f"[log 9, 10] {who} misses {', '.join(missing)} and starts over",
            state.with_driver(index, over),
        )
    inside = state.with_driver(index, driver._replace(at="in transaction"))
    return (
        f"[log 9, 10] {who} begins the transaction of round {_text(round_)}, its checks pass",
        inside._replace(catalog=catalog._replace(writer=index)),
    )


def _committed(state: State, safeguards: Safeguards, index: int, who: str) -> Steps:
    driver, catalog = state.drivers[index], state.catalog
    released = state._replace(catalog=catalog._replace(writer=None))
    yield f"{who} is killed inside its transaction", released.with_driver(index, Driver("dead"))
    outputs = tuple(summary.output for summary in driver.summaries)
    written = catalog._replace(chunks=catalog.chunks + outputs, writer=None)
    if not safeguards.one_transaction:
        after = state.with_driver(index, driver._replace(at="positions"))
        yield f"[log 11, 12] {who} commits outputs {', '.join(outputs)} ALONE", after._replace(catalog=written)
        return
    after = state._replace(catalog=_with_checkpoint(written, driver))
    text = f"{', '.join(outputs)}, position {_checkpoint_of(driver).position}"
    yield f"[log 11, 12] {who} commits {text}", after.with_driver(index, _ready_again(driver))
    if state.answers_lost:
        unsure = after.with_driver(index, driver._replace(at="collected"))
        yield (
            f"[log 11, 12] {who} commits {text}, but does not learn that it did",
            unsure._replace(answers_lost=state.answers_lost - 1),
        )


def _positions_committed(state: State, index: int, who: str) -> tuple[str, State]:
    driver = state.drivers[index]
    after = state._replace(catalog=_with_checkpoint(state.catalog, driver))
    return (
        f"[log 11, 12] {who} commits position {_checkpoint_of(driver).position} after its outputs",
        after.with_driver(index, _ready_again(driver)),
    )


def _checkpoint_of(driver: Driver) -> Checkpoint:
    assert driver.round is not None
    segment, reached = driver.summaries[-1].segment, max(summary.position for summary in driver.summaries)
    return Checkpoint(reached, (*driver.round.base.head, segment), driver.round.key)


def _with_checkpoint(catalog: Catalog, driver: Driver) -> Catalog:
    assert driver.round is not None
    checkpoint = _checkpoint_of(driver)
    # The first commit under a new job model forgets the checkpoint of the one before (protocol.md 12).
    rows = (checkpoint, catalog.rows[1]) if driver.round.model == 0 else (None, checkpoint)
    return catalog._replace(rows=rows)


def _ready_again(driver: Driver) -> Driver:
    return driver._replace(at="ready", base=_checkpoint_of(driver), round=None, summaries=(), attempts=0)


def _collected(state: State, safeguards: Safeguards, index: int, who: str) -> Steps:
    driver, catalog = state.drivers[index], state.catalog
    if catalog.writer is not None or driver.epoch != catalog.epoch:
        return
    in_flight = None if driver.round is None else driver.round.key
    spared = named_files(catalog) if safeguards.collect_unreferenced_only else set()
    old = {
        name
        for name, file in state.files
        if not safeguards.collect_finished_only or file.round_key[0] < catalog.epoch or file.round_key != in_flight
    }
    if gone := old - spared:
        yield f"{who} collects {', '.join(sorted(gone))}", state.without_files(gone)


def _row(catalog: Catalog, model: int) -> Checkpoint:
    row = catalog.rows[model]
    assert row is not None, "the current job model's task always has a checkpoint"
    return row


def _text(round_: Round | None) -> str:
    return "none" if round_ is None else f"{round_.key[0]}:{round_.key[1]}"
