"""The steps of containers in the model of a change of factor: what tasks process, and the commits of lanes on Kafka.

Container steps 1 to 11 of protocol.md, Kafka. On the embedded log the driver commits for all (`elasticity_driver`).
"""

from __future__ import annotations

from collections.abc import Iterator

from commit_model.elasticity_values import (
    KEYS,
    Attempt,
    Checkpoint,
    Checkpoints,
    ElasticityBounds,
    ElasticitySafeguards,
    ElasticityState,
    Head,
    Made,
    Output,
    Round,
    counts_of,
    files_of,
    keys_of,
    note_of,
)

Steps = Iterator[tuple[str, ElasticityState]]


def key_text(round_: Round) -> str:
    return f"{round_.key[0]}:{round_.key[1]}"


def lanes_of(round_: Round) -> list[int]:
    """The lanes that take part in a round: those whose task has not read the whole range."""
    return [lane for lane, checkpoint in enumerate(round_.base) if checkpoint.position < round_.end]


def with_made(base: Checkpoints, made: tuple[Made, ...]) -> Checkpoints:
    """`base` with what some tasks made."""
    current = {one.bucket: one.checkpoint for one in made}
    return tuple(current.get(bucket, checkpoint) for bucket, checkpoint in enumerate(base))


def processed(
    state: ElasticityState, safeguards: ElasticitySafeguards, bounds: ElasticityBounds, round_: Round, bucket: int
) -> Iterator[tuple[str, ElasticityState, Made | None]]:
    """What a task may make of its round: cut at any row, with its delta or a fold. None where a file of its head is missing."""
    base, factor = round_.base[bucket], len(round_.base)
    begin = max(base.position, round_.start) if safeguards.own_skip else round_.start
    counts = counts_of(state.stored, base.head) if bounds.has_state else {}
    if counts is None:
        yield "misses a state file and fails", state, None
        return
    keys = keys_of(bucket, factor)
    for end in range(begin + 1, round_.end + 1):
        now = dict(counts)
        outputs: list[Output] = []
        for record in range(begin, end):
            key = record % len(KEYS)
            if key in keys:
                now[key] = now.get(key, 0) + 1
                outputs.append((record, now[key] if bounds.has_state else 0))
        changed = tuple(sorted((key, now[key]) for key in {record % len(KEYS) for record, _ in outputs}))
        text = f"processes [{begin}, {end})"
        made = Made(bucket, Checkpoint(end, base.head, round_.key), tuple(outputs))
        if not bounds.has_state or not changed:
            yield text, state, made
            continue
        name = _new_name(state, round_, bucket)
        delta: Head = (*base.head, (name, keys))
        written = state.with_file(name, changed)
        yield f"{text}, writes {name}", written, made._replace(checkpoint=Checkpoint(end, delta, round_.key))
        if state.folds and base.head:
            snapshot = tuple(sorted(now.items()))
            folded: Head = ((name, keys),)
            after = state._replace(folds=state.folds - 1).with_file(name, snapshot)
            yield f"{text}, folds into {name}", after, made._replace(checkpoint=Checkpoint(end, folded, round_.key))


def _new_name(state: ElasticityState, round_: Round, bucket: int) -> str:
    """A name of its own for each attempt."""
    name = f"{key_text(round_)}/{bucket}"
    while state.stored.values(name) is not None:
        name += "'"
    return name


def applied(state: ElasticityState, round_: Round, made: tuple[Made, ...]) -> ElasticityState:
    """`state` after a commit of what these tasks made: outputs, and the checkpoints of those that are tasks of the job."""
    stored = state.stored
    outputs, checkpoints, notes = list(stored.outputs), list(stored.checkpoints), list(stored.notes)
    for one in made:
        for record, count in one.outputs:
            outputs[record % len(KEYS)] = (*outputs[record % len(KEYS)], (record, count))
        notes[one.bucket] = note_of(one.checkpoint, round_.version)
        if len(checkpoints) == len(round_.base):
            checkpoints[one.bucket] = one.checkpoint
    after = state.with_stored(outputs=tuple(outputs), checkpoints=tuple(checkpoints), notes=tuple(notes))
    if round_.version != stored.version:
        return after._replace(wrong=f"a task of job model {round_.version} commits under job model {stored.version}")
    return after


# --- attempts of containers on Kafka: a container per task, on the lane of its bucket ---------------------------------


def attempt_steps(
    state: ElasticityState, safeguards: ElasticitySafeguards, bounds: ElasticityBounds, attempt: Attempt
) -> Steps:
    """The next steps of an attempt: it inits its lane, looks and processes; then it commits."""
    round_, lane = attempt.round, attempt.lane
    who = f"an attempt of lane {lane} of round {key_text(round_)}"
    if attempt.made is not None:
        after = applied(state, round_, (attempt.made,)).with_attempts(instead_of=attempt)
        position = attempt.made.checkpoint.position
        answered = _heard(after, safeguards, attempt, attempt.made)
        yield f"[kafka 8-11] {who} commits position {position} and answers", answered
        return
    for text, worked, made in processed(state, safeguards, bounds, round_, lane):
        after = worked.with_attempts(instead_of=attempt)
        # Who had the lane is fenced: all it still sends is refused, so it is dropped.
        after = after._replace(attempts=tuple(one for one in after.attempts if one.made is None or one.lane != lane))
        if made is not None:
            after = after.with_attempts(attempt._replace(made=made))
        yield f"[kafka 1-7] {who} inits, finds its base, {text}", after


def is_hopeless(state: ElasticityState, safeguards: ElasticitySafeguards, attempt: Attempt) -> bool:
    """Whether an attempt that has not looked yet will find another epoch, job model or base, now and at any later time."""
    round_, found = attempt.round, state.stored.notes[attempt.lane]
    version, note = note_of(round_.base[attempt.lane], round_.version)
    return attempt.made is None and (
        (safeguards.epoch_check and state.stored.epoch != round_.key[0])
        or (safeguards.version_stamp and (found is None or found[0] != version))
        or (safeguards.base_check and (found is None or found[1] != note))
    )


def _heard(state: ElasticityState, safeguards: ElasticitySafeguards, attempt: Attempt, made: Made) -> ElasticityState:
    """The driver takes the answer if it waits for it; once all lanes have answered the round is over."""
    index = attempt.round.driver
    driver = state.drivers[index]
    if driver.at != "waiting" or driver.round != attempt.round or any(one.bucket == made.bucket for one in driver.heard):
        return state
    heard = tuple(sorted((*driver.heard, made)))
    if len(heard) < len(lanes_of(attempt.round)):
        return state.with_driver(index, driver._replace(heard=heard))
    return round_over(state, safeguards, index, with_made(driver.base, heard))


def round_over(state: ElasticityState, safeguards: ElasticitySafeguards, index: int, current: Checkpoints) -> ElasticityState:
    """The driver at `index` knows `current` to be committed; what only its base before has named is garbage now."""
    driver = state.drivers[index]
    kept = files_of(state.stored.kept) if safeguards.kept_is_live else set()
    if safeguards.live_union:
        garbage = files_of(driver.base) - files_of(current)
    else:
        pairs = zip(driver.base, current, strict=True)
        garbage = {name for before, after in pairs for name in files_of([before]) - files_of([after])}
    over = driver._replace(at="running", base=current, round=None, attempts=(), heard=())
    return state.with_driver(index, over._replace(garbage=tuple(sorted({*driver.garbage, *(garbage - kept)}))))
