"""The order in which a task that reads several SSPs takes a round's records, and where it may stop in their midst.

By (timestamp, tables first, stream, partition, offset). A record never passes a smaller offset of its SSP: its time for this
order is the highest up to it. What was taken when a round is cut short is the beginning of that order, over all SSPs: a task
that had read one stream to its end and another not at all would join its records with nothing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from headrace.core.topology.program import Program
from headrace.exchange.messages import ContainerPlan
from headrace.worker.rows import Rows

FIRST_ROWS, MOST_ROWS = 256, 1 << 20
PIECE_S = 0.2  # about how long a task works on a piece before it looks whether to stop


def merging_tasks(plan: ContainerPlan, program: Program) -> frozenset[str]:
    """The tasks of a container whose rows come from several sides in this round, so that their order must be made. What these
    read is not cut short, only what they make of it: the order is known once all of it is there."""
    ends = {piece.ssp for piece in plan.ranges}
    sides = Counter(program.source(number).stream for number in range(len(program.endpoints)))
    return frozenset(
        task.name for task in plan.tasks if sum(sides[plan.ssps[ssp][1]] for ssp in task.positions if ssp in ends) > 1
    )


def next_size(size: int, seconds: float, fills: float | None = None) -> int:
    """How many rows to take after `size` of them took `seconds`. `fills`: how often the calls of an async function for them
    filled what may run at once. With fewer rows than fill it once, calls would take turns and nothing would be quicker.

    >>> next_size(100, 0.05), next_size(100, 2.0), next_size(100, 2.0, fills=4.0), next_size(100, 2.0, fills=0.5)
    (200, 10, 25, 200)
    """
    least = 1 if fills is None else min(math.ceil(size / fills), 2 * size, MOST_ROWS)
    if seconds < PIECE_S / 2:
        return min(2 * size, MOST_ROWS)
    return max(int(size * PIECE_S / seconds), least) if seconds > 2 * PIECE_S else max(size, least)


class Merged:
    """`gathered`: of each batch the endpoint, whether it is of a table, whether it was prepared, and its rows."""

    def __init__(self, gathered: Sequence[tuple[int, bool, bool, Rows]]) -> None:
        columns = [
            (rows.timestamp_us, np.full(len(rows), 0 if is_table else 1), rows.ssp, rows.offset, np.full(len(rows), number))
            for number, (_, is_table, _, rows) in enumerate(gathered)
        ]
        time_us, first, ssp, offset, batch = (np.concatenate([column[i] for column in columns]) for i in range(5))
        order = np.lexsort((batch, offset, ssp, first, _highest_so_far(time_us, ssp, offset)))
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        self._ssp, self._offset = ssp[order], offset[order]
        self._endpoints: list[tuple[int, bool, Rows]] = []
        start = 0
        by_endpoint: dict[tuple[int, bool], list[Rows]] = {}  # of an endpoint all rows were prepared, or none
        for endpoint, _, is_prepared, rows in gathered:
            rows.rank = rank[start : start + len(rows)]
            start += len(rows)
            by_endpoint.setdefault((endpoint, is_prepared), []).append(rows)
        for (endpoint, is_prepared), batches in sorted(by_endpoint.items(), key=itemgetter(0)):
            whole = Rows.concat(batches)
            self._endpoints.append((endpoint, is_prepared, whole.take(np.argsort(whole.rank, kind="stable"))))
        self._stops = _stops(self._ssp, self._offset)

    def __len__(self) -> int:
        return len(self._ssp)

    def stop_from(self, wanted: int) -> int:
        """The first place from `wanted` on where the order may be cut: no record is on both sides of it."""
        if wanted >= len(self):
            return len(self)
        return int(self._stops[np.searchsorted(self._stops, wanted)])

    def piece(self, start: int, stop: int) -> Iterator[tuple[int, bool, Rows]]:
        """Of each endpoint, whether its rows were prepared, and those that are at `start` to `stop` of the order, in it."""
        for endpoint, prepared, rows in self._endpoints:
            low, high = np.searchsorted(rows.rank, (start, stop))
            if low < high:
                whole = low == 0 and high == len(rows)
                yield endpoint, prepared, rows if whole else rows.take(np.arange(low, high))

    def left_from(self, start: int) -> dict[int, int]:
        """Of each SSP with records at `start` of the order or behind it, the lowest of their offsets."""
        ssps, where = np.unique(self._ssp[start:], return_inverse=True)
        lowest = np.full(len(ssps), np.iinfo(np.int64).max)
        np.minimum.at(lowest, where, self._offset[start:])
        return dict(zip(ssps.tolist(), lowest.tolist(), strict=True))


def _stops(ssp: Any, offset: Any) -> Any:
    """Where a cut divides no record, which several endpoints may have: rising, the end is the last."""
    count = len(ssp)
    by_record = np.lexsort((offset, ssp))
    same = (ssp[by_record][1:] == ssp[by_record][:-1]) & (offset[by_record][1:] == offset[by_record][:-1])
    if not same.any():
        return np.arange(1, count + 1)
    groups = np.concatenate([[0], np.cumsum(~same)])
    last = np.zeros(groups[-1] + 1, np.int64)
    np.maximum.at(last, groups, by_record)
    last_of_row = np.empty(count, np.int64)
    last_of_row[by_record] = last[groups]
    return np.flatnonzero(np.maximum.accumulate(last_of_row) == np.arange(count)) + 1


def _highest_so_far(time_us: Any, ssp: Any, offset: Any) -> Any:
    """Per SSP, in the order of offsets, the highest time up to each row."""
    highest = np.empty_like(time_us)
    for number in np.unique(ssp):
        mine = np.flatnonzero(ssp == number)
        mine = mine[np.argsort(offset[mine], kind="stable")]
        highest[mine] = np.maximum.accumulate(time_us[mine])
    return highest
