"""What operators the public face makes: names, serdes, where Spark's engine ends, where rows are repartitioned."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.core.topology.sub_topologies import sub_topologies_of
from headrace.model.startpoint import PositionType, Startpoint
from headrace.model.topology import (
    Aggregate,
    AggregateKind,
    Filter,
    Group,
    MapValues,
    Merge,
    NamedAggregate,
    Node,
    Process,
    Repartition,
    SelectKey,
    Sink,
    Source,
    SourceKind,
    Split,
    SplitOutput,
    StoreKind,
    Table,
    Topology,
)

FLIGHT = hr.Json("carrier string, origin string, dep_delay double, distance int")


def app_and_flights() -> tuple[hr.App, hr.KStream]:
    app = hr.App("flight-delays")
    return app, app.stream("flights", key=hr.String(), value=FLIGHT)


def only(topology: Topology, kind: type[Node]) -> Any:
    (node,) = [node for node in topology.nodes if isinstance(node, kind)]
    return node


def names(app: hr.App) -> list[str]:
    return [node.name for node in app.topology().nodes]


class Counting(hr.Processor[str, dict, str, int]):
    stores = [hr.KeyValueStore("recent", value=hr.Json(), ttl="30 days")]  # noqa: RUF012 - as users write it

    def process(self, record: hr.Record) -> None:
        self.context.forward(value=1)


class Stateless(hr.Processor[Any, Any, Any, Any]):
    def process(self, record: hr.Record) -> None: ...


class Timed(hr.Processor):
    def process(self, record: hr.Record) -> None: ...

    def on_timer(self, timer: Any) -> None: ...


# --- the first example ----------------------------------------------------------------------------------------------


def test_first_example_of_the_design() -> None:
    app, flights = app_and_flights()
    delays = (
        flights.filter("value.dep_delay is not null")
        .select_key("value.carrier")
        .repartition(hr.Repartitioned(name="by-carrier", number_of_partitions=4))
        .group_by_key()
        .windowed_by(hr.Tumbling("1 hour"))
        .aggregate(flights=hr.count(), mean_delay=hr.mean("value.dep_delay"), store="delays")
    )
    delays.to_stream().to("delays-by-carrier", value=hr.Json())
    topology = app.topology()
    kinds = [type(node).__name__ for node in topology.nodes]
    assert kinds == [
        *("Source", "Filter", "SelectKey", "Repartition"),
        *("Source", "Group", "Aggregate", "ToStream", "Sink"),
    ]
    repartition = only(topology, Repartition)
    assert repartition.stream == "flight-delays-by-carrier-repartition"
    assert (repartition.partitions, repartition.generated) == (4, False)
    aggregate = only(topology, Aggregate)
    assert (aggregate.name, aggregate.store.name, aggregate.store.kind) == ("delays", "delays", StoreKind.WINDOW)
    assert aggregate.kind is AggregateKind.NAMED
    assert list(aggregate.named) == ["flights", "mean_delay"]
    assert aggregate.key == hr.Windowed(hr.String())
    assert only(topology, Sink).value == hr.Json()
    assert [sub.title for sub in sub_topologies_of(topology)] == ["source", "by-carrier"]


def test_importing_and_declaring_need_no_heavy_package() -> None:
    code = (
        "import sys, headrace as hr\n"
        "app = hr.App('a')\n"
        "s = app.stream('s', key=hr.String(), value=hr.Json())\n"
        "s.filter('key is not null').group_by_key().windowed_by(hr.Tumbling('1 hour')).count(store='c').to('out')\n"
        "app.describe(), app._repr_html_()\n"
        "print([m for m in ('pyarrow', 'numpy', 'pandas', 'pyspark', 'lmdb', 'typer', 'rich') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.stdout.strip(), run.stderr) == ("[]", "")


# --- names ----------------------------------------------------------------------------------------------------------


def test_generated_names_are_made_of_the_path() -> None:
    app, flights = app_and_flights()
    flights.filter("true").filter("true").peek(print)
    flights.filter("false")
    assert names(app) == [
        "flights",
        "flights-filter",
        "flights-filter-filter",
        "flights-filter-filter-peek",
        "flights-filter-2",
    ]


def test_names_given_are_used_and_carry_on() -> None:
    app, flights = app_and_flights()
    late = flights.filter("value.dep_delay > 15", name="late")
    late.peek(print)
    late.group_by_key().count()
    assert names(app) == ["flights", "late", "late-peek", "late-group", "late-count"]


def test_stateless_operators_before_a_store_do_not_move_it() -> None:
    def store_names(extra: Callable[[hr.KStream], hr.KStream]) -> list[str]:
        app, flights = app_and_flights()
        extra(flights).group_by(lambda r: r.key, key=hr.String()).count()
        return [type(node).__name__ + " " + node.name for node in app.topology().nodes if _lasts(node)]

    plain = store_names(lambda s: s)
    assert plain == [
        "Repartition flights-count-repartition",
        "Source flights-count-by-key",
        "Aggregate flights-count",
    ]
    assert store_names(lambda s: s.filter("true").peek(print)) == plain
    assert store_names(lambda s: s.split("key = 'a'", "key = 'b'")[1]) == plain


def _lasts(node: Node) -> bool:
    return isinstance(node, Aggregate | Repartition | Table | Process) or (
        isinstance(node, Source) and node.kind is SourceKind.REPARTITION
    )


STEPS = ("filter", "map_values", "peek", "split", "named", "count", "repartition")


def _branch(stream: hr.KStream, steps: list[str], branch: int) -> list[str]:
    """Apply `steps` and give the names of the operators that were added."""
    before = len(stream.app.topology().nodes)
    for number, step in enumerate(steps):
        own = f"b{branch}-{number}"
        match step:
            case "filter":
                stream = stream.filter(lambda r: True)
            case "map_values":
                stream = stream.map_values(lambda r: 1, value=hr.Long())
            case "peek":
                stream = stream.peek(print)
            case "split":
                stream = stream.split(lambda r: True)[0]
            case "named":
                stream = stream.filter(lambda r: True, name=own)
            case "count":
                stream = stream.group_by_key().count(store=own).to_stream()
            case "repartition":
                stream = stream.repartition(name=own)
    return [node.name for node in stream.app.topology().nodes[before:]]


@given(
    st.lists(st.sampled_from(STEPS), max_size=5),
    st.lists(st.sampled_from(STEPS), max_size=5),
    st.lists(st.sampled_from(STEPS), max_size=5),
)
def test_editing_one_branch_moves_no_name_of_another(one: list[str], edited: list[str], other: list[str]) -> None:
    found = []
    for first in (one, edited):
        app = hr.App("a")
        fork = app.stream("s", value=hr.Json())
        left, right = fork.filter("true", name="left"), fork.filter("false", name="right")
        _branch(left, first, branch=0)
        found.append(_branch(right, other, branch=1))
    assert found[0] == found[1]


@given(st.integers(1, 80))
def test_long_chains_keep_names_short_and_different(length: int) -> None:
    app, stream = app_and_flights()
    for _ in range(length):
        stream = stream.filter("true")
    assert max(map(len, names(app))) <= 120
    assert len(set(names(app))) == length + 1


def test_two_operators_with_one_name_are_refused_and_nothing_is_added() -> None:
    app, flights = app_and_flights()
    flights.filter("true", name="late")
    with pytest.raises(hr.TopologyError, match=r"two operators with the name 'late': filter\('late'\)"):
        flights.map_values("value.carrier", name="late")
    assert names(app) == ["flights", "late"]


def test_two_unnamed_aggregations_of_one_kind_ask_for_a_name() -> None:
    _, flights = app_and_flights()
    flights.group_by_key().count()
    with pytest.raises(hr.TopologyError, match=r"'flights-count'.*\n.*count\(\.\.\., store="):
        flights.group_by_key().windowed_by(hr.Tumbling("1 hour")).count()
    flights.group_by_key().count(store="by-hour")


def test_one_store_belongs_to_one_operator() -> None:
    app, flights = app_and_flights()
    flights.group_by_key().count(store="n", name="one")
    with pytest.raises(hr.TopologyError, match=r"store 'n' of count\(\): count\('one'\) has"):
        flights.group_by_key().count(store="n", name="two")
    with pytest.raises(hr.TopologyError, match="store 'n'"):
        app.table("other", store="n")
    assert names(app) == ["flights", "flights-group", "one"]


@pytest.mark.parametrize("name", ["source", "coordinator"])
def test_reserved_names(name: str) -> None:
    app, flights = app_and_flights()
    with pytest.raises(hr.InvalidNameError, match="reserved"):
        flights.filter("true", name=name)
    with pytest.raises(hr.InvalidNameError, match="reserved"):
        flights.group_by_key().count(store=name)
    with pytest.raises(hr.HeadraceError, match="reserved"):
        flights.repartition(name=f"{name}-repartition")
    with pytest.raises(hr.InvalidNameError, match="reserved"):
        app.stream(name)
    app.stream(name, name="renamed")


def test_names_that_are_no_names() -> None:
    app, flights = app_and_flights()
    with pytest.raises(hr.InvalidNameError, match="stream name 'a b'"):
        app.stream("a b")
    with pytest.raises(hr.InvalidNameError, match="stream name ''"):
        flights.to("")
    with pytest.raises(hr.InvalidNameError, match="application"):
        hr.App("a/b")
    with pytest.raises(hr.InvalidNameError):
        flights.repartition(name="../up")


def test_a_stream_is_read_once() -> None:
    app, _ = app_and_flights()
    with pytest.raises(hr.TopologyError, match=r"'flights' is declared twice: stream\('flights'\) reads it"):
        app.stream("flights", name="again")
    with pytest.raises(hr.TopologyError, match="'flights' is declared twice"):
        app.table("flights")


# --- Spark's engine -------------------------------------------------------------------------------------------------


def test_expression_after_an_aggregation_says_what_to_do() -> None:
    _, flights = app_and_flights()
    delays = flights.group_by_key().count(store="delays").to_stream()
    with pytest.raises(hr.TopologyError) as error:
        delays.filter("value > 3")
    assert str(error.value) == (
        "filter('value > 3') after count('delays'): these rows have left Spark's engine; "
        "use a function, @hr.batch, or .repartition() before it"
    )
    delays.repartition(name="again").filter("value > 3").select_key("value")


def leavers() -> dict[str, Callable[[hr.KStream], hr.KStream]]:
    return {
        "filter('flights-filter')": lambda s: s.filter(lambda r: True),
        "map_values('flights-map_values')": lambda s: s.map_values(hr.batch(lambda rows: rows)),
        "peek('flights-peek')": lambda s: s.peek(print),
        "merge('flights-merge')": lambda s: s.merge(s.filter("true")),
        "process('flights-process')": lambda s: s.process(Stateless),
        "split('flights-split')": lambda s: s.split(lambda r: True)[1],
        "flat_map('flights-flat_map')": lambda s: s.flat_map(lambda r: []),
    }


@pytest.mark.parametrize("operator", leavers())
@pytest.mark.parametrize("use", ["filter", "filter_not", "map_values", "select_key", "split", "transform"])
def test_what_ends_the_columns(operator: str, use: str) -> None:
    _, flights = app_and_flights()
    stream = leavers()[operator](flights).filter(lambda r: True)
    with pytest.raises(hr.TopologyError) as error:
        getattr(stream, use)((lambda df: df) if use == "transform" else "true")
    assert f" after {operator}: these rows have left Spark's engine;" in str(error.value)


def test_tables_have_left_the_engine() -> None:
    app = hr.App("a")
    with pytest.raises(hr.TopologyError, match=r"filter\('true'\) after table\('airlines'\)"):
        app.table("airlines").filter("true")


@pytest.mark.parametrize("operator", ["map", "flat_map", "flat_map_values", "peek", "to"])
def test_operators_that_take_no_expression(operator: str) -> None:
    _, flights = app_and_flights()
    if operator == "to":
        with pytest.raises(hr.TopologyError, match="a Spark expression cannot be given here"):
            flights.to("out", headers="value.a")
        return
    with pytest.raises(hr.TopologyError, match=rf"{operator}\('value.a'\): a Spark expression cannot"):
        getattr(flights, operator)("value.a")


def test_batch_functions_where_rows_must_be_told_apart() -> None:
    _, flights = app_and_flights()
    with pytest.raises(hr.TopologyError, match=r"@hr\.batch functions cannot be given here"):
        flights.flat_map_values(hr.batch(lambda rows: rows))


def test_split_by_expressions_stays_in_the_engine_and_is_a_partition() -> None:
    app, flights = app_and_flights()
    late, early, rest = flights.split("value.dep_delay > 15", "value.dep_delay < 0", name="by-delay")
    for stream in (late, early, rest):
        stream.select_key("value.carrier")
    filters = [node for node in app.topology().nodes if isinstance(node, Filter)]
    assert [(node.name, node.negate, node.parents) for node in filters] == [
        ("by-delay-1", False, ("flights",)),
        ("by-delay-not-1", True, ("flights",)),
        ("by-delay-2", False, ("by-delay-not-1",)),
        ("by-delay-rest", True, ("by-delay-not-1",)),
    ]
    assert {node.predicate.body for node in filters[:2]} == {"coalesce((value.dep_delay > 15), false)"}


def test_split_by_functions() -> None:
    app, flights = app_and_flights()
    outputs = flights.split(lambda r: r.key == "a", lambda r: r.key == "b")
    assert [stream.flow.node for stream in outputs] == [
        "flights-split-output-1",
        "flights-split-output-2",
        "flights-split-rest",
    ]
    topology = app.topology()
    assert len(only(topology, Split).predicates) == 2
    assert [node.index for node in topology.nodes if isinstance(node, SplitOutput)] == [0, 1, 2]
    again = flights.split(lambda r: True)
    assert again[0].flow.node == "flights-split-2-output-1"


def test_two_splits_by_expressions_behind_one_stream() -> None:
    app, flights = app_and_flights()
    flights.split("true", "false")
    flights.split("true", "false")
    assert len(set(names(app))) == 9


class Column:
    """A stand-in that is told by its class, as the real one is: making one of those takes a session."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return f"Column<'{self.text}'>"

    def eqNullSafe(self, other: object) -> Column:  # noqa: N802 - as pyspark names it
        return Column(f"{self.text} <=> {other}")


