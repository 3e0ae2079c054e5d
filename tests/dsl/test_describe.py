"""What a topology looks like in words and as a picture, held against golden files.

`HEADRACE_TEST_REWRITE_GOLDEN=1` writes the files anew; read the difference before committing it.
"""

from __future__ import annotations

import json
import os
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.model.durations import duration_text, duration_us

GOLDEN = Path(__file__).parent / "golden"


class Score(hr.Processor[str, dict[str, Any], str, dict[str, Any]]):
    stores = (hr.KeyValueStore("recent", value=hr.Json(), ttl="30 days"), hr.WindowStore("seen", value=hr.Long()))

    def process(self, record: hr.Record) -> None: ...

    def on_timer(self, timer: object) -> None: ...


def flight_delays() -> hr.App:
    app = hr.App("flight-delays")
    flights = app.stream(
        "flights",
        key=hr.String(),
        value=hr.Json("carrier string, origin string, dep_delay double"),
        timestamp="timestamp",
    )
    (
        flights.filter("value.dep_delay is not null")
        .select_key("value.carrier")
        .repartition(hr.Repartitioned(name="by-carrier", number_of_partitions=4))
        .group_by_key()
        .windowed_by(hr.Tumbling("1 hour"))
        .aggregate(flights=hr.count(), mean_delay=hr.mean("value.dep_delay"), store="delays")
        .to_stream()
        .to("delays-by-carrier", value=hr.Json())
    )
    return app


def everything() -> hr.App:
    """At least one operator of every kind. Functions are built-ins, whose labels hold no line of this file."""
    app = hr.App("all")
    tx = app.stream("tx", key=hr.String(), value=hr.Json("amount double, shop string"), start=7, reset_offset=True)
    big, rest = tx.split("value.amount > 1000", name="size")
    alerts = big.process(Score, name="score", value=hr.Json())
    small, other = rest.filter_not("value.shop = '<script>\"x\"</script>'").split(callable)
    merged = alerts.merge(small, other.peek(repr), name="all-of-it")
    shouted = merged.flat_map(len, key=hr.String(), value=hr.Json("a int"), name="flat")
    shouted.group_by_key().windowed_by(hr.Hopping("1 hour", "15 minutes", grace="5 minutes")).count(store="hops")
    tx.group_by("upper(value.shop)").reduce(max, store="best").filter(callable).map_values(
        str, value=hr.String()
    ).to_stream().to(str)
    tx.map(len, key=hr.Long(), value=hr.Long()).repartition().flat_map_values(len, value=hr.Double()).to("out")
    tx.transform(list, key=hr.String(), value=hr.Json(), name="exploded").map_values("value.x").to("spark")
    app.table("shops", key=hr.String(), value=hr.Json())
    return app


def repartitions() -> hr.App:
    """Every way in which a repartition stream comes about, and what can be said of one."""
    app = hr.App("shop")
    orders = app.stream("orders", key=hr.String(), value=hr.Json("shop string, amount double"))
    named = orders.repartition(hr.Repartitioned(name="by-id", number_of_partitions=1, partitioner=divmod))
    named.group_by_key().count(store="orders-of")
    orders.repartition("value.shop", hr.Repartitioned.with_("by-shop", 4)).to("shops", partitioner=divmod)
    orders.repartition().to("copied")
    hinted = hr.Repartitioned(
        name="per-shop", key_serde=hr.String(), value_serde=hr.Json(), number_of_partitions=3, partitioner=max
    )
    per_shop = orders.group_by(len, hinted)
    per_shop.count(store="shop-orders")
    per_shop.windowed_by(hr.Tumbling("1 day")).count(store="per-day")
    orders.select_key(len, key=hr.Long()).group_by_key().count(store="by-length")
    orders.group_by_key(hr.Repartitioned.as_("not-needed")).count(store="plain")
    return app


def sessions() -> hr.App:
    app = hr.App("sessions")
    clicks = app.stream("clicks", key=hr.String(), value=hr.Long()).group_by_key()
    visits = clicks.windowed_by(hr.Session("30 minutes", grace="5 minutes")).count(store="visits")
    visits.suppress(hr.until_window_closes(), store="over").to_stream().to("visits-over")
    visits.to_stream(emit="each", name="every-visit").to("visits-each")
    return app


def otherwise() -> hr.App:
    """Streams whose producers do not go by the key, and what is put in for them."""
    app = hr.App("otherwise")
    text, number = hr.String(), hr.Long()
    views = app.stream("views", key=text, value=number, partitioning="other", timestamp="timestamp")
    users = app.table("users", key=text, value=number, partitioning="other")
    views.group_by_key().count(store="n")
    views.merge(app.stream("orders", key=text, value=number), name="all").join(users, max, name="known", value=number)
    views.filter("value > 1").to("large")
    return app


def tables() -> hr.App:
    """What tables are grouped and joined by, and how few updates they give."""
    app = hr.App("tables")
    text = hr.String()
    orders = app.table("orders", key=text, value=hr.Json("shop string, amount double"))
    shops = app.table("shops", key=text, value=hr.Json())
    by_shop = orders.group_by(len, hr.Repartitioned(number_of_partitions=3), key=text, name="by-shop")
    by_shop.aggregate(n=hr.count(), amount=hr.sum("value.amount"), store="amounts").to("amounts")
    by_shop.reduce(max, min, store="extremes").suppress(hr.until_time_limit("5 minutes"), store="slow").to("extremes")
    orders.left_join(shops, max, foreign_key=len, value=hr.Json(), store="named").to_stream(emit="each").to("named")
    clicks, views = (app.stream(name, key=text, value=hr.Long()) for name in ("clicks", "views"))
    prices = app.table("prices", key=text, value=hr.Long(), history="1 day")
    clicks.left_join(prices, max, value=hr.Long(), grace="1 minute", name="priced").to("priced")
    both = clicks.group_by_key().cogroup(max).cogroup(views.select_key(len, key=text).group_by_key(), min)
    both.windowed_by(hr.Tumbling("1 hour")).aggregate(initial=0, store="both").to("both")
    return app


