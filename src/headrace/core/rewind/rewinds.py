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

from headrace.core.rewind.state_history import (
    RetentionPolicy,
    StateVersion,
    empty_order,
    least_missed,
    no_common_version,
    no_version,
    on_the_line,
    order_of,
    rewound,
    usable,
    version_for,
)
from headrace.core.topology.sub_topologies import SubTopology, has_state
from headrace.errors import StateError
from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName

Versions = Mapping[TaskName, Sequence[StateVersion]]
Span = tuple[int, int]  # offsets start <= o < end
SkippedRanges = Mapping[SSP, tuple[Span, ...]]  # of each partition in order, apart from each other


@dataclass(frozen=True, slots=True)
class ConsistentCut:
    """The state of a sub-topology between two of its rounds, at `kept_us` (µs since the epoch).

    `rounds`: per task the round of its version. `written`: per partition of the repartition streams that it writes the
    offset which separates the writes by then from later ones.
    """

    sub_topology: str | None
    kept_us: int
    rounds: Mapping[TaskName, RoundId]
    written: Mapping[SSP, int]

    @property
    def key(self) -> str:
        """Its name among all cuts of all sub-topologies."""
        return f"{self.sub_topology or 'source'}/{self.kept_us:020d}"


@dataclass(frozen=True, slots=True)
class SubTopologyEdges:
    """A sub-topology, as far as going back goes: the streams that it reads, the repartition streams that it writes, and
    whether it has state."""

    name: str | None
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    has_state: bool


@dataclass(frozen=True, slots=True)
class RewindTarget:
    """What a rewind comes to: per task that goes back the version, and the skipped ranges behind it."""

    versions: Mapping[TaskName, StateVersion] = field(default_factory=dict)
    gaps: Mapping[SSP, Span] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rewind:
    """One that was applied: its skipped ranges, and the rounds that all tasks concerned had come to.

    Concerned are those that went back, and the readers of skipped ranges: once one of these has committed, it is too late
    to undo it.
    """

    taken_up_at_us: int
    rounds: Mapping[TaskName, RoundId]
    gaps: Mapping[SSP, Span]

    @property
    def key(self) -> str:
        return f"{self.taken_up_at_us:020d}"


def flows_of(subs: Iterable[SubTopology]) -> tuple[SubTopologyEdges, ...]:
    """In the order of `sub_topologies_of`: each comes after all that write what it reads."""
    return tuple(SubTopologyEdges(sub.name, sub.reads, sub.writes, has_state(sub)) for sub in subs)


