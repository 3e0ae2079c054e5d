"""What a function keeps as a key's state is the same wherever rounds are cut: as stored, after every record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headrace as hr
from headrace.testing import Driver

Made = Callable[[hr.App], None]


def run(make: Made, values: list[Any], per_round: int) -> tuple[dict[Any, Any], list[Any]]:
    """The state of store `s`, and the values that were set aside."""
    app = hr.App("cut")
    make(app)
    overrides = [f"max_records_per_round={per_round}", "dead_letter_stream=dead"]
    with Driver(app, partitions={"in": 1, "dead": 1}, overrides=overrides) as driver:
        for value in values:
            driver.send("in", "a", value)
        driver.run()
        return dict(driver.store("s").all()), [record.value for record in driver.read("dead")]


def aggregated(initial: Any, function: Any, serde: Any) -> Made:
    def make(app: hr.App) -> None:
        rows = app.stream("in", key=hr.String(), value=hr.Long()).group_by_key()
        rows.aggregate(initial=initial, function=function, value=serde, store="s").to_stream().to("out")

    return make


def counted_by_value(state: dict[Any, int], record: Any) -> dict[Any, int]:
    state[record.value] = state.get(record.value, 0) + 1
    return state


def appended(state: Any, record: Any) -> Any:
    return (*state, record.value)


def added(state: Any, record: Any) -> Any:
    return "oops" if record.value == 666 else state + record.value


@pytest.mark.parametrize(
    ("make", "values"),
    [
        (aggregated(dict, counted_by_value, hr.Json()), [3, 3, 4, 3]),
        (aggregated(0, added, hr.Double()), [2**53, 1, 1, 1]),
        (aggregated((), appended, hr.Json()), [1, 2, 3, 4]),
        (aggregated(0, added, hr.Long()), [1, 666, 2]),
        (aggregated(0, added, hr.Long()), [2**63 - 1, 1, -5]),
    ],
    ids=["keys that JSON makes texts", "a float's last digits", "a tuple that JSON makes a list", "no number", "64 bits"],
)
def test_state_and_dead_letters_are_the_same_however_rounds_are_cut(make: Made, values: list[Any]) -> None:
    one_by_one = run(make, values, 1)
    assert run(make, values, 2) == one_by_one
    assert run(make, values, 1000) == one_by_one


def test_a_record_that_is_set_aside_is_not_counted_and_the_others_are() -> None:
    state, dead = run(aggregated(0, added, hr.Long()), [1, 666, 2], 1000)
    assert (state, len(dead)) == ({"a": 3}, 1)
