"""Re-cut: what is stored of a job, said in the virtual tasks of another elasticity factor.

A plan begins with it; what follows sees the past as if the factor had always been the new one. With factors 2 and 4:

    Partition_0-0-2   position 70, state files A, B    ->  -0-4 and -2-4: each position 70, and its half of A, B
    Partition_0-1-2   position 70, state file C        ->  -1-4 and -3-4: each position 70, and its half of C

A split inherits. A merge needs siblings that are at the same positions: `positions_to_reach` says how far they are to read
before. Nothing is written at `state_uri`: heads name the files of the former tasks, by key range. Seed: SEP-32, and beyond
it, as the seed leaves state to the future.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from headrace.core.job_plan.elasticity import bucketed
from headrace.core.keys.heads import FILES_MAX, head_of, is_too_long
from headrace.core.keys.key_layout import slots_of
from headrace.core.rewind.consistent_cuts import ConsistentCut
from headrace.core.rewind.rewinds import Rewind
from headrace.core.rewind.state_history import StateVersion, Versions, on_the_line
from headrace.core.rounds.watermarks import joined_reports
from headrace.errors import IncompatibleChangeError
from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.job_model import LeftPosition, SubTopologyModel
from headrace.model.names import few
from headrace.model.startpoint import Resolution, StartpointRecord, StartpointStatus, StatePolicy
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Recut:
    """How the tasks of one sub-topology are cut from now on.

    `parents`: the tasks that there shall be to those that there were whose keys they take. `broadcast`: streams that every
    virtual task reads whole; `whole`: databases of what is broadcast, which every virtual task has whole.
    """

    sub_topology: str | None
    factor: int
    parents: Mapping[TaskName, tuple[TaskName, ...]]
    broadcast: frozenset[str] = frozenset()
    whole: frozenset[str] = frozenset()

    @property
    def merges(self) -> bool:
        """Whether some tasks become one."""
        return any(len(parents) > 1 for parents in self.parents.values())

    @property
    def former(self) -> frozenset[TaskName]:
        """The tasks that there were."""
        return frozenset(parent for parents in self.parents.values() for parent in parents)


@dataclass(frozen=True, slots=True)
class Stored:
    """What is stored by task. The rest of what a plan is made from is by whole partition, and stays."""

    checkpoints: Mapping[TaskName, Checkpoint]
    versions: Versions
    cuts: Sequence[ConsistentCut]
    startpoints: Mapping[str, StartpointRecord]
    rewinds: Sequence[Rewind]
    left: Sequence[LeftPosition]


@dataclass(frozen=True, slots=True)
class StoredChanges:
    """What of two states of what is stored differs, by key; None for what is to be deleted."""

    versions: Mapping[str, StateVersion | None] = field(default_factory=dict)
    cuts: Mapping[str, ConsistentCut | None] = field(default_factory=dict)
    startpoints: Mapping[str, StartpointRecord | None] = field(default_factory=dict)
    rewinds: Mapping[str, Rewind | None] = field(default_factory=dict)


def stored_changes_between(before: Stored, after: Stored) -> StoredChanges:
    return StoredChanges(
        _changed(_by_key(before.versions), _by_key(after.versions)),
        _changed({one.key: one for one in before.cuts}, {one.key: one for one in after.cuts}),
        _changed(before.startpoints, after.startpoints),
        _changed({one.key: one for one in before.rewinds}, {one.key: one for one in after.rewinds}),
    )


def _by_key(versions: Versions) -> dict[str, StateVersion]:
    return {version.key: version for kept in versions.values() for version in kept}


def _changed(before: Mapping[str, Value], after: Mapping[str, Value]) -> dict[str, Value | None]:
    changed: dict[str, Value | None] = {key: None for key in before if key not in after}
    return changed | {key: value for key, value in after.items() if before.get(key) != value}


def recut_of(model: SubTopologyModel, factor: int, broadcast: frozenset[str], whole: frozenset[str]) -> Recut:
    """How the tasks of `model` are cut by `factor`. A task that reads nothing but what is broadcast has no keys, and stays."""
    names: dict[TaskName, list[TaskName]] = {}
    for task in model.tasks:
        keyless = all(ssp.stream in broadcast for ssp in task.partitions)
        for name in (task.name,) if keyless else bucketed(task.name, factor):
            names.setdefault(name, []).append(task.name)
    parents = {name: tuple(sorted(former)) for name, former in names.items()}
    return Recut(model.name, factor, parents, broadcast, whole)


def positions_to_reach(recut: Recut, checkpoints: Mapping[TaskName, Checkpoint]) -> dict[SSP, int]:
    """Up to where partitions are to be read before tasks can be merged: none where all that are to be one are together."""
    apart: set[SSP] = set()
    for parents in recut.parents.values():
        first = checkpoints[parents[0]].positions
        for parent in parents[1:]:
            there = checkpoints[parent].positions
            apart |= {ssp for ssp in first.keys() | there.keys() if first.get(ssp) != there.get(ssp)}
    highest: dict[SSP, int] = {}
    for name in recut.former if apart else ():
        for ssp, position in checkpoints[name].positions.items():
            if ssp in apart:
                highest[ssp] = max(position, highest.get(ssp, position))
    return highest


def recut(stored: Stored, by: Iterable[Recut]) -> tuple[Stored, tuple[str, ...]]:
    """What is stored, by the tasks that there shall be; and what is lost on the way, for people.

    `IncompatibleChangeError` where positions of inputs that the job does not read now differ among tasks that become one: no
    round could bring them together; and where the state of one would be in more files than a checkpoint can name. Where
    `positions_to_reach` gives any, this must not be called.
    """
    notes: list[str] = []
    for one in by:
        stored = _recut(stored, one, notes)
    return stored, tuple(notes)


def _recut(stored: Stored, by: Recut, notes: list[str]) -> Stored:
    own = by.former
    joined = {name: _joined([stored.checkpoints[one] for one in parents], name, by) for name, parents in by.parents.items()}
    versions = _Versions(stored.versions, by)
    others = {task: kept for task, kept in stored.versions.items() if task not in own}
    made = {name: kept for name in by.parents if (kept := versions.of(name))}
    cuts = [versions.cut(cut) if cut.rounds.keys() & own else cut for cut in stored.cuts]
    if versions.lost:
        notes.append(f"{versions.lost} kept versions of the state were made while tasks that are one now were apart: deleted")
    if for_good := rewinds_for_good(stored.startpoints, stored.rewinds, own):
        notes.append(f"startpoints that took state back, and cannot be deleted any more: {', '.join(for_good)}")
    return replace(
        stored,
        checkpoints={task: one for task, one in stored.checkpoints.items() if task not in own} | joined,
        versions=others | made,
        cuts=tuple(cut for cut in cuts if cut is not None),
        startpoints=_recut_startpoints(stored, by),
        rewinds=tuple(replace(one, rounds={}) if own & one.rounds.keys() else one for one in stored.rewinds),
        left=tuple(_recut_left(stored.left, by)),
    )


def _joined(parents: Sequence[Checkpoint], name: TaskName, by: Recut) -> Checkpoint:
    """The checkpoint of a task that takes keys of `parents`, which are at the same positions.

    Timers and marks that are of a task as a whole may be stale in a part of it: an earlier time costs one look-up.
    """
    by_age = sorted(parents, key=lambda one: one.round_id.order)
    newest = by_age[-1]
    assert all(one.positions == newest.positions for one in parents), f"{name}: {[one.positions for one in parents]}"
    head = head_of([one.head for one in parents], slots_of(name.bucket), by.whole)
    if is_too_long(head):
        raise IncompatibleChangeError(
            f"the state of task {name} would be in more than {FILES_MAX:,} files of the {len(parents)} tasks that it is of",
            "set a factor nearer to the present one, let the job run until the tasks have written files of their own, and then "
            "set the next",
        )
    return Checkpoint(
        name,
        newest.round_id,
        newest.job_model_version,
        newest.positions,
        head,
        joined_reports(parents),
        _earliest(one.event_timer_us for one in parents),
        _earliest(one.wall_timer_us for one in parents),
        {ssp: id_ for one in by_age for ssp, id_ in one.spent_startpoints.items()},
        frozenset() if name.bucket is None else by.broadcast & {ssp.stream for ssp in newest.positions},
        _earliest(one.expiry_us for one in parents),
        max((one.closed_us for one in parents if one.closed_us is not None), default=None),
        _punctuations(parents),
    )


def _punctuations(parents: Sequence[Checkpoint]) -> dict[str, tuple[int, int]]:
    """Those of the task that has come least far: for keys of another one may be called once more."""
    clocks = sorted({clock for one in parents for clock in one.punctuations})
    return {clock: min(one.punctuations[clock] for one in parents if clock in one.punctuations) for clock in clocks}


def _earliest(times_us: Iterable[int | None]) -> int | None:
    return min((time_us for time_us in times_us if time_us is not None), default=None)


# --- kept versions, and cuts ----------------------------------------------------------------------------------------


class _Versions:
    """The kept versions of the tasks that there shall be. Versions that were left by going back are not kept: what has changed
    since cannot be undone any more. `lost`: how many others could not be kept."""

    def __init__(self, stored: Versions, by: Recut) -> None:
        self._by = by
        self._lines = {task: on_the_line(stored.get(task, ())) for parents in by.parents.values() for task in parents}
        self._kept: dict[TaskName, dict[RoundId, StateVersion]] = {}
        self.lost = 0
        for name, parents in by.parents.items():
            self._kept[name] = {}
            if len(parents) == 1:
                for version in self._lines[parents[0]]:
                    self._keep(name, [version])
            else:
                self._join_those_together(name, parents)

    def of(self, name: TaskName) -> tuple[StateVersion, ...]:
        return tuple(sorted(self._kept[name].values(), key=lambda version: version.order))

    def _keep(self, name: TaskName, versions: Sequence[StateVersion]) -> RoundId:
        checkpoint = _joined([version.checkpoint for version in versions], name, self._by)
        made = StateVersion(checkpoint, max(version.kept_us for version in versions))
        return self._kept[name].setdefault(checkpoint.round_id, made).checkpoint.round_id

    def _join_those_together(self, name: TaskName, parents: Sequence[TaskName]) -> None:
        """A version for each position at which all have one: of several there the last, which is after all timers."""
        at: dict[TaskName, dict[tuple[tuple[SSP, int], ...], StateVersion]] = {}
        for parent in parents:
            at[parent] = {tuple(sorted(one.checkpoint.positions.items())): one for one in self._lines[parent]}
        common = set.intersection(*(set(places) for places in at.values()))
        for place in common:
            self._keep(name, [at[parent][place] for parent in parents])
        self.lost += sum(len(line) for line in (self._lines[parent] for parent in parents)) - len(common) * len(parents)

    def cut(self, cut: ConsistentCut) -> ConsistentCut | None:
        """A cut through the tasks that there shall be; None where they were apart."""
        rounds: dict[TaskName, RoundId] = {}
        for name, parents in self._by.parents.items():
            if not any(parent in cut.rounds for parent in parents):  # of partitions that are younger than the cut
                continue
            named = [self._named(parent, cut.rounds.get(parent)) for parent in parents]
            versions = [one for one in named if one is not None]
            if len(versions) < len(parents) or len({tuple(sorted(v.checkpoint.positions.items())) for v in versions}) > 1:
                return None
            joined = max(versions, key=lambda one: one.order).checkpoint.round_id
            kept = self._kept[name].get(joined)
            made = _joined([version.checkpoint for version in versions], name, self._by)
            if kept is None:
                rounds[name] = self._keep(name, versions)
            elif kept.checkpoint == made:
                rounds[name] = joined
            else:
                return None
        return replace(cut, rounds=rounds)

    def _named(self, task: TaskName, round_id: RoundId | None) -> StateVersion | None:
        return next((one for one in self._lines[task] if one.checkpoint.round_id == round_id), None)


# --- startpoints, and inputs that are not read now --------------------------------------------------------------------


def rewinds_for_good(
    startpoints: Mapping[str, StartpointRecord], rewinds: Iterable[Rewind], tasks: Collection[TaskName]
) -> tuple[str, ...]:
    """The ids of startpoints that took state back, and can be deleted until `tasks` have another factor: what they left is
    theirs, and is not kept."""
    went_back = {task for one in rewinds if one.rounds.keys() & set(tasks) for task in one.rounds}
    return tuple(
        id_
        for id_, record in startpoints.items()
        if record.status is StartpointStatus.PENDING
        and record.entry.state is StatePolicy.REWIND
        and any(one.task in went_back for one in record.resolutions)
    )


def _recut_startpoints(stored: Stored, by: Recut) -> dict[str, StartpointRecord]:
    own, for_good = by.former, rewinds_for_good(stored.startpoints, stored.rewinds, by.former)
    found: dict[str, StartpointRecord] = {}
    for id_, record in stored.startpoints.items():
        if any(one.task in own for one in record.resolutions):
            record = _recut_record(record, own, by)
        found[id_] = replace(record, status=StartpointStatus.APPLIED) if id_ in for_good else record
    return found


def _recut_record(record: StartpointRecord, own: Collection[TaskName], by: Recut) -> StartpointRecord:
    resolved = {(one.task, one.ssp): one for one in record.resolutions}
    ssps = sorted({one.ssp for one in record.resolutions})
    made = [one for one in record.resolutions if one.task not in own]
    may_be_deleted = True
    for name, parents in by.parents.items():
        for ssp in ssps:
            ones = [resolved[parent, ssp] for parent in parents if (parent, ssp) in resolved]
            if ones:
                made.append(_joined_resolution(name, ones))
                # where they came from different places, there is no one place to put them back to
                may_be_deleted &= len(ones) == len(parents) and len({(one.before, one.offset) for one in ones}) == 1
    status = record.status
    if status is StartpointStatus.PENDING and not may_be_deleted:
        status = StartpointStatus.APPLIED
    return replace(record, resolutions=tuple(sorted(made, key=lambda one: (one.task.sort_key, one.ssp))), status=status)


def _joined_resolution(name: TaskName, ones: Sequence[Resolution]) -> Resolution:
    """The lowest offset and the highest end: what any of them reads again is read again, up to where the last of them was."""
    return Resolution(
        name,
        ones[0].ssp,
        min(one.offset for one in ones),
        max(one.before for one in ones),
        max((one.watermark_us for one in ones if one.watermark_us is not None), default=None),
        max((one.until for one in ones if one.until is not None), default=None),
    )


def _recut_left(left: Sequence[LeftPosition], by: Recut) -> Iterator[LeftPosition]:
    made: dict[tuple[TaskName, SSP], LeftPosition] = {}
    for one in left:
        stays = one.task.sub_topology != by.sub_topology or one.task in by.parents
        for name in (one.task,) if stays else bucketed(one.task, by.factor):
            moved = replace(one, task=name)
            known = made.setdefault((name, one.ssp), moved)
            if known != moved:
                raise _apart(one.ssp, [p for p in left if p.ssp == one.ssp and p.task.whole == name.whole])
    yield from (made[key] for key in sorted(made, key=lambda key: (key[0].sort_key, key[1])))


def _apart(ssp: SSP, left: Sequence[LeftPosition]) -> IncompatibleChangeError:
    places = few([f"{one.task} at {one.position}" for one in left])
    return IncompatibleChangeError(
        f"stream {ssp.stream!r} is no input now, and tasks that would become one had read partition {ssp.partition} to "
        f"different positions: {places}",
        "put the input back, run the application until they are together, and change the factor then",
    )


