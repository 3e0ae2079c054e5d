"""All streams whose names match a pattern are read as one, and what is created later joins."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.core.topology.patterns import matching, new_matches, with_matches
from headrace.model.streams import StreamDescription
from headrace.testing import Driver
from support.matching import joins_while_it_runs

TEXT, NUMBER = hr.String(), hr.Long()
ORDERS = re.compile(r"orders-[a-z]+")
NAMES = st.lists(st.sampled_from(["orders-a", "orders-b", "orders-c", "orders-1", "my-orders-a", "orders-"]), unique=True)


def counting(app: hr.App) -> None:
    orders = app.stream(ORDERS, key=TEXT, value=NUMBER, name="orders")
    orders.map_values(lambda r: f"{r.stream} {r.value}", value=TEXT).to("out")
    orders.group_by_key().count(store="n")


# --- pure -----------------------------------------------------------------------------------------------------------


@given(NAMES, NAMES)
def test_the_topology_reads_what_matches_and_knows_what_else_would(before: list[str], more: list[str]) -> None:
    app = hr.App("matching")
    counting(app)
    expected = sorted(name for name in before if re.fullmatch("orders-[a-z]+", name))
    there = [StreamDescription(name, 1, name) for name in before]
    if not expected:
        with pytest.raises(hr.StreamNotFoundError, match="no stream matches the pattern"):
            with_matches(app.topology(), there, None)
        return
    topology = with_matches(app.topology(), there, None)
    assert list(topology.inputs) == expected
    assert topology.node("orders").parents == tuple(f"orders-streams-{name}" for name in expected)
    grown = there + [StreamDescription(name, 1, name) for name in more if name not in before]
    assert new_matches(topology, there) == []
    assert new_matches(topology, grown) == sorted({*matching(["orders-[a-z]+"], grown)} - set(expected))


EVERY = ("z-a", "z-b", "y-a", "y-b", "x", "other")


@given(st.lists(st.sampled_from(EVERY), unique=True), st.lists(st.sampled_from(EVERY), unique=True))
def test_a_list_of_names_and_patterns_reads_each_stream_once(before: list[str], more: list[str]) -> None:
    app = hr.App("matching")
    app.stream(["x", "z-a", re.compile("z-.*"), re.compile(".*-b")], key=TEXT, value=NUMBER, name="all").to("out")
    wanted = {"z-a", "z-b", "y-b"}
    there = [StreamDescription(name, 1, name) for name in {*before, "x", "z-a"}]
    topology = with_matches(app.topology(), there, None)
    expected = wanted.intersection(before) | {"x", "z-a"}
    assert set(topology.inputs) == expected
    assert [topology.node(name).stream for name in topology.node("all").parents] == [  # type: ignore[attr-defined]
        "x", "z-a", *sorted(expected - {"x", "z-a"})
    ]
    grown = there + [StreamDescription(name, 1, name) for name in more if name not in {*before, "x", "z-a"}]
    assert new_matches(topology, grown) == sorted(wanted.intersection(more) - expected)


def test_internal_streams_never_match() -> None:
    streams = [StreamDescription("a", 1, "1"), StreamDescription("shop-by-user-repartition", 1, "2", internal_of="shop")]
    assert matching([".*"], streams) == ["a"]


# --- declared -------------------------------------------------------------------------------------------------------


def own_output(app: hr.App) -> None:
    app.stream(re.compile("orders-.*"), key=TEXT, value=NUMBER, name="orders").to("orders-all")
    app.topology()


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda app: app.stream(ORDERS), "needs a name"),
        (lambda app: app.stream(["x", ORDERS]), "needs a name"),
        (lambda app: app.stream([ORDERS, re.compile("x")], name="all"), "that is a name"),
        (lambda app: app.stream(re.compile("orders-.*", re.IGNORECASE), name="orders"), "with its flags in it"),
        (lambda app: app.stream(re.compile(b"orders-.*"), name="orders"), "a pattern of text"),
        (lambda app: app.stream(re.compile("orders"), name="orders"), "that is a name"),
        (own_output, "writes to orders-all, which the pattern"),
    ],
)
def test_what_cannot_be_meant_is_refused(declare: Callable[[hr.App], None], message: str) -> None:
    with pytest.raises(hr.TopologyError, match=message):
        declare(hr.App("matching"))


def test_a_stream_that_is_read_by_its_name_too_is_refused() -> None:
    app = hr.App("matching")
    app.stream("orders-a", key=TEXT, value=NUMBER)
    counting(app)
    with pytest.raises(hr.TopologyError, match=r"'orders-a' matches the pattern .* and 'orders-a' reads it"):
        Driver(app, partitions={"orders-a": 1}).open()


# --- at work --------------------------------------------------------------------------------------------------------


def test_they_are_read_as_one_and_a_later_start_reads_what_has_come(tmp_path: Path) -> None:
    for streams in (["orders-a", "orders-b", "others"], ["orders-c"]):
        app = hr.App("matching")
        counting(app)
        with Driver(app, partitions=dict.fromkeys(streams, 2), directory=tmp_path) as d:
            for stream in (one for one in streams if one != "others"):
                d.send(stream, "k", 1)
            d.run()
            found, count = [r.value for r in d.read("out")], d.store("n").all()
    assert sorted(found) == ["orders-a 1", "orders-b 1", "orders-c 1"] and count == {"k": 3}


@pytest.mark.parametrize("entries", [["x", ORDERS], [ORDERS, re.compile("x|y")], {ORDERS, "x"}, (re.compile("x+"), ORDERS)])
def test_names_and_patterns_in_one_list_are_read_as_one(entries: Any, tmp_path: Path) -> None:
    for streams in (["orders-a", "x"], ["orders-b"]):
        app = hr.App("matching")
        read = app.stream(entries, key=TEXT, value=NUMBER, name="all")
        read.map_values(lambda r: f"{r.stream} {r.value}", value=TEXT).to("out")
        read.group_by_key().count(store="n")
        with Driver(app, partitions=dict.fromkeys(streams, 2), directory=tmp_path) as d:
            for stream in streams:
                d.send(stream, "k", 1)
            d.run()
            found, count = [r.value for r in d.read("out")], d.store("n").all()
    assert sorted(found) == ["orders-a 1", "orders-b 1", "x 1"] and count == {"k": 3}


@pytest.mark.parametrize("is_listed", [False, True])
def test_a_stream_that_is_created_while_the_job_runs_joins(is_listed: bool, tmp_path: Path) -> None:
    joins_while_it_runs(f"log:{tmp_path / 'log'}", tmp_path, "orders", is_listed=is_listed)
