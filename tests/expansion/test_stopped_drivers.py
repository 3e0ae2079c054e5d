"""SIGSTOP of a driver in the middle of a change to more partitions: its successor goes on; what wakes later changes nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos.checker import KillReport
from chaos.children import Children, report_of
from expansion.world import SERVER, World, told

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]
# On the log, a driver stopped at steps 2 and 3 holds the catalog's lock: nobody can take over (chaos/test_stopped_drivers).
STOPS = {"kafka": (1, 3, 5, 8, 9, 10, 11, 12), "log": (1, 5, 9, 11)}
TRIES = 4  # by chance another thread of the driver holds the catalog when it stops: then it is tried again


@pytest.fixture(scope="module")
def children(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Children]:
    with Children(tmp_path_factory.mktemp("stopped"), SERVER) as started:
        yield started


def taken_over(world: World, step: int) -> bool:
    """Stop a driver at a step of its change from 2 to 4 partitions, and have another finish; whether that one could."""
    with world.producers():
        first, pid = world.stopped_in_change(step, 4)
        world.wait_for_moved_keys()
    successor = world.run_of(until="caught-up", stale_us=0, lock_wait_s=0.5)
    if world.children.finish(successor) != 0:
        assert "which is stopped" in report_of(successor)["message"], told(successor)
        os.kill(pid, signal.SIGKILL)
        world.children.wait(pid)
        return False
    committed = world.checkpoints(), world.metadata(), world.rows("passed")
    os.kill(pid, signal.SIGCONT)
    assert world.children.wait(pid) == 1, told(first)
    assert report_of(first)["error"] == "FencedError", told(first)
    assert (world.checkpoints(), world.metadata(), world.rows("passed")) == committed, f"step {step}: it has changed something"
    return True


@pytest.mark.parametrize(("kind", "step"), [(kind, step) for kind in STOPS for step in STOPS[kind]])
def test_a_driver_stopped_in_a_change_is_fenced_and_changes_nothing(
    tmp_path: Path, children: Children, request: pytest.FixtureRequest, kind: str, step: int
) -> None:
    place: dict[str, Any] = {}
    if kind == "kafka":
        broker = request.getfixturevalue("kafka_server")
        place = {"servers": broker.bootstrap, "settings": broker.client_settings()}
    for _ in range(TRIES):
        world = World(tmp_path, children, "stateful", **place)
        if taken_over(world, step):
            break
        world.close()
    else:
        pytest.fail(f"in {TRIES} tries another thread of the stopped driver held the catalog")
    report = KillReport()
    world.judge(report)
    world.close()
    report.verify(landed_min=0)
