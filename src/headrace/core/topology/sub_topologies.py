"""How a topology falls into sub-topologies: the parts between repartition streams, each with tasks of its own.

As in Samza, all external inputs form ONE source sub-topology. Any other part is named by the repartition stream that it
reads (of several the first by name). `has_state` is the one definition of what has state.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass

from headrace.errors import TopologyError
from headrace.model import topology as t
from headrace.model.table_operators import ForeignKeyResults, GroupTable, LimitUpdates, SendByForeignKey, VersionedTable

REPARTITION_SUFFIX = "-repartition"
Families = Mapping[str, tuple[str, ...]]  # stream to its family, sorted


@dataclass(frozen=True, slots=True, eq=False)
class SubTopology:
    """`name` is None for the source sub-topology. `nodes` keep the order of the topology, parents first.

    `reads`: the streams of its sources, `writes`: the repartition streams it writes; both sorted. Sinks are apart.
    """

    name: str | None
    nodes: tuple[t.Node, ...]
    sources: tuple[t.Source, ...]
    stores: tuple[t.StoreSpec, ...]
    sinks: tuple[t.Sink, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    @property
    def title(self) -> str:
        """The name, `source` for the source sub-topology."""
        return self.name or "source"

    def children(self, name: str) -> tuple[t.Node, ...]:
        return tuple(node for node in self.nodes if name in node.parents)


def families_of(streams: Iterable[str], meetings: Iterable[Collection[str]]) -> dict[str, tuple[str, ...]]:
    """For every stream (or operator) all that it meets, directly or around, with itself.

    >>> families_of(["a", "b", "c", "d"], [["a", "b"], ["b", "d"]])
    {'a': ('a', 'b', 'd'), 'b': ('a', 'b', 'd'), 'c': ('c',), 'd': ('a', 'b', 'd')}
    """
    family: dict[str, set[str]] = {stream: {stream} for stream in streams}
    for met in sorted(map(sorted, meetings)):
        together: set[str] = set().union(*(family.get(stream, {stream}) for stream in met))
        for stream in together:
            family[stream] = together
    return {stream: tuple(sorted(members)) for stream, members in family.items()}


def short_name_of(application: str, stream: str) -> str:
    """The name of a repartition stream within its application.

    >>> short_name_of("flight-delays", "flight-delays-by-carrier-repartition")
    'by-carrier'
    """
    return stream.removeprefix(f"{application}-").removesuffix(REPARTITION_SUFFIX)


def whole_name_of(application: str, name: str, streams: Container[str]) -> str | None:
    """Which of `streams` is meant by a name that may be a repartition's own (`by-carrier`); None for none of them."""
    return next((one for one in (name, f"{application}-{name}{REPARTITION_SUFFIX}") if one in streams), None)


def stores_of(node: t.Node) -> tuple[t.StoreSpec, ...]:
    match node:
        case VersionedTable(store=store, versions=versions):
            return store, versions
        case t.Aggregate(store=store) | t.Table(store=store) | t.DropDuplicates(store=store) | t.Suppress(store=store):
            return (store,)
        case GroupTable(store=store) | SendByForeignKey(store=store) | LimitUpdates(store=store):
            return (store,)
        case t.Process(stores=stores) | t.Join(stores=stores) | ForeignKeyResults(stores=stores):
            return stores
        case _:
            return ()


def sharers_of(nodes: Iterable[t.Node]) -> dict[str, tuple[str, ...]]:
    """The stores that several operators share, and these; they are all processors (`dsl.builder`)."""
    holders: dict[str, list[str]] = {}
    for node in nodes:
        for store in stores_of(node):
            holders.setdefault(store.name, []).append(node.name)
    return {store: tuple(names) for store, names in holders.items() if len(names) > 1}


