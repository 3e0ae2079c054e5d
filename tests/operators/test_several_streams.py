"""Several streams in one `app.stream`: all is said of each, and they are merged."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.testing import Driver


def test_several_streams_are_read_as_one() -> None:
    app = hr.App("several")
    times: Any = {"timestamp": lambda r: r.value, "timestamp_unit": "s"}
    read = app.stream(["b", "a"], key=hr.String(), value=hr.Long(), name="both", **times)
    read.map_values(lambda r: f"{r.stream} {r.value}", value=hr.String()).to("out")
    read.group_by_key().count(store="s")
    with Driver(app) as d:
        for stream, value in (("a", 3), ("b", 1), ("a", 5), ("b", 4)):
            d.send(stream, "k", value)
        d.run()
        found = {r.value: r.timestamp_us for r in d.read("out")}
        expected = (("b", 1), ("a", 3), ("b", 4), ("a", 5))
        assert found == {f"{stream} {value}": value * 1_000_000 for stream, value in expected}
        assert d.store("s").all() == {"k": 4}
    assert [node.name for node in app.topology().nodes][:3] == ["b", "a", "both"]


def test_one_stream_in_a_list_is_that_stream() -> None:
    app = hr.App("several")
    app.stream(["a"], key=hr.String()).filter("key != 'x'").to("out")
    assert next(node.name for node in app.topology().nodes) == "a"


@pytest.mark.parametrize("streams", [[], 5, ["a", "a"], ["a", "no name"], {"a": 1}])
def test_what_are_no_streams_is_refused_and_leaves_nothing(streams: Any) -> None:
    app = hr.App("several")
    with pytest.raises((hr.TopologyError, hr.InvalidNameError)):
        app.stream(streams, key=hr.String())
    assert app.builder.topology().nodes == ()
