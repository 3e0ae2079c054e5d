"""Drivers that are stopped at numbered steps, taken over one by the other, and woken when the last has committed all."""

from __future__ import annotations

import random
from collections.abc import Iterable

from chaos.world import SeededWorld
from support.checker import KillReport
from support.child import Run
from support.children import report_of, told
from support.world import COMMIT_STEPS, START_STEPS, Step

# A driver stopped before it has fenced anybody may take over lawfully once its successor has ended.
BEFORE_ANY_FENCE = {("start", 1), ("start", 2)}
STOPPED_S_MAX = 280.0  # the first one waits, stopped, until all the others have been
KAFKA_STOPS = tuple(step for step in (*COMMIT_STEPS["kafka"], *START_STEPS) if step not in BEFORE_ANY_FENCE)


def stop_and_take_over(world: SeededWorld, seed: int, steps: Iterable[Step], report: KillReport) -> None:
    """On Kafka: each driver is stopped at a step of its own, and the next takes over; the last commits all; then all are
    woken.

    None of the woken may change what is committed, and each says that it was taken over.
    """
    draw = random.Random(seed)
    order = list(steps)
    draw.shuffle(order)
    stopped: list[tuple[Step, Run, int]] = []
    for step in order:
        world.produce(draw.randrange(15, 40))
        stopped.append((step, *world.stopped(step, run_s=STOPPED_S_MAX)))
    world.produce(30)
    world.finish(stale_us=0)
    committed = world.checkpoints()
    for step, run, pid in draw.sample(stopped, len(stopped)):
        code = world.woken(pid)
        assert code == 1, f"{step}: a driver that was taken over ended with {code}: {told(run)}"
        assert report_of(run)["error"] == "FencedError", (step, told(run))
        assert world.checkpoints() == committed, f"{step}: the driver that was taken over has committed"
        report.fault(f"{step[0]} {step[1]}", "SIGSTOP", landed=True)
