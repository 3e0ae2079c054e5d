"""What a task's calls of its stores are counted and timed as."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_task_state import DictStore

from headrace.worker.state import store_calls
from headrace.worker.state.store_calls import TIMED_ONE_IN, StoreCalls
from headrace.worker.state.task_state import Database, Journal

keys = st.binary(min_size=1, max_size=2)
step = st.one_of(
    st.tuples(st.just("get"), st.just(1), keys),
    st.tuples(st.just("put"), st.just(1), keys),
    st.tuples(st.just("delete"), st.just(1), keys),
    st.tuples(st.just("get_many"), st.integers(0, 100), keys),
    st.tuples(st.just("put_many"), st.integers(0, 100), keys),
)


class Clock:
    """Each look at it takes 1 ns."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        self.ns += 1
        return self.ns


@given(st.lists(step, max_size=300))
def test_every_call_is_counted_once_and_does_what_it_did(steps: list[tuple[str, int, bytes]]) -> None:
    calls, stored = StoreCalls(), {b"a": b"stored"}
    database, expected = Database("a", DictStore(stored), Journal(), calls), dict(stored)
    counts = {"get": 0, "put": 0, "delete": 0}
    for action, entries, key in steps:
        counts[action.removesuffix("_many")] += entries
        match action:
            case "get":
                assert database.get(key) == expected.get(key)
            case "put":
                database.put(key, b"put")
                expected[key] = b"put"
            case "delete":
                database.delete(key)
                expected.pop(key, None)
            case "get_many":
                assert database.get_many([key] * entries) == [expected.get(key)] * entries
            case _:
                database.put_many([key] * entries, [b"many"] * entries)
                expected |= {key: b"many"} if entries else {}
    assert {"get": calls.gets, "put": calls.puts, "delete": calls.deletes} == counts
    assert dict(database.scan()) == expected


@pytest.mark.parametrize("action", ["get", "put", "delete"])
def test_of_single_calls_one_in_so_many_is_timed_however_few_a_round_has(action: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_calls, "perf_counter_ns", Clock())
    for per_round in (1, 3, 64, 1_000):
        times: list[Any] = []
        for _ in range(TIMED_ONE_IN):
            calls = StoreCalls()
            database = Database("a", DictStore({}), Journal(), calls)
            for _ in range(per_round):
                database.put(b"k", b"v") if action == "put" else getattr(database, action)(b"k")
            times.append((getattr(calls, f"{action}s"), getattr(calls, f"{action}_ns")))
        assert {count for count, _ in times} == {per_round}
        assert sum(ns for _, ns in times) == TIMED_ONE_IN * per_round, "each timed call took 1 ns, and counts for 64"
