"""What startpoints would do, before they are written: which positions move how far, and what that means for state.

Nothing here asks a system: offsets are resolved by the caller, as the driver does it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headrace.core.rewind.consistent_cuts import SubTopologyEdges, going_by_cuts
from headrace.core.rewind.rewinds import RewindTarget
from headrace.core.rewind.skipped_ranges import SkippedRanges, Span, shared
from headrace.core.rewind.startpoint_rules import places_of
from headrace.core.rewind.state_history import StateVersion, described
from headrace.core.topology.compatibility import in_use
from headrace.core.topology.sub_topologies import stores_of, sub_topologies_of
from headrace.model.checkpoint import Checkpoint
from headrace.model.job_model import JobModel
from headrace.model.names import few
from headrace.model.startpoint import StartpointEntry, StatePolicy
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName
from headrace.model.topology import Node, Repartition, Source, Topology

_TABLES = frozenset({"table", "global"})
NAMED_MAX = 8  # places in one sentence
_SOURCE = "source"  # what the sub-topology without a name is called where its stores are


@dataclass(frozen=True, slots=True)
class Move:
    """How the position of a task in a partition moves. `task` and `before` are None where no task reads the partition yet.

    `in_skipped_ranges`: how many of the offsets between the two are not read, as what they hold is written again.
    """

    ssp: SSP
    task: TaskName | None
    before: int | None
    after: int
    in_skipped_ranges: int = 0

    @property
    def read_again(self) -> int:
        """Offsets that are read a second time."""
        return 0 if self.before is None else max(0, self.before - self.after - self.in_skipped_ranges)

    @property
    def skipped(self) -> int:
        """Offsets that are never read, and of which nothing is written again."""
        return 0 if self.before is None else max(0, self.after - self.before - self.in_skipped_ranges)

    @property
    def span(self) -> Span:
        """The offsets between its ends."""
        before = self.after if self.before is None else self.before
        return min(before, self.after), max(before, self.after)

    @property
    def is_back(self) -> bool:
        """Whether it is to before where the task is."""
        return self.before is not None and self.after < self.before


@dataclass(frozen=True, slots=True)
class StoresBehind:
    """The stores that records of a stream reach: `own` in the tasks that read it, `later` behind repartition streams.

    Without `is_certain` some of them may not be reached: what is known is only where they are. `has_tables_only`: each holds
    the last value of a key, which is the same however often it is read.
    """

    own: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    is_certain: bool = True
    has_tables_only: bool = False


@dataclass(frozen=True, slots=True)
class StartpointPreview:
    """What `entries` would do if they were written now.

    `past`: where they take state back, what goes back, and what is skipped; `flows` are the job's sub-topologies then.
    """

    application: str
    entries: tuple[StartpointEntry, ...]
    moves: tuple[Move, ...]
    state: StatePolicy
    stores: StoresBehind
    notes: tuple[str, ...] = ()
    past: RewindTarget = field(default_factory=RewindTarget)
    flows: tuple[SubTopologyEdges, ...] = ()
    unit: str = "records"

    @property
    def rewinds(self) -> Mapping[TaskName, StateVersion]:
        """Per task that goes back the version that it goes back to."""
        return self.past.versions

    @property
    def skipped_ranges(self) -> Mapping[SSP, Span]:
        """Per partition of a repartition stream the skipped range, from the first offset to the one behind the last."""
        return self.past.skipped_ranges

    @property
    def read_again(self) -> int:
        """Of virtual tasks of one partition what the furthest back reads: it is fetched once for all of them."""
        return self._summed(lambda move: move.read_again)

    @property
    def skipped(self) -> int:
        return self._summed(lambda move: move.skipped)

    def _summed(self, offsets_of: Callable[[Move], int]) -> int:
        most: dict[tuple[SSP, TaskName | None], int] = {}
        for move in self.moves:
            task = None if move.task is None else move.task.whole
            key = (move.ssp.whole, task)
            most[key] = max(offsets_of(move), most.get(key, 0))
        return sum(most.values())


def moves_of(
    entries: Iterable[StartpointEntry],
    offsets: Mapping[str, int],
    owners: Mapping[SSP, Collection[TaskName]],
    positions: Mapping[tuple[TaskName, SSP], int],
) -> tuple[Move, ...]:
    """What entries come to, sorted by SSP and task. `offsets`: by an entry's id what it was resolved to."""
    found: list[Move] = []
    for entry in entries:
        ssp, after = entry.key.ssp, offsets[entry.id]
        places = places_of(entry, owners)
        found += [Move(ssp, task, positions.get((task, ssp)), after) for task, _ in places] or [Move(ssp, None, None, after)]
    return tuple(sorted(found, key=_order))


