"""`Repartitioned`, and what repartitions and groupings make of it: streams, names, counts and serdes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.model.topology import Aggregate, Group, Node, Repartition, SelectKey, Source, SourceKind

ORDER = hr.Json("shop string, amount double")


def app_and_orders() -> tuple[hr.App, hr.KStream]:
    app = hr.App("shop")
    return app, app.stream("orders", key=hr.String(), value=ORDER)


def only(app: hr.App, kind: type[Node]) -> Any:
    (node,) = [node for node in app.topology().nodes if isinstance(node, kind)]
    return node


def repartitions(app: hr.App) -> list[Repartition]:
    return [node for node in app.topology().nodes if isinstance(node, Repartition)]


def names(app: hr.App) -> list[str]:
    return [node.name for node in app.topology().nodes]


def route(record: hr.Record, partitions: int) -> int:
    return 0


# --- the value ------------------------------------------------------------------------------------------------------


def test_the_seeds_constructors() -> None:
    assert hr.Repartitioned.as_("a") == hr.Repartitioned(name="a")
    assert hr.Repartitioned.with_(hr.String(), ORDER) == hr.Repartitioned(key_serde=hr.String(), value_serde=ORDER)
    assert hr.Repartitioned.with_(None, ORDER) == hr.Repartitioned(value_serde=ORDER)
    assert hr.Repartitioned.with_("a", 3) == hr.Repartitioned(name="a", number_of_partitions=3)
    assert hr.Repartitioned.stream_partitioner(route) == hr.Repartitioned(partitioner=route)


def test_a_changed_one_is_another_value() -> None:
    first = hr.Repartitioned()
    whole = (
        first.with_name("a")
        .with_number_of_partitions(3)
        .with_key_serde(hr.String())
        .with_value_serde(ORDER)
        .with_stream_partitioner(route)
    )
    assert first == hr.Repartitioned()
    assert whole == hr.Repartitioned(
        name="a", key_serde=hr.String(), value_serde=ORDER, number_of_partitions=3, partitioner=route
    )
    assert whole.with_name(None).with_stream_partitioner(None).with_key_serde(None) == hr.Repartitioned(
        value_serde=ORDER, number_of_partitions=3
    )
    with pytest.raises(FrozenInstanceError):
        first.name = "b"  # type: ignore[misc]
    with pytest.raises(TypeError):
        hr.Repartitioned("a")  # type: ignore[misc]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: hr.Repartitioned.as_(None), "repartition name None: expected a text"),
        (lambda: hr.Repartitioned.as_("a b"), "repartition name 'a b' is not allowed"),
        (lambda: hr.Repartitioned(name=""), "repartition name ''"),
        (lambda: hr.Repartitioned(name="source"), "repartition name 'source' is reserved"),
        (lambda: hr.Repartitioned().with_name(3), "repartition name 3: expected a text"),
        (lambda: hr.Repartitioned.with_("a", "b"), "number_of_partitions='b'.: expected a whole number from 1"),
        (lambda: hr.Repartitioned.with_("a", 0), "number_of_partitions=0.: expected a whole number from 1"),
        (lambda: hr.Repartitioned.with_("a", hr.String()), "a name is given together with a number"),
        (lambda: hr.Repartitioned.with_("a", None), "a name is given together with a number"),
        (hr.Repartitioned.with_, r"with_\(\): expected two arguments(.|\n)*key_serde, value_serde(.|\n)*name, number_"),
        (lambda: hr.Repartitioned.with_("a"), r"with_\('a'\): expected two arguments(.|\n)*Repartitioned\.as_\(name\)"),
        (lambda: hr.Repartitioned.with_("a", 3, None), r"with_\('a', 3, None\): expected two arguments"),
        (lambda: hr.Repartitioned.with_("a", number_of_partitions=3), r"with_\('a', number_of_partitions=3\): expected two"),
        (lambda: hr.Repartitioned.with_(hr.String(), 3), "a number of partitions is given together with a name"),
        (lambda: hr.Repartitioned.with_(hr.String, ORDER), r"key_serde=...\): String is a class"),
        (lambda: hr.Repartitioned.with_(hr.String(), "b"), r"value_serde=...\): 'b' is no serde"),
        (lambda: hr.Repartitioned().with_value_serde(3), r"value_serde=...\): 3 is no serde"),
        (lambda: hr.Repartitioned().with_number_of_partitions(True), "number_of_partitions=True"),
        (lambda: hr.Repartitioned().with_stream_partitioner(lambda: 0), "called with .record, number_of_partitions."),
    ],
)
def test_what_is_none_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises((hr.TopologyError, hr.InvalidNameError), match=message) as error:
        make()
    assert error.value.message


# --- repartition ----------------------------------------------------------------------------------------------------

FORMS: dict[str, Callable[[hr.KStream], hr.KStream]] = {
    "a value": lambda s: s.repartition(hr.Repartitioned.as_("by-shop")),
    "by keyword": lambda s: s.repartition(repartitioned=hr.Repartitioned.as_("by-shop")),
    "a name": lambda s: s.repartition(name="by-shop"),
    "suffix": lambda s: s.repartition(hr.Repartitioned.as_("by-shop-repartition")),
    "said twice": lambda s: s.repartition(hr.Repartitioned.as_("by-shop"), name="by-shop"),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_repartition(form: str) -> None:
    app, orders = app_and_orders()
    again = FORMS[form](orders)
    assert names(app) == ["orders", "by-shop-repartition", "by-shop"]
    assert again.flow.node == "by-shop"
    assert only(app, Repartition).stream == "shop-by-shop-repartition"


def by_shop(record: hr.Record) -> str:
    return str(record.value["shop"])


MAPPERS: dict[str, tuple[Callable[[hr.KStream, hr.Repartitioned], hr.KStream], Any]] = {
    "an expression": (lambda s, to: s.repartition("value.shop", to), hr.String()),
    "a function": (lambda s, to: s.repartition(by_shop, to), hr.String()),
    "with its serde": (lambda s, to: s.repartition(lambda r: 1, to, key=hr.Long()), hr.Long()),
    "with that of the stream": (lambda s, to: s.repartition(lambda r: 1, to.with_key_serde(hr.Double())), hr.Double()),
    "with both": (lambda s, to: s.repartition(len, to.with_key_serde(hr.Double()), key=hr.Long()), hr.Double()),
}


@pytest.mark.parametrize("form", MAPPERS)
def test_repartition_with_another_key(form: str) -> None:
    app, orders = app_and_orders()
    build, serde = MAPPERS[form]
    build(orders, hr.Repartitioned.with_("by-shop", 3))
    assert names(app) == ["orders", "orders-select_key", "by-shop-repartition", "by-shop"]
    made = only(app, Repartition)
    assert (made.key, made.value, made.partitions, made.partitions_is_hint) == (serde, ORDER, 3, False)
    assert only(app, SelectKey).function.body is not None


def test_what_repartition_does_not_take_adds_nothing() -> None:
    app, orders = app_and_orders()
    where = r"repartition\('orders'\) \(hr\.Repartitioned\(key_serde=\.\.\.\)\)$"
    unknown = r"select_key\('orders-select_key'\) .* does not say the serde(.|\n)*, or to " + where
    for call, message in (
        (lambda: orders.repartition("by-shop"), r"repartition\('by-shop'\): expected hr\.Repartitioned\(\.\.\.\), or a key"),
        (lambda: orders.repartition(len), "expected hr.Repartitioned"),
        (lambda: orders.repartition(3, hr.Repartitioned()), r"repartition: expected a function or an expression, found int 3"),
        (lambda: orders.repartition(len, "by-shop"), r"repartition\('by-shop'\): expected hr\.Repartitioned"),
        (lambda: orders.repartition(hr.Repartitioned(), hr.Repartitioned()), "two hr.Repartitioned"),
        (lambda: orders.repartition(hr.Repartitioned.as_("a"), name="b"), "named 'b' and 'a'"),
        (lambda: orders.repartition(key=hr.String()), "no mapper gives another key"),
        (lambda: orders.repartition(lambda r: 1, hr.Repartitioned()), unknown),
        (lambda: orders.group_by_key("by-shop"), r"group_by_key\('by-shop'\): expected hr\.Repartitioned"),
        (lambda: orders.group_by(len, 3), r"group_by\(3\): expected hr\.Repartitioned"),
    ):
        with pytest.raises(hr.TopologyError, match=message):
            call()
        assert names(app) == ["orders"]


def test_an_expression_behind_the_engine_is_refused_by_the_repartition() -> None:
    _, orders = app_and_orders()
    seen = orders.peek(print)
    with pytest.raises(hr.TopologyError, match=r"repartition\('value.shop'\) after peek\('orders-peek'\): these rows"):
        seen.repartition("value.shop", hr.Repartitioned())


# --- grouping -------------------------------------------------------------------------------------------------------

SAID = hr.Repartitioned(
    name="by-shop", key_serde=hr.Json(), value_serde=hr.Json(), number_of_partitions=3, partitioner=route
)


@pytest.mark.parametrize("how", ["group_by", "group_by_key"])
def test_a_grouping_that_needs_a_stream_writes_it_as_it_is_told(how: str) -> None:
    app, orders = app_and_orders()
    grouped = orders.group_by(lambda r: 1, SAID) if how == "group_by" else orders.select_key(len).group_by_key(SAID)
    grouped.reduce(lambda old, new: new, store="last")
    made = only(app, Repartition)
    assert (made.stream, made.name, made.generated) == ("shop-by-shop-repartition", "by-shop-repartition", True)
    assert (made.partitions, made.partitions_is_hint) == (3, True)
    assert (made.key, made.value) == (hr.Json(), hr.Json())
    assert made.partitioner is not None
    assert made.partitioner.body is route
    assert names(app)[-3:] == ["by-shop", "by-shop-group", "last"]
    assert only(app, Aggregate).store.form == "reduce key=json value=json"


def test_a_grouping_that_needs_none_uses_nothing_of_it() -> None:
    app, orders = app_and_orders()
    orders.group_by_key(SAID).reduce(lambda old, new: new, store="last")
    assert names(app) == ["orders", "orders-group", "last"]
    assert only(app, Aggregate).store.form == f"reduce key=string value={ORDER.form}"


def test_what_is_not_said_is_as_it_was() -> None:
    """Both serdes: in Kafka Streams the key's was lost once."""
    app, orders = app_and_orders()
    orders.group_by("value.shop", hr.Repartitioned.as_("a")).count(store="one")
    orders.group_by(by_shop, hr.Repartitioned(number_of_partitions=3)).count(store="two")
    orders.group_by(len, hr.Repartitioned(), key=hr.Long()).count(store="three")
    orders.repartition(hr.Repartitioned.as_("b")).group_by_key().count(store="four")
    orders.repartition(hr.Repartitioned(name="c", value_serde=hr.Json()))
    assert [(n.stream, n.key, n.value, n.partitions) for n in repartitions(app)] == [
        ("shop-a-repartition", hr.String(), ORDER, None),
        ("shop-two-repartition", hr.String(), ORDER, 3),
        ("shop-three-repartition", hr.Long(), ORDER, None),
        ("shop-b-repartition", hr.String(), ORDER, None),
        ("shop-c-repartition", hr.String(), hr.Json(), None),
    ]
    sources = {n.stream: (n.key, n.value) for n in app.topology().nodes if isinstance(n, Source)}
    assert all(sources[made.stream] == (made.key, made.value) for made in repartitions(app))


