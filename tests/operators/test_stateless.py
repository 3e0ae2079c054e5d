"""Operators without state, record for record against plain Python, whatever the rounds and partitions."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Driver

KEYS = st.one_of(st.none(), st.sampled_from(["a", "b", "c", "ü"]))
RECORDS = st.lists(st.tuples(KEYS, st.integers(-50, 50)), max_size=30)


def source(app: hr.App) -> hr.KStream:
    return app.stream("in", key=hr.String(), value=hr.Long())


def outputs(
    app: hr.App, records: list[tuple[Any, Any]], stream: str = "out", partitions: int = 1, per_round: int = 1000
) -> list[hr.Record]:
    with Driver(app, partitions=partitions, overrides=[f"max_records_per_round={per_round}"]) as d:
        for key, value in records:
            d.send("in", key, value)
        d.run()
        return list(d.read(stream))


def by_key(pairs: list[tuple[Any, Any]]) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return dict(found)


STEPS: dict[str, tuple[Any, Any]] = {
    "filter": (lambda s: s.filter(lambda r: r.value > 0), lambda k, v: [(k, v)] if v > 0 else []),
    "filter_not": (lambda s: s.filter_not(lambda r: r.value > 0), lambda k, v: [] if v > 0 else [(k, v)]),
    "map_values": (
        lambda s: s.map_values(lambda r: r.value * 2 + 1, value=hr.Long()),
        lambda k, v: [(k, v * 2 + 1)],
    ),
    "map": (
        lambda s: s.map(lambda r: (f"{r.key}!", r.value + 1), key=hr.String(), value=hr.Long()),
        lambda k, v: [(f"{k}!", v + 1)],
    ),
    "select_key": (
        lambda s: s.select_key(lambda r: None if r.value % 3 == 0 else str(r.value % 3), key=hr.String()),
        lambda k, v: [(None if v % 3 == 0 else str(v % 3), v)],
    ),
    "flat_map": (
        lambda s: s.flat_map(
            lambda r: [(r.key, i) for i in range(abs(r.value) % 4)], key=hr.String(), value=hr.Long()
        ),
        lambda k, v: [(k, i) for i in range(abs(v) % 4)],
    ),
    "flat_map_values": (
        lambda s: s.flat_map_values(lambda r: (r.value - i for i in range(abs(r.value) % 3)), value=hr.Long()),
        lambda k, v: [(k, v - i) for i in range(abs(v) % 3)],
    ),
    "peek": (lambda s: s.peek(lambda r: None), lambda k, v: [(k, v)]),
}


@pytest.mark.parametrize("name", sorted(STEPS))
@settings(max_examples=8)
@given(RECORDS, st.integers(1, 7))
def test_each_operator_record_for_record(name: str, records: list[tuple[Any, int]], per_round: int) -> None:
    build, model = STEPS[name]
    app = hr.App("one")
    build(source(app)).to("out")
    found = [(r.key, r.value) for r in outputs(app, records, per_round=per_round)]
    assert found == [pair for key, value in records for pair in model(key, value)]


@settings(max_examples=25)
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4), RECORDS, st.integers(1, 9), st.integers(1, 3))
def test_chains_keep_the_order_of_each_key(
    chain: list[str], records: list[tuple[Any, int]], per_round: int, partitions: int
) -> None:
    app = hr.App("chain")
    stream, expected = source(app), list(records)
    for name in chain:
        build, model = STEPS[name]
        stream = build(stream)
        expected = [pair for key, value in expected for pair in model(key, value)]
    stream.to("out")
    found = [(r.key, r.value) for r in outputs(app, records, partitions=partitions, per_round=per_round)]
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    if partitions == 1:
        assert found == expected
    elif not {"map", "select_key"} & set(chain):  # a key that stays is in one partition, in order; null keys are in any
        found_by_key, expected_by_key = by_key(found), by_key(expected)
        assert {k: v for k, v in found_by_key.items() if k} == {k: v for k, v in expected_by_key.items() if k}


def test_a_stream_is_used_twice() -> None:
    app = hr.App("fan")
    stream = source(app)
    stream.filter(lambda r: r.value > 1).to("large")
    stream.map_values(lambda r: -r.value, value=hr.Long()).to("out")
    with Driver(app) as d:
        for value in (1, 2, 3):
            d.send("in", "k", value)
        d.run()
        assert [r.value for r in d.read("large")] == [2, 3]
        assert [r.value for r in d.read("out")] == [-1, -2, -3]


def test_records_say_where_they_come_from_and_keep_time_and_headers() -> None:
    seen: list[hr.Record] = []
    app = hr.App("where")
    source(app).peek(seen.append).to("out")
    with Driver(app, partitions=2) as d:
        d.send("in", "a", 1, at=7, headers=[("h", b"x"), ("h", None)], partition=1)
        d.send("in", None, 2, at=-5, partition=1)
        d.run()
        written = d.read("out")
    assert [(r.stream, r.partition, r.offset, r.timestamp_us, r.headers) for r in seen] == [
        ("in", 1, 0, 7, (("h", b"x"), ("h", None))),
        ("in", 1, 1, -5, ()),
    ]
    assert {(r.key, r.timestamp_us, r.headers) for r in written} == {("a", 7, (("h", b"x"), ("h", None))), (None, -5, ())}


def test_null_values_pass() -> None:
    app = hr.App("nulls")
    source(app).map_values(lambda r: None if r.value is None else r.value + 1, value=hr.Long()).to("out")
    assert [r.value for r in outputs(app, [("a", None), ("a", 1)])] == [None, 2]


def test_split_sends_each_record_to_the_first_that_holds() -> None:
    app = hr.App("split")
    negative, even, rest = source(app).split(lambda r: r.value < 0, lambda r: r.value % 2 == 0)
    negative.to("negative")
    even.to("even")
    rest.to("rest")
    values = [3, -2, 4, -1, 0, 5]
    with Driver(app) as d:
        for value in values:
            d.send("in", "k", value)
        d.run()
        assert [r.value for r in d.read("negative")] == [-2, -1]
        assert [r.value for r in d.read("even")] == [4, 0]
        assert [r.value for r in d.read("rest")] == [3, 5]


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.sampled_from(["one", "two"]), st.integers(0, 1), st.integers(0, 6)), max_size=25),
)
def test_merge_takes_records_by_time_stream_partition_offset(sends: list[tuple[str, int, int]]) -> None:
    app = hr.App("merge")
    one = app.stream("one", key=hr.String(), value=hr.Long())
    two = app.stream("two", key=hr.String(), value=hr.Long())
    seen: list[tuple[Any, ...]] = []
    one.merge(two).peek(lambda r: seen.append((r.timestamp_us, r.stream, r.partition, r.offset))).to("out")
    with Driver(app, partitions=2, overrides=["ssp_grouper=partition"]) as d:
        for stream, partition, time in sends:
            d.send(stream, "k", 0, at=time, partition=partition)
        d.run()
    for partition in (0, 1):
        mine = [place for place in seen if place[2] == partition]
        assert mine == merged([(time, s, p) for s, p, time in sends if p == partition])


def merged(sends: list[tuple[int, str, int]]) -> list[tuple[Any, ...]]:
    """The plain way: sorted by (time, stream, offset), where a record's time is the highest up to it in its stream."""
    offsets: dict[str, int] = defaultdict(int)
    highest: dict[str, int] = {}
    rows = []
    for time, stream, partition in sends:
        highest[stream] = max(time, highest.get(stream, time))
        rows.append((highest[stream], stream, offsets[stream], (time, stream, partition, offsets[stream])))
        offsets[stream] += 1
    return [row[3] for row in sorted(rows)]


