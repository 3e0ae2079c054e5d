"""SIGSTOP of a driver in the middle of a change of the elasticity factor, and inside the first round behind it: its successor
has one job model with that factor, and what wakes later changes nothing."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from pathlib import Path

import pytest

import headrace as hr
from expansion.growing_job import WINDOW_MS
from scaling.scaling_job import GRACE_MS
from scaling.world import ScalingWorld
from support.checker import KillReport
from support.children import Children, report_of, told
from support.fixtures import place_of
from support.world import Step

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]
STOPS: dict[str, tuple[Step, ...]] = {
    "log": (("scale", 1), ("scale", 5), ("log", 3)),  # log 3: inside a write transaction of a local store
    "kafka": (("scale", 5), ("kafka", 10)),  # 10: as 3 of the log
}
IN_EACH_RUN = {("log", ("scale", 5))}
TRIES = 4  # by chance another thread of the driver holds the catalog when it stops: then it is tried again
FACTOR = 4
CLOSED_S = 1.2 * (WINDOW_MS + GRACE_MS) / 1000  # of records: so some windows are closed by the others


def taken_over(world: ScalingWorld, at: Step) -> bool:
    """Stop a driver at a step of its change to another factor, and have another finish; whether that one could."""
    with world.producers():
        first, pid = world.stopped_at_work(at, partial(world.rescale, FACTOR))
        time.sleep(CLOSED_S)
    successor = world.run_of(stale_us=0, lock_wait_s=0.5)
    if world.children.finish(successor) != 0:
        assert "which is stopped" in report_of(successor)["message"], told(successor)
        os.kill(pid, signal.SIGKILL)
        world.children.wait(pid)
        return False
    assert world.factors() == {FACTOR}
    committed = world.checkpoints(), world.metadata(), world.rows("passed")
    assert world.woken(pid) == 1, told(first)
    assert report_of(first)["error"] == "FencedError", told(first)
    assert (world.checkpoints(), world.metadata(), world.rows("passed")) == committed, f"step {at}: it has changed something"
    return True


@pytest.mark.parametrize(
    ("kind", "at"),
    [
        pytest.param(kind, at, marks=[] if (kind, at) in IN_EACH_RUN else [pytest.mark.soak])
        for kind in STOPS
        for at in STOPS[kind]
    ],
    ids=str,
)
def test_a_driver_stopped_in_a_change_is_fenced_and_changes_nothing(
    tmp_path: Path, children: Children, request: pytest.FixtureRequest, kind: str, at: Step
) -> None:
    for _ in range(TRIES):
        world = ScalingWorld(tmp_path, place_of(request, kind), children, "prepared" if at == ("scale", 1) else "stateful")
        if taken_over(world, at):
            break
        world.close()
    else:
        pytest.fail(f"in {TRIES} tries another thread of the stopped driver held the catalog")
    with hr.elasticity(world.name, world.url) as scales:
        changes = [(change.what, change.before, change.after) for change in scales.history()]
    assert sorted(change[0] for change in changes) == ["by-group", "source"], changes
    report = KillReport()
    world.judge(report)
    world.close()
    report.verify(landed_min=0)
