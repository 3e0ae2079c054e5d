"""Named aggregates of numbers that are large, mixed or no numbers: a record that does not fit is its own error, before any
state changes, and the results do not depend on which records came in one round."""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.core.accumulators import accumulators_of
from headrace.errors import RecordError
from headrace.model.topology import NamedAggregate
from headrace.testing import Driver

LARGE = 2**62
INT64_MAX = 2**63 - 1
TOTALS = {"n": hr.count(), "total": hr.sum("value.v"), "mean": hr.mean("value.v")}
EXTREMES = {
    "least": hr.min("value.v"),
    "most": hr.max("value.v"),
    "first": hr.first("value.v"),
    "last": hr.last("value.v"),
    "distinct": hr.count_distinct("value.v"),
}


def aggregated(
    records: list[tuple[str, Any]], named: dict[str, Any], per_round: int, value: Any = None, windows: Any = None
) -> tuple[dict[Any, Any], list[int], list[Any]]:
    """What is stored, the offsets of dead letters, and the values of the output."""
    app = hr.App("numbers", dead_letter_stream="dead")
    grouped = app.stream("in", key=hr.String(), value=value or hr.Json()).group_by_key()
    table = (grouped if windows is None else grouped.windowed_by(windows)).aggregate(store="s", **named)
    table.to_stream().to("out")
    with Driver(app, overrides=[f"max_records_per_round={per_round}"]) as d:
        for at, (key, v) in enumerate(records):
            d.send("in", key, {"v": v}, at=at)
        d.run()
        letters = d.read("dead")
        assert all(dict(r.headers)["headrace.stream"] == b"in" for r in letters)
        offsets = [int(dict(r.headers)["headrace.offset"] or b"") for r in letters]
        return d.store("s").all(), offsets, [r.value for r in d.read("out")]


@pytest.mark.parametrize("per_round", [1, 2, 3, 100])
@pytest.mark.parametrize("serde", [None, hr.Json("v bigint")], ids=["free", "ddl"])
def test_a_record_that_would_take_a_sum_out_of_64_bits_is_refused_and_the_key_goes_on(per_round: int, serde: Any) -> None:
    values = [LARGE, LARGE - 1, 1, -5, 5, LARGE, -LARGE, -LARGE, -LARGE, -LARGE, -LARGE, 7]
    records = [pair for v in values for pair in (("a", v), ("b", 1))]
    expected, refused = 0, []
    for i, v in enumerate(values):
        if -(2**63) <= expected + v <= INT64_MAX:
            expected += v
        else:
            refused.append(2 * i)
    stored, offsets, _ = aggregated(records, {"n": hr.count(), "total": hr.sum("value.v")}, per_round, serde)
    assert offsets == refused == [4, 10, 18, 20]
    assert stored == {"a": {"n": len(values) - 4, "total": expected}, "b": {"n": len(values), "total": len(values)}}


def test_without_a_dead_letter_stream_the_job_stops_with_the_record_and_nothing_of_it_is_stored() -> None:
    app = hr.App("stops")
    app.stream("in", key=hr.String(), value=hr.Long()).group_by_key().aggregate(total=hr.sum("value"), store="s").to("out")
    with Driver(app) as d:
        d.send("in", "a", INT64_MAX)
        d.run()
        d.send("in", "a", -1)
        d.send("in", "a", 2)
        with pytest.raises(RecordError, match="sum of value: 2 would take the total out of 64 bits") as raised:
            d.run()
        assert (raised.value.stream, raised.value.partition, raised.value.offset) == ("in", 0, 2)
        assert d.store("s").all() == {"a": {"total": INT64_MAX}}


NUMBERS = st.one_of(
    st.none(),
    st.sampled_from([LARGE, -LARGE, INT64_MAX, -(2**63), 2**53 + 1, 2**53, float(2**53), 1, 1.0, 2**70, -(2**64)]),
    st.sampled_from([0.5, -0.25, 1024.0]),
)


class Model:
    """The plain way: one record after the other, in Python's own numbers."""

    def __init__(self) -> None:
        self.values: dict[str, list[Any]] = defaultdict(list)
        self.refused: list[int] = []

    def take(self, offset: int, key: str, value: Any) -> None:
        before = [v for v in self.values[key] if isinstance(v, int)]
        fits = not isinstance(value, int) or (
            -(2**63) <= value <= INT64_MAX and -(2**63) <= sum(before) + value <= INT64_MAX
        )
        if fits:
            self.values[key].append(value)
        else:
            self.refused.append(offset)

    def expected(self) -> dict[str, dict[str, Any]]:
        found = {}
        for key, values in self.values.items():
            if not values:
                continue
            present = [v for v in values if v is not None]
            exact = sum(map(Fraction, present))
            floats = any(isinstance(v, float) for v in present)
            found[key] = {
                "n": len(values),
                "total": None if not present else float(exact) if floats else int(exact),
                "mean": float(exact / len(present)) if present else None,
                "least": min(present, default=None),
                "most": max(present, default=None),
                "first": present[0] if present else None,
                "last": present[-1] if present else None,
                "distinct": len(set(present)),
            }
        return found