def broadcast_databases(nodes: Iterable[t.Node]) -> frozenset[str]:
    """The databases of a sub-topology's stores that are whole in every task: of what comes of broadcast streams alone."""
    shared, found = set[str](), set[str]()
    for node in nodes:  # parents come before their children
        is_shared = node.broadcast if isinstance(node, t.Source) else bool(node.parents) and shared.issuperset(node.parents)
        if is_shared:
            shared.add(node.name)
            found.update(store.kept_in for store in stores_of(node))
    return frozenset(found)


def output_streams(sub: SubTopology, dead_letter: str | None) -> tuple[str, ...]:
    """The streams that a sub-topology writes to by name, and others may change; a function may name any other."""
    named = {sink.stream for sink in sub.sinks if isinstance(sink.stream, str)}
    return tuple(sorted(named | ({dead_letter} if dead_letter is not None else set())))


def watched_streams(subs: Collection[SubTopology], dead_letter: str | None) -> set[str]:
    """The streams whose numbers of partitions a plan is made from: those that are read, and those that are written."""
    return {stream for sub in subs for stream in (*sub.reads, *sub.writes, *output_streams(sub, dead_letter))}


def is_stateful(node: t.Node) -> bool:
    """Whether an operator keeps anything between records: stores, or timers."""
    return bool(stores_of(node)) or (isinstance(node, t.Process) and node.timers)


def meets_by_key(node: t.Node) -> bool:
    """Whether all records of a key must come to one task of an operator: it has state, or joins with another's.

    A global table is in every task whole: what is joined with it may be anywhere.
    """
    return is_stateful(node) or (isinstance(node, t.Join) and node.sides is not t.JoinSides.STREAM_GLOBAL)


def has_state(sub: SubTopology) -> bool:
    """Whether a sub-topology has state: whether any of its operators keeps anything between records."""
    return any(is_stateful(node) for node in sub.nodes)


def sub_topologies_of(topology: t.Topology) -> tuple[SubTopology, ...]:
    """The sub-topologies: each comes after all that write the streams it reads; ties are in order of names.

    Raises `TopologyError` where one would read what it writes itself, directly or around.
    """
    subs = [_sub_topology(topology.application, nodes) for nodes in _parts(topology)]
    ordered = _in_order(subs)
    for sub in subs:
        if own := sorted(set(sub.reads) & set(sub.writes)):
            raise _cycle_error(topology, sub, own[0])
    if len(ordered) < len(subs):
        names = ", ".join(sorted(sub.title for sub in subs if sub not in ordered))
        raise TopologyError(
            f"the sub-topologies {names} read what they write, around",
            "begin one of them from another stream",
        )
    return ordered


def reads_inputs(topology: t.Topology, operator: str) -> bool:
    """Whether records of the job's inputs come to an operator without a repartition stream in between."""
    by_name = {node.name: node for node in topology.nodes}
    left = [operator]
    while left:
        node = by_name[left.pop()]
        if _is_external(node):
            return True
        left.extend(node.parents)
    return False


def upstream_names_of(subs: tuple[SubTopology, ...]) -> Mapping[str | None, tuple[str | None, ...]]:
    """For each sub-topology those that write a stream which it reads, in the order of `subs`."""
    return {reader.name: tuple(writer.name for writer in subs if set(writer.writes) & set(reader.reads)) for reader in subs}


def ancestors_of(topology: t.Topology, name: str) -> t.Topology:
    """The part of a topology that the operator `name` depends on, with it, across repartition streams too."""
    wanted = {name}
    streams: set[str] = set()
    for node in reversed(topology.nodes):
        if isinstance(node, t.Repartition) and node.stream in streams:
            wanted.add(node.name)
        if node.name in wanted:
            wanted.update(node.parents)
            if isinstance(node, t.Source) and node.kind is t.SourceKind.REPARTITION:
                streams.add(node.stream)
    return t.Topology(topology.application, tuple(node for node in topology.nodes if node.name in wanted))


