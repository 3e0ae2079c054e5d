"""Mistakes on purpose: each is seen by a short schedule of faults. The code as it is comes through (`soaking`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos.children import Children
from kafka_faults import planted
from kafka_faults.schedules import SCHEDULES
from kafka_faults.world import SERVER, World

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]
SEED = 20273


@pytest.fixture(scope="module")
def children(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Children]:
    with Children(tmp_path_factory.mktemp("planted"), SERVER) as started:
        yield started


def test_every_planted_bug_has_a_schedule() -> None:
    assert sorted(SCHEDULES) == sorted(planted.BUGS)
    assert len(SCHEDULES) >= 15


@pytest.mark.parametrize("bug", sorted(SCHEDULES))
def test_a_planted_bug_is_seen(bug: str, children: Children, tmp_path: Path, kafka_server: Any) -> None:
    world = World(kafka_server.client_settings(), tmp_path, SEED, children)
    with pytest.raises(AssertionError) as seen:
        SCHEDULES[bug](world, bug)
    print(f"{bug}: {str(seen.value)[:300]}")