Column.__module__ = "pyspark.sql.column"


def test_columns_are_told_by_their_class_and_follow_the_spark_type() -> None:
    app, flights = app_and_flights()
    late, _ = flights.split(Column("late"))
    late.select_key(Column("carrier")).to("out")
    assert [str(node.predicate.body) for node in app.topology().nodes if isinstance(node, Filter)] == [
        "Column<'late <=> True'>",
        "Column<'late <=> True'>",
    ]
    assert only(app.topology(), Sink).key is None
    with pytest.raises(hr.TopologyError, match=r"^filter\('late'\) after peek\('"):
        flights.peek(print).filter(Column("late"))


def test_split_by_both_kinds_is_refused() -> None:
    _, flights = app_and_flights()
    with pytest.raises(hr.TopologyError, match="some predicates are Spark expressions and some are functions"):
        flights.split("true", lambda r: True)
    with pytest.raises(hr.TopologyError, match="at least one"):
        flights.split()


# --- serdes ---------------------------------------------------------------------------------------------------------


def doubled(record: hr.Record) -> float:
    return 2.0


def pair(record: hr.Record) -> tuple[str, dict[str, int]]:
    return "a", {}


def pairs(record: hr.Record) -> Iterator[tuple[int, bytes]]:
    yield 1, b""


