"""Owns what startpoints would do, before they are written: which positions move how far, and what that means for state.

Nothing here asks a system: offsets are resolved by the caller, as the driver does it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from headrace.core.compatibility import in_use
from headrace.core.startpoints import places_of
from headrace.core.state_versions import KeptVersion, described
from headrace.core.sub_topologies import stores_of, sub_topologies_of
from headrace.model.job_model import JobModel
from headrace.model.startpoint import StartpointEntry, StatePolicy
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName
from headrace.model.topology import Node, Repartition, Source, Topology

_TABLES = frozenset({"table", "global"})
NAMED_MAX = 8  # places in one sentence
_SOURCE = "source"  # what the sub-topology without a name is called where its stores are


@dataclass(frozen=True, slots=True)
class Move:
    """How the position of a task in a partition moves. `task` and `before` are None where nobody reads the partition yet."""

    ssp: SSP
    task: TaskName | None
    before: int | None
    after: int

    @property
    def read_again(self) -> int:
        """Offsets that are read a second time."""
        return 0 if self.before is None else max(0, self.before - self.after)

    @property
    def skipped(self) -> int:
        """Offsets that are never read."""
        return 0 if self.before is None else max(0, self.after - self.before)


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
class Preview:
    """What `entries` would do if they were written now. `rewinds`: per task the version that its state goes back to."""

    application: str
    entries: tuple[StartpointEntry, ...]
    moves: tuple[Move, ...]
    state: StatePolicy
    stores: StoresBehind
    notes: tuple[str, ...] = ()
    rewinds: Mapping[TaskName, KeptVersion] | None = None
    unit: str = "records"

    @property
    def read_again(self) -> int:
        """Over all moves."""
        return sum(move.read_again for move in self.moves)

    @property
    def skipped(self) -> int:
        """Over all moves."""
        return sum(move.skipped for move in self.moves)


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


def moves_of_rewinds(
    rewinds: Mapping[TaskName, KeptVersion], positions: Mapping[tuple[TaskName, SSP], int]
) -> tuple[Move, ...]:
    """Where all SSPs of the tasks come to that go back to these versions."""
    found = [
        Move(ssp, task, positions.get((task, ssp)), after)
        for task, version in rewinds.items()
        for ssp, after in version.checkpoint.positions.items()
    ]
    return tuple(sorted(found, key=_order))


def targets_of(moves: Iterable[Move]) -> dict[TaskName, dict[SSP, int]]:
    """Per task the positions that are asked of it, where one of them lies before the present one: there state can go back."""
    found: dict[TaskName, dict[SSP, int]] = {}
    back = {move.task for move in moves if move.read_again}
    for move in moves:
        if move.task is not None and move.task in back:
            found.setdefault(move.task, {})[move.ssp] = move.after
    return found


def further_back(asked: Iterable[Move], moves: Iterable[Move]) -> str | None:
    """What is to be said where `moves` of tasks whose state goes back are to somewhere else than was asked; None: nowhere."""
    after = {(move.task, move.ssp): move.after for move in moves}
    other = [move for move in asked if after.get((move.task, move.ssp), move.after) != move.after]
    named = dict.fromkeys(f"offset {move.after} of {move.ssp.stream}/{move.ssp.partition}" for move in other)
    if not named:
        return None
    few = ", ".join(list(named)[:NAMED_MAX]) + (f" and {len(named) - NAMED_MAX} more" if len(named) > NAMED_MAX else "")
    return f"asked for was {few}: a task reads on from where the version is that its state goes back to"


def _order(move: Move) -> tuple[SSP, tuple[object, ...]]:
    return move.ssp, () if move.task is None else move.task.sort_key


# --- state ----------------------------------------------------------------------------------------------------------


def stores_behind(model: JobModel, streams: Collection[str], topology: Topology | None = None) -> StoresBehind:
    """The stores that the records of `streams` reach: by the application's topology, else by what its job model tells."""
    return _stores_by_model(model, streams) if topology is None else _stores_by_topology(topology, streams)


def _stores_by_model(model: JobModel, streams: Collection[str]) -> StoresBehind:
    """A job model says where stores are, not which operators are behind which stream. Of a sub-topology that reads nothing
    else all stores are. Behind the source sub-topology are all the others, and it is behind none of them."""
    reads = {
        sub.name or _SOURCE: {ssp.stream for task in sub.tasks for ssp in task.ssps} for sub in model.sub_topologies
    }
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
    while before != len(found):  # a repartition may stand behind what reads it in the order of the nodes
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


def state_text(preview: Preview) -> str:
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
        again = "are put into tables again" if preview.stores.has_tables_only else "count a second time in aggregates"
        effects.append(f"the {preview.read_again:,} {preview.unit} that are read again {again}")
    if preview.skipped:
        effects.append(f"the {preview.skipped:,} {preview.unit} that are skipped never come to them")
    return f"state is kept: {', and '.join(effects)}; {named}"


def _rewind_text(preview: Preview) -> str:
    lines = [f"state of {task} goes back to {_version_text(one)}" for task, one in (preview.rewinds or {}).items()]
    if not lines:
        if not preview.stores.own and not preview.stores.later:
            return _NO_STORE
        is_back = preview.read_again > 0
        lines.append(f"no {'task with state' if is_back else 'position'} goes back: state stays as it is")
    if preview.stores.later and preview.read_again:
        stores = _stores_text(preview.stores.later, preview.stores.is_certain)
        lines.append(
            "what is behind repartition streams does not go back with it: what is written to them again counts a second time "
            f"in aggregates there; {stores}"
        )
    return "\n".join(lines)


def _version_text(version: KeptVersion) -> str:
    text = described(version)
    return f"the version {text}" if text.startswith("of ") else text  # the empty state is no version that was kept


def _stores_text(stores: Iterable[str], is_certain: bool) -> str:
    names = ", ".join(sorted(stores))
    return f"the stores behind it: {names}" if is_certain else f"the stores that may be behind it: {names}"
