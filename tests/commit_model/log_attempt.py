"""The steps of a Spark task attempt in the embedded log's model: log steps 2 to 8 of protocol.md.

An attempt never learns that its round is over: it continues, and any of its steps may come as late as it likes.
"""

from __future__ import annotations

from collections.abc import Iterator

from commit_model.log_values import (
    EMPTY,
    Attempt,
    Counts,
    Driver,
    File,
    Head,
    Safeguards,
    State,
    Store,
    Summary,
    applied,
    worked_off,
)

Steps = Iterator[tuple[str, State]]


def attempt_steps(state: State, safeguards: Safeguards, index: int, attempt: Attempt) -> Steps:
    """The next steps of the attempt at `index`: none, one, or one per place where the round may be cut short."""
    who = f"attempt {attempt.number} of round {attempt.round.key[0]}:{attempt.round.key[1]}"
    match attempt.at:
        case "open":
            yield _opened(state, safeguards, index, attempt, who)
        case "apply":
            yield _applied(state, safeguards, index, attempt, who)
        case "rebuild":
            yield _rebuilt(state, index, attempt, who)
        case "read":
            yield from _read(state, safeguards, index, attempt, who)
        case "segment":
            yield _segment_written(state, safeguards, index, attempt, who)
            if state.file_losses:
                lost = state._replace(file_losses=state.file_losses - 1)
                unseen = lost.with_attempt(index, attempt._replace(at="output", delta=()))
                yield f"[log 5, 7] {who} writes its segment where the driver cannot see it", unseen
        case "output":
            yield _output_written(state, safeguards, index, attempt, who)
        case "report":
            yield _reported(state, safeguards, index, attempt, who)


def same_head(safeguards: Safeguards, left: Head, right: Head) -> bool:
    return left == right if safeguards.head_identity else len(left) == len(right)


def _is_prefix(safeguards: Safeguards, head: Head, of: Head) -> bool:
    return len(head) <= len(of) and same_head(safeguards, head, of[: len(head)])


def _opened(state: State, safeguards: Safeguards, index: int, attempt: Attempt, who: str) -> tuple[str, State]:
    found, base = state.store.head, attempt.round.base.head
    if not _is_prefix(safeguards, found, base):
        then, at = "is no prefix of its base, must be rebuilt", attempt._replace(at="rebuild")
    elif len(found) == len(base):
        then, at = "is at its base", attempt._replace(at="read")
    else:
        missing = base[len(found) :]
        then, at = f"lacks {_text(missing)}", attempt._replace(at="apply", waiting=missing)
    return f"[log 3] {who} opens the store: head {_text(found)}, {then}", state.with_attempt(index, at)


def _applied(state: State, safeguards: Safeguards, index: int, attempt: Attempt, who: str) -> tuple[str, State]:
    name, rest = attempt.waiting[0], attempt.waiting[1:]
    after = state.with_attempt(index, attempt._replace(at="apply" if rest else "read", waiting=rest))
    segment = state.file(name)
    if segment is None:
        return f"[log 3] {who} misses segment {name} and stops", state.with_attempt(index, None)
    if safeguards.compare_and_set and not same_head(safeguards, state.store.head, segment.base):
        return f"[log 3] {who} skips {name}: the store is at {_text(state.store.head)}", after
    store = Store((*segment.base, name), applied(state.store.counts, segment.delta))
    return f"[log 3] {who} applies {name} to the store at {_text(state.store.head)}", after._replace(store=store)


def _rebuilt(state: State, index: int, attempt: Attempt, who: str) -> tuple[str, State]:
    counts: Counts = EMPTY
    for name in attempt.round.base.head:
        segment = state.file(name)
        if segment is None:
            return f"[log 3] {who} misses segment {name} and stops", state.with_attempt(index, None)
        counts = applied(counts, segment.delta)
    store = Store(attempt.round.base.head, counts)
    after = state.with_attempt(index, attempt._replace(at="read"))
    return f"[log 3] {who} rebuilds the store at {_text(store.head)}", after._replace(store=store)