def test_an_aggregation_without_a_name_is_named_after_its_repartition() -> None:
    app, orders = app_and_orders()
    orders.group_by("value.shop", hr.Repartitioned.as_("by-shop-repartition")).count()
    orders.group_by(len, hr.Repartitioned.as_("by-length"), key=hr.Long()).count()
    orders.group_by_key(hr.Repartitioned.as_("unused")).count()
    found = [node.store.name for node in app.topology().nodes if isinstance(node, Aggregate)]
    assert found == ["by-shop-count", "by-length-count", "orders-count"]


def test_an_aggregation_may_have_the_name_of_its_repartition() -> None:
    app, orders = app_and_orders()
    orders.group_by("value.shop", hr.Repartitioned.as_("by-shop")).count(store="by-shop")
    assert names(app)[2:] == ["by-shop-repartition", "by-shop-by-key", "by-shop-by-key-group", "by-shop"]


@pytest.mark.parametrize("name", ["by-shop", "orders"])
def test_a_repartition_may_have_the_name_of_an_operator_before_it(name: str) -> None:
    app, orders = app_and_orders()
    rekeyed = orders.select_key("value.shop", name="by-shop")
    rekeyed.repartition(hr.Repartitioned.as_(name)).group_by_key().count()
    assert only(app, Repartition).stream == f"shop-{name}-repartition"
    assert names(app)[2:] == [f"{name}-repartition", f"{name}-by-key", f"{name}-by-key-group", f"{name}-by-key-count"]
    with pytest.raises(hr.TopologyError, match=f"two repartitions with the name '{name}'"):
        rekeyed.repartition(hr.Repartitioned.as_(name))