def test_merge_of_branches_restores_the_order() -> None:
    app = hr.App("branches")
    stream = source(app)
    even, odd = stream.filter(lambda r: r.value % 2 == 0), stream.filter(lambda r: r.value % 2 == 1)
    even.merge(odd).to("out")
    assert [r.value for r in outputs(app, [("k", i) for i in range(20)], per_round=6)] == list(range(20))


def test_a_timestamp_function_sets_the_time() -> None:
    app = hr.App("timed")
    app.stream("in", key=hr.String(), value=hr.Json(), timestamp=lambda r: r.value["t"]).to("out")
    with Driver(app) as d:
        for t in (5, 1_000_000):
            d.send("in", "k", {"t": t})
        d.run()
        assert [r.timestamp_us for r in d.read("out")] == [5, 1_000_000]


def test_repartition_brings_equal_keys_together() -> None:
    app = hr.App("repartition")
    source(app).select_key(lambda r: f"k{r.value % 5}", key=hr.String()).repartition(
        hr.Repartitioned(name="again", number_of_partitions=3)
    ).to("out")
    found = outputs(app, [(f"x{i}", i) for i in range(60)], partitions=2, per_round=7)
    assert sorted(r.value for r in found) == list(range(60))
    for name in {r.key for r in found}:
        assert len({r.partition for r in found if r.key == name}) == 1


