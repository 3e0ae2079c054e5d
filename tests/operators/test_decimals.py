"""Named aggregates of decimals are exact: in every kind of window, where rows are taken out again, beyond a float's digits."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.client.store_form import parsed
from headrace.codec.aggregate_states import decoded_states, encoded_states
from headrace.core.accumulators import accumulators_of, exact_of_stored
from headrace.core.retractable import plain, restored, retractable_of
from headrace.testing import Driver

CENTS = hr.Decimal(20, 2)
AMOUNTS = ", ".join(f"{name} decimal(20,2)" for name in ("min", "max", "first", "last"))
RESULT = hr.Json(f"sum decimal(38,2), {AMOUNTS}, d long, m double")
WINDOWS = {
    "none": None,
    "tumbling": hr.Tumbling("1 hour"),
    "hopping": hr.Hopping("2 hours", "1 hour"),
    "session": hr.Session("1 hour"),
    "sliding": hr.Sliding("1 hour"),
    "unlimited": hr.Unlimited(),
}


@dataclass
class Sale:
    amount: Decimal


@dataclass
class Ticket:
    id: uuid.UUID


FIELDS: dict[str, tuple[Any, str, Any]] = {
    "decimal": (CENTS, "value", lambda amount: amount),
    "json": (hr.Json("amount decimal(20,2)"), "value.amount", lambda amount: {"amount": amount}),
    "dataclass": (hr.Json(Sale), "value.amount", Sale),
}


def aggregated(field: str) -> dict[str, Any]:
    return {
        "sum": hr.sum(field),
        "min": hr.min(field),
        "max": hr.max(field),
        "first": hr.first(field),
        "last": hr.last(field),
        "d": hr.count_distinct(field),
        "m": hr.mean(field),
    }


def results_of(app: hr.App, sent: list[Any], rounds: int = 1, stream: str = "s") -> list[Any]:
    with Driver(app) as driver:
        for part in range(rounds):
            for at, one in enumerate(sent):
                if at % rounds == part:
                    driver.send(stream, "a", one, at=f"2013-01-01T00:00:0{at}Z")
            driver.run()
        return [record.value for record in driver.read("out")]


@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("kind", FIELDS)
@pytest.mark.parametrize("rounds", [1, 4])
def test_aggregates_of_decimals_are_exact(kind: str, windows: str, rounds: int) -> None:
    serde, field, made = FIELDS[kind]
    app = hr.App("sales")
    grouped = app.stream("s", key=hr.String(), value=serde).group_by_key()
    if (window := WINDOWS[windows]) is not None:
        grouped = grouped.windowed_by(window)
    grouped.aggregate(**aggregated(field), value=RESULT, store="x").to_stream().to("out", value=RESULT)
    amounts = [Decimal(text) for text in ("100000000000000000.01", "0.10", "0.20", "100000000000000000.02")]
    order = [amounts[at] for part in range(rounds) for at in range(len(amounts)) if at % rounds == part]
    found = results_of(app, list(map(made, amounts)), rounds)
    full = next(one for one in found if one is not None and one["d"] == 4 and one["sum"] == sum(amounts))
    assert (full["min"], full["max"]) == (Decimal("0.10"), amounts[3])
    if windows not in ("session", "sliding"):  # they take records in the order of time
        assert (full["first"], full["last"]) == (order[0], order[-1])
    assert full["m"] == float(sum(amounts)) / 4
    assert str(full["sum"]) == "200000000000000000.33"


def test_a_sum_of_decimals_has_the_scale_of_its_field_and_is_a_text_in_json() -> None:
    app = hr.App("sales")
    stream = app.stream("s", key=hr.String(), value=hr.Decimal(10, 2)).group_by_key()
    stream.aggregate(m=hr.sum("value"), n=hr.max("value"), f=hr.first("value"), store="x").to_stream().to("out")
    assert results_of(app, [Decimal("0.10"), Decimal("0.20")])[-1] == {"m": "0.30", "n": "0.20", "f": "0.10"}


@pytest.mark.parametrize("rounds", [1, 2])
def test_all_38_digits_count(rounds: int) -> None:
    app = hr.App("sales")
    stream = app.stream("s", key=hr.String(), value=hr.Decimal(38)).group_by_key()
    stream.aggregate(**aggregated("value"), store="x").to_stream().to("out", value=hr.Json())
    large = 4 * 10**37
    found = results_of(app, [Decimal(large + 1), Decimal(large + 2)], rounds)[-1]
    assert (found["sum"], found["d"]) == (str(2 * large + 3), 2)
    assert (found["min"], found["max"], found["first"]) == (str(large + 1), str(large + 2), str(large + 1))


@pytest.mark.parametrize("window", [None, hr.Sliding("1 hour")])
def test_a_record_that_takes_a_sum_beyond_38_digits_is_refused_alone(window: Any) -> None:
    app = hr.App("sales", dead_letter_stream="dead")
    grouped = app.stream("s", key=hr.String(), value=hr.Decimal(38, 1)).group_by_key()
    grouped = grouped if window is None else grouped.windowed_by(window)
    grouped.aggregate(sum=hr.sum("value"), store="x").to_stream().to("out", value=hr.Json())
    most = Decimal(10**37 - 1)
    with Driver(app) as driver:
        for at, one in enumerate((most, Decimal(1), Decimal("0.5"))):
            driver.send("s", "a", one, at=f"2013-01-01T00:00:0{at}Z")
        driver.run()
        sums = {record.value["sum"] for record in driver.read("out")}
        assert f"{most}.5" in sums and f"{most + 1}.0" not in sums
        (dead,) = driver.read("dead")
        assert b"38 digits" in dict(dead.headers)["headrace.error-message"]


def test_decimals_without_a_schema_are_exact_beside_other_numbers() -> None:
    app = hr.App("mixed")
    stream = app.stream("s", key=hr.String(), value=hr.String())
    made = {"d": Decimal("0.10"), "e": Decimal("0.2000"), "i": 1, "f": 0.5}
    values = stream.map_values(lambda record: made[record.value], value=hr.Json())
    values.group_by_key().aggregate(**aggregated("value"), store="x").to_stream().to("out")
    with Driver(app) as driver:
        for name in "dei":
            driver.send("s", "a", name)
        driver.run()
        found = driver.read("out")[-1].value
        assert (found["sum"], found["min"], found["max"], found["first"], found["last"]) == ("1.3", "0.1", 1, "0.1", 1)
        assert found["m"] == 1.3 / 3
        driver.send("s", "a", "f")
        driver.run()
        assert driver.read("out")[-1].value["sum"] == 1.8


@pytest.mark.parametrize("kind", FIELDS)
def test_a_grouped_table_takes_decimals_out_again_exactly(kind: str) -> None:
    serde, field, made = FIELDS[kind]
    app = hr.App("table")
    table = app.table("s", key=hr.String(), value=serde)
    grouped = table.group_by(lambda record: "all", key=hr.String())
    totals = grouped.aggregate(sum=hr.sum(field), m=hr.mean(field), n=hr.count(field), store="x")
    totals.to_stream().to("out", value=hr.Json())
    with Driver(app) as driver:
        for key, amount in (("a", "100000000.29"), ("b", "0.10"), ("c", "0.20"), ("b", "99999999999999999.99"), ("b", None)):
            driver.send("s", key, None if amount is None else made(Decimal(amount)))
            driver.run()
        found = [record.value for record in driver.read("out")]
        sums = ["100000000.29", "100000000.39", "100000000.59", "100000000100000000.48", "100000000.49"]
        assert [one["sum"] for one in found] == sums
        assert found[-1]["m"] == float(Decimal("100000000.49") / 2)
        assert driver.store("x").get("all")["sum"] == Decimal("100000000.49")


@pytest.mark.parametrize("window", [None, hr.Tumbling("1 hour")])
def test_every_update_of_decimals_is_exact(window: Any) -> None:
    app = hr.App("each")
    grouped = app.stream("s", key=hr.String(), value=CENTS).group_by_key()
    grouped = grouped if window is None else grouped.windowed_by(window)
    table = grouped.aggregate(sum=hr.sum("value"), last=hr.last("value"), m=hr.mean("value"), store="x")
    table.to_stream(emit="each").to("out")
    found = results_of(app, [Decimal("0.10"), Decimal("0.20"), Decimal("100000000000000000.01")], 2)
    assert [one["sum"] for one in found] == ["0.10", "100000000000000000.11", "100000000000000000.31"]
    assert [one["last"] for one in found] == ["0.10", "100000000000000000.01", "0.20"]
    assert found[2]["m"] == float(Decimal("100000000000000000.31")) / 3


# --- states ----------------------------------------------------------------------------------------------------------

NAMED = {"s": hr.sum("value"), "m": hr.mean("value"), "n": hr.max("value"), "d": hr.count_distinct("value"), "c": hr.count()}
FORM = "s=sum(value:decimal(10,2)),m=mean(value:decimal(10,2)),n=max(value:decimal(10,2)),d=count_distinct(value:decimal(10,2))"
TIME_US = 1_700_000_000_000_000


def test_what_older_versions_stored_as_floats_is_read_as_decimals() -> None:
    older = msgspec.msgpack.encode([0.30000000000000004, [0.30000000000000004, 2], 0.2, [0.1, 0.2], 2, TIME_US])
    accumulators = accumulators_of(NAMED, dict.fromkeys("smnd", 2))
    states = exact_of_stored(accumulators)(decoded_states(older))
    tenth, fifth = Decimal("0.1"), Decimal("0.2")
    assert states == [Decimal("0.3"), [Decimal("0.3"), 2], fifth, [tenth, fifth], 2, TIME_US]
    assert decoded_states(encoded_states(states)) == states
    more = [each.merged(a, b) for each, a, b in zip(accumulators, states, [tenth, [tenth, 1], tenth, [tenth], 1], strict=False)]
    results = [each.result(state) for each, state in zip(accumulators, more, strict=True)]
    assert list(map(str, results)) == ["0.40", str(0.4 / 3), "0.20", "2", "3"]
    value, _ = parsed(f"source|named {FORM},c=count key=string value=json", {}).value_of(older)
    assert value == {"s": Decimal("0.30"), "m": 0.15, "n": Decimal("0.20"), "d": 2, "c": 2}


def test_a_grouped_tables_older_state_is_read_as_decimals() -> None:
    older = retractable_of(hr.sum("value"))
    state = older.initial
    for amount in (100000000.29, 0.1, 0.2):
        state = older.moved(state, amount, 1)
    now = retractable_of(hr.sum("value"), 2)
    exact = now.exact(restored(plain([state]))[0])
    assert str(now.result(exact)) == "100000000.59"
    assert str(now.result(now.moved(exact, Decimal("0.10"), -1))) == "100000000.49"
    form = "source|table-named s=sum(value:decimal(10,2)) key=string value=json"
    assert parsed(form, {}).value_of(msgspec.msgpack.encode(plain([state])))[0] == {"s": Decimal("100000000.59")}


NUMBERS = st.one_of(
    st.decimals(-(10**20), 10**20, places=2, allow_nan=False),
    st.decimals(-10, 10, places=9, allow_nan=False),
    st.integers(-(2**40), 2**40),
)


@given(st.lists(st.tuples(NUMBERS, st.booleans()), max_size=12))
def test_sums_and_means_that_take_rows_out_are_those_of_the_rows_that_are_there(rows: list[tuple[Any, bool]]) -> None:
    total, mean = retractable_of(hr.sum("value")), retractable_of(hr.mean("value"))
    state = total.initial
    for value, _ in rows:
        state = total.moved(state, value, 1)
    for value, stays in rows:
        state = state if stays else total.moved(state, value, -1)
    kept = [Fraction(value) for value, stays in rows if stays]
    fresh = total.initial
    for value, stays in reversed(rows):
        fresh = total.moved(fresh, value, 1) if stays else fresh
    assert restored(plain([state])) == [fresh] == [state]
    found = total.result(state)
    assert (None if found is None else Fraction(found)) == (sum(kept) if kept else None)
    assert mean.result(state) == (float(sum(kept) / len(kept)) if kept else None)


@pytest.mark.parametrize("bad", ["NaN", "Infinity", "1e38", "1e-39", "1e-999999", "1e999999"])
def test_decimals_that_have_too_many_digits_are_refused(bad: str) -> None:
    app = hr.App("odd", dead_letter_stream="dead")
    texts = app.stream("s", key=hr.String(), value=hr.String())
    decimals = texts.map_values(lambda record: Decimal(record.value), value=hr.Json()).group_by_key()
    decimals.aggregate(sum=hr.sum("value"), last=hr.last("value"), store="x").to_stream().to("out")
    app.table("t", key=hr.String(), value=hr.Json(Sale)).group_by(lambda record: "all", key=hr.String()).aggregate(
        sum=hr.sum("value.amount"), store="y"
    ).to_stream().to("totals")
    with Driver(app) as driver:
        driver.send("s", "a", "0.5")
        driver.send("s", "a", bad)
        driver.send("s", "a", "99999999999999999999999999999999999999")
        driver.send("t", "a", Sale(Decimal("0.5")))
        driver.send("t", "b", Sale(Decimal(bad)))
        driver.run()
        assert driver.read("out")[-1].value == {"sum": "99999999999999999999999999999999999999.5", "last": "9" * 38}
        assert driver.read("totals")[-1].value == {"sum": "0.5"}
        assert len(driver.read("dead")) == 2


@pytest.mark.parametrize("serde", [hr.UUID(), hr.Json(Ticket)], ids=repr)
def test_uuids_are_compared_as_their_texts(serde: Any) -> None:
    app = hr.App("tickets")
    field, made = ("value", lambda id_: id_) if serde == hr.UUID() else ("value.id", Ticket)
    grouped = app.stream("s", key=hr.String(), value=serde).group_by_key()
    grouped.aggregate(d=hr.count_distinct(field), n=hr.min(field), last=hr.last(field), store="x").to_stream().to("out")
    found = results_of(app, [made(uuid.UUID(int=number)) for number in (2, 1, 1, 3)], 2)[-1]
    assert found == {"d": 3, "n": str(uuid.UUID(int=1)), "last": str(uuid.UUID(int=3))}