def items(record: hr.Record) -> list[str]:
    return []


def test_return_annotations_decide() -> None:
    app, flights = app_and_flights()
    flights.map_values(doubled).to("a")
    flights.map(pair).to("b")
    flights.flat_map(pairs).to("c")
    flights.flat_map_values(items).to("d")
    flights.process(Counting, name="p").to("e")
    sinks = {node.stream: (node.key, node.value) for node in app.topology().nodes if isinstance(node, Sink)}
    assert sinks == {
        "a": (hr.String(), hr.Double()),
        "b": (hr.String(), hr.Json()),
        "c": (hr.Long(), hr.Bytes()),
        "d": (hr.String(), hr.String()),
        "e": (hr.String(), hr.Long()),
    }


def test_an_open_serde_is_fine_until_bytes_are_needed() -> None:
    app, flights = app_and_flights()
    opened = flights.map_values(lambda r: {"a": 1}).filter(lambda r: True).peek(print)
    opened.to("said-here", value=hr.Json())
    assert only(app.topology(), MapValues).value is None
    with pytest.raises(hr.TopologyError) as error:
        opened.to("out")
    text = str(error.value)
    assert text.startswith("to('out') writes values, and map_values('flights-map_values') (")
    assert "test_topology.py:" in text
    assert "value=hr.Json()" in text
    with pytest.raises(hr.TopologyError, match=r"repartition\('again'\) writes values"):
        opened.repartition(name="again")
    opened.repartition(hr.Repartitioned(name="again", value_serde=hr.Json()))
    with pytest.raises(hr.TopologyError, match="writes values"):
        opened.group_by_key().reduce(lambda old, new: new)


