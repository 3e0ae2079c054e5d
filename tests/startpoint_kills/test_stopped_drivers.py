"""SIGSTOP of a driver as it takes a startpoint up: its successor takes it up, or finds it taken up; what wakes later changes
nothing."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from startpoint_kills.world import StartpointWorld
from support.checker import KillReport
from support.children import Children, report_of, told
from support.fixtures import place_of

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(120)]
SEED = 20320
# On the log, a driver that is stopped at steps 2 and 3 holds the catalog's lock: nobody can take over.
STOPS = {"kafka": (1, 9, 10, 11), "log": (1, 9, 10, 11)}
IN_EACH_RUN = {"kafka": (10,), "log": (9,)}
TRIES = 4  # by chance another thread of the driver holds the catalog when it stops: then it is tried again


def taken_over(world: StartpointWorld, step: int) -> bool:
    """Stop a driver at a step of the change in which it takes a startpoint up, and have another finish; whether that could."""
    with world.producer():
        first, pid = world.stopped_at_work(("start", step), world.ask)
    successor = world.run_of(stale_us=0, lock_wait_s=0.5)
    if world.children.finish(successor) != 0:
        assert "which is stopped" in report_of(successor)["message"], told(successor)
        os.kill(pid, signal.SIGKILL)
        world.children.wait(pid)
        return False
    committed = world.on_record(), world.rows("passed")
    assert world.woken(pid) == 1, told(first)
    assert report_of(first)["error"] == "FencedError", told(first)
    assert (world.on_record(), world.rows("passed")) == committed, f"step {step}: it has changed something"
    return True


@pytest.mark.parametrize(
    ("kind", "step"),
    [
        pytest.param(kind, step, marks=[] if step in IN_EACH_RUN[kind] else [pytest.mark.soak])
        for kind in STOPS
        for step in STOPS[kind]
    ],
)
def test_a_driver_stopped_as_it_takes_a_startpoint_up_is_fenced_and_changes_nothing(
    tmp_path: Path, children: Children, request: pytest.FixtureRequest, kind: str, step: int
) -> None:
    for _ in range(TRIES):
        world = StartpointWorld(tmp_path, place_of(request, kind), children, 2, SEED)
        world.finish()
        if taken_over(world, step):
            break
        world.close()
    else:
        pytest.fail(f"in {TRIES} tries another thread of the stopped driver held the catalog")
    report = KillReport()
    world.judge(report)
    world.close()
    report.verify(landed_min=0)
