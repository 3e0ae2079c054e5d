"""Which operators run inside Spark's engine, and where their rows enter the worker."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.topology.engine_prefix import Endpoint, endpoints_of, runs_in_jvm
from headrace.core.topology.sub_topologies import sub_topologies_of
from headrace.model.topology import (
    Filter,
    Function,
    FunctionKind,
    Map,
    MapValues,
    Merge,
    Node,
    Peek,
    Repartition,
    SelectKey,
    Sink,
    Source,
    SourceKind,
    Topology,
    Transform,
)

SQL = Function(FunctionKind.SQL, "true", "true")
COLUMN = Function(FunctionKind.COLUMN, object(), "a")
RECORD = Function(FunctionKind.RECORD, print, "print")
BATCH = Function(FunctionKind.BATCH, print, "print")


def source(name: str, kind: SourceKind = SourceKind.STREAM) -> Source:
    return Source(name=name, stream=name, key=None, value=None, kind=kind)


def sql(name: str, parent: str) -> Filter:
    return Filter(name=name, parents=(parent,), predicate=SQL)


def peek(name: str, parent: str) -> Peek:
    return Peek(name=name, parents=(parent,), function=RECORD)


def ends(*nodes: Node) -> list[tuple[str, list[str], str, tuple[str, ...]]]:
    topology = Topology("app", nodes)
    return [_short(end) for sub in sub_topologies_of(topology) for end in endpoints_of(sub, topology)]


def _short(end: Endpoint) -> tuple[str, list[str], str, tuple[str, ...]]:
    return end.source, [node.name for node in end.chain], end.entry, end.children


def test_what_runs_in_the_engine() -> None:
    def yes(function: Function) -> bool:
        found = {
            runs_in_jvm(Filter(name="a", predicate=function)),
            runs_in_jvm(MapValues(name="a", function=function)),
            runs_in_jvm(SelectKey(name="a", function=function)),
        }
        assert len(found) == 1
        return found.pop()

    assert yes(SQL)
    assert yes(COLUMN)
    assert not yes(RECORD)
    assert not yes(BATCH)
    assert runs_in_jvm(Transform(name="a", function=list, label="list"))
    assert not runs_in_jvm(Map(name="a", function=RECORD))
    assert not runs_in_jvm(source("a"))


def test_without_columns_the_source_itself_is_the_entry() -> None:
    assert ends(source("a"), peek("p", "a"), peek("q", "a")) == [("a", [], "a", ("p", "q"))]


def test_a_chain_ends_where_the_worker_begins() -> None:
    nodes = [source("a"), sql("f", "a"), sql("g", "f"), peek("p", "g"), peek("q", "p")]
    assert ends(*nodes) == [("a", ["f", "g"], "g", ("p",))]


def test_forks_give_one_endpoint_per_path() -> None:
    nodes = [source("a"), sql("f", "a"), sql("g", "f"), sql("h", "f"), peek("p", "g"), peek("q", "h"), peek("r", "h")]
    assert ends(*nodes) == [("a", ["f", "g"], "g", ("p",)), ("a", ["f", "h"], "h", ("q", "r"))]


def test_a_source_with_both_kinds_of_children_gives_one_for_each() -> None:
    nodes = [source("a"), sql("f", "a"), peek("p", "a"), peek("q", "f"), sql("g", "f"), peek("r", "g")]
    assert ends(*nodes) == [("a", [], "a", ("p",)), ("a", ["f"], "f", ("q",)), ("a", ["f", "g"], "g", ("r",))]


def test_operators_whose_rows_go_nowhere_are_left_out() -> None:
    assert ends(source("a"), sql("f", "a"), peek("p", "a")) == [("a", [], "a", ("p",))]
    assert ends(source("a")) == [("a", [], "a", ())]
    assert ends(source("a"), sql("f", "a"), sql("g", "f")) == [("a", ["f", "g"], "g", ())]


def test_sources_that_meet_in_the_worker_and_behind_a_repartition() -> None:
    writer = Repartition(name="w", parents=("m",), stream="app-r-repartition")
    reader = Source(name="r", stream="app-r-repartition", key=None, value=None, kind=SourceKind.REPARTITION)
    merge = Merge(name="m", parents=("f", "b"))
    nodes = [source("a"), source("b"), sql("f", "a"), merge, writer, reader, sql("h", "r")]
    assert ends(*nodes, Sink(name="s", parents=("h",), stream="out")) == [
        ("a", ["f"], "f", ("m",)),
        ("b", [], "b", ("m",)),
        ("r", ["h"], "h", ("s",)),
    ]


@st.composite
def trees(draw: st.DrawFn) -> list[Node]:
    """One source with a random tree of engine operators, and worker operators on any of them."""
    nodes: list[Node] = [source("a")]
    jvm = ["a"]
    for number in range(draw(st.integers(0, 12))):
        parent = draw(st.sampled_from(jvm))
        if draw(st.booleans()):
            nodes.append(sql(f"f{number}", parent))
            jvm.append(f"f{number}")
        else:
            nodes.append(peek(f"p{number}", parent))
    return nodes


@given(trees())
def test_every_worker_operator_is_fed_once_by_the_chain_above_it(nodes: list[Node]) -> None:
    topology = Topology("app", tuple(nodes))
    (sub,) = sub_topologies_of(topology)
    found = endpoints_of(sub, topology)
    fed = [(child, end.entry) for end in found for child in end.children]
    assert sorted(fed) == sorted((node.name, node.parents[0]) for node in nodes if isinstance(node, Peek))
    assert len({end.entry for end in found}) == len(found)
    for end in found:
        path = [end.source, *(node.name for node in end.chain)]
        assert path[-1] == end.entry
        assert [node.parents for node in end.chain] == [(parent,) for parent in path[:-1]]
