"""`transform_values`: a class with stores gives the value of each update of a table. And views that are kept in a store."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.core.topology.sub_topologies import stores_of
from headrace.testing import Driver

TEXT, NUMBER, JSON = hr.String(), hr.Long(), hr.Json()
CHANGES = st.lists(st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.integers(-9, 9))), max_size=12)
Updates = list[tuple[str, Any]]


class Numbered(hr.ValueTransformer[str, int, list[Any]]):
    """The number of the update and the value before it, also of a deletion; none of a value below 0."""

    seen = hr.KeyValueStore("seen", value=JSON)
    stores = [seen]  # noqa: RUF012

    def init(self, context: Any) -> None:
        self.context, self.count = context, context.metrics.counter("updates")

    def transform(self, record: Any) -> list[Any] | None:
        store = self.context.store(self.seen)
        number, before = store.get([0, None])
        store.put([number + 1, record.value])
        self.count()
        return None if record.value is not None and record.value < 0 else [number + 1, before, record.value]


def transformed(updates: Iterable[tuple[str, Any]]) -> Updates:
    """What `Numbered` makes of updates, as a plain model."""
    seen, found = dict[str, list[Any]](), Updates()
    for key, value in updates:
        number, before = seen.get(key, [0, None])
        seen[key] = [number + 1, value]
        found.append((key, None if value is not None and value < 0 else [number + 1, before, value]))
    return found


def last_of(updates: Updates) -> Updates:
    """Of each key the last one, in the order of these."""
    last = {key: at for at, (key, _) in enumerate(updates)}
    return [pair for at, pair in enumerate(updates) if last[pair[0]] == at]


def by_key(updates: Iterable[tuple[Any, Any]]) -> dict[Any, list[Any]]:
    found = defaultdict(list)
    for key, value in updates:
        found[key].append(value)
    return dict(found)


def of_stream(app: hr.App) -> hr.KTable:
    return app.table("in", key=TEXT, value=NUMBER, store="t")


def versioned(app: hr.App) -> hr.KTable:
    return app.table("in", key=TEXT, value=NUMBER, store="t", history="1 hour")


def aggregated(app: hr.App) -> hr.KTable:
    read = app.stream("in", key=TEXT, value=JSON)
    return read.group_by_key().aggregate(initial=0, function=lambda state, r: r.value[0], store="t", value=NUMBER)


def mapped(app: hr.App) -> hr.KTable:
    return of_stream(app).filter(lambda r: r.value < 9).map_values(lambda r: r.value + 1, value=NUMBER)


def mapped_updates(updates: Updates) -> Updates:
    return [(key, None if value is None or value >= 9 else value + 1) for key, value in updates]


@pytest.mark.parametrize("source", [of_stream, versioned, aggregated, mapped])
@settings(max_examples=12, deadline=None)
@given(rounds=st.lists(CHANGES, max_size=4))
def test_it_gives_the_value_of_every_update_wherever_rounds_are_cut(
    source: Callable[[hr.App], hr.KTable], rounds: list[Updates]
) -> None:
    app = hr.App("transforming")
    table = source(app).transform_values(Numbered, store="kept", name="numbered", value=JSON)
    table.to_stream(emit="each").to("each")
    table.to_stream().to("out")
    with Driver(app) as d:
        for records in rounds:
            for key, value in records:
                d.send("in", key, [value] if source is aggregated else value, at=0)
            d.run()
        every = [pair for records in rounds for pair in records]
        expected = transformed(mapped_updates(every) if source is mapped else every)
        each, out = ([(r.key, r.value) for r in d.read(stream)] for stream in ("each", "out"))
        assert by_key(each) == by_key(expected)
        ends, left = list[Updates](), list(expected)
        for records in rounds:
            ends.append(last_of(left[: len(records)]))
            del left[: len(records)]
        assert by_key(out) == by_key(pair for end in ends for pair in end)
        assert d.store("kept").all() == {key: value for key, value in dict(expected).items() if value is not None}
        assert d.counters.get("numbered.updates", 0) == len(every)


@settings(max_examples=10, deadline=None)
@given(rounds=st.lists(CHANGES, min_size=1, max_size=4))
def test_it_is_joined_and_grouped_as_any_table(rounds: list[Updates]) -> None:
    app = hr.App("transforming")
    table = of_stream(app).transform_values(Numbered, value=JSON)
    names = app.table("names", key=TEXT, value=TEXT)
    table.join(names, lambda row, name: [name, row], value=JSON, store="joined").to_stream().to("joined")
    table.join(names, lambda row, name: [name, row], value=JSON, store="foreign", foreign_key=lambda r: r.key).to("foreign")
    table.group_by(lambda r: str(r.value[2]), key=TEXT).count(store="groups")
    app.stream("asks", key=TEXT, value=TEXT).join(table, lambda ask, row: row, value=JSON).to("answers")
    with Driver(app) as d:
        for key in "abc":
            d.send("names", key, key.upper(), at=0)
        for records in rounds:
            for key, value in records:
                d.send("in", key, value, at=0)
            d.run()
        for key in "abc":
            d.send("asks", key, "?", at=0)
        d.run()
        expected = dict(transformed(pair for records in rounds for pair in records))
        rows = {key: value for key, value in expected.items() if value is not None}
        for stream in ("joined", "foreign"):
            found = {r.key: r.value for r in d.read(stream)}
            assert {key: value for key, value in found.items() if value is not None} == {
                key: [key.upper(), row] for key, row in rows.items()
            }
        assert {r.key: r.value for r in d.read("answers")} == rows
        groups = by_key((str(row[2]), key) for key, row in rows.items())
        assert {key: count for key, count in d.store("groups").all().items() if count} == {
            group: len(keys) for group, keys in groups.items()
        }


def test_its_state_follows_virtual_tasks_and_new_partitions() -> None:
    app = hr.App("transforming")
    of_stream(app).transform_values(Numbered, value=JSON).to_stream(emit="each").to("each")
    every = [(f"k{n % 7}", n) for n in range(60)]
    with Driver(app, partitions={"in": 2}) as d:
        changes = (lambda: d.elasticity(2), lambda: d.expand("in", 4), lambda: d.elasticity(1), lambda: None)
        for step, change in enumerate(changes):
            for key, value in every[step * 15 : step * 15 + 15]:
                d.send("in", key, value, at=0)
            d.run()
            change()
        found = by_key((r.key, r.value) for r in d.read("each"))
    assert found == by_key(transformed(every))


class Forgetful(hr.ValueTransformer[str, int, int]):
    """How often the key was updated since its timer fired last."""

    stores = [hr.KeyValueStore("n", value=NUMBER)]  # noqa: RUF012

    def transform(self, record: Any) -> int:
        n = self.context.store("n").get(0) + 1
        self.context.store("n").put(n)
        self.context.timer("forget", after="1 minute", clock="wall")
        if record.value == 13:
            raise ValueError("13")
        return n

    def on_timer(self, timer: Any) -> None:
        self.context.store("n").delete()


def test_timers_change_its_stores_and_what_raises_is_its_records_fault() -> None:
    app = hr.App("transforming", dead_letter_stream="dead")
    of_stream(app).transform_values(Forgetful).to_stream(emit="each").to("out")
    with Driver(app) as d:
        for value in (1, 13, 2):
            d.send("in", "a", value, headers={"h": str(value)})
        d.run()
        d.advance("2 minutes")
        d.send("in", "a", 3)
        d.run()
        assert [(r.value, r.headers) for r in d.read("out")] == [(1, (("h", b"1"),)), (2, (("h", b"2"),)), (1, ())]
        assert [r.value for r in d.read("dead")] == [NUMBER.encode(13)]


class Forwarding(hr.ValueTransformer[str, int, int]):
    def transform(self, record: Any) -> int:
        self.context.forward(key="other", value=1)
        return 1


def test_it_forwards_nothing() -> None:
    app = hr.App("transforming", dead_letter_stream="dead")
    of_stream(app).transform_values(Forwarding, name="t2").to("out")
    message = r"transform_values\('t2'\): forward in a transformer"
    with Driver(app) as d:
        d.send("in", "a", 1)
        with pytest.raises(hr.TopologyError, match=message) as found:
            d.run()
    assert found.value.hint and "return the value" in found.value.hint


class Bare(hr.ValueTransformer[str, int, int]):
    pass


class Plain(hr.ValueTransformer[Any, int, int]):
    def transform(self, record: Any) -> int:
        return 0 if record.value is None else record.value + 1


class Awaited(hr.ValueTransformer[str, int, int]):
    async def transform(self, record: Any) -> int:  # type: ignore[override]
        return 1


class OfRecords(hr.Processor[str, int, str, int]):
    stores = [hr.KeyValueStore("seen", value=JSON)]  # noqa: RUF012

    def process(self, record: Any) -> None: ...


def windowed(app: hr.App) -> hr.KTable:
    read = app.stream("in", key=TEXT, value=NUMBER)
    return read.group_by_key().windowed_by(hr.Tumbling("1 minute")).count(store="w")


def with_a_processor(app: hr.App, *, first: bool) -> None:
    table, records = of_stream(app), app.stream("records", key=TEXT, value=NUMBER)
    for is_processor in (first, not first):
        if is_processor:
            records.process(OfRecords, name="p", value=NUMBER)
        else:
            table.transform_values(Numbered, name="n", value=JSON)


REFUSED: dict[str, tuple[Callable[[hr.App], Any], str]] = {
    "an object": (lambda app: of_stream(app).transform_values(Plain()), "an object was given, expected the class"),
    "a function": (lambda app: of_stream(app).transform_values(lambda r: r), "expected a class derived from hr.Value"),
    "a processor": (lambda app: of_stream(app).transform_values(OfRecords), "expected a class .*\\n.*in place of forwarding"),
    "no transform": (lambda app: of_stream(app).transform_values(Bare), "Bare does not define transform"),
    "async": (lambda app: of_stream(app).transform_values(Awaited), "transform is an async function"),
    "windows with state": (
        lambda app: windowed(app).transform_values(Numbered),
        r"transform_values\('w-transform_values'\) has state, and the keys of this table are windows.*\n.*to_table\(\)",
    ),
    "a view of windows": (lambda app: windowed(app).filter(lambda r: True, store="v"), "the keys of this table are windows"),
    "a processor's store": (lambda app: with_a_processor(app, first=True), "only processors share stores"),
    "a transformer's store": (lambda app: with_a_processor(app, first=False), "only processors share stores"),
}


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_what_cannot_be_is_refused_with_what_to_do(case: str) -> None:
    declare, message = REFUSED[case]
    with pytest.raises(hr.TopologyError) as found:
        declare(hr.App("transforming"))
    assert re.search(message, str(found.value))


def test_windows_are_transformed_without_state_and_with_it_behind_a_repartition() -> None:
    app = hr.App("transforming")
    counts = windowed(app)
    counts.transform_values(Plain, name="plain").to("plain")
    counts.to_stream(emit="each").repartition().to_table(store="again").transform_values(Numbered, value=JSON).to("numbered")
    with Driver(app) as d:
        for _ in range(2):
            d.send("in", "a", 5, at=0)
            d.run()
        assert [(r.key.key, r.value) for r in d.read("plain")] == [("a", 2), ("a", 3)]
        assert [r.value for r in d.read("numbered")] == [[1, None, 1], [2, 1, 2]]


# --- views that are kept --------------------------------------------------------------------------------------------


@settings(max_examples=10, deadline=None)
@given(rounds=st.lists(CHANGES, max_size=3))
def test_a_view_is_kept_in_the_store_that_is_named(rounds: list[Updates]) -> None:
    app = hr.App("views")
    table = of_stream(app)
    big = table.filter(lambda r: r.value > 0, store="big", name="only-big")
    table.filter_not(lambda r: r.value > 0, store="small")
    table.map_values(lambda r: -r.value, value=NUMBER, store="negative").join(big, lambda a, b: [a, b], value=JSON).to("both")
    assert [store.name for node in app.topology().nodes for store in stores_of(node)] == ["t", "big", "small", "negative"]
    with Driver(app) as d:
        state: dict[str, Any] = {}
        for records in rounds:
            for key, value in records:
                d.send("in", key, value)
                state[key] = value
            d.run()
            known = {key: value for key, value in state.items() if value is not None}
            assert d.store("big").all() == {key: value for key, value in known.items() if value > 0}
            assert d.store("small").all() == {key: value for key, value in known.items() if value <= 0}
            assert d.store("negative").all() == {key: -value for key, value in known.items()}
        both = {r.key: r.value for r in d.read("both") if r.value is not None or r.key in state}
        assert {key: row for key, row in both.items() if row is not None} == {
            key: [-value, value] for key, value in state.items() if value is not None and value > 0
        }
