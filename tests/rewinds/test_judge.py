"""What the judge must see: each way in which going back could go wrong, planted in what a right job would have made."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rewinds.judge import counted, is_same, last_written, same, spans_that_explain, stores_of, times_back

STORES = stores_of("stateful")


def row(number: int, partition: int = 0) -> dict[str, Any]:
    value = {"id": number, "group": f"g{number % 3}", "other": f"o{number % 2}"}
    return {"partition": partition, "key": b"p%dk%d" % (partition, number % 2), "value": json.dumps(value).encode()}


INPUTS = [*(row(number) for number in range(1, 11)), *(row(number, 1) for number in range(11, 21))]


def found_of(rows: list[dict[str, Any]]) -> Any:
    """As stores hold it: of the keys only the counts."""
    all_of = counted(rows, STORES)
    return {**all_of, "keys": {key: (count, 0) for key, (count, _) in all_of["keys"].items()}}


def test_what_is_right() -> None:
    assert same(counted(INPUTS, STORES), found_of(INPUTS)) == 4 + 3 + 2
    assert stores_of("stateless") == STORES[1:]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (INPUTS[:-1], "19 records counted in all, expected 20"),
        ([*INPUTS, INPUTS[4]], "21 records counted in all, expected 20"),
        ([*INPUTS[:-1], INPUTS[-7]], "groups.*20 records counted in all, expected 20"),
        ([], "0 records counted in all"),
    ],
    ids=["lost", "twice", "one in the place of another", "nothing"],
)
def test_what_is_wrong_in_all_stores(rows: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        same(counted(INPUTS, STORES), found_of(rows))


@pytest.mark.parametrize("store", STORES)
def test_what_is_wrong_in_one_store(store: str) -> None:
    wrong = found_of(INPUTS) | {store: found_of([*INPUTS, INPUTS[0]])[store]}
    with pytest.raises(AssertionError, match=store):
        same(counted(INPUTS, STORES), wrong)
    assert not is_same(counted(INPUTS, STORES), wrong)


def test_what_was_written_last_and_how_often_it_went_back() -> None:
    counts = [1, 2, 3, 2, 3, 4, 1]
    groups = [{"key": b"g", "value": json.dumps({"n": n, "ids": n * 10}).encode()} for n in counts]
    keys = [{"key": b"k", "value": n.to_bytes(8, "big")} for n in counts]
    written = {"keys": keys, "groups": groups, "others": []}
    assert last_written(written.__getitem__, STORES) == {"keys": {b"k": (1, 0)}, "groups": {b"g": (1, 10)}, "others": {}}
    assert (times_back(keys, "keys"), times_back(groups, "groups"), times_back(keys[:3], "keys")) == (2, 2, 0)


def test_spans_that_explain_what_was_left_out_or_read_twice() -> None:
    assert (2, 5, True) in spans_that_explain(INPUTS, 0, found_of(INPUTS[:2] + INPUTS[5:]))
    assert (0, 4, False) in spans_that_explain(INPUTS, 1, found_of([*INPUTS, *INPUTS[10:14]]))
    assert (0, 0, True) in spans_that_explain(INPUTS, 0, found_of(INPUTS))


@pytest.mark.parametrize(
    "rows",
    [INPUTS[:2] + INPUTS[3:4] + INPUTS[6:], [*INPUTS[1:], INPUTS[3]], [*INPUTS, INPUTS[0], INPUTS[2]], INPUTS[:10]],
    ids=["two spans", "one lost, one twice", "two read twice", "of another partition"],
)
def test_what_no_span_explains(rows: list[dict[str, Any]]) -> None:
    assert not list(spans_that_explain(INPUTS, 0, found_of(rows)))


def test_a_span_must_explain_every_store() -> None:
    found = found_of(INPUTS[1:]) | {"others": found_of(INPUTS)["others"]}
    assert not list(spans_that_explain(INPUTS, 0, found))
