"""Which states of a task are kept beside the current one, and which of them a task can go back to.

A kept version is a checkpoint, whole: positions, head, watermarks and timers, as they were committed together. Versions of a
task are identified, and ordered, by the rounds that made them. A task that goes back abandons the state that it had:

    versions by round, positions below   7    9    12           the task has come to round 15, position 90
                                         10   40   70
    it goes back to 9                    7    9    (12)  (15)   15 is kept as left for 9: it and 12 are off the line
    and comes to round 20, position 60   7    9    (12)  (15)  20
    20 is kept                           7    9    20           what is off the line is needed no more

Until the task has committed anything else, this can be undone: `before_rewind` gives round 15.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol, TypeVar

from headrace.errors import StateError
from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.names import few
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName

EMPTY_ORDER = 0, 0  # of the empty state, before that of any round


class _KeptAt(Protocol):
    @property
    def kept_us(self) -> int: ...


Kept = TypeVar("Kept", bound=_KeptAt)


@dataclass(frozen=True, slots=True)
class StateVersion:
    """What was a task's checkpoint at `kept_us` (µs since the epoch).

    `abandoned_for`: the round of the version that the task went back to from here; None of one that it did not leave so.
    """

    checkpoint: Checkpoint
    kept_us: int
    abandoned_for: RoundId | None = None

    @property
    def order(self) -> tuple[int, int]:
        """Rises from version to version of a task."""
        return self.checkpoint.round_id.order

    @property
    def key(self) -> str:
        """Its name among all versions of all tasks."""
        return f"{self.checkpoint.task}/{self.checkpoint.round_id.epoch}-{self.checkpoint.round_id.number}"


Versions = Mapping[TaskName, Sequence[StateVersion]]  # of each task, oldest first


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """How many versions of a task are kept beside the current state, and which.

    With `span_us` they are spread over that time, the older the further apart, and none is older; with None they are the
    newest. `interval_us`: from one version to the next at least.
    """

    most: int
    span_us: int | None
    interval_us: int


def by_task(versions: Iterable[StateVersion]) -> dict[TaskName, tuple[StateVersion, ...]]:
    """The versions of each task, oldest first."""
    found: dict[TaskName, list[StateVersion]] = {}
    for version in sorted(versions, key=lambda version: version.order):
        found.setdefault(version.checkpoint.task, []).append(version)
    return {task: tuple(found[task]) for task in sorted(found)}


def on_the_line(versions: Sequence[StateVersion]) -> tuple[StateVersion, ...]:
    """Of a task's versions, oldest first, those that its present state comes from: not what was left by going back."""
    line: list[StateVersion] = []
    limit: tuple[int, int] | None = None
    for version in reversed(versions):
        if version.abandoned_for is not None:
            target = version.abandoned_for.order
            limit = target if limit is None else min(limit, target)
        elif limit is None or version.order <= limit:
            line.append(version)
    return tuple(reversed(line))


# --- what is kept ---------------------------------------------------------------------------------------------------


def is_due(kept_us: int | None, now_us: int, keeping: RetentionPolicy) -> bool:
    """Whether another version may be kept, where the last was at `kept_us`; a clock that was set back holds nothing up."""
    return keeping.most > 0 and (kept_us is None or abs(now_us - kept_us) >= keeping.interval_us)


def new_versions(
    kept: Mapping[TaskName, Sequence[StateVersion]], checkpoints: Iterable[Checkpoint], now_us: int
) -> tuple[StateVersion, ...]:
    """A version of each task that has come to something else since its last one; the others' states are kept already."""
    return tuple(
        StateVersion(checkpoint, now_us)
        for checkpoint in checkpoints
        if not _is_kept(kept.get(checkpoint.task, ()), checkpoint)
    )


def _is_kept(versions: Sequence[StateVersion], checkpoint: Checkpoint) -> bool:
    """Whether it is one of the versions, or the same as the last of them: a round of a container is one of all its tasks."""
    line = on_the_line(versions)
    if line and rewound(checkpoint, line[-1]) == checkpoint:
        return True
    return any(version.checkpoint.round_id == checkpoint.round_id for version in versions)


