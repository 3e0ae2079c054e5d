"""Mistakes that are refused while the topology is written, naming the operator and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headrace as hr
from headrace.errors import ConfigError, TopologyError
from headrace.model.topology import Aggregate, MapValues

VALUE = hr.Json("n int, s string, inner struct<a: int>, many array<int>")


def stream(value: Any = VALUE) -> hr.KStream:
    return hr.App("mistakes").stream("in", key=hr.String(), value=value)


class Process(hr.Processor[str, Any, str, Any]):
    def process(self, key: Any, value: Any) -> None: ...


class Yields(hr.Processor[str, Any, str, Any]):
    def process(self, record: Any) -> Any:
        yield record


class Timer(hr.Processor[str, Any, str, Any]):
    def process(self, record: Any) -> None: ...

    def on_timer(self) -> None: ...


@hr.batch
def two_batches(left: Any, right: Any) -> Any: ...


async def later(record: Any) -> Any: ...


ARGUMENTS: dict[str, tuple[Callable[[hr.KStream], Any], str]] = {
    "filter": (lambda s: s.filter(lambda: True), r"filter\(.*test_mistakes.py:\d+\)\): .*called with \(record\)"),
    "map_values": (lambda s: s.map_values(lambda k, v: v), r"map_values.*missing a required argument: 'v'"),
    "async": (lambda s: s.to("out", headers=later), r"later .*: an async function cannot be given here"),
    "batch": (lambda s: s.map_values(two_batches), r"map_values\(two_batches .*\(batch\)"),
    "select_key": (lambda s: s.select_key(lambda k, v: v), "select_key"),
    "map": (lambda s: s.map(lambda k, v: (k, v)), r"map\("),
    "flat_map": (lambda s: s.flat_map(lambda k, v: []), r"flat_map\("),
    "flat_map_values": (lambda s: s.flat_map_values(lambda k, v: []), r"flat_map_values\("),
    "peek": (lambda s: s.peek(lambda: None), r"peek\("),
    "split": (lambda s: s.split(lambda k, v: True), r"split\("),
    "transform": (lambda s: s.transform(lambda df, spark: df), r"transform\(.*\(df\)"),
    "reduce": (lambda s: s.group_by_key().reduce(lambda r: r), r"(?s)reduce\(.*\(old, new\).*lambda old, new"),
    "aggregate": (
        lambda s: s.group_by_key().aggregate(initial=0, function=lambda r: 1, value=hr.Long()),
        r"aggregate\(.*\(state, record\)",
    ),
    "initial": (
        lambda s: s.group_by_key().aggregate(initial=lambda key: 0, function=lambda a, r: 1, value=hr.Long()),
        r"aggregate\(initial=.*\(\)",
    ),
    "to": (lambda s: s.to(lambda k, v: "a"), r"to\("),
    "headers": (lambda s: s.to("out", headers=lambda k, v: []), r"to\("),
    "table": (lambda s: s.group_by_key().count().filter(lambda k, v: True), r"filter\("),
    "process": (lambda s: s.process(Process, value=hr.Json()), r"process\(Process\): process: .*\(self, record\)"),
    "generator": (lambda s: s.process(Yields, value=hr.Json()), r"process\(Yields\): process is a generator"),
    "on_timer": (lambda s: s.process(Timer, value=hr.Json()), r"process\(Timer\): on_timer: .*\(self, timer\)"),
}


@pytest.mark.parametrize("operator", sorted(ARGUMENTS))
def test_a_function_with_other_arguments_is_refused(operator: str) -> None:
    build, message = ARGUMENTS[operator]
    with pytest.raises(TopologyError, match=message):
        build(stream())


def test_a_timestamp_function_has_one_argument() -> None:
    with pytest.raises(TopologyError, match=r"timestamp\(.*\(record\)"):
        hr.App("mistakes").stream("in", timestamp=lambda: 0)


@pytest.mark.parametrize(
    "function",
    [str, int, max, lambda *a: a, lambda r, extra=1: r],
    ids=["str", "int", "max", "any number", "a default"],
)
def test_functions_that_can_be_called_so_are_taken(function: Any) -> None:
    records = stream()
    records.map_values(function, value=hr.Json()).to("out")
    (node,) = [node for node in records.app.topology().nodes if isinstance(node, MapValues)]
    assert node.function.body is function


@pytest.mark.parametrize("name", ["count", "windowed_by", "reduce", "aggregate"])
def test_what_needs_a_grouped_stream_says_so(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"{name}.*group it first, by group_by_key\(\)"):
        getattr(stream(), name)
    with pytest.raises(AttributeError, match="no 'colour'"):
        _ = stream().colour


def test_a_python_type_is_answered_with_its_serde() -> None:
    with pytest.raises(TopologyError, match=r"(?s)str is a class.*write hr.String\(\)"):
        hr.App("mistakes").stream("in", key=str)


def test_stores_are_a_list() -> None:
    class One(hr.Processor[str, Any, str, Any]):
        stores = hr.KeyValueStore("s", value=hr.Long())  # type: ignore[assignment]

        def process(self, record: Any) -> None: ...

    with pytest.raises(TopologyError, match=r"One.stores: expected a list, found KeyValueStore"):
        stream().process(One, value=hr.Json())


@pytest.mark.parametrize("where", ["key", "value"])
def test_a_serde_class_is_asked_for_as_an_object(where: str) -> None:
    with pytest.raises(TopologyError, match=r"hr.String\(\)"):
        hr.App("mistakes").stream("in", **{where: hr.String})


# --- aggregates -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sum", "mean", "min", "max", "first", "last", "count_distinct"])
@pytest.mark.parametrize(("field", "found"), [("value", "struct<"), ("value.inner", "struct<a"), ("value.many", "array<")])
def test_what_is_no_plain_value_is_not_aggregated(kind: str, field: str, found: str) -> None:
    with pytest.raises(TopologyError, match=rf"aggregate\(x=hr.{kind}\('{field}'\)\).*found {found}") as caught:
        stream().group_by_key().aggregate(x=getattr(hr, kind)(field))
    assert caught.value.hint


def test_the_last_of_whole_values_is_a_reduce() -> None:
    with pytest.raises(TopologyError, match=r"(?s)hint: reduce\(lambda old, new: new\)"):
        stream().group_by_key().aggregate(x=hr.last("value"))


def test_a_struct_can_be_counted_and_its_fields_aggregated() -> None:
    records = stream()
    records.group_by_key().aggregate(n=hr.count("value"), a=hr.max("value.inner.a"), k=hr.last("key"))
    (node,) = [node for node in records.app.topology().nodes if isinstance(node, Aggregate)]
    assert {name: (one.kind, one.field) for name, one in (node.named or {}).items()} == {
        "n": ("count", "value"),
        "a": ("max", "value.inner.a"),
        "k": ("last", "key"),
    }


def test_a_key_of_text_has_no_sum() -> None:
    with pytest.raises(TopologyError, match=r"hr.sum\('key'\).*numbers, found string"):
        stream().group_by_key().aggregate(x=hr.sum("key"))


# --- streams and stores ---------------------------------------------------------------------------------------------


def test_a_stream_that_feeds_itself_is_refused() -> None:
    with pytest.raises(TopologyError, match=r"to\('in'\): this stream feeds itself \(in -> in\)"):
        stream().filter(lambda r: True).to("in")


def test_a_stream_that_feeds_itself_through_others_is_refused() -> None:
    app = hr.App("mistakes")
    first = app.stream("a", key=hr.String(), value=hr.Json())
    second = app.stream("b", key=hr.String(), value=hr.Json())
    first.to("b")
    with pytest.raises(TopologyError, match=r"to\('a'\).*\(a -> b -> a\)"):
        second.to("a")


def test_a_stream_that_feeds_itself_through_a_repartition_and_a_store_is_refused() -> None:
    records = stream().select_key(lambda r: r.value["s"], key=hr.String())
    counts = records.group_by_key().count(store="counts").to_stream()
    with pytest.raises(TopologyError, match=r"\(in -> mistakes-counts-repartition -> in\)"):
        counts.to("in")


def test_streams_that_only_meet_do_not_feed_themselves() -> None:
    app = hr.App("mistakes")
    first = app.stream("a", key=hr.String(), value=hr.Json())
    second = app.stream("b", key=hr.String(), value=hr.Json())
    first.merge(second).to("c")
    first.to("b")
    app.stream("c", key=hr.String(), value=hr.Json()).to("d")
    assert len(app.topology().nodes) == 7


def test_a_store_belongs_to_one_operator() -> None:
    class Keeps(hr.Processor[str, Any, str, Any]):
        stores = [hr.KeyValueStore("kept", value=hr.Json())]  # noqa: RUF012 - as users write it

        def process(self, record: Any) -> None: ...

    records = stream()
    records.group_by_key().count(store="kept")
    for build in (
        lambda: records.process(Keeps, value=hr.Json()),
        lambda: records.group_by_key().reduce(lambda a, b: b, store="kept", name="other"),
        lambda: records.to_table(store="kept", name="another"),
        lambda: records.app.table("users", store="kept"),
    ):
        with pytest.raises(TopologyError, match="kept"):
            build()


@pytest.mark.parametrize("first", ["to", "repartition"])
def test_nothing_is_written_to_the_stream_of_a_repartition(first: str) -> None:
    records = stream()
    builds = [lambda: records.to("mistakes-by-n-repartition"), lambda: records.repartition(name="by-n")]
    if first == "repartition":
        builds.reverse()
    builds[0]()
    with pytest.raises(TopologyError, match="mistakes-by-n-repartition"):
        builds[1]()


# --- where it stands ------------------------------------------------------------------------------------------------


def test_an_expression_knows_where_it_was_given() -> None:
    records = stream()
    records.filter("value.n > 1")
    (node,) = [node for node in records.app.topology().nodes if node.name.endswith("filter")]
    assert node.predicate.given_at.startswith("test_mistakes.py:")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"containres": 3}, "containres (App(...)): there is no such configuration key\n  hint: did you mean 'containers'?"),
        ({"check_partitioning": "yes"}, "check_partitioning (App(...)): expected 'off' or 'sample', found 'yes'"),
        ({"system": 3}, "system (App(...)): expected a text that is not empty, found 3"),
        ({"system": ""}, "system (App(...)): expected a text that is not empty, found ''"),
        ({"config": {"containers": {"by-day": 0}}}, "containers.by-day (App(...)): expected a whole number, at least 1, found"),
        ({"elasticity_factor": 3}, "elasticity_factor (App(...)): expected a power of two, found 3"),
        ({"max_round_ms": "5000"}, "max_round_ms (App(...)): expected a whole number, at least 1, found '5000'"),
    ],
)
def test_configuration_that_is_wrong_is_refused_at_the_line_of_the_app(keys: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        hr.App("a", **keys)
    assert str(raised.value).startswith(text)


def test_configuration_that_is_right_is_taken_and_no_other_place_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_CONTAINRES", "3")  # whoever only declares an application is not told of that
    app = hr.App("a", "log:./data", containers=2, config={"spark.driver.memory": "2g", "containers.by-day": 3})
    assert app.config_arguments == {
        "system": "log:./data", "containers": 2, "spark.driver.memory": "2g", "containers.by-day": 3
    }


@pytest.mark.parametrize(
    ("call", "options", "text"),
    [
        ("run", {"untill": "caught-up"}, "run(untill='caught-up'): there is no such option\n  hint: did you mean until?"),
        ("start", {"progress": True}, "start(progress=True): there is no such option\n  hint: the options are until, "),
        ("run", {"max_round_ms": 5}, "run(max_round_ms=5): there is no such option\n  hint: the options are until, overrides,"),
    ],
)
def test_options_that_there_are_not_are_named(call: str, options: dict[str, Any], text: str) -> None:
    app = hr.App("a")
    with pytest.raises(ConfigError) as raised:
        getattr(app, call)(**options)
    assert str(raised.value).startswith(text)
    assert ("configuration keys are given to App(...)" in str(raised.value)) is ("max_round_ms" in options)
