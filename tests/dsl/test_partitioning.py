"""What `partitioning="other"` makes of a topology: repartition streams in front of keyed state, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headrace as hr
from headrace.core.topology.partitioning import partitioned_otherwise
from headrace.core.topology.sub_topologies import meets_by_key, sub_topologies_of
from headrace.model.topology import Partitioning, Repartition, Source


class Stateless(hr.Processor[str, Any, str, Any]):
    def process(self, record: hr.Record) -> None: ...


class Counting(Stateless):
    stores = (hr.KeyValueStore("recent", value=hr.Long()),)


class Timed(Stateless):
    def on_timer(self, timer: object) -> None: ...


class Shop:
    """An application with a stream that does not go by its keys, and with what that may meet."""

    def __init__(self) -> None:
        self.app = hr.App("shop")
        self.views = self.app.stream("views", key=hr.String(), value=hr.Long(), partitioning="other")
        self.orders = self.app.stream("orders", key=hr.String(), value=hr.Long())
        self.users = self.app.table("users", key=hr.String(), value=hr.Long())
        self.rates = self.app.global_table("rates", key=hr.String(), value=hr.Long())

    def streams(self) -> list[str]:
        return [node.stream for node in self.app.topology().nodes if isinstance(node, Repartition)]


@pytest.fixture
def shop() -> Shop:
    return Shop()


def pair(left: int, right: int) -> str:
    return f"{left}{right}"


KEYED: dict[str, tuple[Callable[[Shop], object], list[str]]] = {
    "count": (lambda s: s.views.group_by_key().count(store="n"), ["shop-n-repartition"]),
    "windows": (
        lambda s: s.views.group_by_key().windowed_by(hr.Session("1 hour")).aggregate(n=hr.count(), store="n"),
        ["shop-n-repartition"],
    ),
    "reduce, named": (
        lambda s: s.views.group_by_key(hr.Repartitioned.as_("by-id")).reduce(max, store="n"),
        ["shop-by-id-repartition"],
    ),
    "to_table": (lambda s: s.views.to_table(store="last"), ["shop-last-repartition"]),
    "drop_duplicates": (lambda s: s.views.drop_duplicates(within="1 hour", store="d"), ["shop-d-repartition"]),
    "with a table": (
        lambda s: s.views.join(s.users, pair, name="j"),
        ["shop-j-left-repartition", "shop-j-right-repartition"],
    ),
    "a table with it": (
        lambda s: s.users.join(s.views.to_table(store="last"), pair, name="j"),
        ["shop-last-repartition", "shop-j-left-repartition"],
    ),
    "two streams, left": (
        lambda s: s.views.join(s.orders, pair, within="1 hour", name="j"),
        ["shop-j-left-repartition", "shop-j-right-repartition"],
    ),
    "two streams, right": (
        lambda s: s.orders.join(s.views, pair, within="1 hour", name="j"),
        ["shop-j-right-repartition", "shop-j-left-repartition"],
    ),
    "merged": (lambda s: s.orders.merge(s.views, name="both").group_by_key().count(store="n"), ["shop-n-repartition"]),
    "behind stateless operators": (
        lambda s: s.views.filter("value > 1").process(Stateless, value=hr.Long()).group_by_key().count(store="n"),
        ["shop-n-repartition"],
    ),
    "split": (lambda s: s.views.split(lambda r: True)[0].group_by_key().count(store="n"), ["shop-n-repartition"]),
    "with another key": (lambda s: s.views.group_by(lambda r: "x", key=hr.String()).count(store="n"), ["shop-n-repartition"]),
}


@pytest.mark.parametrize("operator", KEYED)
def test_a_repartition_stream_is_put_in_before_keyed_state(shop: Shop, operator: str) -> None:
    build, streams = KEYED[operator]
    build(shop)
    assert sorted(shop.streams()) == sorted(streams)
    for sub in sub_topologies_of(shop.app.topology()):
        for node in sub.nodes:
            if meets_by_key(node):
                read = shop.app.builder.sources_of(node.name)
                assert "views" not in read, node.name


STATELESS: dict[str, Callable[[Shop], object]] = {
    "expressions": lambda s: s.views.filter("value > 1").map_values("value + 1").to("out"),
    "functions": lambda s: s.views.flat_map_values(lambda r: [r.value], value=hr.Long()).peek(print).to("out"),
    "a Processor": lambda s: s.views.process(Stateless, value=hr.Long()).to("out"),
    "a global table": lambda s: s.views.left_join(s.rates, pair).to("out"),
    "merge": lambda s: s.views.merge(s.orders).to("out"),
    "for_each_round": lambda s: s.views.for_each_round(lambda df, number: None),
}


@pytest.mark.parametrize("operator", STATELESS)
def test_what_keeps_no_state_reads_it_as_it_is(shop: Shop, operator: str) -> None:
    STATELESS[operator](shop)
    assert shop.streams() == []


@pytest.mark.parametrize("behind", ["group_by_key", "drop_duplicates", "process", "join"])
def test_behind_a_repartition_of_ones_own_nothing_is_added(shop: Shop, behind: str) -> None:
    again = shop.views.repartition(name="again")
    {
        "group_by_key": lambda: again.group_by_key(hr.Repartitioned.as_("unused")).count(store="n"),
        "drop_duplicates": lambda: again.drop_duplicates(within="1 hour"),
        "process": lambda: again.process(Counting),
        "join": lambda: again.join(again.to_table(store="last"), pair),
    }[behind]()
    assert shop.streams() == ["shop-again-repartition"]


@pytest.mark.parametrize("processor", [Counting, Timed])
def test_a_processor_with_state_right_behind_it_is_refused_with_the_way_out(shop: Shop, processor: Any) -> None:
    before = shop.app.topology().nodes
    for stream in (shop.views, shop.views.filter(lambda r: True, name="f"), shop.orders.merge(shop.views, name="m")):
        nodes = shop.app.topology().nodes
        with pytest.raises(hr.TopologyError) as error:
            stream.process(processor, name="score")
        assert error.value.message == (
            "process('score') has state, and stream('views') is declared partitioning=\"other\": a key's records may be in any "
            "partition, and state is kept by partition"
        )
        assert error.value.hint == ".repartition() between stream('views') and process('score') brings equal keys together"
        assert shop.app.topology().nodes == nodes
    assert len(shop.app.topology().nodes) == len(before) + 2  # the filter and the merge
    shop.views.repartition(name="again").process(processor, name="score")


def test_a_changed_key_is_what_is_named_where_both_hold(shop: Shop) -> None:
    with pytest.raises(hr.TopologyError, match=r"has state, and select_key\('k'\) changed the key"):
        shop.views.select_key(lambda r: "x", key=hr.String(), name="k").process(Counting, name="score")


def test_a_table_goes_through_a_repartition_stream_named_after_its_store() -> None:
    app = hr.App("shop")
    table = app.table("users", key=hr.String(), value=hr.Long(), store="people", partitioning="other")
    app.stream("orders", key=hr.String(), value=hr.Long()).join(table, pair, name="j")
    source, read = (node for node in app.topology().nodes if node.name in ("users", "people-by-key"))
    assert isinstance(source, Source)
    assert isinstance(read, Source)
    assert (source.partitioning, read.of_table) == (Partitioning.OTHER, True)
    streams = [node.stream for node in app.topology().nodes if isinstance(node, Repartition)]
    assert streams == ["shop-people-repartition", "shop-j-left-repartition"]
    assert [sub.title for sub in sub_topologies_of(app.topology())] == ["source", "j-left"]


def test_a_table_that_cannot_be_added_adds_nothing() -> None:
    app = hr.App("shop")
    app.stream("orders", key=hr.String()).repartition(name="people")
    before = app.topology().nodes
    with pytest.raises(hr.TopologyError, match="two repartitions with the name 'people'"):
        app.table("users", key=hr.String(), value=hr.Long(), store="people", partitioning="other")
    assert app.topology().nodes == before
    app.table("users", key=hr.String(), value=hr.Long(), store="people")  # its names are free


@pytest.mark.parametrize("given", ["Hash", "key", "", None, True, ["other"]])
def test_anything_else_is_refused(given: Any) -> None:
    app = hr.App("shop")
    for read, text in ((app.stream, "stream"), (app.table, "table")):
        with pytest.raises(hr.TopologyError, match=rf"{text}\('views'\): partitioning=.*: expected \"hash\" or \"other\""):
            read("views", partitioning=given)
    with pytest.raises(TypeError, match="partitioning"):
        app.global_table("views", partitioning="other")  # type: ignore[call-arg]


def test_the_streams_that_are_declared_so_are_known() -> None:
    shop = Shop()
    shop.app.table("more", key=hr.String(), value=hr.Long(), partitioning="other")
    shop.app.stream("hashed", partitioning="hash")
    assert partitioned_otherwise(shop.app.topology()) == ("more", "views")
