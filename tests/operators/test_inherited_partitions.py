"""How many partitions streams get that a job makes: as many as what they come of, whatever else the application reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headrace as hr
from headrace.testing import Driver

INPUTS = {"in4": 4, "other64": 64}
Build = Callable[[hr.App, Any, Any], Any]


def made(build: Build) -> dict[str, int]:
    """The streams that an application makes which `build` builds of an input of 4 and one of 64 partitions."""
    app = hr.App("made")
    four, many = (app.stream(name, key=hr.String(), value=hr.Long()) for name in INPUTS)
    build(app, four, many)
    with Driver(app, partitions=INPUTS) as d:
        found = {stream.name: stream.partitions for stream in d._system.streams()}
        for name in INPUTS:
            d.send(name, "k", 1)
        d.run()
    short = {name.removeprefix("made-").removesuffix("-repartition"): count for name, count in found.items()}
    return {name: count for name, count in short.items() if name not in INPUTS}


def both(x: Any, y: Any) -> tuple[Any, Any]:
    return x.repartition(name="x"), y.repartition(name="y")


def joined(app: hr.App, four: Any, many: Any) -> None:
    x, y = both(four, many)
    x.join(y, lambda a, b: a + b, within="1 hour", value=hr.Long()).to("out")


def joined_with_a_table(app: hr.App, four: Any, many: Any) -> None:
    x, y = both(four, many)
    x.left_join(y.to_table(store="t"), lambda a, b: a, value=hr.Long()).to("out")


def around(app: hr.App, four: Any, many: Any) -> None:
    """x meets y, and y meets z: one family."""
    x, y = both(four, four)
    z = many.repartition(name="z")
    x.merge(y).to("xy")
    y.join(z, lambda a, b: a, within="1 hour", value=hr.Long()).to("yz")


def merged(app: hr.App, four: Any, many: Any) -> None:
    x, y = both(four, many)
    x.merge(y).to("out")


def merged_before_state(app: hr.App, four: Any, many: Any) -> None:
    x, y = both(four, many)
    x.merge(y).group_by_key().count(store="n")


CASES: dict[str, tuple[Build, dict[str, int]]] = {
    "beside an input": (lambda app, four, many: four.repartition(name="x").to("out"), {"x": 4, "out": 4}),
    "the other way round": (lambda app, four, many: (many.repartition(name="y"), four.to("out")), {"y": 64, "out": 4}),
    "put in by a grouping": (
        lambda app, four, many: four.group_by(lambda r: r.key, hr.Repartitioned(key_serde=hr.String())).count(store="n"),
        {"n": 4},
    ),
    "a chain": (lambda app, four, many: four.repartition(name="x").repartition(name="z").to("out"), {"x": 4, "z": 4, "out": 4}),
    "of merged inputs": (lambda app, four, many: four.merge(many).repartition(name="x"), {"x": 64}),
    "of one that is merged elsewhere": (
        lambda app, four, many: (four.merge(many).to("all"), four.repartition(name="x")),
        {"x": 64, "all": 64},
    ),
    "merged": (merged, {"x": 64, "y": 64, "out": 64}),
    "merged before state": (merged_before_state, {"x": 64, "y": 64}),
    "joined": (joined, {"x": 64, "y": 64, "out": 64}),
    "joined with a table": (joined_with_a_table, {"x": 64, "y": 64, "out": 64}),
    "around": (around, {"x": 64, "y": 64, "z": 64, "xy": 64, "yz": 64}),
}


@pytest.mark.parametrize("case", sorted(CASES))
def test_streams_have_as_many_partitions_as_what_they_come_of(case: str) -> None:
    build, expected = CASES[case]
    assert made(build) == expected


def test_a_global_table_counts_nowhere() -> None:
    app = hr.App("made")
    rates = app.global_table("rates", key=hr.String(), value=hr.Long())
    rows = app.stream("in4", key=hr.String(), value=hr.Long())
    rows.join(rates, lambda a, b: a, value=hr.Long()).repartition(name="x").to("out")
    with Driver(app, partitions={"in4": 4, "rates": 64}) as d:
        found = {stream.name: stream.partitions for stream in d._system.streams()}
    assert (found["made-x-repartition"], found["out"]) == (4, 4)


def test_a_stream_that_was_made_by_an_earlier_version_keeps_its_number(tmp_path: Any) -> None:
    def app(count: int | None) -> hr.App:
        made = hr.App("made")
        made.stream("other64")
        made.stream("in4").repartition(hr.Repartitioned(name="x", number_of_partitions=count)).to("out")
        return made

    with Driver(app(64), partitions=INPUTS, directory=tmp_path):
        pass
    with Driver(app(None), partitions=INPUTS, directory=tmp_path) as d:
        assert d._system.describe_stream("made-x-repartition").partitions == 64