def moves_between(
    given: Collection[Move],
    before: Mapping[TaskName, Checkpoint],
    after: Mapping[TaskName, Checkpoint],
    positions: Mapping[tuple[TaskName, SSP], int],
) -> tuple[Move, ...]:
    """What `given` come to, and what moves with them: all that differs between two plans, which begin with these checkpoints.
    `positions`: where tasks are now."""
    places = {(move.task, move.ssp) for move in given if move.task is not None}
    for task, one in after.items():
        old = before[task].positions
        places |= {(task, ssp) for ssp, position in one.positions.items() if old.get(ssp) != position}
    moves = [Move(ssp, task, positions.get((task, ssp)), after[task].positions[ssp]) for task, ssp in places if task in after]
    return tuple(sorted([*moves, *(move for move in given if move.task is None)], key=_order))


def with_skipped_ranges(moves: Iterable[Move], skipped_ranges: SkippedRanges) -> tuple[Move, ...]:
    """The same moves with what they skip.

    >>> from headrace.model.tasks import PartitionGroup
    >>> move = Move(SSP("log", "s", 0), TaskName(PartitionGroup(0)), 210, 80)
    >>> (moved,) = with_skipped_ranges([move], {move.ssp: ((20, 30), (100, 230))})
    >>> moved.in_skipped_ranges, moved.read_again
    (110, 20)
    """
    return tuple(
        replace(move, in_skipped_ranges=sum(shared(move.span, span) for span in skipped_ranges[move.ssp]))
        if move.ssp in skipped_ranges
        else move
        for move in moves
    )


def older_skipped(moves: Iterable[Move], older: SkippedRanges, past: RewindTarget) -> str | None:
    """What is to be said where moves come across skipped ranges of earlier rewinds, not within those of this one; None: none
    does."""
    found = {
        (move.ssp, span)
        for move in moves
        for span in older.get(move.ssp, ())
        if shared(move.span, span) and not _is_within(span, past.skipped_ranges.get(move.ssp))
    }
    return f"still skipped, because an earlier rewind wrote it again: {_spans_text(found)}" if found else None


def _is_within(span: Span, other: Span | None) -> bool:
    return other is not None and other[0] <= span[0] and span[1] <= other[1]


def further_back(asked: Iterable[Move], moves: Iterable[Move]) -> str | None:
    """What is to be said where `moves` of tasks whose state goes back are to somewhere else than was asked; None: nowhere."""
    after = {(move.task, move.ssp): move.after for move in moves}
    named = _offsets_text(move for move in asked if after.get((move.task, move.ssp), move.after) != move.after)
    return f"requested was {named}: a task resumes from the positions of the version that it goes back to" if named else None


def read_already(asked: Iterable[Move], held: Iterable[Move]) -> str | None:
    """What is to be said where `held`, of the same tasks and SSPs, stay where they are, for tasks that are going back already;
    None: none does."""
    named = _offsets_text(move for move, other in zip(asked, held, strict=True) if move.after != other.after)
    return f"requested was {named}: an earlier rewind already reads that again, and nothing is skipped" if named else None


def _offsets_text(moves: Iterable[Move]) -> str:
    named = list(dict.fromkeys(f"offset {move.after} of {move.ssp.stream}/{move.ssp.partition}" for move in moves))
    return few(named, NAMED_MAX)


def _order(move: Move) -> tuple[str, SSP, tuple[object, ...]]:
    """The source sub-topology, where records come from, before the others."""
    task = move.task
    return ("", move.ssp, ()) if task is None else (task.sub_topology or "", move.ssp, task.sort_key)


# --- state ----------------------------------------------------------------------------------------------------------


def stores_behind(model: JobModel, streams: Collection[str], topology: Topology | None = None) -> StoresBehind:
    """The stores that the records of `streams` reach: by the application's topology, else by what its job model tells."""
    return _stores_by_model(model, streams) if topology is None else _stores_by_topology(topology, streams)


def _stores_by_model(model: JobModel, streams: Collection[str]) -> StoresBehind:
    """A job model says where stores are, not which operators are behind which stream. Of a sub-topology that reads nothing
    else all stores are. Behind the source sub-topology are all the others, and it is behind none of them."""
    reads = {sub.title: {ssp.stream for task in sub.tasks for ssp in task.partitions} for sub in model.sub_topologies}
    reading = {title for title, read in reads.items() if read & set(streams)}
    places = {store: form.partition("|")[0] for store, form in in_use(model.stores).items()}
    own = sorted(store for store, place in places.items() if place in reading)
    later = sorted(store for store, place in places.items() if place not in {*reading, _SOURCE})
    is_certain = all(reads[title] <= set(streams) for title in reading) and (not later or _SOURCE in reading)
    are_tables = _are_tables(model.stores[store].partition("|")[2] for store in [*own, *later])
    return StoresBehind(tuple(own), tuple(later), is_certain, are_tables)


def _stores_by_topology(topology: Topology, streams: Collection[str]) -> StoresBehind:
    place_of = {node.name: sub.title for sub in sub_topologies_of(topology) for node in sub.nodes}
    reached = _reached(topology, streams)
    reading = {place_of[node.name] for node in reached if isinstance(node, Source) and node.stream in streams}
    stores = [(place_of[node.name] in reading, store) for node in reached for store in stores_of(node)]
    own = {store.name for is_own, store in stores if is_own}
    later = {store.name for is_own, store in stores if not is_own}
    are_tables = _are_tables(store.form for _, store in stores)
    return StoresBehind(tuple(sorted(own)), tuple(sorted(later)), has_tables_only=are_tables)


