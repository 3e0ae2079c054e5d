"""Short seeded schedules, one for each planted bug: the unspoiled code comes through, the bug is seen."""

from __future__ import annotations

import time
from collections.abc import Callable

from chaos.world import SeededWorld
from support.checker import KillReport
from support.child import Run
from support.children import report_of, state_of, told

BLOCKED_S = 12.0  # a successor must be at work within this, while its predecessor sleeps in a transaction
# The other sub-topology does not look for records by itself: it would come to the step in question before the first one,
# or see that another driver took over, and end the job.
ONE_AT_A_TIME = {"trigger_interval_ms": 600_000}
Schedule = Callable[[SeededWorld, str], None]


def killed_at(step: int, count: int = 2) -> Schedule:
    """The driver is killed at a step of a container of the first sub-topology, and another does the rest. An output of the
    second, a count by group, may be lost unseen: the group's next row tells the same."""

    def run(world: SeededWorld, bug: str) -> None:
        world.produce(60)
        world.killed(("kafka", step), count, bug=bug, keys=ONE_AT_A_TIME)
        world.produce(20)
        world.finish(bug=bug)
        world.judge(KillReport())

    return run


def overtaken_at(step: int, count: int) -> Schedule:
    """The driver is stopped at a step, another does all the rest, then the first goes on."""

    def run(world: SeededWorld, bug: str) -> None:
        world.produce(60)
        first, pid = world.stopped(("kafka", step), count, bug=bug, keys=ONE_AT_A_TIME)
        world.finish(stale_us=0, bug=bug)
        _must_be_fenced(world, first, pid)
        world.judge(KillReport())

    return run


def overtaken_before_any_round(world: SeededWorld, bug: str) -> None:
    """Of two drivers that are stopped before their first round, the one that was taken over goes on."""
    world.produce(60)
    first, pid = world.stopped(("kafka", 1), 1, bug=bug)
    world.stopped(("kafka", 1), 1, bug=bug)
    _must_be_fenced(world, first, pid)


def _must_be_fenced(world: SeededWorld, run: Run, pid: int) -> None:
    before = world.checkpoints()
    code = world.woken(pid)
    assert code == 1, f"a driver that was taken over ended with {code}: {told(run)}"
    assert report_of(run)["error"] == "FencedError", told(run)
    assert world.checkpoints() == before, "a driver that was taken over has committed"


def not_blocked(world: SeededWorld, bug: str) -> None:
    """The driver is stopped with its transaction open in its last lane; another, with fewer lanes, gets to work."""
    world.produce(60)
    world.stopped(("kafka", 8), 2, bug=bug)  # the second container of the first round
    second = world.run_of(traps="stop:kafka:4:1", stale_us=0, bug=bug, keys={"containers": 1})
    pid = world.children.start(second)
    deadline_s = time.monotonic() + BLOCKED_S
    while state_of(pid) not in ("T", "t"):
        assert state_of(pid) not in ("Z", ""), f"ended before it was at work: {told(second)}"
        assert time.monotonic() < deadline_s, f"it was not at work within {BLOCKED_S:g} s: what is open holds it back"
        time.sleep(0.02)


def second_refused(world: SeededWorld, bug: str) -> None:
    """While a driver lives a second one ends, and says so."""
    world.produce(60)
    world.stopped(("kafka", 4), bug=bug)
    second = world.run_of(bug=bug)
    assert world.children.finish(second) == 1, "a second driver ran beside the first"
    assert report_of(second)["error"] == "JobHeldError", told(second)


# Of each planted bug the schedule that shows it.
SCHEDULES: dict[str, Schedule] = {
    "apply a delta twice": killed_at(8),
    "begin a range one record late": killed_at(3),
    "checkpoint outside the transaction": killed_at(8),
    "commit before output": killed_at(9),
    "forget a lane": not_blocked,
    "lose the last segment": killed_at(10),
    "no check of epoch and base": overtaken_at(1, 1),
    "no check of the epoch": overtaken_before_any_round,
    "off by one in the position": killed_at(3),
    "outputs outside the transaction": killed_at(8),
    "read the epoch before the init": overtaken_at(1, 1),
    "read unstable checkpoints": killed_at(8),
    "read up to the high watermark, committed or not": killed_at(8),
    "reuse a stale store": killed_at(9),
    "skip the fence": not_blocked,
    "take over from a driver that lives": second_refused,
    "work again with a new producer after a fence": overtaken_at(8, 2),
}