def test_an_open_key_is_named_by_the_grouping() -> None:
    app, flights = app_and_flights()
    before = names(app)
    grouped = flights.select_key(lambda r: r.value["carrier"]).group_by_key()
    with pytest.raises(hr.TopologyError, match=r"count\('flights-count'\) writes keys, and select_key\("):
        grouped.count()
    assert names(app) == [*before, "flights-select_key"]


def test_a_field_of_a_known_type_needs_no_spark_to_be_known() -> None:
    app, flights = app_and_flights()
    flights.select_key("value.carrier").map_values("value.distance").to("a")
    flights.select_key("upper(value.carrier)").to("b")
    a, b = [node for node in app.topology().nodes if isinstance(node, Sink)]
    assert (a.key, a.value) == (hr.String(), hr.Int())
    assert b.key is None  # follows the Spark type, when the job starts


def test_results_have_the_serde_of_their_kind() -> None:
    app, flights = app_and_flights()
    flights.group_by_key().count(store="n").to("counts")
    flights.group_by_key().aggregate(
        n=hr.count(), far=hr.max("value.distance"), total=hr.sum("value.distance"), store="named"
    ).to("named")
    flights.group_by_key().aggregate(at=hr.last("timestamp"), store="unknown").to("unknown")
    values = {node.stream: node.value for node in app.topology().nodes if isinstance(node, Sink)}
    assert values == {
        "counts": hr.Long(),
        "named": hr.Json("n bigint, far int, total bigint"),
        "unknown": hr.Json(),
    }