@pytest.mark.parametrize("own", ["n-repartition", "n-by-key"])
def test_an_aggregation_may_not_have_the_names_that_its_repartition_needs(own: str) -> None:
    app, orders = app_and_orders()
    before = names(app)
    with pytest.raises(hr.TopologyError, match=f"and the aggregation behind it is named '{own}'"):
        orders.select_key("value.shop").group_by_key().count(store="n", name=own)
    assert names(app) == [*before, "orders-select_key"]


def test_one_name_twice_is_an_error() -> None:
    app, orders = app_and_orders()
    rekeyed = orders.select_key("value.shop")
    rekeyed.repartition(hr.Repartitioned.as_("by-shop"))
    before = names(app)
    again = hr.Repartitioned.as_("by-shop-repartition")
    for call in (
        lambda: rekeyed.group_by_key(again).count(store="n"),
        lambda: orders.repartition(again),
        lambda: orders.repartition("value.shop", again),
    ):
        with pytest.raises(hr.TopologyError, match="two repartitions with the name 'by-shop': repartition"):
            call()
        assert names(app) == before


def test_each_grouping_has_its_own_stream_and_one_that_is_used_twice_one() -> None:
    app, orders = app_and_orders()
    rekeyed = orders.select_key("value.shop")
    rekeyed.group_by_key().count(store="one")
    shared = rekeyed.group_by_key(hr.Repartitioned.as_("shared"))
    shared.count(store="two")
    shared.windowed_by(hr.Tumbling("1 hour")).count(store="three")
    assert [node.stream for node in repartitions(app)] == ["shop-one-repartition", "shop-shared-repartition"]


