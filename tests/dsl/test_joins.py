"""What joins make of a topology: operators, stores, repartition streams and their names; and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.core.topology.sub_topologies import sub_topologies_of
from headrace.errors import TopologyError
from headrace.model.topology import Join, JoinSides, Repartition, Source, Table
from headrace.testing import Driver


def pair(left: int, right: int) -> str:
    return f"{left}{right}"


class Shop:
    """An application with one of each kind of side."""

    def __init__(self) -> None:
        self.app = hr.App("shop")
        self.orders = self.app.stream("orders", key=hr.String(), value=hr.Long())
        self.refunds = self.app.stream("refunds", key=hr.String(), value=hr.Long())
        self.users = self.app.table("users", key=hr.String(), value=hr.Long())
        self.rates = self.app.global_table("rates", key=hr.String(), value=hr.Long())

    def nodes(self, kind: type) -> list[Any]:
        return [node for node in self.app.topology().nodes if isinstance(node, kind)]

    def join(self) -> Any:
        (node,) = self.nodes(Join)
        return node

    def streams(self) -> list[str]:
        return [node.stream for node in self.nodes(Repartition)]


def rekeyed(stream: hr.KStream) -> hr.KStream:
    return stream.select_key(lambda r: str(r.value), key=hr.String())


@pytest.fixture
def shop() -> Shop:
    return Shop()


# --- what is added --------------------------------------------------------------------------------------------------


def test_a_stream_and_a_table_of_inputs_meet_as_they_are(shop: Shop) -> None:
    joined = shop.orders.join(shop.users, pair)
    node = shop.join()
    assert (node.name, node.parents, node.sides) == ("orders-join", ("orders", "users-table"), JoinSides.STREAM_TABLE)
    assert shop.streams() == []
    assert joined.flow.value.serde is not None and joined.flow.value.serde.form == "string"
    assert [sub.title for sub in sub_topologies_of(shop.app.topology())] == ["source"]


def test_a_side_whose_key_was_changed_is_written_anew_and_the_other_with_it(shop: Shop) -> None:
    rekeyed(shop.orders).join(shop.users, pair)
    assert shop.streams() == ["shop-orders-join-left-repartition", "shop-orders-join-right-repartition"]
    assert shop.join().parents == ("orders-join-left-by-key", "orders-join-right")
    right = next(node for node in shop.nodes(Source) if node.name == "orders-join-right-by-key")
    assert right.of_table
    writer = next(node for node in shop.nodes(Repartition) if "right" in node.stream)
    assert writer.parents == ("users",)  # every update, and not what its table has made of them
    assert [sub.title for sub in sub_topologies_of(shop.app.topology())] == ["source", "orders-join-left"]


def test_an_input_is_written_anew_where_the_other_side_was_already(shop: Shop) -> None:
    shop.orders.repartition(name="by-user").left_join(shop.users, pair, name="enriched")
    assert shop.streams() == ["shop-by-user-repartition", "shop-enriched-right-repartition"]
    assert shop.join().parents == ("by-user", "enriched-right")


def test_two_repartitioned_sides_get_no_further_stream(shop: Shop) -> None:
    left, right = rekeyed(shop.orders).repartition(name="left"), rekeyed(shop.refunds).repartition(name="right")
    left.join(right, pair, within="1 hour")
    assert shop.streams() == ["shop-left-repartition", "shop-right-repartition"]
    assert [sub.title for sub in sub_topologies_of(shop.app.topology())] == ["source", "left"]


def test_a_side_made_of_the_others_sub_topology_takes_that_one_along(shop: Shop) -> None:
    """Else the sub-topology `by-user` would read the stream that it has written for the changed key."""
    by_user = rekeyed(shop.orders).repartition(name="by-user")
    rekeyed(by_user).join(by_user.to_table(store="last"), pair, name="again")
    assert shop.streams() == ["shop-by-user-repartition", "shop-again-left-repartition", "shop-again-right-repartition"]
    assert [sub.title for sub in sub_topologies_of(shop.app.topology())] == ["source", "by-user", "again-left"]


def test_a_table_that_is_not_kept_as_it_is_gets_a_store(shop: Shop) -> None:
    counts = shop.orders.group_by_key().count(store="n")
    shop.refunds.join(counts, pair, name="one")
    shop.refunds.join(shop.users.filter(lambda r: r.value > 0), pair, name="two")
    shop.users.join(counts, pair, name="three", store="kept")
    kept = {node.name: node.parents for node in shop.nodes(Table)}
    assert kept["one-right"] == ("n",)
    assert kept["two-right"] == ("users-table-filter",)
    assert kept["kept-right"] == ("n",)
    assert set(kept) == {"users-table", "rates-table", "one-right", "two-right", "kept-right"}


def test_two_streams_keep_both_sides(shop: Shop) -> None:
    shop.orders.outer_join(shop.refunds, pair, within="1 hour", grace="10 minutes")
    node = shop.join()
    assert [store.name for store in node.stores] == ["orders-outer_join-left", "orders-outer_join-right"]
    assert (node.before_us, node.after_us, node.kept_us) == (3_600_000_000, 3_600_000_000, 600_000_000)
    assert shop.app.topology().node("orders-outer_join") is node


@pytest.mark.parametrize(
    ("given", "before_s", "after_s"),
    [
        ({"within": "5 s", "before": "1 s"}, 1, 5),
        ({"within": "5 s", "after": "0 s"}, 5, 0),
        ({"before": "1 s"}, 1, 0),
        ({"after": "2 s", "before": "1 s"}, 1, 2),
    ],
)
def test_right_records_may_be_before_and_after_left_ones_by_other_lengths(
    shop: Shop, given: dict[str, str], before_s: int, after_s: int
) -> None:
    shop.orders.join(shop.refunds, pair, grace="10 s", **given)
    node = shop.join()
    assert (node.before_us, node.after_us) == (before_s * 1_000_000, after_s * 1_000_000)
    assert [store.ttl_us for store in node.stores] == [(after_s + 10) * 1_000_000, (before_s + 10) * 1_000_000]
    text = f"from {before_s} seconds before to {after_s} seconds after it, open for 10 seconds more"
    assert text.replace("1 seconds", "1 second") in str(shop.app.describe())


def test_lengths_that_mean_nothing_are_refused(shop: Shop) -> None:
    with pytest.raises(TopologyError, match="it would mean nothing"):
        shop.orders.join(shop.refunds, pair, within="1 s", before="1 s", after="2 s")
    with pytest.raises(TopologyError, match="before"):
        shop.orders.join(shop.refunds, pair, before="-1 s")
    with pytest.raises(TopologyError, match="are for two streams"):
        shop.orders.join(shop.users, pair, after="1 s")


def test_a_global_table_needs_no_repartition_wherever_the_stream_is(shop: Shop) -> None:
    changed = rekeyed(shop.orders)
    changed.join(shop.rates, pair, key=lambda r: "eur", name="here").group_by_key().count(store="n")
    changed.repartition(name="by-user").join(shop.rates, pair, name="there")
    assert shop.streams() == ["shop-n-repartition", "shop-by-user-repartition"]  # the key is still a changed one
    subs = {sub.title: sub.reads for sub in sub_topologies_of(shop.app.topology())}
    assert subs["source"] == ("orders", "rates", "refunds", "users")
    assert subs["by-user"] == ("rates", "shop-by-user-repartition")
    assert all(source.broadcast for source in shop.nodes(Source) if source.stream == "rates")


def test_names_of_a_join_do_not_change_with_other_branches() -> None:
    def names(before: bool) -> list[str]:
        shop = Shop()
        if before:
            shop.orders.filter(lambda r: True).to("elsewhere")
            rekeyed(shop.refunds).group_by_key().count()
        rekeyed(shop.orders).join(shop.users, pair)
        return [stream for stream in shop.streams() if "join" in stream]

    assert names(False) == names(True) == ["shop-orders-join-left-repartition", "shop-orders-join-right-repartition"]


def test_two_joins_that_keep_something_need_names(shop: Shop) -> None:
    rekeyed(shop.orders).join(shop.users, pair)
    with pytest.raises(TopologyError, match=r"join behind 'orders' would be named 'orders-join'"):
        rekeyed(shop.orders).join(shop.users, pair)
    shop.orders.join(shop.users, pair).join(shop.users, lambda a, b: 1, value=hr.Long())  # these keep nothing


def test_joins_are_described(shop: Shop) -> None:
    shop.orders.left_join(shop.rates, pair, key=lambda r: "eur", name="converted")
    shop.orders.join(shop.refunds, pair, within="1 hour", grace="10 minutes", name="near")
    text = shop.app.describe()
    assert "stream with global table, by test_joins_are_described.<locals>.<lambda>" in text
    assert "stream with stream, within 1 hour, open for 10 minutes more  <- orders, refunds" in text
    assert "table rates, key string, value long, from earliest, all of it in every task" in text
    operators = {each["name"]: each for each in shop.app.describe("dict")["sub_topologies"][0]["operators"]}
    assert operators["near"]["kind"] == "join"
    assert operators["near"]["stores"] == ["near-left", "near-right"]
    assert operators["converted"]["kind"] == "left_join"
    assert "left_join pair" in shop.app.describe("mermaid")


# --- what is refused ------------------------------------------------------------------------------------------------


def open_keys(shop: Shop) -> hr.KStream:
    """Two streams that have different keys, as one."""
    return shop.orders.merge(shop.app.stream("n", key=hr.Long(), value=hr.Long()))


def long_keys(shop: Shop) -> hr.KTable:
    return shop.app.table("numbers", key=hr.Long(), value=hr.Long())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda s: s.orders.outer_join(s.users, pair, within="1 h"), r"outer_join of a stream with a table"),
        (lambda s: s.orders.join(s.refunds, pair), r"within= is missing"),
        (lambda s: s.orders.join(s.users, pair, within="1 hour"), r"are for two streams"),
        (lambda s: s.orders.join(s.users, pair, retention="1 hour"), r"are for two streams"),
        (
            lambda s: s.orders.join(s.refunds, pair, within="1 h", grace="1 minute", retention="1 day"),
            r"join: grace='1 minute' and retention='1 day': expected one of them",
        ),
        (lambda s: s.orders.join(s.users, pair, key=lambda r: r.key), r"only a global table can be joined by any key"),
        (lambda s: s.orders.join("users", pair), r"join\(str\): expected a stream or a table"),
        (lambda s: s.users.join(s.orders, pair), r"join\(KStream\): expected a table(.|\n)*stream\.join\(table"),
        (lambda s: s.users.join(s.rates, pair), r"join\(GlobalTable\): expected a table"),
        (lambda s: s.orders.join(hr.App("other").table("users"), pair), r"application 'shop', the other of 'other'"),
        (lambda s: s.orders.join(s.users, "left + right"), r"a Spark expression cannot be given here"),
        (lambda s: s.orders.join(s.users, lambda one: one), r"called with \(left, right\)"),
        (lambda s: s.orders.join(s.refunds, pair, within="soon"), r"join: within 'soon'"),
        (lambda s: rekeyed(s.orders).join(long_keys(s), pair), r"keys of the serde String\(\) with keys of Long\(\)"),
        (lambda s: open_keys(s).join(s.users, pair), r"does not say the serde of the keys"),
        (lambda s: open_keys(s).join(s.rates, pair), r"does not say the serde of the keys"),
        (lambda s: open_keys(s).join(s.refunds, pair, within="1 s"), r"does not say the serde of the keys"),
        (lambda s: s.orders.join(long_keys(s), pair), r"keys of the serde String\(\) with keys of Long\(\)"),
        (lambda s: s.orders.join(s.app.global_table("n", key=hr.Long(), value=hr.Long()), pair), r"keys of the serde String"),
        (lambda s: s.orders.join(s.users, lambda a, b: a).to("out"), r"does not say the serde of the values"),
        (lambda s: s.rates.to_stream(), r"no 'to_stream': every task has all of it"),
    ],
)
def test_what_cannot_be_joined_is_refused_and_adds_nothing(shop: Shop, make: Callable[[Shop], Any], words: str) -> None:
    with pytest.raises((TopologyError, AttributeError), match=words):
        make(shop)
    assert shop.streams() == []
    is_joined = "does not say the serde of the values" in words  # there it is not the join that is refused
    assert len(shop.nodes(Join)) == is_joined


def test_an_outer_join_with_a_table_is_refused(shop: Shop) -> None:
    join: Any = shop.orders.outer_join
    with pytest.raises(TopologyError, match=r"outer_join of a stream with a table(.|\n)*left_join"):
        join(shop.users, pair, within=None)


def by_value(record: hr.Record, partitions: int) -> int:
    return int(record.value % partitions)


def test_sides_with_different_partitioners_are_refused_and_with_one_they_are_not(shop: Shop) -> None:
    own = rekeyed(shop.orders).repartition(hr.Repartitioned(name="own", partitioner=by_value))
    plain = shop.refunds.repartition(name="plain")
    words = r"'shop-own-repartition' is partitioned by by_value \(test_joins.*'shop-plain-repartition' is partitioned by the"
    with pytest.raises(TopologyError, match=words):
        own.join(plain, pair, within="1 hour")
    with pytest.raises(TopologyError, match=r"is partitioned by by_value"):
        own.join(shop.users, pair)
    again = shop.refunds.repartition(hr.Repartitioned(name="again", partitioner=by_value))
    own.join(again, pair, within="1 hour")


# --- partition counts -----------------------------------------------------------------------------------------------


def test_inputs_with_different_counts_are_refused_with_both(shop: Shop, tmp_path: Path) -> None:
    shop.orders.join(shop.users, pair).to("out")
    words = r"'orders-join' joins the streams 'orders' \(2 partitions\) and 'users' \(3 partitions\)(.|\n)*repartition\(\)"
    with pytest.raises(TopologyError, match=words):
        Driver(shop.app, partitions={"orders": 2, "users": 3, "refunds": 1, "rates": 1}, directory=tmp_path).open()


def joined_with_counts(left: int | None, right: int | None) -> hr.App:
    shop = Shop()
    sides = zip((shop.orders, shop.refunds), ("a", "b"), (left, right), strict=True)
    one, two = (s.repartition(hr.Repartitioned(name=name, number_of_partitions=count)) for s, name, count in sides)
    one.join(two, pair, within="1 hour").to("out")
    return shop.app


@pytest.mark.parametrize(
    ("left", "right", "expected"), [(None, None, 5), (3, None, 3), (None, 4, 4), (6, 6, 6)]
)
def test_repartition_streams_of_a_join_agree(left: int | None, right: int | None, expected: int) -> None:
    with Driver(joined_with_counts(left, right), partitions={"orders": 2, "refunds": 5, "users": 1, "rates": 7}) as d:
        streams = {stream.name: stream.partitions for stream in d._system.streams()}
        assert streams["shop-a-repartition"] == streams["shop-b-repartition"] == expected


def test_explicit_counts_that_differ_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    words = r"'a-join' joins the streams 'shop-a-repartition' \(3 .*'shop-b-repartition' \(4 .*(.|\n)*same number_of_partitions"
    with pytest.raises(TopologyError, match=words):
        Driver(joined_with_counts(3, 4), directory=tmp_path).open()
    with hr.open_system(f"log:{tmp_path / 'log'}") as system:
        assert {stream.name for stream in system.streams()} == {"orders", "refunds", "users", "rates"}


def test_a_stream_that_exists_keeps_its_count_and_the_others_follow(tmp_path: Path) -> None:
    inputs = {"orders": 2, "refunds": 2, "users": 1, "rates": 1}
    with Driver(joined_with_counts(3, None), partitions=inputs, directory=tmp_path):
        pass
    with Driver(joined_with_counts(None, None), partitions=inputs, directory=tmp_path) as d:
        streams = {stream.name: stream.partitions for stream in d._system.streams()}
        assert streams["shop-a-repartition"] == streams["shop-b-repartition"] == 3
