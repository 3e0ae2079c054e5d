"""`for_each_round` while the topology is written: where its rows come from, what it is called, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.core.topology.engine_prefix import endpoints_of
from headrace.core.topology.program import Program
from headrace.core.topology.resolution import has_open_types, resolved
from headrace.core.topology.sub_topologies import sub_topologies_of
from headrace.errors import NotSupportedError, TopologyError
from headrace.model.topology import ForEachRound, Repartition, Topology
from headrace.worker.inline_engine import InlineEngine


def write_out(df: Any, round_id: int) -> None: ...


def app_and_stream(**arguments: Any) -> tuple[hr.App, hr.KStream]:
    app = hr.App("shop")
    return app, app.stream("sales", key=hr.String(), value=hr.Json("price double"), **arguments)


def node_of(app: hr.App) -> ForEachRound:
    (node,) = (node for node in app.topology().nodes if isinstance(node, ForEachRound))
    return node


def endpoints(app: hr.App) -> list[tuple[list[str], tuple[str, ...]]]:
    """Of the source sub-topology as a job runs it: the names of each chain, and who takes its rows."""
    topology: Topology = app.topology()
    made, _ = resolved(topology, lambda *_: ("string", "double"), lambda _: hr.Double(), lambda serde: serde, lambda *_: True)
    return [([node.name for node in one.chain], one.children) for one in endpoints_of(sub_topologies_of(made)[0], made)]


def test_it_ends_the_stream_and_is_named_after_its_parent_or_as_said() -> None:
    app, sales = app_and_stream()
    assert sales.for_each_round(write_out) is None
    assert node_of(app).name == "sales-for_each_round"
    sales.for_each_round(write_out, name="report")
    assert app.topology().node("report").parents == ("sales",)


def test_in_sparks_engine_nothing_is_put_in_and_behind_a_function_a_repartition_is() -> None:
    app, sales = app_and_stream()
    sales.filter("value.price > 1").for_each_round(write_out)
    assert not [node for node in app.topology().nodes if isinstance(node, Repartition)]
    app, sales = app_and_stream()
    sales.filter(lambda r: True).for_each_round(write_out)
    (written,) = (node for node in app.topology().nodes if isinstance(node, Repartition))
    assert (written.stream, written.generated) == ("shop-sales-for_each_round-repartition", True)
    assert node_of(app).parents == ("sales-for_each_round-by-key",)
    assert [sub.title for sub in sub_topologies_of(app.topology())] == ["source", "sales-for_each_round"]


def test_its_rows_go_through_spark_and_so_do_those_of_its_siblings() -> None:
    app, sales = app_and_stream()
    sales.for_each_round(write_out, name="report")
    sales.peek(print, name="seen")
    assert has_open_types(app.topology())
    assert endpoints(app) == [(["sales-rows"], ("report", "seen"))]
    app, sales = app_and_stream(timestamp=lambda record: 1)  # called in the worker, for what stays there
    sales.for_each_round(write_out, name="report")
    sales.peek(print, name="seen")
    assert endpoints(app) == [([], ("seen",)), (["sales-rows"], ("report",))]


def test_what_is_no_function_of_a_frame_and_an_id_is_refused_and_nothing_is_added() -> None:
    app, sales = app_and_stream()
    worked = sales.peek(print)
    before = app.topology().nodes
    with pytest.raises(TopologyError, match=r"for_each_round\(.*\(df, round_id\), found one with \(df\)"):
        worked.for_each_round(lambda df: None)
    with pytest.raises(TopologyError, match="a Spark expression cannot be given here"):
        worked.for_each_round("value.price")
    with pytest.raises(TopologyError, match=r"repartition\('.*'\) writes values, and map_values\('.*'\) .* does not say"):
        sales.map_values(lambda r: 1, name="open").for_each_round(write_out)
    assert [node.name for node in app.topology().nodes] == [*(node.name for node in before), "open"]


def test_it_is_described() -> None:
    app, sales = app_and_stream()
    sales.for_each_round(write_out, name="report")
    described = app.describe("dict")
    assert isinstance(described, dict)
    (operator,) = (one for one in described["sub_topologies"][0]["operators"] if one["name"] == "report")
    assert (operator["kind"], operator["engine"]) == ("for_each_round", "spark")
    assert operator["function"].startswith("write_out (test_for_each_round.py:")
    assert "report  for_each_round write_out" in app.describe()
    assert "for_each_round write_out" in app.describe("mermaid")


def test_its_function_stays_in_the_driver() -> None:
    app, sales = app_and_stream()
    sales.for_each_round(write_out, name="report")
    program = Program("id", "shop", None, app.topology().nodes, (), (), {}, None, False)
    (node,) = (node for node in program.without_columns().nodes if isinstance(node, ForEachRound))
    assert node.function is not write_out


def test_without_spark_it_is_refused() -> None:
    with pytest.raises(NotSupportedError, match="for_each_round gives a DataFrame: it needs Spark"):
        InlineEngine(lambda payload, program: b"").frames("source", "1:source:1", (), None, (0,))
