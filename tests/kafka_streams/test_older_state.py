"""State of before times were kept is used as it is: a group without a time takes that of its next record."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from headrace.client import store_form
from headrace.worker.operators import aggregate
from headrace.worker.operators.entry_times import NO_TIME_US, EntryTimes


class _Context:
    """Databases that are empty."""

    def database(self, name: str) -> _Context:
        assert name == "s~times"
        return self

    def get_many(self, layouts: list[bytes]) -> list[None]:
        return [None] * len(layouts)


def test_counts_with_and_without_a_time_are_read() -> None:
    old, new = (3).to_bytes(8, "little"), (4).to_bytes(8, "little") + (7).to_bytes(8, "little")
    counts, times = aggregate._counts_of([old, None, new])
    assert counts.tolist() == [3, 0, 4]
    assert times.tolist() == [NO_TIME_US, NO_TIME_US, 7]
    assert np.maximum(times, [5, 5, 5]).tolist() == [5, 5, 7]
    assert store_form._count(old) == 3
    assert store_form._count(new) == 4


@pytest.mark.parametrize("state", [[2, 5], [2, 5, 1_000]])
def test_named_aggregates_with_and_without_a_time_are_read(state: list[int]) -> None:
    named = store_form._aggregates("n=count,t=sum(value:bigint)")
    assert store_form._named(named, {}, msgspec.msgpack.encode(state)) == {"n": 2, "t": 5}


def test_entries_without_times_have_the_lowest() -> None:
    assert EntryTimes(_Context(), "s").get_many([b"a", b"b"]) == [NO_TIME_US, NO_TIME_US]