def test_general_aggregate_takes_its_serde_from_what_is_known() -> None:
    app, flights = app_and_flights()

    def longest(state: float, record: hr.Record) -> float:
        return state

    flights.group_by_key().aggregate(initial=None, function=longest, store="a")
    flights.group_by_key().aggregate(initial={}, function=lambda state, record: state, store="b")
    flights.group_by_key().aggregate(initial=0, function=lambda state, record: state, value=hr.Int(), store="c")
    found = [node.value for node in app.topology().nodes if isinstance(node, Aggregate)]
    assert found == [hr.Double(), hr.Json(), hr.Int()]
    with pytest.raises(hr.TopologyError, match="the serde of its state is not known"):
        flights.group_by_key().aggregate(initial=dict, function=lambda state, record: state, store="d")


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"a": hr.mean("value.dep_delya")}, "no field 'dep_delya'\n  hint: did you mean 'dep_delay'"),
        ({"a": hr.sum("value.carrier")}, "expected a field of numbers, found string"),
        ({"a": hr.min("value.carrier.x")}, "value.carrier is string, it has no field 'x'"),
        ({"a": 3}, "expected a named aggregate"),
    ],
)
def test_named_aggregates_are_checked_against_the_schema(named: dict[str, Any], message: str) -> None:
    app, flights = app_and_flights()
    with pytest.raises(hr.TopologyError, match=message):
        flights.group_by_key().aggregate(**named)
    assert names(app) == ["flights"]


def test_aggregate_is_one_form_or_the_other() -> None:
    _, flights = app_and_flights()
    with pytest.raises(hr.TopologyError, match="give the one or the other"):
        flights.group_by_key().aggregate(initial=0, function=lambda s, r: s, n=hr.count())
    with pytest.raises(hr.TopologyError, match="expected named aggregates, or both"):
        flights.group_by_key().aggregate(function=lambda s, r: s)
    with pytest.raises(hr.TopologyError, match="a Spark expression cannot be given here"):
        flights.group_by_key().reduce("value + 1")


@pytest.mark.parametrize("serde", [hr.Json, "string", 3])
def test_what_is_no_serde(serde: Any) -> None:
    app, flights = app_and_flights()
    with pytest.raises(hr.TopologyError, match=r"is no serde|is a class where a serde is expected"):
        flights.map_values("value", value=serde)
    with pytest.raises(hr.TopologyError, match=r"is no serde|is a class where a serde is expected"):
        app.stream("other", key=serde)


# --- keys and repartition -------------------------------------------------------------------------------------------


def rekeyers() -> dict[str, Callable[[hr.KStream], hr.KStream]]:
    return {
        "select_key": lambda s: s.select_key("value.carrier"),
        "map": lambda s: s.map(pair),
        "flat_map": lambda s: s.flat_map(pairs),
        "process": lambda s: s.process(Stateless, key=hr.String(), value=hr.Json()),
        "transform": lambda s: s.transform(lambda df: df, key=hr.String(), value=hr.Json()),
        "merge": lambda s: s.merge(s.select_key("value.carrier")),
        "windowed": lambda s: s.group_by_key().windowed_by(hr.Tumbling("1 hour")).count(store="w").to_stream(),
    }


@pytest.mark.parametrize("operator", rekeyers())
def test_grouping_behind_a_key_change_repartitions_by_itself(operator: str) -> None:
    app, flights = app_and_flights()
    rekeyers()[operator](flights).filter(lambda r: True).group_by_key().count(store="n")
    repartition = only(app.topology(), Repartition)
    assert (repartition.generated, repartition.partitions) == (True, None)
    assert repartition.stream == "flight-delays-n-repartition"


