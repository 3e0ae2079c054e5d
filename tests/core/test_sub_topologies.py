"""How a topology falls into sub-topologies, against a dumb second way of finding them, and clause by clause."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.topology.sub_topologies import (
    SubTopology,
    ancestors_of,
    has_state,
    short_name_of,
    sub_topologies_of,
    upstream_names_of,
)
from headrace.errors import TopologyError
from headrace.model.topology import (
    Aggregate,
    AggregateKind,
    Function,
    FunctionKind,
    Group,
    Join,
    JoinKind,
    JoinSides,
    Merge,
    Node,
    Peek,
    Process,
    Repartition,
    Sink,
    Source,
    SourceKind,
    StoreKind,
    StoreSpec,
    Table,
    Topology,
)

NOOP = Function(FunctionKind.RECORD, print, "print")


def source(name: str, kind: SourceKind = SourceKind.STREAM) -> Source:
    return Source(name=name, stream=name, key=None, value=None, kind=kind)


def peek(name: str, parent: str) -> Peek:
    return Peek(name=name, parents=(parent,), function=NOOP)


def sink(name: str, parent: str) -> Sink:
    return Sink(name=name, parents=(parent,), stream=f"out-{name}")


def repartition(name: str, parent: str) -> tuple[Repartition, Source]:
    stream = f"app-{name}-repartition"
    writer = Repartition(name=f"{name}-repartition", parents=(parent,), stream=stream)
    return writer, Source(name=name, stream=stream, key=None, value=None, kind=SourceKind.REPARTITION)


def count(name: str, parent: str) -> Aggregate:
    store = StoreSpec(name, StoreKind.KEY_VALUE, "count key=string value=long")
    return Aggregate(name=name, parents=(parent,), kind=AggregateKind.COUNT, store=store)


def topology(*nodes: Node) -> Topology:
    return Topology("app", nodes)


def names(sub: SubTopology) -> list[str]:
    return [node.name for node in sub.nodes]


def test_all_external_inputs_form_one_source_sub_topology() -> None:
    (sub,) = sub_topologies_of(
        topology(source("a"), source("t", SourceKind.TABLE), peek("p", "a"), sink("s", "p"), sink("r", "t"))
    )
    assert (sub.name, sub.title, sub.reads) == (None, "source", ("a", "t"))
    assert [one.name for one in sub.sinks] == ["s", "r"]


def test_others_are_named_by_the_repartition_stream_they_read() -> None:
    writer, reader = repartition("by-carrier", "a")
    subs = sub_topologies_of(topology(source("a"), writer, reader, count("n", "by-carrier"), sink("s", "n")))
    assert [sub.name for sub in subs] == [None, "by-carrier"]
    first, second = subs
    assert names(first) == ["a", "by-carrier-repartition"]
    assert first.writes == second.reads == ("app-by-carrier-repartition",)
    assert [store.name for store in second.stores] == ["n"]
    assert upstream_names_of(subs) == {None: (), "by-carrier": (None,)}


def test_of_several_repartition_streams_the_first_by_name_names_it() -> None:
    (w1, r1), (w2, r2) = repartition("zebra", "a"), repartition("ape", "a")
    merge = Merge(name="m", parents=("zebra", "ape"))
    subs = sub_topologies_of(topology(source("a"), w1, r1, w2, r2, merge))
    assert [sub.name for sub in subs] == [None, "ape"]
    assert subs[1].reads == ("app-ape-repartition", "app-zebra-repartition")


def test_writers_come_before_readers_and_else_names_decide() -> None:
    (w1, r1), (w2, r2), (w3, r3) = repartition("z", "a"), repartition("b", "z"), repartition("c", "a")
    subs = sub_topologies_of(topology(source("a"), w1, r1, w2, r2, w3, r3))
    assert [sub.title for sub in subs] == ["source", "c", "z", "b"]
    assert upstream_names_of(subs)["b"] == ("z",)


def test_state_is_stores_and_timers() -> None:
    def state_of(node: Node) -> bool:
        return has_state(sub_topologies_of(topology(source("a"), node))[0])

    store = StoreSpec("s", StoreKind.KEY_VALUE, "form")
    assert not state_of(Group(name="g", parents=("a",)))
    assert not state_of(sink("s", "a"))
    assert not state_of(repartition("r", "a")[0])
    assert not state_of(Process(name="p", parents=("a",), processor=object))
    assert state_of(Process(name="p", parents=("a",), processor=object, timers=True))
    assert state_of(Process(name="p", parents=("a",), processor=object, stores=(store,)))
    assert state_of(Table(name="t", parents=("a",), store=store))
    assert state_of(count("n", "a"))


def test_reading_ones_own_repartition_stream_is_refused() -> None:
    writer, reader = repartition("again", "p")
    merge = Merge(name="both", parents=("again", "p"))
    with pytest.raises(TopologyError) as error:
        sub_topologies_of(topology(source("a"), peek("p", "a"), writer, reader, merge))
    assert "'again' is joined at 'both' with rows of the sub-topology 'source' that writes it" in str(error.value)
    assert "repartition the other side" in str(error.value)


def test_a_repartition_stream_beside_an_external_one_belongs_to_the_source_sub_topology_and_is_refused() -> None:
    writer, reader = repartition("r", "a")
    merge = Merge(name="both", parents=("r", "b"))
    with pytest.raises(TopologyError, match="'r' is joined at 'both'"):
        sub_topologies_of(topology(source("a"), source("b"), writer, reader, merge))


def test_reading_around_is_refused() -> None:
    """x reads r1, writes r2; y reads r2 and writes r1 too: neither could be worked off to its end first."""
    w1, r1 = repartition("r1", "a")
    w2, r2 = repartition("r2", "r1")
    back = Repartition(name="back", parents=("r2",), stream="app-r1-repartition")
    with pytest.raises(TopologyError, match="r1, r2 read what they write"):
        sub_topologies_of(topology(source("a"), w1, r1, w2, r2, back))


def test_ancestors_cross_repartition_streams() -> None:
    writer, reader = repartition("r", "p")
    whole = topology(source("a"), source("b"), peek("p", "a"), peek("q", "a"), writer, reader, count("n", "r"))
    part = ancestors_of(whole, "n")
    assert [node.name for node in part.nodes] == ["a", "p", "r-repartition", "r", "n"]


def test_short_names() -> None:
    assert short_name_of("shop", "shop-by-user-repartition") == "by-user"


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Random graphs without cycles between sub-topologies: merges join only streams of one generation."""
    nodes: list[Node] = []
    generations: list[list[str]] = [[]]
    for number in range(draw(st.integers(1, 3))):
        nodes.append(source(f"in{number}"))
        generations[0].append(nodes[-1].name)
    for number in range(draw(st.integers(0, 14))):
        generation = draw(st.sampled_from(generations))
        parent = draw(st.sampled_from(generation))
        match draw(st.sampled_from(["peek", "merge", "repartition", "count", "sink"])):
            case "peek":
                nodes.append(peek(f"p{number}", parent))
                generation.append(f"p{number}")
            case "count":
                nodes.append(count(f"c{number}", parent))
                generation.append(f"c{number}")
            case "merge":
                nodes.append(Merge(name=f"m{number}", parents=(parent, draw(st.sampled_from(generation)))))
                generation.append(f"m{number}")
            case "repartition":
                nodes += repartition(f"r{number}", parent)
                at = generations.index(generation) + 1
                if at == len(generations):
                    generations.append([])
                generations[at].append(f"r{number}")
            case "sink":
                nodes.append(sink(f"s{number}", parent))
    return topology(*nodes)


