"""`to_stream(emit="each")` behind joins of tables: an update for each update of either side, however rounds are cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Driver
from operators.taken import Result, Sent, by_key, outcome

# stream, key, value (None deletes a table's), time; runs of them, and a restart before some of the runs
SENT = st.tuples(st.sampled_from(["l", "r"]), st.sampled_from("abc"), st.none() | st.integers(0, 9), st.integers(0, 20))
RUNS = st.lists(st.tuples(st.booleans(), st.lists(SENT, max_size=12)), min_size=1, max_size=3)
CUTS = st.sampled_from([1, 3, 1000])
Table = dict[str, Any]
Both = Callable[[Any, Any], bool]
IS_JOINED: dict[str, Both] = {
    "inner": lambda left, right: left is not None and right is not None,
    "left": lambda left, right: left is not None,
    "outer": lambda left, right: left is not None or right is not None,
}


def text(left: Any, right: Any) -> str:
    return f"{left}&{right}"


@hr.batch
def texts(batch: pa.RecordBatch) -> pa.Array:
    pairs = zip(batch.column("left").to_pylist(), batch.column("right").to_pylist(), strict=True)
    return pa.array([text(*pair) for pair in pairs], pa.string())


def two_tables() -> hr.App:
    app = hr.App("joined")
    left, right = (app.table(name, key=hr.String(), value=hr.Long()) for name in ("l", "r"))
    tables = {
        "inner": left.join(right, text, value=hr.String(), name="inner"),
        "left": left.left_join(right, texts, value=hr.String(), name="left"),
        "outer": left.outer_join(right, text, value=hr.String(), name="outer"),
        "itself": left.join(left, text, value=hr.String(), name="itself"),
    }
    for name, table in tables.items():
        table.to_stream(emit="each").to(name)
    tables["inner"].filter(lambda r: "1" not in r.value).to_stream(emit="each").to("filtered")
    tables["outer"].to_stream().to("last")
    return app


def each_of(records: list[Sent], is_joined: Both) -> list[Result]:
    """An update for each update, record by record. Its time is that of the later row, or of a deletion."""
    tables: dict[str, Table] = {"l": {}, "r": {}}
    times: dict[tuple[str, str], int] = {}
    found: list[Result] = []
    for stream, key, value, time in records:
        was = is_joined(tables["l"].get(key), tables["r"].get(key))
        tables[stream][key], times[stream, key] = value, time
        left, right = tables["l"].get(key), tables["r"].get(key)
        time = max([time, *(times[side, key] for side in "lr" if tables[side].get(key) is not None)])
        if is_joined(left, right):
            found.append((key, text(left, right), time))
        elif was:
            found.append((key, None, time))
    return found


def last_of(rounds: list[list[Sent]], is_joined: Both) -> list[Result]:
    """Of each round the last update of each key, but of those that came and went within it."""
    found: list[Result] = []
    before: list[Sent] = []
    for records in rounds:
        earlier = each_of(before, is_joined)
        stood = {key: value for key, value, _ in earlier}
        known = {key for key, value in stood.items() if value is not None}
        mine = each_of(before + records, is_joined)[len(earlier) :]
        last = {key: number for number, (key, _, _) in enumerate(mine)}
        found += [
            (key, value, time)
            for number, (key, value, time) in enumerate(mine)
            if last[key] == number and (value is not None or key in known)
        ]
        before += records
    return found


@settings(max_examples=15)
@given(runs=RUNS, per_round=CUTS, partitions=st.integers(1, 2))
def test_each_update_of_either_side_gives_one(runs: Any, per_round: int, partitions: int) -> None:
    names = ("inner", "left", "outer", "itself", "filtered", "last")
    rounds, outs, _ = outcome(two_tables, runs, per_round, partitions, names)
    taken = [record for records in rounds for record in records]
    expected = {name: each_of(taken, is_joined) for name, is_joined in IS_JOINED.items()}
    of_left = each_of([record for record in taken if record[0] == "l"], IS_JOINED["left"])
    expected["itself"] = [(k, v and text(v.split("&")[0], v.split("&")[0]), time) for k, v, time in of_left]
    expected["filtered"] = [(k, None if value is None or "1" in value else value, time) for k, value, time in expected["inner"]]
    for name, results in expected.items():
        assert by_key(outs[name]) == by_key(results), name
        if partitions == 1:
            assert outs[name] == results, name
    if partitions == 1:
        assert outs["last"] == last_of(rounds, IS_JOINED["outer"]), "a stream that did not ask is given the last of each round"


@pytest.mark.parametrize("per_round", [1, 2, 1000])
def test_of_one_record_that_changes_both_sides_the_left_one_changes_first(per_round: int) -> None:
    app = hr.App("joined")
    table = app.table("l", key=hr.String(), value=hr.Long())
    tens = table.map_values(lambda r: 10 * r.value, value=hr.Long())
    table.outer_join(tens, text, value=hr.String()).to_stream(emit="each").to("out")
    with Driver(app, overrides=[f"max_records_per_round={per_round}"]) as d:
        for value in (1, 2, None):
            d.send("l", "a", value)
        d.run()
        assert [r.value for r in d.read("out")] == ["1&None", "1&10", "2&10", "2&20", "None&20", None]


def chained() -> hr.App:
    """Counts and sums of a stream, their join, and the join of that with a table: all in one sub-topology."""
    app = hr.App("joined")
    rows = app.stream("l", key=hr.String(), value=hr.Long()).group_by_key()
    total = rows.aggregate(t=hr.sum("value"), store="sums").map_values(lambda r: r.value["t"], value=hr.Long())
    both = rows.count(store="counts").join(total, text, value=hr.String(), name="both")
    both.left_join(app.table("r", key=hr.String(), value=hr.Long()), text, value=hr.String(), name="again").to_stream(
        emit="each"
    ).to("out")
    return app


@settings(max_examples=10)
@given(runs=RUNS, per_round=CUTS)
def test_what_is_joined_gives_its_every_update_too(runs: Any, per_round: int) -> None:
    runs = [(restarts, [s for s in sent if s[0] == "r" or s[2] is not None]) for restarts, sent in runs]
    rounds, outs, _ = outcome(chained, runs, per_round, 1)
    counts: Table = {}
    sums: Table = {}
    right: Table = {}
    highest: Table = {}
    times: Table = {}
    expected: list[Result] = []
    for stream, key, value, time in (record for records in rounds for record in records):
        if stream == "r":
            right[key], times[key] = value, time
            latest = max(time, highest.get(key, time))
            expected += [(key, text(text(counts[key], sums[key]), value), latest)] if key in counts else []
            continue
        highest[key] = max(time, highest.get(key, time))
        time = max([highest[key], *([times[key]] if right.get(key) is not None else [])])
        counts[key] = counts.get(key, 0) + 1
        if key in sums:  # the count has changed, and the sum not yet
            expected.append((key, text(text(counts[key], sums[key]), right.get(key)), time))
        sums[key] = sums.get(key, 0) + value
        expected.append((key, text(text(counts[key], sums[key]), right.get(key)), time))
    assert outs["out"] == expected


@pytest.mark.parametrize("per_round", [1, 3, 1000])
def test_an_aggregation_of_another_sub_topology_gives_its_every_update(per_round: int) -> None:
    app = hr.App("joined")
    counts = app.stream("l", key=hr.String(), value=hr.Long()).group_by_key().count(store="counts")
    changed = app.stream("r", key=hr.String(), value=hr.Long()).select_key(lambda r: r.key[:1], key=hr.String())
    others = changed.group_by_key().count(store="others")
    counts.left_join(others, text, value=hr.String(), name="both").to_stream(emit="each").to("out")
    counts.to_stream().to("counts")
    subs = {sub["name"]: sub for sub in app.describe("dict")["sub_topologies"]}
    assert "counts" in [store["name"] for store in subs["source"]["stores"]], "the join is behind a repartition stream"
    with Driver(app, overrides=[f"max_records_per_round={per_round}"]) as d:
        for number in range(7):
            d.send("l", "ab"[number % 2], number, at=number)
        d.run()
        assert [r.value for r in d.read("out") if r.key == "a"] == [f"{n}&None" for n in (1, 2, 3, 4)]
        d.send("r", "a-x", 1, at=20)
        d.send("r", "a-y", 1, at=21)
        d.run()
        assert [r.value for r in d.read("out") if r.key == "a"] == ["4&1", "4&2"]
        last = [(r.key, r.value) for r in d.read("counts")]
        assert last[-2:] == [("b", 3), ("a", 4)]
        assert len(last) == {1: 7, 3: 5, 1000: 2}[per_round], "the other stream is given the last of each round"


def test_a_joiner_that_raises_sets_that_one_update_aside() -> None:
    app = hr.App("joined", dead_letter_stream="dead")
    left, right = (app.table(name, key=hr.String(), value=hr.Long()) for name in ("l", "r"))
    left.join(right, lambda a, b: a // b, value=hr.Long()).to_stream(emit="each").to("out")
    with Driver(app, partitions={"l": 1, "r": 1, "dead": 1}) as d:
        d.send("l", "a", 10, at=1)
        for at, value in enumerate((2, 0, 5), start=2):
            d.send("r", "a", value, at=at)
        d.run()
        assert [r.value for r in d.read("out")] == [5, 2]
        assert [dict(r.headers)["headrace.operator"] for r in d.read("dead")] == [b"l-table-join"]