def _are_tables(forms: Iterable[str]) -> bool:
    """Whether stores of these forms, of which there are some, are all tables."""
    kinds = {form.partition(" ")[0] for form in forms}
    return bool(kinds) and kinds <= _TABLES


def _reached(topology: Topology, streams: Collection[str]) -> list[Node]:
    """The operators that records of these streams come to, across repartition streams too."""
    names: set[str] = set()
    read = set(streams)
    found: list[Node] = []
    before = -1
    while before != len(found):  # a repartition may come behind what reads it in the order of the nodes
        before = len(found)
        for node in topology.nodes:
            if node.name in names or not ((isinstance(node, Source) and node.stream in read) or names & set(node.parents)):
                continue
            names.add(node.name)
            found.append(node)
            if isinstance(node, Repartition):
                read.add(node.stream)
    return found


_NO_STORE = "no store is behind it: no state is touched"


def state_text(preview: StartpointPreview) -> str:
    """What happens to state, in a sentence or two."""
    if preview.state is StatePolicy.REWIND:
        return _rewind_text(preview)
    stores = [*preview.stores.own, *preview.stores.later]
    if not stores:
        return _NO_STORE
    named = _stores_text(stores, preview.stores.is_certain)
    if not preview.read_again and not preview.skipped:
        return f"state is kept as it is: {named}"
    effects = []
    if preview.read_again:
        effects.append(_again_text(preview.read_again, preview.unit, has_tables_only=preview.stores.has_tables_only))
    if preview.skipped == 1:
        effects.append(f"the 1 {preview.unit.removesuffix('s')} that is skipped never comes to them")
    elif preview.skipped:
        effects.append(f"the {preview.skipped:,} {preview.unit} that are skipped never come to them")
    return f"state is kept: {', and '.join(effects)}; {named}"


def _again_text(count: int, unit: str, *, has_tables_only: bool) -> str:
    """
    >>> _again_text(1, "records", has_tables_only=False)
    'the 1 record that is read again counts a second time in aggregates'
    """
    if count == 1:
        again = "is put into tables again" if has_tables_only else "counts a second time in aggregates"
        return f"the 1 {unit.removesuffix('s')} that is read again {again}"
    again = "are put into tables again" if has_tables_only else "count a second time in aggregates"
    return f"the {count:,} {unit} that are read again {again}"


def _rewind_text(preview: StartpointPreview) -> str:
    rewinds = preview.rewinds
    if not rewinds:
        if not preview.stores.own and not preview.stores.later:
            return _NO_STORE
        is_back = any(move.is_back for move in preview.moves)
        return f"no {'task with state' if is_back else 'position'} goes back: state stays as it is"
    stateful = {flow.name for flow in preview.flows if flow.has_state}
    lines = [
        f"{'state of ' if task.sub_topology in stateful else ''}{task} goes back to {_version_text(version)}"
        for task, version in list(rewinds.items())[:NAMED_MAX]
    ]
    if (left := len(rewinds) - NAMED_MAX) > 0:
        lines.append(f"{left:,} more task{' goes' if left == 1 else 's go'} back")
    by_cuts = going_by_cuts(preview.flows)
    together = list(dict.fromkeys(task.sub_topology or _SOURCE for task in rewinds if task.sub_topology in by_cuts))
    if together:
        lines.append(_together_text(together))
    if preview.skipped_ranges:
        lines.append(f"skipped, because it is written again: {_spans_text(preview.skipped_ranges.items())}")
    return "\n".join(lines)


def _together_text(titles: Sequence[str]) -> str:
    """Why tasks go back of which nothing was asked."""
    several = len(titles) > 1
    who = f"sub-topolog{'ies' if several else 'y'} {', '.join(map(repr, titles))}"
    stores = f"the stores behind {'their' if several else 'its'} repartition streams with them"
    return f"all tasks of {who} go back together, and {stores}: none counts a record twice"


def _spans_text(spans: Iterable[tuple[SSP, Span]]) -> str:
    """Offsets of partitions, the last one included; not of all where there are many."""
    named = [
        f"{start:,}{f' to {end - 1:,}' if end - start > 1 else ''} of {ssp.stream}/{ssp.partition}"
        for ssp, (start, end) in sorted(spans)
    ]
    return few(named, NAMED_MAX)


def _version_text(version: StateVersion) -> str:
    text = described(version)
    return f"the version {text}" if text.startswith("of ") else text  # the empty state is no version that was kept


def _stores_text(stores: Iterable[str], is_certain: bool) -> str:
    names = ", ".join(sorted(stores))
    return f"the stores behind it: {names}" if is_certain else f"the stores that may be behind it: {names}"