def going_by_cuts(flows: Sequence[SubTopologyEdges]) -> frozenset[str | None]:
    """The sub-topologies with state behind them, across repartition streams: those whose tasks go back together."""
    found: set[str | None] = set()
    reads: set[str] = set()  # of what has state, or leads to it
    for flow in reversed(flows):
        if reads.intersection(flow.writes):
            found.add(flow.name)
        if flow.has_state or flow.name in found:
            reads.update(flow.reads)
    return frozenset(found)


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
        begun_otherwise: Collection[str | None],
        given_up: Collection[str],
    ) -> None:
        self.checkpoints, self.targets, self.versions = checkpoints, targets, versions
        self.beginning, self.born, self.given_up = beginning, born, given_up
        self.begun_otherwise = begun_otherwise
        self.used: dict[str | None, ConsistentCut] = {}  # by sub-topology
        self.limits: dict[SSP, int] = {}
        self.found: dict[TaskName, StateVersion] = {}

    def asked_of(self, task: TaskName) -> dict[SSP, int]:
        asked = dict(self.targets.get(task, {}))
        for ssp in self.checkpoints[task].positions:
            if ssp.whole in self.limits:
                asked[ssp] = min(self.limits[ssp.whole], asked.get(ssp, self.limits[ssp.whole]))
        return asked

    def is_ahead(self, task: TaskName) -> bool:
        positions = self.checkpoints[task].positions
        return any(positions[ssp] > offset for ssp, offset in self.asked_of(task).items())

    def usable(self, task: TaskName) -> tuple[StateVersion, ...]:
        checkpoint = self.checkpoints[task]
        beginnings = {}
        for ssp in checkpoint.positions:  # what lies behind a limit is skipped: it may be deleted
            beginning = self.beginning(ssp)
            beginnings[ssp] = min(beginning, self.limits.get(ssp.whole, beginning))
        found = usable(self.versions.get(task, ()), checkpoint, beginnings, self.born)
        # What came of a stream that is not read now would not come again.
        return found[1:] if found and found[0].order == empty_order() and task.sub_topology in self.begun_otherwise else found

    def alone(self, task: TaskName) -> None:
        found = self.usable(task)
        version = version_for(found, self.asked_of(task))
        if version is None:
            raise no_version(task, found, self.asked_of(task))
        self.found[task] = version

    def together(self, tasks: Sequence[TaskName], cuts: Sequence[ConsistentCut], written: Collection[SSP]) -> dict[SSP, int]:
        """All tasks of a sub-topology go back to its newest cut that suits; where what it writes (`written`) was then."""
        usable = {task: self.usable(task) for task in tasks}
        by_round = {task: {order_of(one.checkpoint.round_id): one for one in found} for task, found in usable.items()}
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
            return by_round.get(order_of(cut.rounds[task]))
        is_born = set(self.checkpoints[task].positions) <= set(self.born)  # it was not there yet
        return by_round.get(empty_order()) if is_born or not cut.rounds else None

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
    begun_otherwise: Collection[str | None] = (),
) -> RewindTarget:
    """What goes back where `targets` are requested, per task and SSP; a task that is not after them stays.

    `checkpoints`: where all tasks are. `beginning` and `end` are called for the partitions that matter: the first offset that
    is still there, and the one behind the last that is written, readable yet or not; no task may be writing.
    `begun_otherwise`: sub-topologies that have read streams which they do not read now: they cannot start over. `StateError`
    where no version of some task is old enough, or no cut that suits all.

    Sub-topologies drop what they keep each for itself: where what is behind a cut has no version that is old enough for
    it any more, an older cut is taken.
    """
    given_up: set[str] = set()
    first: StateError | None = None
    while True:
        going = _RewindPlanner(checkpoints, targets, versions, beginning, born, begun_otherwise, given_up)
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
            read.setdefault(ssp.stream, set()).add(ssp.whole)
    by_cuts = going_by_cuts(flows)
    gaps: dict[SSP, Span] = {}
    for flow in flows:
        here.append(flow)
        tasks = by_sub.get(flow.name, [])
        ahead = [task for task in tasks if going.is_ahead(task)]
        if ahead and flow.name in by_cuts:
            mine = [cut for cut in cuts if cut.sub_topology == flow.name]
            written = {ssp for stream in flow.writes for ssp in read.get(stream, ())}
            ends = going.together(tasks, mine, written)
            going.limits |= ends
            gaps |= {ssp: (start, end(ssp)) for ssp, start in ends.items()}
        elif flow.has_state:
            for task in ahead:
                going.alone(task)
    return RewindTarget(going.found, {ssp: span for ssp, span in sorted(gaps.items()) if span[0] < span[1]})


def rewind_of(past: RewindTarget, checkpoints: Mapping[TaskName, Checkpoint], now_us: int) -> Rewind:
    """What is to be stored of it. `checkpoints`: where all tasks were before."""
    reading = {task for task, one in checkpoints.items() if any(ssp.whole in past.gaps for ssp in one.positions)}
    rounds = {task: checkpoints[task].round_id for task in sorted(reading | past.versions.keys())}
    return Rewind(now_us, rounds, past.gaps)


