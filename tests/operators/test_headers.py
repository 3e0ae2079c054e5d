"""What becomes of a record's headers in each operator, and where they can be read and written (docs/api.md, Headers)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace.testing import Driver

IN, OTHER, TABLE = (("h", b"in"),), (("h", b"other"),), (("h", b"table"),)
NONE: tuple[Any, ...] = ()


class Forwards(hr.Processor):
    def process(self, record: hr.Record) -> None:
        self.context.forward(value=record.value)


class PassesOn(hr.Processor):
    def process(self, record: hr.Record) -> None:
        self.context.forward(value=record.value, headers=[*record.headers, ("more", "1")])


class OfBatches(hr.Processor):
    def process_batch(self, batch: pa.RecordBatch) -> None:
        for key, headers in zip(batch["key"].to_pylist(), batch["headers"].to_pylist(), strict=True):
            self.context.forward(key=key, value=1, headers={one["name"]: one["value"] for one in headers or ()})


def joined(left: Any, right: Any) -> int:
    return 1


def first(old: Any, new: Any) -> Any:
    return old


@hr.batch
def with_one_more(batch: pa.RecordBatch) -> Any:
    more = {"name": "rows", "value": b"1"}
    return pa.array([[*(headers or ()), more] for headers in batch["headers"].to_pylist()])


@hr.batch
def first_names(batch: pa.RecordBatch) -> Any:
    return pa.array([headers[0]["name"] if headers else None for headers in batch["headers"].to_pylist()], pa.string())


LONG, STRING = hr.Long(), hr.String()
Made = tuple[hr.KStream, list[tuple[Any, ...]]]


def operators(s: hr.KStream, other: hr.KStream, t: hr.KTable, t2: hr.KTable, g: Any) -> dict[str, Made]:
    """Each operator, and the headers of what it gives for one record of each input."""
    return {
        "filter": (s.filter(lambda record: record.headers == IN), [IN]),
        "filter_not": (s.filter_not(lambda record: record.headers != IN), [IN]),
        "filter-batch": (s.filter(hr.batch(lambda batch: pa.array([True] * len(batch)))), [IN]),
        "peek": (s.peek(lambda record: record.headers), [IN]),
        "split": (s.split(lambda record: True)[0], [IN]),
        "map_values": (s.map_values(lambda record: len(record.headers), value=LONG), [IN]),
        "map_values-batch": (s.map_values(first_names, value=STRING), [IN]),
        "flat_map_values": (s.flat_map_values(lambda record: [1, 2], value=LONG), [IN, IN]),
        "map": (s.map(lambda record: (record.headers[0][0], 1), key=STRING, value=LONG), [IN]),
        "flat_map": (s.flat_map(lambda record: [("a", 1), ("b", 2)], key=STRING, value=LONG), [IN, IN]),
        "select_key": (s.select_key(lambda record: record.headers[0][1].decode(), key=STRING), [IN]),
        "merge": (s.merge(other), [IN, OTHER]),
        "repartition": (s.repartition(name="again"), [IN]),
        "drop_duplicates": (s.drop_duplicates(within="1 hour"), [IN]),
        "process": (s.process(Forwards, name="forwards", value=LONG), [NONE]),
        "process-headers": (s.process(PassesOn, name="passes", value=LONG), [(*IN, ("more", b"1"))]),
        "process-batch": (s.process(OfBatches, name="batches", value=LONG), [IN]),
        "join-table": (s.join(t, joined, value=LONG, name="join-t"), [IN]),
        "left-join-table": (s.left_join(t, joined, value=LONG, name="left-join-t"), [IN]),
        "join-global": (s.join(g, joined, value=LONG, name="join-g", key=lambda record: record.key), [IN]),
        "join-stream": (s.join(other, joined, within="1 hour", value=LONG, name="join-s"), [NONE]),
        "count": (s.group_by_key().count(store="count").to_stream(), [NONE]),
        "reduce": (s.group_by_key().reduce(first, store="reduce").to_stream(), [NONE]),
        "to_table": (s.to_table(store="to-table").to_stream(), [IN]),
        "table": (t.to_stream(), [TABLE]),
        "table-each": (t2.to_stream(emit="each"), [TABLE]),
        "table-filter": (t.filter(lambda record: True).to_stream(), [TABLE]),
        "table-map_values": (t.map_values(lambda record: 1, value=LONG).to_stream(), [TABLE]),
        "table-join": (t.join(t2, joined, value=LONG, name="join-tt").to_stream(), [NONE]),
        "table-group": (t.group_by(lambda record: "all", key=STRING).count(store="group").to_stream(), [NONE]),
        "with_headers": (s.with_headers(lambda record: {**dict(record.headers), "b": "x"}), [(*IN, ("b", b"x"))]),
        "with_headers-none": (s.with_headers(lambda record: None), [NONE]),
        "with_headers-null": (s.with_headers(lambda record: [("n", None), ("n", b"")]), [(("n", None), ("n", b""))]),
        "with_headers-batch": (s.with_headers(with_one_more), [(*IN, ("rows", b"1"))]),
    }


def test_what_becomes_of_headers() -> None:
    app = hr.App("headers")
    s, other = (app.stream(name, key=STRING, value=LONG) for name in ("in", "other"))
    t, t2 = (app.table(name, key=STRING, value=LONG) for name in ("t", "t2"))
    made = operators(s, other, t, t2, app.global_table("g", key=STRING, value=LONG))
    for name, (stream, _) in made.items():
        (stream.to_stream() if isinstance(stream, hr.KTable) else stream).to(f"out-{name}")
    s.to("out-to", headers=lambda record: [*record.headers, ("z", "1")])
    with Driver(app) as d:
        for name in ("t", "t2", "g"):
            d.send(name, "k", 1, headers=TABLE, at=0)
        d.run()
        d.send("in", "k", 5, headers=IN, at=1)
        d.send("other", "k", 5, headers=OTHER, at=2)
        d.run()
        found = {name: [record.headers for record in d.read(f"out-{name}")] for name in (*made, "to")}
    assert found == {name: headers for name, (_, headers) in made.items()} | {"to": [(*IN, ("z", b"1"))]}


def test_records_without_headers_may_be_given_some() -> None:
    app = hr.App("headers")
    read = app.stream("in", key=STRING, value=LONG)
    given = read.with_headers(lambda record: {"v": str(record.value)} if record.value else ())
    given.repartition(name="again").with_headers(with_one_more).to("out")
    with Driver(app) as d:
        for value in (1, 0, 2):
            d.send("in", "k", value)
        d.run()
        rows = ("rows", b"1")
        assert [record.headers for record in d.read("out")] == [(("v", b"1"), rows), (rows,), (("v", b"2"), rows)]


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda record: [("a", 1)], "expected a text name and bytes or text, got int"),
        (lambda record: [(b"a", b"1")], "header b'a'"),
        (lambda record: [("a", "b", "c")], "too many values"),
        (hr.batch(lambda batch: batch["value"]), "gave an array of int64"),
        (hr.batch(lambda batch: pa.array([[{"name": None, "value": b""}]] * len(batch))), "a header without a name"),
        (hr.batch(lambda batch: pa.record_batch({"key": batch["key"]})), "without the column 'headers'"),
    ],
)
def test_what_is_no_header_is_an_error_of_its_record(function: Any, text: str) -> None:
    app = hr.App("headers", dead_letter_stream="dead")
    app.stream("in", key=STRING, value=LONG).with_headers(function, name="headed").to("out")
    with Driver(app) as d:
        d.send("in", "k", 1)
        d.send("in", "l", 2)
        d.run()
        assert list(d.read("out")) == []
        letters = [dict(letter.headers) for letter in d.read("dead")]
    assert len(letters) == 2
    assert all(text in b" ".join(value or b"" for value in letter.values()).decode() for letter in letters)


@pytest.mark.spark
def test_expressions_read_and_write_them() -> None:
    app = hr.App("headers")
    s = app.stream("in", key=STRING, value=LONG)
    s.filter("size(headers) > 0").map_values("cast(headers[0].value as string)").to("read")
    one = "array(named_struct('name', 'v', 'value', cast(cast(value as string) as binary)))"
    s.with_headers(f"concat(coalesce(headers, array()), {one})").filter("value > 0").to("written")
    s.filter("value > 1").with_headers("cast(null as array<struct<name:string,value:binary>>)").to("removed")
    s.transform(lambda df: df.withColumn("headers", df["headers"])).to("kept")
    with Driver(app) as d:
        d.send("in", "k", 1, headers=IN)
        d.send("in", "k", 2)
        d.send("in", "k", 3, headers=[*OTHER, ("headrace.replay", "7")])
        d.run()
        found = {name: [(r.value, r.headers) for r in d.read(name)] for name in ("read", "written", "removed", "kept")}
    replay = ("headrace.replay", b"7")
    assert found == {
        "read": [("in", IN), ("other", (*OTHER, replay))],
        "written": [(1, (*IN, ("v", b"1"))), (2, (("v", b"2"),)), (3, (*OTHER, ("v", b"3"), replay))],
        "removed": [(2, ()), (3, (replay,))],
        "kept": [(1, IN), (2, ()), (3, (*OTHER, replay))],
    }


@pytest.mark.spark
def test_an_expression_that_gives_no_headers_is_refused() -> None:
    app = hr.App("headers")
    app.stream("in", key=STRING, value=LONG).with_headers("value", name="headed").to("out")
    with pytest.raises(hr.TopologyError, match="headed"):
        Driver(app).open()