@settings(max_examples=60)
@given(records=st.lists(st.tuples(st.sampled_from("ab"), NUMBERS), max_size=14), per_round=st.integers(1, 14))
def test_mixed_numbers_as_in_plain_python_however_the_rounds_are_cut(
    records: list[tuple[str, Any]], per_round: int
) -> None:
    model = Model()
    for offset, (key, value) in enumerate(records):
        model.take(offset, key, value)
    stored, offsets, _ = aggregated(records, TOTALS | EXTREMES, per_round)
    assert offsets == model.refused
    expected = model.expected()
    assert set(stored) == set(expected)
    for key, found in stored.items():
        for name, value in expected[key].items():
            if name in ("total", "mean") and isinstance(value, float):
                assert math.isclose(found[name], value, rel_tol=1e-12, abs_tol=2048.0), (key, name)
            else:
                assert found[name] == value, (key, name)
                assert name in ("least", "most") or type(found[name]) is type(value), (key, name)


@pytest.mark.parametrize("per_round", [1, 2, 100])
def test_a_mean_is_exact_where_its_total_is_beyond_64_bits(per_round: int) -> None:
    values = [INT64_MAX] * 5 + [INT64_MAX - 10] * 5
    stored, offsets, _ = aggregated([("a", v) for v in values], {"mean": hr.mean("value.v")}, per_round)
    assert (stored, offsets) == ({"a": {"mean": (10 * INT64_MAX - 50) / 10}}, [])


def test_the_state_of_a_mean_keeps_every_digit() -> None:
    (mean,) = accumulators_of({"m": NamedAggregate("mean", "value")}, {})
    state = [INT64_MAX, 1]
    for _ in range(999):
        state = mean.merged(state, [INT64_MAX, 1])
    assert state == [str(1000 * INT64_MAX), 1000]
    both = mean.merged(state, [[-INT64_MAX, 0.5], 2])
    assert both == [[str(999 * INT64_MAX), 0.5], 1002]
    assert mean.result(both) == 999 * INT64_MAX / 1002


@pytest.mark.parametrize("per_round", [1, 2, 100])
def test_a_total_of_floats_never_becomes_infinite(per_round: int) -> None:
    values = [1e308, 7e307, 1e308, -1e308, 1e308]
    stored, offsets, out = aggregated([("a", v) for v in values], TOTALS, per_round)
    assert offsets == [2]
    assert stored["a"]["n"] == 4
    assert math.isclose(stored["a"]["total"], 1.7e308) and math.isclose(stored["a"]["mean"], 4.25e307)
    assert out[-1] == stored["a"]


@pytest.mark.parametrize("per_round", [1, 100])
@pytest.mark.parametrize("kind", ["sum", "mean", "min", "max", "first", "last"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_finite_number_is_refused_by_what_would_keep_it(kind: str, value: float, per_round: int) -> None:
    app = hr.App("finite", dead_letter_stream="dead")
    named = {"x": getattr(hr, kind)("value"), "n": hr.count("value")}
    app.stream("in", key=hr.String(), value=hr.Double()).group_by_key().aggregate(store="s", **named).to("out")
    with Driver(app, overrides=[f"max_records_per_round={per_round}"]) as d:
        for v in (2.0, value, 2.0):
            d.send("in", "a", v)
        d.run()
        (letter,) = d.read("dead")
        expected = 4.0 if kind == "sum" else 2.0
        assert d.store("s").all() == {"a": {"x": expected, "n": 2}}
        assert d.read("out")[-1].value == {"x": expected, "n": 2}
    headers = dict(letter.headers)
    assert (headers["headrace.offset"], headers["headrace.error-class"]) == (b"1", b"OutOfRangeError")
    assert b"value: expected a finite number" in (headers["headrace.error-message"] or b"")


def test_the_counts_take_nan() -> None:
    app = hr.App("nan")
    app.stream("in", key=hr.String(), value=hr.Double()).group_by_key().aggregate(
        n=hr.count("value"), different=hr.count_distinct("value"), store="s"
    ).to("out")
    with Driver(app, overrides=["max_records_per_round=2"]) as d:
        for v in (math.nan, math.nan, 1.0, math.nan, math.inf):
            d.send("in", "a", v)
        d.run()
        assert d.store("s").all() == {"a": {"n": 5, "different": 3}}


@pytest.mark.parametrize("per_round", [1, 100])
def test_a_record_that_does_not_fit_into_one_of_its_windows_is_in_none(per_round: int) -> None:
    """Windows of 4 µs every 2: the record at 2 would go too far in [0, 4), and is left out of [2, 6) as well."""
    values = [LARGE, LARGE - 1, 5, 6, -1, 8]
    windows = hr.Hopping("4 us", "2 us")
    stored, offsets, _ = aggregated(
        [("a", v) for v in values], {"n": hr.count(), "total": hr.sum("value.v")}, per_round, windows=windows
    )
    assert offsets == [2, 3]
    assert {start: found["total"] for (_, start), found in stored.items()} == {-2: 2 * LARGE - 1, 0: 2 * LARGE - 1, 2: 7, 4: 7}


def test_unsigned_numbers_above_64_bits_with_a_sign_are_refused() -> None:
    import pyarrow as pa

    @hr.batch
    def doubled(batch: pa.RecordBatch) -> pa.Array:
        return pa.array([2 * v for v in batch.column("value").to_pylist()], pa.uint64())

    app = hr.App("unsigned", dead_letter_stream="dead")
    app.stream("in", key=hr.String(), value=hr.Long()).map_values(doubled, value=hr.Json()).group_by_key().aggregate(
        total=hr.sum("value"), most=hr.max("value"), store="s"
    ).to("out")
    with Driver(app) as d:
        for v in (1, LARGE, 3):
            d.send("in", "a", v)
        d.run()
        assert d.store("s").all() == {"a": {"total": 8, "most": 6}}
        assert [dict(r.headers)["headrace.offset"] for r in d.read("dead")] == [b"1"]