def undone_with(
    tasks: Collection[TaskName],
    rewinds: Iterable[Rewind],
    checkpoints: Mapping[TaskName, Checkpoint],
    fixed: Collection[TaskName] = (),
) -> tuple[frozenset[TaskName], tuple[Rewind, ...]]:
    """Of `tasks`, which are to be put where they were before they went back, those that can be, with all that went back with
    them; and the rewinds that were never there then. One of which a task has committed something since cannot be undone, nor
    one of a task that is `fixed`."""
    open_ = [
        rewind
        for rewind in rewinds
        if any(_has_not_gone_on(checkpoints, task, round_id) for task, round_id in rewind.rounds.items())
    ]
    found: set[TaskName] = set()
    undone: list[Rewind] = []
    left = set(tasks)
    while left:
        group, of_group = {left.pop()}, []
        while new := [one for one in open_ if one not in of_group and group & one.rounds.keys()]:
            of_group += new
            group.update(task for one in new for task in one.rounds)
        left -= group
        are_there = all(_has_not_gone_on(checkpoints, task, one.rounds[task]) for one in of_group for task in one.rounds)
        if are_there and group.isdisjoint(fixed):
            found |= group
            undone += of_group
    return frozenset(found), tuple(undone)


def may_be_undone(tasks: Collection[TaskName], rewinds: Iterable[Rewind], checkpoints: Mapping[TaskName, Checkpoint]) -> bool:
    """Whether something that these tasks went back for may still be undone: no cut can be taken of them until then, it would
    go by gaps that were never there."""
    return any(
        not one.rounds.keys().isdisjoint(tasks)
        and all(_has_not_gone_on(checkpoints, task, round_id) for task, round_id in one.rounds.items())
        for one in rewinds
    )


def cut_of(
    sub_topology: str | None,
    checkpoints: Iterable[Checkpoint],
    versions: Versions,
    written: Mapping[SSP, int],
    now_us: int,
) -> ConsistentCut | None:
    """The cut of a sub-topology whose tasks are at `checkpoints`, of which versions are kept; None where one has none, and
    only what it left aside."""
    rounds = {one.task: _round_of_state(one, on_the_line(versions.get(one.task, ()))) for one in checkpoints}
    known = {task: round_id for task, round_id in rounds.items() if round_id is not None}
    return ConsistentCut(sub_topology, now_us, known, written) if len(known) == len(rounds) else None


def _round_of_state(checkpoint: Checkpoint, line: Sequence[StateVersion]) -> RoundId | None:
    """Of the versions on a task's line the one that has its present state: it may have been rewound to it."""
    if line and rewound(checkpoint, line[-1]) == checkpoint:
        return line[-1].checkpoint.round_id
    return next((one.checkpoint.round_id for one in line if one.checkpoint.round_id == checkpoint.round_id), None)


def _has_not_gone_on(checkpoints: Mapping[TaskName, Checkpoint], task: TaskName, round_id: RoundId) -> bool:
    return task in checkpoints and checkpoints[task].round_id == round_id


# --- skipped ranges -------------------------------------------------------------------------------------------------


def gaps_of(rewinds: Iterable[Rewind]) -> dict[SSP, tuple[Span, ...]]:
    """The skipped ranges of each partition: spans that meet are one.

    >>> a = SSP("log", "s", 0)
    >>> gaps_of([Rewind(1, {}, {a: (5, 9)}), Rewind(2, {}, {a: (3, 20)}), Rewind(3, {}, {a: (30, 31)})])[a]
    ((3, 20), (30, 31))
    """
    found: dict[SSP, list[Span]] = {}
    for ssp, span in sorted(item for rewind in rewinds for item in rewind.gaps.items()):
        spans = found.setdefault(ssp, [])
        if spans and span[0] <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(spans[-1][1], span[1])
        else:
            spans.append(span)
    return {ssp: tuple(spans) for ssp, spans in found.items()}


def beyond_gaps(positions: Mapping[SSP, int], gaps: SkippedRanges) -> dict[SSP, int]:
    """Of these positions those that lie in a gap, each where that ends."""
    return {
        ssp: end for ssp, spans in gaps.items() for start, end in spans if ssp in positions and start <= positions[ssp] < end
    }