def _parts(topology: t.Topology) -> list[tuple[t.Node, ...]]:
    """The connected parts, where all external sources count as connected, and operators that share a store; but a global table
    is where it is joined."""
    by_name = {node.name: node for node in topology.nodes}
    external = [node.name for node in topology.nodes if _is_external(node)]
    meetings = [*((node.name, *node.parents) for node in topology.nodes), external, *sharers_of(topology.nodes).values()]
    part_of = families_of(by_name, meetings)
    alone = sorted(part for part in {*part_of.values()} if _has_global_tables_only([by_name[name] for name in part]))
    if alone:
        home = part_of[external[0]] if external else alone[0]
        part_of |= {name: home for part in alone for name in part}
    found: dict[tuple[str, ...], list[t.Node]] = {}
    for node in topology.nodes:
        found.setdefault(part_of[node.name], []).append(node)
    return [tuple(nodes) for nodes in found.values()]


def _is_external(node: t.Node) -> bool:
    """Whether it reads an input of the job whose partitions are shared out among tasks."""
    return isinstance(node, t.Source) and node.kind is not t.SourceKind.REPARTITION and not node.broadcast


def _has_global_tables_only(nodes: list[t.Node]) -> bool:
    """Whether a part has nothing else to read: it is then put where the job's other inputs are."""
    return all(node.broadcast for node in nodes if isinstance(node, t.Source))


def _sub_topology(application: str, nodes: tuple[t.Node, ...]) -> SubTopology:
    sources = tuple(node for node in nodes if isinstance(node, t.Source))
    internal = [source for source in sources if source.kind is t.SourceKind.REPARTITION]
    external = not internal or any(_is_external(source) for source in sources)
    name = None if external else min(short_name_of(application, source.stream) for source in internal)
    return SubTopology(
        name=name,
        nodes=nodes,
        sources=sources,
        stores=tuple({store.name: store for node in nodes for store in stores_of(node)}.values()),
        sinks=tuple(node for node in nodes if isinstance(node, t.Sink)),
        reads=tuple(sorted({source.stream for source in sources})),
        writes=tuple(sorted({node.stream for node in nodes if isinstance(node, t.Repartition)})),
    )


def _in_order(subs: list[SubTopology]) -> tuple[SubTopology, ...]:
    """Writers before readers, the source sub-topology and lower names first; those on a cycle are left out."""
    waiting = sorted(subs, key=lambda sub: sub.name or "")
    done: list[SubTopology] = []
    while waiting:
        unwritten = {stream for sub in waiting for stream in sub.writes}
        ready = next((sub for sub in waiting if not unwritten & set(sub.reads)), None)
        if ready is None:
            break
        waiting.remove(ready)
        done.append(ready)
    return tuple(done)


def _cycle_error(topology: t.Topology, sub: SubTopology, stream: str) -> TopologyError:
    """Name the operator at which the repartition stream comes together again with what it was written from."""
    short = short_name_of(topology.application, stream)
    source = next(source for source in sub.sources if source.stream == stream)
    behind = {source.name}
    meeting: t.Node | None = None
    for node in sub.nodes:
        if behind & set(node.parents):
            behind.add(node.name)
            if meeting is None and not set(node.parents) <= behind:
                meeting = node
    for store, names in sharers_of(sub.nodes).items():
        if (later := [name for name in names if name in behind]) and len(later) < len(names):
            earlier = next(name for name in names if name not in behind)
            return TopologyError(
                f"store {store!r} is shared by {earlier!r} and, behind the repartition stream {short!r}, by {later[0]!r}: a "
                "store is shared within one sub-topology, and a sub-topology cannot read its own repartition stream",
                "put both processors behind the repartition, or give each a store of its own",
            )
    at = "" if meeting is None else f" at {meeting.name!r}"
    return TopologyError(
        f"the repartition stream {short!r} is joined{at} with rows of the sub-topology {sub.title!r} that writes it: "
        "a sub-topology cannot read its own repartition stream",
        "repartition the other side of it too",
    )