APPS = {
    "tables": tables,
    "otherwise": otherwise,
    "sessions": sessions,
    "flight-delays": flight_delays,
    "everything": everything,
    "repartitions": repartitions,
}


def held_against(name: str, found: str) -> None:
    path = GOLDEN / name
    if os.environ.get("HEADRACE_TEST_REWRITE_GOLDEN"):
        path.write_text(found, encoding="utf-8")
    assert found == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("app", APPS)
def test_text(app: str) -> None:
    held_against(f"{app}.txt", APPS[app]().describe())


@pytest.mark.parametrize("app", APPS)
def test_dict(app: str) -> None:
    held_against(f"{app}.json", json.dumps(APPS[app]().describe("dict"), indent=1, ensure_ascii=False) + "\n")


@pytest.mark.parametrize("app", APPS)
def test_mermaid(app: str) -> None:
    held_against(f"{app}.mmd", APPS[app]().describe("mermaid"))


def test_unknown_form() -> None:
    with pytest.raises(hr.TopologyError, match="expected one of text, dict, mermaid"):
        flight_delays().describe("yaml")


@pytest.mark.parametrize("app", APPS)
def test_every_operator_is_in_every_description(app: str) -> None:
    made = APPS[app]()
    names = [node.name for node in made.topology().nodes]
    described_names = [op["name"] for sub in made.describe("dict")["sub_topologies"] for op in sub["operators"]]
    assert sorted(described_names) == sorted(names)
    assert all(f"  {name} " in made.describe() for name in names)
    assert made.describe("mermaid").count("\n        o") == len(names)


@pytest.mark.parametrize("app", APPS)
def test_picture_is_well_formed_and_holds_no_script(app: str) -> None:
    made = APPS[app]()
    picture = made._repr_html_()
    root = ET.fromstring(picture)  # a name that is not escaped would break it
    assert root.tag.endswith("svg")
    assert "<script" not in picture
    groups = [element for element in root.iter() if element.tag.endswith("}g")]
    assert len(groups) == len(made.topology().nodes)


@pytest.mark.parametrize("app", APPS)
def test_boxes_of_the_picture_do_not_overlap(app: str) -> None:
    root = ET.fromstring(APPS[app]()._repr_html_())
    corners = []
    for group in (element for element in root.iter() if element.tag.endswith("}g")):
        box = next(element for element in group if element.tag.endswith("rect"))
        corners.append((int(box.attrib["x"]), int(box.attrib["y"])))
    width, height = 244, 46
    assert not [
        (a, b) for a in corners for b in corners if a < b and abs(a[0] - b[0]) < width and abs(a[1] - b[1]) < height
    ]


def test_the_picture_tells_of_each_repartition_what_the_text_does() -> None:
    app = repartitions()
    picture = app._repr_html_()
    told = [line.strip().partition("  ")[2].strip() for line in app.describe().splitlines() if "  write to " in line]
    assert len(told) == 5
    for line in told:
        sentence = line.partition("  <- ")[0].replace("<", "&lt;").replace(">", "&gt;")
        assert sentence in picture


def test_a_stream_describes_what_it_comes_from_and_no_more() -> None:
    app = flight_delays()
    other = app.stream("other").filter("true")
    assert "flights" not in other.describe()
    assert "other-filter" in other.describe()
    assert "other-filter" in other._repr_html_()
    table = other.group_by_key().count(store="n")
    assert "store n: key-value" in table.describe()
    assert "flights" not in table._repr_html_()


def test_a_topology_that_does_not_fit_is_shown_as_the_error() -> None:
    app = hr.App("a")
    stream = app.stream("<s>".strip("<>"), key=hr.String())
    stream.repartition(name="again").merge(stream)
    assert app._repr_html_().startswith("<pre>the repartition stream")


@given(st.integers(0, 10**15))
def test_durations_read_as_those_of_the_dsl(us: int) -> None:
    assert duration_us(duration_text(us)) == us


def of_two(left: hr.Repartitioned, right: hr.Repartitioned, *, merged: bool = False) -> str:
    app = hr.App("two")
    one, two = (app.stream(name, key=hr.String(), value=hr.Long()) for name in ("one", "two"))
    a, b = one.repartition(left.with_name("a")), two.repartition(right.with_name("b"))
    if merged:
        a.merge(b).to("out")
    else:
        a.join(b, max, within="1 hour", value=hr.Long()).to("out")
    return next(line for line in app.describe("text").splitlines() if line.startswith("  a-repartition "))


def test_the_number_of_partitions_that_follows_a_join_or_a_merge_is_described_as_that() -> None:
    nothing, eight = hr.Repartitioned(), hr.Repartitioned(number_of_partitions=8)
    assert ", 8 partitions, as two-b-repartition has, which it is joined with" in of_two(nothing, eight)
    assert ", 8 partitions, as two-b-repartition has, which it is merged with" in of_two(nothing, eight, merged=True)
    assert ", as many partitions as the largest of one, two" in of_two(nothing, nothing)
    assert of_two(eight, nothing).endswith(", 8 partitions  <- one")