@pytest.mark.parametrize("operator", rekeyers())
def test_state_behind_a_key_change_is_refused_unless_repartitioned(operator: str) -> None:
    app, flights = app_and_flights()
    stream = rekeyers()[operator](flights)
    before = names(app)
    for processor in (Counting, Timed):
        with pytest.raises(hr.TopologyError, match=r"process\('score'\) has state, and .* changed the key") as error:
            stream.process(processor, name="score")
        assert ".repartition() between" in str(error.value)
    assert names(app) == before
    stream.process(Stateless, name="fine")
    stream.repartition(name="again").process(Counting, name="score")


def test_values_may_change_without_a_repartition() -> None:
    app, flights = app_and_flights()
    flights.filter("true").map_values("value.distance").flat_map_values(items).peek(print).group_by_key().count()
    assert not [node for node in app.topology().nodes if isinstance(node, Repartition)]
    assert only(app.topology(), Group).parents == (app.topology().nodes[-3].name,)


def test_group_by_always_makes_a_repartition_and_repartition_none_more() -> None:
    app, flights = app_and_flights()
    flights.group_by("key").count(store="a")
    flights.select_key("value.carrier").repartition(name="b").group_by_key().count(store="c")
    streams = [node.stream for node in app.topology().nodes if isinstance(node, Repartition)]
    assert streams == ["flight-delays-a-repartition", "flight-delays-b-repartition"]


def test_aggregations_of_one_grouping_share_its_repartition() -> None:
    app, flights = app_and_flights()
    grouped = flights.group_by("value.carrier")
    grouped.count(store="n")
    grouped.windowed_by(hr.Tumbling("1 hour")).count(store="by-hour")
    assert only(app.topology(), Repartition).stream == "flight-delays-n-repartition"
    assert only(app.topology(), Group)


def test_repartition_inherits_both_serdes_and_says_its_own() -> None:
    app, flights = app_and_flights()
    flights.repartition()
    flights.repartition(hr.Repartitioned(name="b-repartition", key_serde=hr.Bytes(), number_of_partitions=1))
    a, b = [node for node in app.topology().nodes if isinstance(node, Repartition)]
    assert (a.stream, a.key, a.value) == ("flight-delays-flights-repartition", hr.String(), FLIGHT)
    assert (b.stream, b.key, b.value) == ("flight-delays-b-repartition", hr.Bytes(), FLIGHT)
    sources = [node for node in app.topology().nodes if isinstance(node, Source) and node.stream == b.stream]
    assert [(s.kind, s.key, s.value) for s in sources] == [(SourceKind.REPARTITION, hr.Bytes(), FLIGHT)]


def test_one_repartition_name_twice_is_an_error() -> None:
    app, flights = app_and_flights()
    flights.repartition(name="again")
    before = names(app)
    with pytest.raises(hr.TopologyError, match="two repartitions with the name 'again'"):
        flights.repartition(name="again-repartition")
    with pytest.raises(hr.TopologyError, match=r"internal stream of repartition\("):
        flights.to("flight-delays-again-repartition")
    with pytest.raises(hr.TopologyError, match="declared twice"):
        app.stream("flight-delays-again-repartition")
    assert names(app) == before


@pytest.mark.parametrize("count", [0, -1, True, 2.0, "4", 10**9])
def test_numbers_of_partitions_that_are_none(count: Any) -> None:
    with pytest.raises(hr.TopologyError, match="number_of_partitions"):
        hr.Repartitioned(number_of_partitions=count)


def test_repartition_takes_what_it_says() -> None:
    _, flights = app_and_flights()
    with pytest.raises(hr.TopologyError, match=r"expected hr\.Repartitioned"):
        flights.repartition("by-carrier")  # type: ignore[arg-type]
    with pytest.raises(hr.TopologyError, match="give one name"):
        flights.repartition(hr.Repartitioned(name="a"), name="b")


# --- merge, tables, processors --------------------------------------------------------------------------------------


def test_merge_of_streams_with_different_serdes_leaves_them_open() -> None:
    app, flights = app_and_flights()
    other = app.stream("other", key=hr.String(), value=hr.Json())
    merged = flights.merge(other, name="both")
    assert only(app.topology(), Merge).parents == ("flights", "other")
    with pytest.raises(hr.TopologyError, match=r"merge\('both'\) \(its streams have different serdes\)"):
        merged.to("out")
    merged.to("out", value=hr.Json())
    assert only(app.topology(), Sink).key == hr.String()


