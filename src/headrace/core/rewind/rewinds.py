"""Going back as a whole: which tasks go back to which kept versions, so that no store counts a record twice.

What a task that goes back writes to a repartition stream, it writes again. So what is behind the stream goes back too, to
before the new writes, and the first writes since then are skipped (a gap):

    source       cut at 40 -> wrote up to 100      now at 90 -> has written up to 230
    behind it    version at 80                     now at 210

    the request is 55 of the source: it goes back to 40. Behind it 80 is the newest version that is not after 100. It reads on
    from 80 to 100, skips 100 to 230, and continues with what the source writes again, from 230 on.

That holds only if 100 separates the earlier writes from the later ones, for all tasks that write: a `ConsistentCut` is taken
between two rounds of a sub-topology, and all its tasks go back to the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.core.rewind.consistent_cuts import ConsistentCut, SubTopologyEdges, going_by_cuts
from headrace.core.rewind.skipped_ranges import Span
from headrace.core.rewind.state_history import (
    EMPTY_ORDER,
    StateVersion,
    Versions,
    no_common_version,
    no_version,
    rewound,
    usable,
    version_for,
)
from headrace.errors import StateError
from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName


@dataclass(frozen=True, slots=True)
class RewindTarget:
    """What a rewind comes to: per task that goes back the version, and the skipped ranges behind it."""

    versions: Mapping[TaskName, StateVersion] = field(default_factory=dict)
    skipped_ranges: Mapping[SSP, Span] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rewind:
    """One that was applied: its skipped ranges, and the rounds that all tasks concerned had come to.

    Concerned are those that went back, and the readers of skipped ranges: once one of these has committed, it is too late
    to undo it.
    """

    applied_at_us: int
    rounds: Mapping[TaskName, RoundId]
    skipped_ranges: Mapping[SSP, Span]

    @property
    def key(self) -> str:
        return f"{self.applied_at_us:020d}"

    def tasks_still_there(self, checkpoints: Mapping[TaskName, Checkpoint]) -> list[TaskName]:
        """Of the tasks concerned those that have committed nothing since."""
        return [task for task, at in self.rounds.items() if task in checkpoints and checkpoints[task].round_id == at]


# --- going back -----------------------------------------------------------------------------------------------------


class _RewindPlanner:
    """The steps of `rewind_target_of`, from the sources down. `limits`: per partition up to where its readers' states may have
    come.

    `given_up`: keys of cuts for which something behind them has no version that is old enough.
    """

    def __init__(
        self,
        checkpoints: Mapping[TaskName, Checkpoint],
        targets: Mapping[TaskName, Mapping[SSP, int]],
        versions: Versions,
        beginning: Callable[[SSP], int],
        born: Collection[SSP],
        formerly_other: Collection[str | None],
        given_up: Collection[str],
    ) -> None:
        self.checkpoints, self.targets, self.versions = checkpoints, targets, versions
        self.beginning, self.born, self.given_up = beginning, born, given_up
        self.formerly_other = formerly_other
        self.used: dict[str | None, ConsistentCut] = {}  # by sub-topology
        self.limits: dict[SSP, int] = {}
        self.found: dict[TaskName, StateVersion] = {}

    def asked_of(self, task: TaskName) -> dict[SSP, int]:
        asked = dict(self.targets.get(task, {}))
        for ssp in self.checkpoints[task].positions:
            if ssp in self.limits:
                asked[ssp] = min(self.limits[ssp], asked.get(ssp, self.limits[ssp]))
        return asked

    def is_ahead(self, task: TaskName) -> bool:
        positions = self.checkpoints[task].positions
        return any(positions[ssp] > offset for ssp, offset in self.asked_of(task).items())

    def usable(self, task: TaskName) -> tuple[StateVersion, ...]:
        checkpoint = self.checkpoints[task]
        beginnings = {}
        for ssp in checkpoint.positions:  # what lies behind a limit is skipped: it may be deleted
            beginning = self.beginning(ssp)
            beginnings[ssp] = min(beginning, self.limits.get(ssp, beginning))
        found = usable(self.versions.get(task, ()), checkpoint, beginnings, self.born)
        # What came of a stream that is not read now would not come again.
        return found[1:] if found and found[0].order == EMPTY_ORDER and task.sub_topology in self.formerly_other else found

    def alone(self, task: TaskName) -> None:
        found = self.usable(task)
        version = version_for(found, self.asked_of(task))
        if version is None:
            raise no_version(task, found, self.asked_of(task))
        self.found[task] = version

    def together(self, tasks: Sequence[TaskName], cuts: Sequence[ConsistentCut], written: Collection[SSP]) -> dict[SSP, int]:
        """All tasks of a sub-topology go back to its newest cut that suits; where what it writes (`written`) was then."""
        usable = {task: self.usable(task) for task in tasks}
        by_round = {task: {one.order: one for one in found} for task, found in usable.items()}
        sub = self.checkpoints[tasks[0]].task.sub_topology
        nothing = ConsistentCut(sub, 0, {}, dict.fromkeys(written, 0))
        for cut in (*sorted(cuts, key=lambda cut: -cut.kept_us), nothing):
            if cut.key in self.given_up or not cut.rounds.keys() <= usable.keys():  # a removed task has written, too
                continue
            found = {task: self._in_cut(task, cut, by_round[task]) for task in tasks}
            ends = {ssp: cut.written.get(ssp, 0 if ssp in self.born else None) for ssp in written}
            if all(self._suits(task, found[task]) for task in tasks) and None not in ends.values():
                self.found |= {
                    task: one
                    for task, one in found.items()
                    if one is not None and rewound(self.checkpoints[task], one) != self.checkpoints[task]
                }
                self.used[sub] = cut
                return {ssp: end for ssp, end in ends.items() if end is not None}
        asked = {task: targets for task in tasks if (targets := self.asked_of(task))}
        for task, targets in asked.items():
            if version_for(usable[task], targets) is None:
                raise no_version(task, usable[task], targets)
        raise no_common_version(sub, asked.values())

    def _in_cut(
        self, task: TaskName, cut: ConsistentCut, by_round: Mapping[tuple[int, int], StateVersion]
    ) -> StateVersion | None:
        if task in cut.rounds:
            return by_round.get(cut.rounds[task].order)
        is_born = set(self.checkpoints[task].positions) <= set(self.born)  # it was not there yet
        return by_round.get(EMPTY_ORDER) if is_born or not cut.rounds else None

    def _suits(self, task: TaskName, version: StateVersion | None) -> bool:
        if version is None:
            return False
        positions = version.checkpoint.positions
        return all(positions[ssp] <= offset for ssp, offset in self.asked_of(task).items())


def rewind_target_of(
    flows: Sequence[SubTopologyEdges],
    checkpoints: Mapping[TaskName, Checkpoint],
    targets: Mapping[TaskName, Mapping[SSP, int]],
    versions: Versions,
    cuts: Iterable[ConsistentCut],
    beginning: Callable[[SSP], int],
    end: Callable[[SSP], int],
    born: Collection[SSP] = (),
    formerly_other: Collection[str | None] = (),
) -> RewindTarget:
    """What goes back where `targets` are requested, per task and SSP; a task that is not after them stays.

    `checkpoints`: where all tasks are. `beginning` and `end` are called for the partitions that matter: the first offset that
    is still there, and the one behind the last that is written, readable yet or not; no task may be writing.
    `formerly_other`: sub-topologies that have read streams which they do not read now: they cannot start over. `StateError`
    where no version of some task is old enough, or no cut that suits all.

    Sub-topologies drop what they keep each for itself: where what is behind a cut has no version that is old enough for
    it any more, an older cut is taken.
    """
    given_up: set[str] = set()
    first: StateError | None = None
    while True:
        going = _RewindPlanner(checkpoints, targets, versions, beginning, born, formerly_other, given_up)
        here: list[SubTopologyEdges] = []  # up to the one that could not go back
        try:
            return _past(going, flows, list(cuts), end, here)
        except StateError as error:
            first = first or error
            before = [going.used[one.name] for one in here if one.name in going.used and {*one.writes} & {*here[-1].reads}]
            if not before:
                raise first from None
            given_up.add(max(before, key=lambda cut: cut.kept_us).key)


def _past(
    going: _RewindPlanner,
    flows: Sequence[SubTopologyEdges],
    cuts: Sequence[ConsistentCut],
    end: Callable[[SSP], int],
    here: list[SubTopologyEdges],
) -> RewindTarget:
    by_sub: dict[str | None, list[TaskName]] = {}
    read: dict[str, set[SSP]] = {}
    for task in sorted(going.checkpoints):
        by_sub.setdefault(task.sub_topology, []).append(task)
        for ssp in going.checkpoints[task].positions:
            read.setdefault(ssp.stream, set()).add(ssp)
    by_cuts = going_by_cuts(flows)
    skipped_ranges: dict[SSP, Span] = {}
    for flow in flows:
        here.append(flow)
        tasks = by_sub.get(flow.name, [])
        ahead = [task for task in tasks if going.is_ahead(task)]
        if ahead and flow.name in by_cuts:
            mine = [cut for cut in cuts if cut.sub_topology == flow.name]
            written = {ssp for stream in flow.writes for ssp in read.get(stream, ())}
            ends = going.together(tasks, mine, written)
            going.limits |= ends
            skipped_ranges |= {ssp: (start, end(ssp)) for ssp, start in ends.items()}
        elif flow.has_state:
            for task in ahead:
                going.alone(task)
    return RewindTarget(going.found, {ssp: span for ssp, span in sorted(skipped_ranges.items()) if span[0] < span[1]})


def rewind_of(past: RewindTarget, checkpoints: Mapping[TaskName, Checkpoint], now_us: int) -> Rewind:
    """What is to be stored of it. `checkpoints`: where all tasks were before."""
    reading = {task for task, one in checkpoints.items() if any(ssp in past.skipped_ranges for ssp in one.positions)}
    rounds = {task: checkpoints[task].round_id for task in sorted(reading | past.versions.keys())}
    return Rewind(now_us, rounds, past.skipped_ranges)


def undone_with(
    tasks: Collection[TaskName],
    rewinds: Iterable[Rewind],
    checkpoints: Mapping[TaskName, Checkpoint],
    fixed: Collection[TaskName] = (),
) -> tuple[frozenset[TaskName], tuple[Rewind, ...]]:
    """Of `tasks`, which are to be put where they were before they went back, those that can be, with all that went back with
    them; and the rewinds that were never there then. One of which a task has committed something since cannot be undone, nor
    one of a task that is `fixed`."""
    open_ = [rewind for rewind in rewinds if rewind.tasks_still_there(checkpoints)]
    found: set[TaskName] = set()
    undone: list[Rewind] = []
    left = set(tasks)
    while left:
        group, of_group = {left.pop()}, []
        while new := [one for one in open_ if one not in of_group and group & one.rounds.keys()]:
            of_group += new
            group.update(task for one in new for task in one.rounds)
        left -= group
        are_there = all(len(one.tasks_still_there(checkpoints)) == len(one.rounds) for one in of_group)
        if are_there and group.isdisjoint(fixed):
            found |= group
            undone += of_group
    return frozenset(found), tuple(undone)


def may_be_undone(tasks: Collection[TaskName], rewinds: Iterable[Rewind], checkpoints: Mapping[TaskName, Checkpoint]) -> bool:
    """Whether something that these tasks went back for may still be undone: no cut can be taken of them until then, it would
    go by skipped ranges that were never there."""
    return any(
        not one.rounds.keys().isdisjoint(tasks) and len(one.tasks_still_there(checkpoints)) == len(one.rounds)
        for one in rewinds
    )


def skipped_ranges_of(rewinds: Iterable[Rewind]) -> dict[SSP, tuple[Span, ...]]:
    """The skipped ranges of each partition: spans that meet are one.

    >>> a = SSP("log", "s", 0)
    >>> skipped_ranges_of([Rewind(1, {}, {a: (5, 9)}), Rewind(2, {}, {a: (3, 20)}), Rewind(3, {}, {a: (30, 31)})])[a]
    ((3, 20), (30, 31))
    """
    found: dict[SSP, list[Span]] = {}
    for ssp, span in sorted(item for rewind in rewinds for item in rewind.skipped_ranges.items()):
        spans = found.setdefault(ssp, [])
        if spans and span[0] <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(spans[-1][1], span[1])
        else:
            spans.append(span)
    return {ssp: tuple(spans) for ssp, spans in found.items()}


def needed_rewinds(
    rewinds: Iterable[Rewind], checkpoints: Mapping[TaskName, Checkpoint], beginning: Callable[[SSP], int]
) -> Iterator[Rewind]:
    """Those of which a skipped record still exists, or a task that could be rewound back."""
    for one in rewinds:
        if one.tasks_still_there(checkpoints) or any(end > beginning(ssp) for ssp, (_, end) in one.skipped_ranges.items()):
            yield one
