"""Sliding windows, against their definition: a window [t - length, t] for each time t of a key's records, and the one that
begins right after t if records are in it; each holds what its records come to, in the order in which they came."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Driver
from operators.named import NAMED, named_result

LENGTH = 5
Sent = tuple[str, int, int]  # key, time, value
RECORDS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 30), st.integers(-9, 9)), max_size=16)
PER_ROUND = st.sampled_from([1, 3, 1000])
ENDS = 4  # a value that takes the state of the general aggregate away


def folded(state: list[int], record: hr.Record) -> list[int] | None:
    if record.value == ENDS:
        return None
    state.append(record.value)  # in place, as users do
    return state


def since_the_end(values: list[int]) -> list[int] | None:
    ended = max((place for place, value in enumerate(values) if value == ENDS), default=-1)
    return values[ended + 1 :] or None


def followed(old: int, new: int) -> int:
    return 3 * old + new


KINDS: dict[str, tuple[Callable[[Any], Any], Callable[[list[int]], Any]]] = {
    "count": (lambda rows: rows.count(store="s"), len),
    "named": (lambda rows: rows.aggregate(store="s", **NAMED), named_result),
    "reduce": (lambda rows: rows.reduce(followed, store="s", value=hr.Long()), lambda values: reduce(followed, values)),
    "general": (
        lambda rows: rows.aggregate(initial=list, function=folded, value=hr.Json(), store="s"),
        since_the_end,
    ),
    "cogroup": (
        lambda rows: rows.aggregate(initial=list, value=hr.Json(), store="s"),
        since_the_end,
    ),
}


def windows_of(records: Sequence[Sent]) -> dict[tuple[str, int, int], list[Sent]]:
    """All windows of some records, with theirs in the order in which they came."""
    found: dict[tuple[str, int, int], list[Sent]] = {}
    for key, time, _ in records:
        for start in (time - LENGTH, time + 1):
            inside = [one for one in records if one[0] == key and start <= one[1] <= start + LENGTH]
            if inside:
                found[key, start, start + LENGTH] = inside
    return found


def updates_of(records: Sequence[Sent], result: Callable[[list[int]], Any]) -> Counter[Any]:
    """Every update, with its time: after each record, the windows that came or changed."""
    found: Counter[Any] = Counter()
    before: dict[Any, list[Sent]] = {}
    for count in range(1, len(records) + 1):
        now = windows_of(records[:count])
        for window, inside in now.items():
            if len(inside) != len(before.get(window, ())):
                found[window, repr(result([v for *_, v in inside])), max(time for _, time, _ in inside)] += 1
        before = now
    return found


def app_of(kind: str, windows: Any, emit: str = "round", **keys: Any) -> hr.App:
    app = hr.App("sliding", **keys)
    rows: Any = app.stream("in", key=hr.String(), value=hr.Long()).group_by_key()
    if kind == "cogroup":
        rows = rows.cogroup(folded)
    KINDS[kind][0](rows.windowed_by(windows)).to_stream(emit=emit).to("out")
    return app


def plain(record: hr.Record) -> tuple[Any, Any, int]:
    return (record.key.key, record.key.start_us, record.key.end_us), record.value, record.timestamp_us


@pytest.mark.parametrize("kind", sorted(KINDS))
@settings(max_examples=6)
@given(records=RECORDS, per_round=PER_ROUND, restart=st.integers(0, 16), factors=st.sampled_from([(1, 4), (4, 1), (4, 4)]))
def test_windows_are_those_of_the_definition_however_rounds_are_cut(
    kind: str, records: list[Sent], per_round: int, restart: int, factors: tuple[int, int]
) -> None:
    result = KINDS[kind][1]
    found: dict[Any, tuple[Any, int]] = {}
    with TemporaryDirectory() as folder:
        for part, factor in zip((records[:restart], records[restart:]), factors, strict=True):
            overrides = [f"max_records_per_round={per_round}", f"elasticity_factor={factor}"]
            app = app_of(kind, hr.Sliding("5 us"))
            with Driver(app, partitions=2, directory=Path(folder), overrides=overrides) as d:
                d.read("out")
                for key, time, value in part:
                    d.send("in", key, value, at=time)
                d.run()
                found |= {window: (value, time) for window, value, time in map(plain, d.read("out"))}
                stored = d.store("s").all()
    expected = windows_of(records)
    assert found == {
        window: (result([v for *_, v in inside]), max(time for _, time, _ in inside)) for window, inside in expected.items()
    }
    assert stored == {window[:2]: result([v for *_, v in inside]) for window, inside in expected.items()}


@pytest.mark.parametrize("kind", sorted(KINDS))
@settings(max_examples=6)
@given(records=RECORDS, per_round=PER_ROUND)
@example(records=[("a", 0, 1), ("a", 6, 2), ("a", 3, 3), ("a", 3, 4), ("a", 12, 5)], per_round=1)
def test_each_update_of_each_window_is_given(kind: str, records: list[Sent], per_round: int) -> None:
    with Driver(app_of(kind, hr.Sliding("5 us"), "each"), overrides=[f"max_records_per_round={per_round}"]) as d:
        for key, time, value in records:
            d.send("in", key, value, at=time)
        d.run()
        found = Counter((window, repr(value), time) for window, value, time in map(plain, d.read("out")))
    assert found == updates_of(records, KINDS[kind][1])


@settings(max_examples=15)
@given(records=RECORDS, grace=st.sampled_from([0, 3, 100]))
def test_a_record_changes_those_of_its_windows_that_are_open(records: list[Sent], grace: int) -> None:
    """The watermark of a round is the highest time before it: one record to a round."""
    expected, late, taken, watermark = Counter[Any](), 0, list[Sent](), -1_000
    for record in records:
        had = windows_of(taken)
        is_late = record[1] + LENGTH + grace < watermark
        late += is_late
        taken += [] if is_late else [record]
        for window, inside in windows_of(taken).items():
            if len(inside) != len(had.get(window, ())) and window[2] + grace >= watermark:
                expected[window, len(inside), max(time for _, time, _ in inside)] += 1
        watermark = max(watermark, record[1])
    with Driver(app_of("count", hr.Sliding("5 us", grace=f"{grace} us"), "each")) as d:
        for key, time, value in records:
            d.send("in", key, value, at=time)
            d.run()
        found = Counter(map(plain, d.read("out")))
        assert d.counters.get("late_records", 0) == late
    assert found == expected


def test_a_closed_window_s_result_is_given_once() -> None:
    with Driver(app_of("count", hr.Sliding("5 us", grace="2 us"), "closed")) as d:
        for time in (10, 12, 11, 40):
            d.send("in", "a", 1, at=time)
        d.run()
        d.send("in", "a", 1, at=41)
        d.run()
        found = [plain(record) for record in d.read("out")]
    assert found == [
        (("a", 5, 10), 1, 10),
        (("a", 6, 11), 2, 11),
        (("a", 7, 12), 3, 12),
        (("a", 11, 16), 2, 12),
        (("a", 12, 17), 1, 12),
    ]


def test_windows_are_deleted_once_nothing_is_made_of_them() -> None:
    with Driver(app_of("count", hr.Sliding("5 us", grace="2 us"))) as d:
        for time in (10, 24, 25, 26, 100):
            d.send("in", "a", 1, at=time)
            d.run()
        assert {start for _, start in d.store("s").all()} >= {20, 95}
        d.send("in", "b", 1, at=100)
        d.run()
        assert set(d.store("s").all()) == {("a", 95), ("b", 95)}


def test_the_state_is_read_with_the_times_of_its_windows(tmp_path: Path) -> None:
    app = app_of("general", hr.Sliding("5 us"), system=f"log:{tmp_path / 'log'}", state_uri=str(tmp_path / "state"))
    with Driver(app, directory=tmp_path) as d:
        for time, value in ((10, 1), (13, 2), (20, ENDS)):
            d.send("in", "a", value, at=time)
        d.run()
    view = app.state("s")
    assert view.get("a") == {
        hr.WindowedKey("a", 5, 10): [1],
        hr.WindowedKey("a", 8, 13): [1, 2],
        hr.WindowedKey("a", 11, 16): [2],
        hr.WindowedKey("a", 15, 20): None,
    }
    assert view.get(hr.WindowedKey("a", 8, 13)) == [1, 2]
    assert view.to_arrow().column("window_end").cast("int64").to_pylist() == [10, 13, 16, 20]