def _read(state: State, safeguards: Safeguards, index: int, attempt: Attempt, who: str) -> Steps:
    store, base = state.store, attempt.round.base
    first_read = not attempt.counts
    if first_read and safeguards.head_check_at_read and not same_head(safeguards, store.head, base.head):
        yield (
            f"[log 4] {who} finds the store at {_text(store.head)}, not its base, and fails",
            state.with_attempt(index, None),
        )
        return
    if not safeguards.one_snapshot and first_read:
        half = attempt._replace(counts=store.counts[:1])
        yield f"[log 4] {who} reads the first key at {_text(store.head)}", state.with_attempt(index, half)
        return
    counts = store.counts if first_read else (attempt.counts[0], store.counts[1])
    for end in range(base.position + 1, attempt.round.end + 1):
        _, delta, outputs = worked_off(counts, base.position, end)
        cut = "" if end == attempt.round.end else ", cut short"
        done = attempt._replace(at="segment", counts=(), position=end, delta=delta, outputs=outputs)
        yield (
            f"[log 2, 4] {who} reads {counts} at {_text(store.head)}, processes [{base.position}, {end}){cut}",
            state.with_attempt(index, done),
        )


def _segment_name(safeguards: Safeguards, attempt: Attempt) -> str:
    return f"s{attempt.number}" if safeguards.unique_names else f"v{len(attempt.round.base.head) + 1}"


def _segment_written(state: State, safeguards: Safeguards, index: int, attempt: Attempt, who: str) -> tuple[str, State]:
    name, base = _segment_name(safeguards, attempt), attempt.round.base.head
    after = state.with_file(name, File(attempt.round.key, base, attempt.delta, ()))
    after = after.with_attempt(index, attempt._replace(at="output", delta=()))
    over = " OVER the one of that name" if state.file(name) else ""
    if safeguards.apply_committed_only:
        return f"[log 5, 7] {who} writes segment {name}{over}", after
    store = state.store
    if same_head(safeguards, store.head, base):
        store = Store((*base, name), applied(store.counts, attempt.delta))
    return f"[log 5, 7] {who} writes segment {name}{over} and applies it at once", after._replace(store=store)


def _output_written(state: State, safeguards: Safeguards, index: int, attempt: Attempt, who: str) -> tuple[str, State]:
    name = f"o{attempt.number}"
    after = state.with_file(name, File(attempt.round.key, (), (), attempt.outputs))
    # No driver waits for a zombie's summary; ending it here instead of one step later halves the states.
    heard = _awaits(state.drivers[attempt.round.driver], attempt, safeguards)
    ends = attempt._replace(at="report", outputs=()) if heard else None
    return f"[log 6, 7] {who} writes output file {name}", after.with_attempt(index, ends)


def _reported(state: State, safeguards: Safeguards, index: int, attempt: Attempt, who: str) -> tuple[str, State]:
    driver = state.drivers[attempt.round.driver]
    after = state.with_attempt(index, None)
    if not _awaits(driver, attempt, safeguards):
        return f"[log 8] {who} reports, no driver waits for it", after
    summary = Summary(attempt.position, _segment_name(safeguards, attempt), f"o{attempt.number}")
    heard = driver._replace(at="collected", summaries=(*driver.summaries, summary))
    return f"[log 8] {who} reports to driver {attempt.round.driver + 1}", after.with_driver(attempt.round.driver, heard)


def _awaits(driver: Driver, attempt: Attempt, safeguards: Safeguards) -> bool:
    if driver.round is None or driver.round != attempt.round:
        return False
    return driver.at == "waiting" or (driver.at == "collected" and not safeguards.one_summary)


def _text(head: Head) -> str:
    return "+".join(head) or "nothing"