# --- sinks --------------------------------------------------------------------------------------------------------


def test_a_sink_writes_by_its_own_serdes() -> None:
    app = hr.App("serdes")
    source(app).map_values(lambda r: {"v": r.value}, value=hr.Json()).to("out", key=hr.Json(), value=hr.Json("v int"))
    with Driver(app) as d:
        d.send("in", "a", 1)
        d.run()
        (raw,) = d.read("out", key=hr.Bytes(), value=hr.Bytes())
    assert (raw.key, raw.value) == (b'"a"', b'{"v":1}')


def test_a_sink_with_another_serde_for_undecoded_bytes() -> None:
    app = hr.App("recoded")
    source(app).to("out", value=hr.Json())
    with Driver(app) as d:
        d.send("in", "a", 12)
        d.run()
        (raw,) = d.read("out", value=hr.Bytes())
    assert raw.value == b"12"


def test_stream_names_and_headers_by_functions_stay_with_their_records() -> None:
    app = hr.App("dynamic", dead_letter_stream="dead")
    source(app).to(
        lambda r: {0: "out-a", 1: "out-b", 2: "nowhere"}[r.value % 4],
        headers=lambda r: {"v": str(r.value)} if r.value % 8 != 1 else 1 / 0,
    )
    with Driver(app, partitions={"out-a": 1, "out-b": 2}) as d:
        for value in range(16):
            d.send("in", f"k{value}", value, headers={"old": "x"})
        d.run()
        for stream, rest in (("out-a", 0), ("out-b", 1)):
            found = d.read(stream)
            assert sorted(r.value for r in found) == [v for v in range(16) if v % 4 == rest and v % 8 != 1]
            assert all(r.headers == (("v", str(r.value).encode()),) for r in found)
        dead = {int(dict(r.headers)["headrace.offset"]): dict(r.headers)["headrace.error-class"] for r in d.read("dead")}
    assert dead == {
        1: b"ZeroDivisionError", 9: b"ZeroDivisionError",
        2: b"LookupError", 6: b"LookupError", 10: b"LookupError", 14: b"LookupError",
        3: b"KeyError", 7: b"KeyError", 11: b"KeyError", 15: b"KeyError",
    }  # fmt: skip


def test_headers_that_are_none_are_the_records_fault() -> None:
    app = hr.App("headers", dead_letter_stream="dead")
    source(app).to("out", headers=lambda r: {"n": 5} if r.value else [("n", "ok")])
    with Driver(app) as d:
        d.send("in", "a", 1)
        d.send("in", "a", 0)
        d.run()
        assert [r.headers for r in d.read("out")] == [(("n", b"ok"),)]
        assert [dict(r.headers)["headrace.error-class"] for r in d.read("dead")] == [b"SerdeError"]