def before_gaps(positions: Mapping[SSP, int], ends: Mapping[SSP, int], gaps: SkippedRanges) -> dict[SSP, int]:
    """Up to where each partition may be read from these positions: nothing of a gap."""
    allowed = dict(ends)
    for ssp, spans in gaps.items():
        if ssp in allowed and ssp in positions:
            before = positions[ssp]
            allowed[ssp] = min([allowed[ssp], *(max(start, before) for start, end in spans if before < end)])
    return allowed


def passed_over(before: Mapping[SSP, int], after: Mapping[SSP, int], gaps: SkippedRanges) -> int:
    """How many offsets between these positions are in gaps, over all partitions.

    >>> a = SSP("log", "s", 0)
    >>> passed_over({a: 2}, {a: 40}, {a: ((3, 20), (30, 31))})
    18
    """
    return sum(
        max(0, min(end, after[ssp]) - max(start, before[ssp]))
        for ssp, spans in gaps.items()
        if ssp in before and ssp in after
        for start, end in spans
    )


def needed_rewinds(
    rewinds: Iterable[Rewind], checkpoints: Mapping[TaskName, Checkpoint], beginning: Callable[[SSP], int]
) -> Iterator[Rewind]:
    """Those of which a skipped record still exists, or a task that could be rewound back."""
    for one in rewinds:
        is_open = any(_has_not_gone_on(checkpoints, task, round_id) for task, round_id in one.rounds.items())
        if is_open or any(end > beginning(ssp) for ssp, (_, end) in one.gaps.items()):
            yield one


# --- what is kept ---------------------------------------------------------------------------------------------------


def thinned_cuts(
    versions: Versions, cuts: Sequence[ConsistentCut], now_us: int, keeping: RetentionPolicy
) -> tuple[dict[TaskName, tuple[StateVersion, ...]], tuple[ConsistentCut, ...]]:
    """Of a sub-topology's cuts those that stay, and the versions that they are of. As `thinned` does for one task.

    What is off the line stays until something newer is on it: so long going back may be taken back.
    """
    lines = {task: on_the_line(kept) for task, kept in versions.items()}
    on_line = {task: {order_of(one.checkpoint.round_id) for one in line} for task, line in lines.items()}
    all_known = {task: {one.order for one in kept} for task, kept in versions.items()}

    def is_of(cut: ConsistentCut, known: Mapping[TaskName, set[tuple[int, int]]]) -> bool:
        return all(order_of(round_id) in known.get(task, ()) for task, round_id in cut.rounds.items())

    ordered = sorted(cuts, key=lambda cut: cut.kept_us)
    stay = [cut for cut in ordered if is_of(cut, on_line)]
    if keeping.span_us is not None:
        stay = [cut for cut in stay if now_us - cut.kept_us <= keeping.span_us]
    while len(stay) > keeping.most:
        del stay[least_missed([cut.kept_us for cut in stay], now_us, is_spread=keeping.span_us is not None)]
    left = {task: _left_open(kept, lines[task]) if keeping.most else set() for task, kept in versions.items()}
    aside = [cut for cut in ordered if cut not in stay and not is_of(cut, on_line) and is_of(cut, all_known)]
    if not any(left.values()):
        aside = []
    wanted: dict[TaskName, set[tuple[int, int]]] = {task: set(orders) for task, orders in left.items()}
    for cut in (*stay, *aside):
        for task, round_id in cut.rounds.items():
            wanted.setdefault(task, set()).add(order_of(round_id))
    kept_versions = {task: tuple(one for one in kept if one.order in wanted[task]) for task, kept in versions.items()}
    return kept_versions, tuple(sorted([*stay, *aside], key=lambda cut: cut.kept_us))


def _left_open(versions: Sequence[StateVersion], line: Sequence[StateVersion]) -> set[tuple[int, int]]:
    """Of a task's versions those that are off its line, where nothing newer is on it."""
    left = [one for one in versions if one not in line]
    return set() if left and line and line[-1].order > left[-1].order else {one.order for one in left}
