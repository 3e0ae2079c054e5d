"""Async functions as arguments: which are taken, where they are refused, and how `hr.concurrent` says they are called."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest

import headrace as hr
from headrace.dsl.functions import function_of
from headrace.errors import ConfigError, TopologyError
from headrace.model.calls import Calls
from headrace.model.topology import FunctionKind


async def enrich(record: hr.Record, by: int = 1) -> int:
    return int(record.value) * by


async def several(record: hr.Record) -> AsyncIterator[int]:
    yield 1


class Client:
    async def __call__(self, record: hr.Record) -> float:
        return 0.5

    async def method(self, record: hr.Record) -> str:
        return ""

    @hr.concurrent(concurrency=7)
    async def bounded(self, record: hr.Record) -> str:
        return ""


FOUND: dict[str, tuple[Any, str]] = {
    "function": (enrich, "long"),
    "partial": (functools.partial(enrich, by=3), "long"),
    "object": (Client(), "double"),
    "partial object": (functools.partial(Client()), "double"),
    "method": (Client().method, "string"),
    "marked method": (Client().bounded, "string"),
    "concurrent": (hr.concurrent(enrich, concurrency=7), "long"),
    "concurrent partial": (hr.concurrent(functools.partial(enrich, by=3), concurrency=7), "long"),
    "partial concurrent": (functools.partial(hr.concurrent(enrich, concurrency=7), by=3), "long"),
    "concurrent object": (hr.concurrent(Client(), concurrency=7), "double"),
    "concurrent concurrent": (hr.concurrent(hr.concurrent(enrich), concurrency=7), "long"),
}


def stream() -> hr.KStream:
    return hr.App("a").stream("in", key=hr.String(), value=hr.Long())


@pytest.mark.parametrize("kind", sorted(FOUND))
def test_what_is_async_is_known_with_its_bound_name_and_serde(kind: str) -> None:
    given, form = FOUND[kind]
    function = function_of("map_values", given)
    assert function.kind is FunctionKind.ASYNC and function.calls is not None
    assert function.calls.concurrency == (7 if "concurrent" in kind or "marked" in kind else 100)
    name = {"method": "Client.method", "marked method": "Client.bounded"}.get(kind, "enrich")
    assert ("Client" if "object" in kind else name) in function.label and "test_async_functions.py" in function.label
    stream().map_values(given).to("out")  # its serde is that of its annotation
    assert stream().map_values(given).flow.value.form == form


@pytest.mark.parametrize("given", [several, hr.concurrent(several), functools.partial(several)])
def test_an_async_generator_gives_the_records_of_a_flat_map_and_nothing_else(given: Any) -> None:
    assert stream().flat_map_values(given).flow.value.form == "long"
    with pytest.raises(TopologyError, match=r"map_values.*several .*is an async generator: .*\n.*or flat_map_values"):
        stream().map_values(given)


def test_what_concurrent_gives_leaves_the_function_as_it_is() -> None:
    marked = hr.concurrent(
        enrich, concurrency=2, timeout=timedelta(seconds=1), retries=3, backoff="5 ms", order="none"
    )
    found, own = function_of("map", marked).calls, function_of("map", enrich).calls
    assert found is not None and own is not None
    assert (found.concurrency, found.timeout_us, found.retries, found.backoff_us, found.by_key) == (2, 10**6, 3, 5_000, False)
    assert (own.concurrency, own.timeout_us, own.retries, own.by_key) == (100, 30 * 10**6, 0, True)
    assert repr(own) == repr(Calls())  # what nobody has said anything about is called as the defaults of `concurrent` say
    assert repr(function_of("map", hr.concurrent(enrich)).calls) == repr(own)


REFUSED_OPTIONS: dict[str, tuple[Callable[[], Any], str]] = {
    "none": (lambda: hr.concurrent(enrich, concurrency=0), r"concurrency=0\): expected a whole number from 1 to 10,000"),
    "many": (lambda: hr.concurrent(concurrency=10_001), r"concurrency=10001\)"),
    "true": (lambda: hr.concurrent(concurrency=True), r"concurrency=True\)"),
    "retries": (lambda: hr.concurrent(retries=-1), r"retries=-1\): expected a whole number from 0 to 100"),
    "number": (lambda: hr.concurrent(timeout=5), r"timeout 5: .*a bare number"),  # type: ignore[call-overload]
    "no timeout": (lambda: hr.concurrent(timeout=None), "timeout None"),  # type: ignore[call-overload]
    "zero": (lambda: hr.concurrent(timeout="0 s"), "timeout.*above 0"),
    "long": (lambda: hr.concurrent(timeout="6 minutes"), "could take 6 minutes, expected at most 5 minutes"),
    "with retries": (lambda: hr.concurrent(timeout="100 seconds", retries=2), "could take 5 minutes 300 ms"),
    "order": (lambda: hr.concurrent(order="all"), r'order=\'all\'\): expected "key" or "none"'),
    "sync": (lambda: hr.concurrent(lambda r: r), "expected an async function, found .*<lambda>.*(?s:.*)asyncio.to_thread"),
    "no function": (lambda: hr.concurrent(3), "expected an async function, found int"),  # type: ignore[type-var]
}


@pytest.mark.parametrize("option", sorted(REFUSED_OPTIONS))
def test_options_that_cannot_be_are_refused(option: str) -> None:
    make, message = REFUSED_OPTIONS[option]
    with pytest.raises((TopologyError, ConfigError), match=message):
        make()


async def two(left: Any, right: Any) -> int:
    return 1


def other(s: hr.KStream) -> hr.KStream:
    return s.app.stream("other", key=hr.String(), value=hr.Long())


def table(s: hr.KStream) -> hr.KTable:
    return s.app.table("table", key=hr.String(), value=hr.Long())


async def nothing() -> int:
    return 0


async def of_frame(df: Any) -> Any: ...


HERE = "an async function cannot be given here"
IS = "is an async function"
REFUSED: dict[str, tuple[Callable[[hr.KStream], Any], str]] = {
    "joiner": (lambda s: s.join(other(s), two, within="1 s"), HERE),
    "table joiner": (lambda s: s.join(table(s), two), HERE),
    "reduce": (lambda s: s.group_by_key().reduce(two), HERE),
    "aggregate": (lambda s: s.group_by_key().aggregate(initial=0, function=two, value=hr.Long()), HERE),
    "initial": (lambda s: s.group_by_key().aggregate(initial=nothing, function=lambda a, r: a, value=hr.Long()), IS),
    "timestamp": (lambda s: s.app.stream("timed", key=hr.String(), value=hr.Long(), timestamp=enrich), HERE),
    "partitioner": (lambda s: s.to("out", partitioner=two), HERE),
    "with_headers": (lambda s: s.with_headers(enrich), HERE),
    "with_headers, bounded": (lambda s: s.with_headers(hr.concurrent(enrich, concurrency=2)), HERE),
    "repartition partitioner": (lambda s: s.repartition(hr.Repartitioned(partitioner=two)), HERE),
    "headers": (lambda s: s.to("out", headers=enrich), HERE),
    "name of the output": (lambda s: s.to(enrich), HERE),
    "duplicates": (lambda s: s.drop_duplicates(enrich, within="1 s"), HERE),
    "table filter": (lambda s: table(s).filter(enrich), HERE),
    "table map_values": (lambda s: table(s).map_values(enrich), HERE),
    "table group_by": (lambda s: table(s).group_by(enrich), HERE),
    "foreign key": (lambda s: table(s).join(s.to_table(store="s"), lambda a, b: 1, foreign_key=enrich), HERE),
    "transform": (lambda s: s.transform(of_frame), HERE),
    "for_each_round": (lambda s: s.for_each_round(two), HERE),
    "batch": (lambda s: s.map_values(hr.batch(Client().__class__.method)), "cannot be async"),
    "arguments": (lambda s: s.map_values(two), r"called with \(record\)"),
}


@pytest.mark.parametrize("operator", sorted(REFUSED))
def test_where_async_functions_are_refused_what_to_do_is_said(operator: str) -> None:
    build, message = REFUSED[operator]
    with pytest.raises(TopologyError, match=message) as found:
        build(stream())
    assert found.value.hint and ("without async" in found.value.hint or "lambda" in found.value.hint)


def processor(**methods: Any) -> type:
    async def process(self: Any, record: Any) -> None: ...

    return type("P", (hr.Processor,), {"process": process} | methods)


async def method(self: Any, given: Any) -> None: ...


async def generator(self: Any, record: Any) -> AsyncIterator[int]:
    yield 1


async def closing(self: Any) -> None: ...


PROCESSORS: dict[str, tuple[type, str]] = {
    "on_timer": (processor(on_timer=method), "on_timer is an async function"),
    "process_batch": (type("P", (hr.Processor,), {"process_batch": method}), "process_batch is an async function"),
    "generator": (processor(process=generator), "process is a generator"),
    "arguments": (processor(process=closing), r"\(self, record\)"),
    "order": (
        processor(process=hr.concurrent(order="none")(method), stores=[hr.KeyValueStore("s", value=hr.Json())]),
        'order="none" with state',
    ),
}


@pytest.mark.parametrize("mistake", sorted(PROCESSORS))
def test_processors_are_refused_too(mistake: str) -> None:
    kind, message = PROCESSORS[mistake]
    with pytest.raises(TopologyError, match=message):
        stream().process(kind, value=hr.Json())


def test_a_processor_may_begin_and_end_async() -> None:
    stream().process(processor(init=method, close=closing), value=hr.Json())
    stream().process(processor(process=hr.concurrent(order="none")(method)), value=hr.Json())
