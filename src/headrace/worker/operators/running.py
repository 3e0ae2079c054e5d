"""The running values of named aggregates: what each record by itself would add, for those who ask for every update,
and for sessions, where it is not known beforehand which records come together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace.core.accumulators import Accumulator

State = list[Any]  # one part for each accumulator


def states_of_rows(table: Any, by: Sequence[str], accumulators: Sequence[Accumulator]) -> list[State]:
    """The states of groups of one row each, in the order of `table`, which is that of `by`: they tell rows apart."""
    wanted: list[Any] = []
    for accumulator in accumulators:
        wanted.extend(accumulator.wanted(table.column_names))
    rows = table.group_by(list(by), use_threads=False).aggregate(list(dict.fromkeys(wanted)))
    rows = rows.sort_by([(name, "ascending") for name in by])
    return list(map(list, zip(*(accumulator.partials(rows) for accumulator in accumulators), strict=True)))


def merged_states(accumulators: Sequence[Accumulator], one: State, other: State) -> State:
    """What two states are together; the records of `other` count as the later ones."""
    return [each.merged(a, b) for each, a, b in zip(accumulators, one, other, strict=True)]


def running_counts(numbers: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """For each row how many of its group there are up to and with it; `numbers` is the group of each row.

    >>> running_counts(np.array([0, 1, 0, 0])).tolist()
    [1, 1, 2, 3]
    """
    order = np.argsort(numbers, kind="stable")
    by_group = numbers[order]
    firsts = np.flatnonzero(np.diff(by_group, prepend=-1))
    counts = np.empty(len(numbers), np.int64)
    counts[order] = np.arange(len(numbers)) - np.repeat(firsts, np.diff(firsts, append=len(numbers))) + 1
    return counts