def parts_by_walking(whole: Topology) -> set[frozenset[str]]:
    """The dumb way: from each node walk to everything that touches it, again and again."""
    touching: dict[str, set[str]] = {node.name: set() for node in whole.nodes}
    for node in whole.nodes:
        for parent in node.parents:
            touching[node.name].add(parent)
            touching[parent].add(node.name)
    external = {node.name for node in whole.sources if node.kind is not SourceKind.REPARTITION}
    for name in external:
        touching[name] |= external
    parts = set()
    for start in touching:
        found, waiting = set(), [start]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting.extend(touching[name])
        parts.add(frozenset(found))
    return parts


@given(topologies())
def test_parts_are_those_of_the_dumb_way(whole: Topology) -> None:
    subs = sub_topologies_of(whole)
    assert {frozenset(names(sub)) for sub in subs} == parts_by_walking(whole)
    assert sum(len(sub.nodes) for sub in subs) == len(whole.nodes)
    assert [sub.name for sub in subs].count(None) == 1
    seen: set[str] = set()
    for sub in subs:
        seen |= set(sub.writes)
        assert {stream for stream in sub.reads if stream.startswith("app-")} <= seen, "a reader before its writer"


@given(topologies(), st.randoms(use_true_random=False))
def test_the_order_in_which_branches_were_written_does_not_matter(whole: Topology, chance: random.Random) -> None:
    waiting, placed = list(whole.nodes), []
    while waiting:
        known = {node.name for node in placed}
        node = chance.choice([node for node in waiting if set(node.parents) <= known])
        waiting.remove(node)
        placed.append(node)
    one, two = sub_topologies_of(whole), sub_topologies_of(Topology("app", tuple(placed)))
    assert [sub.title for sub in one] == [sub.title for sub in two]
    assert [set(names(sub)) for sub in one] == [set(names(sub)) for sub in two]
    assert [(sub.reads, sub.writes) for sub in one] == [(sub.reads, sub.writes) for sub in two]


def test_a_global_table_is_where_it_is_joined_and_else_with_the_inputs() -> None:
    def everywhere(name: str) -> Source:
        return Source(name=name, stream="rates", key=None, value=None, kind=SourceKind.TABLE, broadcast=True)

    def join(name: str, left: str, right: str) -> Join:
        sides = JoinSides.STREAM_GLOBAL
        return Join(name=name, parents=(left, right), kind=JoinKind.INNER, sides=sides, joiner=NOOP)

    subs = sub_topologies_of(
        topology(
            source("a"), *repartition("r", "a"), everywhere("g1"), everywhere("g2"), everywhere("g3"),
            join("j1", "a", "g1"), join("j2", "r", "g2"),
        )
    )
    assert {sub.title: sub.reads for sub in subs} == {"source": ("a", "rates"), "r": ("app-r-repartition", "rates")}
    assert [names(sub) for sub in subs] == [["a", "r-repartition", "g1", "g3", "j1"], ["r", "g2", "j2"]]