def thinned(versions: Sequence[StateVersion], now_us: int, keeping: RetentionPolicy) -> tuple[StateVersion, ...]:
    """Those of a task's versions, oldest first, that stay.

    Where there are too many, one goes that leaves the smallest gap for its age, never the oldest or the newest. Of a version
    a minute, four of them spread over a day, in minutes of age:

        60, 16, 2, 0        after an hour
        999, 86, 2, 0       after 1,000 minutes

    What is off the line stays until something newer is on it: so long going back may be taken back.
    """
    line = on_the_line(versions)
    left = left_open(versions, line) if keeping.most else []
    return tuple(sorted([*thinned_over_time(line, now_us, keeping), *left], key=lambda version: version.order))


def left_open(versions: Sequence[StateVersion], line: Sequence[StateVersion]) -> list[StateVersion]:
    """Of a task's versions those that are off its line, where nothing newer is on it."""
    left = [version for version in versions if version not in line]
    return [] if left and line and line[-1].order > left[-1].order else left


def thinned_over_time(kept: Sequence[Kept], now_us: int, keeping: RetentionPolicy) -> list[Kept]:
    """Of versions or cuts, oldest first, those that stay, see `thinned`."""
    span_us = keeping.span_us
    stay = [one for one in kept if span_us is None or now_us - one.kept_us <= span_us]

    def gap_for_its_age(index: int) -> float:
        return (stay[index + 1].kept_us - stay[index - 1].kept_us) / max(1, now_us - stay[index].kept_us)

    while len(stay) > keeping.most:
        is_spread = span_us is not None and len(stay) > 2
        del stay[min(range(1, len(stay) - 1), key=gap_for_its_age) if is_spread else 0]
    return stay


# --- going back -----------------------------------------------------------------------------------------------------


def usable(
    versions: Sequence[StateVersion],
    checkpoint: Checkpoint,
    beginnings: Mapping[SSP, int],
    born: Collection[SSP] = (),
) -> tuple[StateVersion, ...]:
    """The states that a task can go back to, oldest first. `checkpoint`: where it is, with every SSP that it reads now.

    `beginnings`: per SSP the first offset that is still there; a version that would read on before it is of no use. Nor is
    one of other SSPs than the task reads now, but for those in `born`, by an expansion: what was not there yet when the
    version was made holds nothing that is in its state, and is read from its beginning.

    The oldest of all is the empty state, with everything to be read from offset 0; where some of that was deleted already, what
    the state holds of it could not be read again, and there is no empty state.
    """
    wanted = checkpoint.positions.keys()
    found: list[StateVersion] = []
    if not any(beginnings[ssp] for ssp in wanted):
        found.append(_empty(checkpoint, beginnings))
    for version in on_the_line(versions):
        missing = wanted - version.checkpoint.positions.keys()
        if missing <= set(born) and version.checkpoint.positions.keys() <= wanted:
            positions = {**version.checkpoint.positions, **{ssp: beginnings[ssp] for ssp in missing}}
            if all(position >= beginnings[ssp] for ssp, position in positions.items()):
                found.append(replace(version, checkpoint=replace(version.checkpoint, positions=positions)))
    return tuple(found)


def _empty(checkpoint: Checkpoint, beginnings: Mapping[SSP, int]) -> StateVersion:
    positions = {ssp: beginnings[ssp] for ssp in sorted(checkpoint.positions)}
    round_id = RoundId(EMPTY_ORDER[0], checkpoint.round_id.sub_topology, EMPTY_ORDER[1])
    return StateVersion(Checkpoint(checkpoint.task, round_id, checkpoint.job_model_version, positions), 0)


def version_for(versions: Sequence[StateVersion], targets: Mapping[SSP, int]) -> StateVersion | None:
    """Of `usable` versions the newest that is not after any of `targets`, SSP to the requested position; None: none is."""
    for version in reversed(versions):
        positions = version.checkpoint.positions
        if all(positions[ssp] <= target for ssp, target in targets.items()):
            return version
    return None


