"""What the containers of one Spark task fetch by themselves: each range once, however many of them read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from headrace.exchange.messages import ContainerPlan, InputRange

Batches = list[tuple[Any, pa.RecordBatch]]  # offsets, rows


class FetchedRanges:
    """Ranges that several of `plans`, which are processed one after the other, read: what the first has fetched is held in
    memory until the last has taken it. The rounds of such Spark tasks are small. Not thread-safe."""

    def __init__(self, plans: Sequence[ContainerPlan]) -> None:
        self._left = Counter(_place_of(piece) for plan in plans for piece in plan.ranges)
        self._held: dict[tuple[int, int, int], Batches] = {}

    def is_shared(self, piece: InputRange) -> bool:
        """Whether other plans read it as well, and it is worth holding."""
        return self._left[_place_of(piece)] > 1

    def hold(self, piece: InputRange, batches: Batches) -> None:
        """`batches` is what was fetched of `piece`, all of it."""
        self._held[_place_of(piece)] = batches

    def has(self, piece: InputRange) -> bool:
        return _place_of(piece) in self._held

    def take(self, piece: InputRange) -> Batches:
        """What is held of `piece`; the last plan that reads it takes it out."""
        place = _place_of(piece)
        self._left[place] -= 1
        return self._held[place] if self._left[place] > 0 else self._held.pop(place)


def _place_of(piece: InputRange) -> tuple[int, int, int]:
    return piece.ssp, piece.start, piece.end