@pytest.mark.parametrize("between", [lambda s: s, lambda s: s.filter("true"), lambda s: s.map_values(len, value=hr.Long())])
def test_a_grouping_behind_a_repartition_adds_nothing(between: Callable[[hr.KStream], hr.KStream]) -> None:
    app, orders = app_and_orders()
    again = orders.repartition("value.shop", hr.Repartitioned(name="by-shop", partitioner=route))
    between(again).group_by_key(SAID.with_name("unused")).count(store="n")
    between(again).to_table(store="t")
    assert [node.stream for node in repartitions(app)] == ["shop-by-shop-repartition"]
    assert len([node for node in app.topology().nodes if isinstance(node, Group)]) == 2


# --- names do not move ----------------------------------------------------------------------------------------------

BRANCHES: dict[str, Callable[[hr.KStream], object]] = {
    "filter": lambda s: s.filter("true").to("kept"),
    "rekey": lambda s: s.select_key("value.shop"),
    "group": lambda s: s.group_by("value.shop").count(store="other"),
    "named group": lambda s: s.group_by(by_shop, hr.Repartitioned.as_("elsewhere")).count(),
    "repartition": lambda s: s.repartition(hr.Repartitioned.as_("again")).group_by_key().count(),
    "mapped": lambda s: s.repartition("value.shop", hr.Repartitioned.as_("mapped")),
    "split": lambda s: s.split("true")[0].group_by(by_shop).count(store="split"),
    "another input": lambda s: s.app.stream("others", key=hr.String(), value=ORDER).repartition().group_by_key().count(),
}
EXTRA = st.lists(st.sampled_from(sorted(BRANCHES)), unique=True, max_size=4)


@given(EXTRA, EXTRA, st.booleans())
def test_generated_names_do_not_move_when_other_branches_come_and_go(before: list[str], after: list[str], inside: bool) -> None:
    app, orders = app_and_orders()
    for name in before:
        BRANCHES[name](orders)
    mine = orders.filter("value.amount > 0") if inside else orders
    mine.group_by("value.shop").count()
    mine.repartition().map_values(len, value=hr.Long()).group_by_key().count(store="n")
    mine.select_key(by_shop).to_table(store="latest")
    for name in after:
        if name not in before:
            BRANCHES[name](orders)
    lasting = {n.name: getattr(n, "stream", None) or n.store.name for n in app.topology().nodes if _lasts(n)}
    assert {
        "orders-count-repartition": "shop-orders-count-repartition",
        "orders-count-by-key": "shop-orders-count-repartition",
        "orders-count": "orders-count",
        "orders-repartition": "shop-orders-repartition",
        "orders-by-key": "shop-orders-repartition",
        "n": "n",
        "latest-repartition": "shop-latest-repartition",
        "latest-by-key": "shop-latest-repartition",
    }.items() <= lasting.items()


def _lasts(node: Node) -> bool:
    return isinstance(node, Aggregate | Repartition) or (
        isinstance(node, Source) and node.kind is SourceKind.REPARTITION
    )


def test_two_applications_that_differ_only_in_name_share_no_stream() -> None:
    streams = []
    for name in ("shop", "shop-two"):
        app = hr.App(name)
        app.stream("orders", key=hr.String(), value=ORDER).group_by("value.shop").count()
        streams.append(only(app, Repartition).stream)
    assert streams == ["shop-orders-count-repartition", "shop-two-orders-count-repartition"]