def rewound(checkpoint: Checkpoint, version: StateVersion) -> Checkpoint:
    """The task's checkpoint with all that the version has; it stays that of its round, and of its job model."""
    past = version.checkpoint
    return replace(
        checkpoint,
        positions=past.positions,
        head=past.head,
        watermarks=past.watermarks,
        event_timer_us=past.event_timer_us,
        wall_timer_us=past.wall_timer_us,
        expiry_us=past.expiry_us,
        closed_us=past.closed_us,
        punctuations=past.punctuations,
    )


def abandoned_version(
    versions: Sequence[StateVersion], checkpoint: Checkpoint, version: StateVersion, now_us: int
) -> StateVersion:
    """What is to be stored of a task that goes back to `version`: what it comes from, so that its files stay.

    A task that went back before, and has committed nothing since, comes from where it was the first time.
    """
    first = before_rewind(versions, checkpoint)
    came_from = StateVersion(checkpoint, now_us) if first is None else first
    return replace(came_from, abandoned_for=version.checkpoint.round_id)


def before_rewind(versions: Iterable[StateVersion], checkpoint: Checkpoint) -> StateVersion | None:
    """Where a task was before it went back, if it has committed nothing since; else None: it cannot be undone."""
    for version in versions:
        if version.abandoned_for is not None and version.checkpoint.round_id == checkpoint.round_id:
            return version
    return None


def undo_rewind(versions: Sequence[StateVersion], checkpoint: Checkpoint) -> tuple[tuple[StateVersion, ...], Checkpoint]:
    """A task's versions and checkpoint as if it had not been rewound, where it has committed nothing since; else as they are.

    So what takes the place of going back begins from where the task was, and all versions up to there are on the line again.
    """
    first = before_rewind(versions, checkpoint)
    if first is None:
        return tuple(versions), checkpoint
    there = replace(first, abandoned_for=None)
    return tuple(there if version == first else version for version in versions), rewound(checkpoint, first)


_RECOVERY = "keep the state as it is (--state keep), or run the application under another name"


def no_version(task: TaskName, versions: Sequence[StateVersion], targets: Mapping[SSP, int]) -> StateError:
    """The error where `version_for` finds none among the `usable` versions of `task`."""
    asked = _asked_text(targets)
    if not versions:
        return StateError(f"task {task}: no kept version of its state can be used for {asked}", _RECOVERY)
    return StateError(
        f"task {task}: no kept version of its state is at or before {asked}; the oldest is {described(versions[0])}",
        f"go back no further than that; or {_RECOVERY}",
    )


def no_common_version(sub_topology: str | None, targets: Iterable[Mapping[SSP, int]]) -> StateError:
    """The error where each task of a sub-topology has a version that suits, but none are of one moment."""
    asked = _asked_text({ssp: offset for one in targets for ssp, offset in one.items()})
    return StateError(
        f"sub-topology {sub_topology or 'source'!r}: its tasks go back together, and there is no consistent cut at or before "
        f"{asked}",
        f"go back less far; or {_RECOVERY}",
    )


def _asked_text(targets: Mapping[SSP, int]) -> str:
    return few([f"{ssp} {targets[ssp]}" for ssp in sorted(targets)])


def described(version: StateVersion) -> str:
    """A version for people.

    >>> made = Checkpoint(TaskName.parse("Partition_0"), RoundId(1, None, 1), 1, {SSP("log", "in", 0): 40})
    >>> described(StateVersion(made, 1_700_000_000_000_000))
    'of 2023-11-14 22:13:20 UTC, at log.in.0 40'
    """
    positions = version.checkpoint.positions
    places = ", ".join(f"{ssp} {positions[ssp]}" for ssp in sorted(positions))
    if version.checkpoint.head is None and not version.kept_us:
        return f"the empty state, at {places}"
    made = datetime.fromtimestamp(version.kept_us / 1e6, UTC)
    return f"of {made:%Y-%m-%d %H:%M:%S} UTC, at {places}"
