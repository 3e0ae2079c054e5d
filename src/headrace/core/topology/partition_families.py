"""Which streams belong together: those whose records meet in a merge, in a join, or in an operator with state.

Seed: KIP-221, where a stream that is made inherits the number of partitions of its upstream. As Kafka Streams does, what
meets counts as one upstream; an input that only happens to be in the same application is none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from headrace.core.topology.sub_topologies import Families, SubTopology, families_of, meets_by_key, sharers_of
from headrace.model.topology import Join, Repartition


@dataclass(frozen=True, slots=True)
class Meetings:
    """Operators that take records of several streams, and those streams, sorted.

    `joined`: joins by key, whose sides must have one number of partitions. `keyed`: operators with state, which need the
    same unless the streams are in the same tasks anyway. `merged`: the others, which need nothing.
    """

    joined: Families = field(default_factory=dict)
    keyed: Families = field(default_factory=dict)
    merged: Families = field(default_factory=dict)

    def families(self, streams: Iterable[str]) -> tuple[Families, Families, Families]:
        """Of `streams`: by joins, by these and operators with state, by all that meets."""
        by_key = [*self.joined.values(), *self.keyed.values()]
        every = [*by_key, *self.merged.values()]
        return families_of(streams, self.joined.values()), families_of(streams, by_key), families_of(streams, every)


@dataclass(frozen=True, slots=True)
class CountRequests:
    """What an application says of the numbers of partitions of its repartition streams.

    `feeds`: for each of them the streams that it comes of (external ones, or repartition streams). `explicit`: the numbers that
    it asks for. `hints`: what to make a stream with; one that exists wins.
    """

    feeds: Families
    explicit: Mapping[str, int] = field(default_factory=dict)
    hints: Mapping[str, int] = field(default_factory=dict)
    meetings: Meetings = field(default_factory=Meetings)


def count_requests_of(subs: Collection[SubTopology]) -> CountRequests:
    nodes = [node for sub in subs for node in sub.nodes if isinstance(node, Repartition)]
    explicit = {n.stream: n.partitions for n in nodes if n.partitions is not None and not n.partitions_is_hint}
    hints = {n.stream: n.partitions for n in nodes if n.partitions is not None and n.partitions_is_hint}
    return CountRequests(feeds_of(subs), explicit, hints, meetings_of(subs))


def meetings_of(subs: Iterable[SubTopology]) -> Meetings:
    """What meets where. Of a broadcast stream every task has all: it meets everything, and counts nowhere. Operators that share
    a store have state of all that comes to any of them."""
    joined: dict[str, tuple[str, ...]] = {}
    keyed: dict[str, tuple[str, ...]] = {}
    merged: dict[str, tuple[str, ...]] = {}
    for sub in subs:
        feeding = _feeding(sub)
        for names in sharers_of(sub.nodes).values():
            together = set().union(*(feeding[name] for name in names))
            feeding |= dict.fromkeys(names, together)
        for node in sub.nodes:
            if len(feeding[node.name]) > 1:
                kind = merged if not meets_by_key(node) else joined if isinstance(node, Join) else keyed
                kind[node.name] = tuple(sorted(feeding[node.name]))
    return Meetings(joined, keyed, merged)


def feeds_of(subs: Iterable[SubTopology]) -> dict[str, tuple[str, ...]]:
    """For every repartition stream the streams whose number of partitions it may inherit (`upstream_of` what writes it)."""
    feeds: dict[str, set[str]] = {}
    for sub in subs:
        upstream = upstream_of(sub)
        for node in sub.nodes:
            if isinstance(node, Repartition):
                feeds.setdefault(node.stream, set()).update(upstream[node.name])
    return {stream: tuple(sorted(found)) for stream, found in feeds.items()}


def upstream_of(sub: SubTopology) -> dict[str, tuple[str, ...]]:
    """For every operator the streams whose records come to it, and all that these meet in the sub-topology, sorted.

    An operator that only broadcast streams come to has all that the sub-topology reads.
    """
    _, _, families = meetings_of([sub]).families(sub.reads)
    together = {name: {one for stream in found for one in families[stream]} for name, found in _feeding(sub).items()}
    return {name: tuple(sorted(found)) or sub.reads for name, found in together.items()}


def _feeding(sub: SubTopology) -> dict[str, set[str]]:
    """For every operator the streams whose records come to it, without broadcast ones."""
    feeding: dict[str, set[str]] = {source.name: set() for source in sub.sources}
    feeding |= {source.name: {source.stream} for source in sub.sources if not source.broadcast}
    for node in sub.nodes:
        if node.name not in feeding:
            feeding[node.name] = set().union(*(feeding.get(parent, set()) for parent in node.parents))
    return feeding
