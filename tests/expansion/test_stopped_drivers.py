"""SIGSTOP of a driver in the middle of a change to more partitions: its successor goes on; what wakes later changes nothing."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import pytest

from expansion.world import GrowingWorld
from support.checker import KillReport
from support.children import Children, report_of, told
from support.fixtures import place_of

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]
# On the log, a driver stopped at steps 2 and 3 holds the catalog's lock: nobody can take over (chaos/test_stopped_drivers).
STOPS = {"kafka": (1, 3, 5, 9, 10, 11, 12), "log": (1, 5, 9, 11)}
IN_EACH_RUN = {"kafka": (10,), "log": (9,)}
TRIES = 4  # by chance another thread of the driver holds the catalog when it stops: then it is tried again


def taken_over(world: GrowingWorld, step: int) -> bool:
    """Stop a driver at a step of its change from 2 to 4 partitions, and have another finish; whether that one could."""
    with world.producers():
        first, pid = world.stopped_at_work(("start", step), partial(world.expand, 4))
        world.wait_for_moved_keys()
    successor = world.run_of(stale_us=0, lock_wait_s=0.5)
    if world.children.finish(successor) != 0:
        assert "which is stopped" in report_of(successor)["message"], told(successor)
        os.kill(pid, signal.SIGKILL)
        world.children.wait(pid)
        return False
    committed = world.checkpoints(), world.metadata(), world.rows("passed")
    assert world.woken(pid) == 1, told(first)
    assert report_of(first)["error"] == "FencedError", told(first)
    assert (world.checkpoints(), world.metadata(), world.rows("passed")) == committed, f"step {step}: it has changed something"
    return True


@pytest.mark.parametrize(
    ("kind", "step"),
    [
        pytest.param(kind, step, marks=[] if step in IN_EACH_RUN[kind] else [pytest.mark.soak])
        for kind in STOPS
        for step in STOPS[kind]
    ],
)
def test_a_driver_stopped_in_a_change_is_fenced_and_changes_nothing(
    tmp_path: Path, children: Children, request: pytest.FixtureRequest, kind: str, step: int
) -> None:
    for _ in range(TRIES):
        world = GrowingWorld(tmp_path, place_of(request, kind), children, "stateful")
        if taken_over(world, step):
            break
        world.close()
    else:
        pytest.fail(f"in {TRIES} tries another thread of the stopped driver held the catalog")
    report = KillReport()
    world.judge(report)
    world.close()
    report.verify(landed_min=0)