def test_merge_of_what_cannot_be_merged() -> None:
    _, flights = app_and_flights()
    _, foreign = app_and_flights()
    with pytest.raises(hr.TopologyError, match="streams of one App"):
        flights.merge(foreign)
    with pytest.raises(hr.TopologyError, match="expected other streams"):
        flights.merge()
    with pytest.raises(hr.TopologyError, match=r"a table has .to_stream"):
        flights.merge(flights.group_by_key().count())  # type: ignore[arg-type]


def test_merging_with_ones_own_repartition_is_refused_at_the_build() -> None:
    app, flights = app_and_flights()
    flights.repartition(name="again").merge(flights, name="both")
    with pytest.raises(hr.TopologyError, match=r"repartition stream 'again' is joined at 'both'"):
        app.topology()


def test_table_is_a_source_with_a_store() -> None:
    app = hr.App("a")
    airlines = app.table("airlines", key=hr.String(), value=hr.Json())
    airlines.filter(lambda r: r.value["active"]).map_values(doubled).to("active")
    source, table = app.topology().nodes[:2]
    assert isinstance(source, Source)
    assert source.kind is SourceKind.TABLE
    assert isinstance(table, Table)
    assert (table.store.name, table.store.kind) == ("airlines", StoreKind.KEY_VALUE)
    assert only(app.topology(), Sink).value == hr.Double()


def test_a_table_written_in_vain_adds_nothing() -> None:
    app, flights = app_and_flights()
    table = flights.group_by_key().count().map_values(lambda r: object())
    before = names(app)
    with pytest.raises(hr.TopologyError, match="writes values"):
        table.to("out")
    assert names(app) == before
    table.to("out", value=hr.Json())


def test_stream_to_table_repartitions_where_the_key_changed() -> None:
    app, flights = app_and_flights()
    flights.select_key("value.carrier").to_table(store="latest")
    assert only(app.topology(), Repartition).stream == "flight-delays-latest-repartition"
    assert only(app.topology(), Table).store.name == "latest"


def test_updates_are_emitted_once_per_round() -> None:
    _, flights = app_and_flights()
    table = flights.group_by_key().count()
    with pytest.raises(hr.TopologyError, match=r'emit="closed".*expected a table of windows'):
        table.to_stream(emit="closed")
    with pytest.raises(hr.TopologyError, match="emit='sometimes'"):
        table.to_stream(emit="sometimes")
    table.to_stream(emit="round")


class Both(hr.Processor):
    def process(self, record: hr.Record) -> None: ...

    def process_batch(self, batch: Any) -> None: ...


class Neither(hr.Processor): ...


class TwoStores(hr.Processor):
    stores = (hr.KeyValueStore("a", value=hr.Json()), hr.WindowStore("a", value=hr.Json()))

    def process(self, record: hr.Record) -> None: ...


@pytest.mark.parametrize(
    ("processor", "message"),
    [
        (Both, "defines both of process and process_batch"),
        (Neither, "defines neither of process and process_batch"),
        (TwoStores, "two stores are named 'a'"),
        (Stateless(), "an object was given, expected the class"),
        (print, "expected a class derived from hr.Processor"),
        (dict, "expected a class derived from hr.Processor"),
    ],
)
def test_processors_that_are_refused(processor: Any, message: str) -> None:
    _, flights = app_and_flights()
    with pytest.raises(hr.TopologyError, match=message):
        flights.process(processor)


def test_processor_stores_and_timers() -> None:
    app, flights = app_and_flights()
    flights.process(Counting)
    flights.process(Timed, name="timed")
    counting, timed = [node for node in app.topology().nodes if isinstance(node, Process)]
    (store,) = counting.stores
    assert (counting.name, store.name, store.ttl_us) == ("flights-process", "recent", 30 * 86_400_000_000)
    assert store.form == "key-value expiring key=string value=json"
    assert (counting.timers, timed.timers) == (False, True)


def test_process_without_a_serde_for_its_values_leaves_them_open() -> None:
    _, flights = app_and_flights()
    forwarded = flights.process(Stateless)
    with pytest.raises(hr.TopologyError, match=r"to\('out'\) writes values, and process\('flights-process'\)"):
        forwarded.to("out")


# --- the form of a store --------------------------------------------------------------------------------------------


def form_of(make: Callable[[hr.KStream], object]) -> str:
    app, flights = app_and_flights()
    make(flights)
    return only(app.topology(), Aggregate).store.form


