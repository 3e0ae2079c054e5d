"""Judges what a job of `jobs` made of its input, by what the system itself holds. It imports nothing of Headrace.

A row is one of `support.checker.read_stream` or `startpoints.reading`. What a store holds is `Held`: to each key how many
records came to it, and the sum of their ids; so a record that is lost is seen, one that counts twice, and one in the place of
another.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from support.checker import long_of, state_equals
from support.log_states import stored_count, stored_fields

Row = Mapping[str, Any]
Sum = tuple[int, int]  # how many records, the sum of their ids
Held = Mapping[str, Mapping[bytes, Sum]]  # store to key to that
Entries = Callable[[str], Mapping[tuple[bytes, bytes], bytes]]  # a store's committed (key, sub-key) to value

KEY_OF: Mapping[str, Callable[[Row], bytes]] = {
    "keys": lambda row: row["key"],
    "groups": lambda row: json.loads(row["value"])["group"].encode(),
    "others": lambda row: json.loads(row["value"])["other"].encode(),
}


def stores_of(shape: str) -> tuple[str, ...]:
    return tuple(KEY_OF)[shape == "stateless" :]


def counted(rows: Iterable[Row], stores: Iterable[str]) -> Held:
    """What stores hold that have counted each of these records once."""
    found: dict[str, dict[bytes, Sum]] = {store: {} for store in stores}
    for row in rows:
        for store, of_store in found.items():
            count, total = of_store.get(KEY_OF[store](row), (0, 0))
            of_store[KEY_OF[store](row)] = count + 1, total + json.loads(row["value"])["id"]
    return found


def held(entries: Entries, stores: Iterable[str]) -> Held:
    """What stores hold; of the one that only counts the sums of ids are 0."""
    return {store: {key: _held(store, value) for (key, _), value in entries(store).items()} for store in stores}


def _held(store: str, value: bytes) -> Sum:
    if store == "keys":
        return stored_count(value), 0
    count, total = stored_fields(value)
    return count, total


def last_written(rows: Callable[[str], Iterable[Row]], stores: Iterable[str]) -> Held:
    """The last value of each key in each store's output."""
    return {store: {row["key"]: _written(store, row) for row in rows(store)} for store in stores}


def _written(store: str, row: Row) -> Sum:
    if store == "keys":
        return long_of(row["value"]), 0
    value = json.loads(row["value"])
    return value["n"], value["ids"]


def same(expected: Held, found: Held) -> int:
    """Every store holds just what is expected; how many keys were compared."""
    assert expected.keys() == found.keys(), f"stores {sorted(expected)}, found {sorted(found)}"
    compared = 0
    for store in expected:
        try:
            compared += state_equals(_comparable(store, expected), found[store])
        except AssertionError as error:
            raise AssertionError(f"{store}: {error}; {_balance(store, expected, found)}") from None
    return compared


def is_same(expected: Held, found: Held) -> bool:
    return all(_comparable(store, expected) == found[store] for store in expected)


def _comparable(store: str, expected: Held) -> Mapping[bytes, Sum]:
    return {key: (count, 0) for key, (count, _) in expected[store].items()} if store == "keys" else expected[store]


def _balance(store: str, expected: Held, found: Held) -> str:
    wanted, there = (sum(count for count, _ in one[store].values()) for one in (expected, found))
    return f"{there} records counted in all, expected {wanted}"


def times_back(rows: Iterable[Row], store: str) -> int:
    """How often a count in a store's output is not larger than the one before it of its key: so often did it go back."""
    last: dict[bytes, int] = {}
    found = 0
    for row in rows:
        count = _written(store, row)[0]
        found += count <= last.get(row["key"], 0)
        last[row["key"]] = count
    return found


def spans_that_explain(inputs: Sequence[Row], partition: int, found: Held) -> Iterator[tuple[int, int, bool]]:
    """The spans of a partition which, left out or else read twice, lead to what was found: (start, end, whether left out).

    Start and end are indices among the partition's records; nothing but that one span may be wrong, in no store.
    """
    mine = [row for row in inputs if row["partition"] == partition]
    rest = [row for row in inputs if row["partition"] != partition]
    missing = len(inputs) - sum(count for count, _ in found["groups"].values())
    length = abs(missing)
    for start in range(len(mine) - length + 1):
        span = mine[start : start + length]
        read = mine[:start] + mine[start + length :] if missing >= 0 else [*mine, *span]
        if is_same(counted([*rest, *read], found), found):
            yield start, start + length, missing >= 0
