"""What operators make of records whose key or value is null (docs/api.md, Null keys and values)."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.testing import Driver

LONG, STRING, JSON = hr.Long(), hr.String(), hr.Json()
K5, KN, N7, NN, K8 = ("k", 5), ("k", None), (None, 7), (None, None), ("k", 8)
EVERY = [K5, KN, N7, NN, K8]  # what is sent


class Kept(hr.Processor):
    """Has a store, which a null key cannot have."""

    stores = [hr.KeyValueStore("kept", LONG)]  # noqa: RUF012

    def process(self, record: hr.Record) -> None:
        if record.key is not None:
            store = self.context.store("kept")
            assert store.get() != 0
            store.put(record.value)
            assert store.get(0) == (record.value or 0), "None deletes"
        self.context.forward(value=record.value)


def pair(left: Any, right: Any) -> list[Any]:
    return [left, right]


def streams(s: hr.KStream, other: hr.KStream, t: hr.KTable, g: Any) -> dict[str, tuple[Any, list[Any]]]:
    with_table = [("k", [5, 1]), ("k", [8, 1])]
    with_all = [with_table[0], (None, [7, None]), with_table[1]]
    return {
        "filter": (s.filter(lambda record: True), EVERY),
        "map_values": (s.map_values(lambda record: record.value, value=LONG), EVERY),
        "select_key": (s.select_key(lambda record: None if record.key else "was-null", key=STRING),
                       [(None, 5), (None, None), ("was-null", 7), ("was-null", None), (None, 8)]),
        "flat_map": (s.flat_map(lambda record: [(record.key, record.value)], key=STRING, value=LONG), EVERY),
        "repartition": (s.repartition(name="again"), EVERY),
        "process": (s.process(Kept, name="kept", value=LONG), EVERY),
        "drop_duplicates": (s.drop_duplicates(within="1 hour"), [K5]),
        "join-table": (s.join(t, pair, value=JSON, name="join-t"), with_table),
        "left-join-table": (s.left_join(t, pair, value=JSON, name="left-join-t"), with_all),
        "join-global": (s.join(g, pair, value=JSON, name="join-g", key=lambda record: record.key), with_table),
        "left-join-global": (s.left_join(g, pair, value=JSON, name="left-join-g", key=lambda record: record.key),
                             with_all),
        "join-stream": (s.join(other, pair, within="1 hour", value=JSON, name="join-s"),
                        with_table),
        "count": (s.group_by_key().count(store="count").to_stream(), [("k", 2)]),
        "named": (s.group_by_key().aggregate(store="named", n=hr.count(), sum=hr.sum("value")).to_stream(),
                  [("k", {"n": 2, "sum": 13})]),
        "group_by": (s.group_by(lambda record: record.value and "all", key=STRING).count(store="by").to_stream(),
                     [("all", 3)]),
        "to_table": (s.to_table(store="to-table").to_stream(emit="each"), [K5, KN, K8]),
    }  # fmt: skip


def test_streams() -> None:
    app = hr.App("nulls")
    s, other = (app.stream(name, key=STRING, value=LONG) for name in ("in", "other"))
    t, g = app.table("t", key=STRING, value=LONG), app.global_table("g", key=STRING, value=LONG)
    made = streams(s, other, t, g)
    for name, (stream, _) in made.items():
        stream.to(f"out-{name}")
    with Driver(app) as d:
        for key in ("k", None):
            d.send("t", key, 1, at=0)
            d.send("g", key, 1, at=0)
        d.run()
        for at, (key, value) in enumerate(EVERY):
            d.send("in", key, value, at=at)
        for right in (("k", 1), ("k", None), (None, 3)):
            d.send("other", *right, at=0)
        d.run()
        for name, (_, expected) in made.items():
            found = [(record.key, record.value) for record in d.read(f"out-{name}")]
            order = repr if name == "join-stream" else lambda one: 0
            assert sorted(found, key=order) == sorted(expected, key=order), name
        assert d.counters["null_keys_dropped"] > 0 and d.counters["null_values_dropped"] > 0


def test_a_null_value_deletes_a_row_of_a_table() -> None:
    app = hr.App("nulls")
    t, t2 = (app.table(name, key=STRING, value=LONG) for name in ("t", "t2"))
    called: list[Any] = []
    made: dict[str, tuple[hr.KTable, list[Any]]] = {
        "same": (t, [("a", 1), ("a", None), ("b", None)]),
        "filter": (t.filter(lambda record: called.append(record.value) is None), [("a", 1), ("a", None), ("b", None)]),
        "filter-none": (t.filter(lambda record: False), [("a", None), ("a", None), ("b", None)]),
        "map_values": (t.map_values(lambda record: record.value + 1, value=LONG), [("a", 2), ("a", None), ("b", None)]),
        "left-join": (t.left_join(t2, pair, value=JSON, name="left"), [("a", [1, None]), ("a", None)]),
        "group": (t.group_by(lambda record: "all", key=STRING).count(store="group"), [("all", 1), ("all", 0)]),
    }
    for name, (table, _) in made.items():
        table.to_stream(emit="each").to(f"out-{name}")
    with Driver(app) as d:
        for at, (key, value) in enumerate([("a", 1), ("a", None), ("b", None), (None, 4)]):
            d.send("t", key, value, at=at)
            d.run()
        found = {name: [(record.key, record.value) for record in d.read(f"out-{name}")] for name in made}
        assert d.store("t").all() == {}
    assert found == {name: expected for name, (_, expected) in made.items()}
    assert None not in called, "a deletion is no value"


def test_a_null_key_has_no_state() -> None:
    class Puts(hr.Processor):
        stores = [hr.KeyValueStore("kept", LONG)]  # noqa: RUF012

        def process(self, record: hr.Record) -> None:
            self.context.store("kept").put(1)

    app = hr.App("nulls")
    app.stream("in", key=STRING, value=LONG).process(Puts, name="puts", value=LONG).to("out")
    with Driver(app) as d:
        d.send("in", None, 1)
        with pytest.raises(hr.RecordError, match="a null key has no state"):
            d.run()


def test_records_with_a_null_key_are_spread_over_partitions() -> None:
    app = hr.App("nulls")
    app.stream("in", key=STRING, value=LONG).to("out")
    with Driver(app, partitions={"in": 1, "out": 3}) as d:
        for value in range(30):
            d.send("in", None, value)
        d.run()
        assert {record.partition for record in d.read("out")} == {0, 1, 2}