def test_form_names_what_the_bytes_depend_on_and_no_more() -> None:
    hour = form_of(lambda s: s.group_by_key().windowed_by(hr.Tumbling("1 hour")).count())
    assert hour == "count key=string value=long windows=3600000000us/3600000000us"
    same = form_of(
        lambda s: s.filter("true").group_by_key().windowed_by(hr.Tumbling("1 hour", grace="1 day")).count(store="x")
    )
    assert same == hour
    assert form_of(lambda s: s.group_by_key().windowed_by(hr.Hopping("1 hour", "10 minutes")).count()) != hour
    assert form_of(lambda s: s.group_by_key().windowed_by(hr.Tumbling("2 hours")).count()) != hour
    assert form_of(lambda s: s.group_by_key().count()) != hour
    named = form_of(lambda s: s.group_by_key().aggregate(m=hr.max("value.distance")))
    assert named == "named m=max(value.distance:int) key=string value=json<m int>"


def test_form_of_an_aggregate_follows_the_type_of_its_field() -> None:
    forms = set()
    for schema in ("d int", "d double", "d int, other string"):
        app = hr.App("a")
        app.stream("s", value=hr.Json(schema)).group_by_key().aggregate(m=hr.max("value.d"))
        forms.add(only(app.topology(), Aggregate).store.form)
    assert len(forms) == 2  # a field that is not aggregated may be added


# --- the app --------------------------------------------------------------------------------------------------------


def test_config_is_kept_as_given() -> None:
    app = hr.App("a", system="log:./d", config={"spark.master": "local[1]"}, containers=2)
    assert app.config_arguments == {"system": "log:./d", "spark.master": "local[1]", "containers": 2}
    assert hr.App("a").config_arguments == {}
    with pytest.raises(hr.ConfigError, match="'containers' is given as an argument and in config"):
        hr.App("a", config={"containers": 1}, containers=2)
    with pytest.raises(hr.ConfigError, match="expected a mapping"):
        hr.App("a", config="headrace.toml")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        (7, 7),
        ("1970-01-01T00:00:01Z", Startpoint(PositionType.TIMESTAMP, 1_000_000)),
        (datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC), Startpoint(PositionType.TIMESTAMP, 2_000_000)),
        (Startpoint(PositionType.LATEST), Startpoint(PositionType.LATEST)),
        ("bootstrap", "bootstrap"),
        (2**63 - 1, 2**63 - 1),
    ],
)
def test_starts(start: Any, expected: Any) -> None:
    app = hr.App("a")
    app.stream("s", start=start, reset_offset=True)
    source = only(app.topology(), Source)
    assert (source.start, source.reset_offset) == (expected, True)


@pytest.mark.parametrize("start", ["erliest", -1, True, None, 1.5, "2024-01-01", 2**63])
def test_starts_that_are_none(start: Any) -> None:
    with pytest.raises(hr.TopologyError, match="expected 'earliest', 'latest', an offset, or a time"):
        hr.App("a").stream("s", start=start)


def test_an_app_that_reads_nothing() -> None:
    app = hr.App("a")
    with pytest.raises(hr.TopologyError, match="reads nothing"):
        app.topology()
    assert "no streams yet" in app._repr_html_()


def test_global_things_are_absent() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        hr.nothing  # noqa: B018
    assert set(hr.__all__) - {"open_system", "testing"} <= set(dir(hr))


def test_sink_by_function_and_headers() -> None:
    app, flights = app_and_flights()
    flights.to(lambda r: f"delays-{r.key}", headers=lambda r: [("a", b"1")])
    sink = only(app.topology(), Sink)
    assert not isinstance(sink.stream, str)
    assert sink.headers is not None


def test_select_key_keeps_the_value_and_its_parents() -> None:
    app, flights = app_and_flights()
    flights.select_key("value.carrier", key=hr.String(), name="by")
    node = only(app.topology(), SelectKey)
    assert (node.name, node.parents, node.key) == ("by", ("flights",), hr.String())


def test_named_aggregates_are_values_of_the_model() -> None:
    app, flights = app_and_flights()
    flights.group_by_key().aggregate(n=hr.count())
    assert only(app.topology(), Aggregate).named["n"].kind == NamedAggregate("count").kind


def test_print_schema(capsys: pytest.CaptureFixture[str]) -> None:
    _, flights = app_and_flights()
    flights.map_values("struct(1)").print_schema()
    flights.print_schema()
    assert capsys.readouterr().out.splitlines() == [
        "root",
        " |-- key: string",
        " |-- value: by its Spark type, known when the job starts",
        "root",
        " |-- key: string",
        " |-- value: struct",
        " |    |-- carrier: string",
        " |    |-- origin: string",
        " |    |-- dep_delay: double",
        " |    |-- distance: int",
    ]
