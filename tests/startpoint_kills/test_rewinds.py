"""SIGKILL of the driver as it takes a state back with its position: both go back, once, and nothing is counted twice."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from headrace.model.startpoint import PositionType, StatePolicy
from startpoint_kills.world import COUNTED, StartpointWorld
from support.checker import long_of
from support.children import Children
from support.world import Place

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(200)]
SEED = 20330
STEPS = (9, 10, 11)  # before the transaction, between it and the removal of the request, after that


def test_counts_are_right_when_the_start_that_takes_them_back_is_killed(
    tmp_path: Path, children: Children, place: Place
) -> None:
    world = StartpointWorld(tmp_path, place, children, len(STEPS), SEED, COUNTED)
    for _ in range(2):  # a plan begins with a state that is kept
        world.finish()
        world.write(5)
    for step in STEPS:
        world.write(1)
        world.ask(PositionType.EARLIEST if step % 2 else PositionType.SPECIFIC_OFFSET, StatePolicy.REWIND)
        world.killed(("start", step))
    world.finish()
    written = Counter(row["key"] for row in world.rows("in"))
    counts: dict[bytes, list[int]] = {key: [] for key in written}
    for row in world.rows("passed"):
        counts[row["key"]].append(long_of(row["value"]))
    world.close()
    assert len(written) == len(STEPS)
    for key, found in counts.items():
        back = [(before, after) for before, after in pairwise(found) if after != before + 1]
        assert found[0] == 1, f"{key!r}: {found}"
        assert len(back) == 1, f"{key!r} went back {len(back)} times: {found}"
        assert back[0][1] <= back[0][0], f"{key!r} skipped some: {found}"
        assert found[-1] == written[key], f"{key!r}: {found[-1]} counted, {written[key]} written"
