"""Mistakes on purpose: each is seen by a short schedule of faults. The code as it is comes through (`soaking`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.world import SeededWorld
from kafka_faults import planted
from kafka_faults.schedules import SCHEDULES
from support.children import Children
from support.world import Place

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]
SEED = 20273
IN_EACH_RUN = ("begin a range one record late", "forget a lane", "outputs outside the transaction", "skip the fence")


def test_every_planted_bug_has_a_schedule() -> None:
    assert sorted(SCHEDULES) == sorted(planted.BUGS)
    assert len(SCHEDULES) >= 15


@pytest.mark.parametrize(
    "bug", [pytest.param(bug, marks=[] if bug in IN_EACH_RUN else [pytest.mark.soak]) for bug in sorted(SCHEDULES)]
)
def test_a_planted_bug_is_seen(bug: str, children: Children, tmp_path: Path, on_kafka: Place) -> None:
    world = SeededWorld(tmp_path, on_kafka, children, SEED)
    with pytest.raises(AssertionError) as seen:
        SCHEDULES[bug](world, bug)
    print(f"{bug}: {str(seen.value)[:300]}")
