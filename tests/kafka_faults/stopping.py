"""Drivers that are stopped at numbered steps, taken over one by the other, and woken when the last has committed all."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterable
from typing import Any

from chaos.checker import KillReport
from chaos.children import report_of, sprung, wait_until_stopped
from kafka_faults.child import Run
from kafka_faults.killing import KAFKA_STEPS, START_STEPS
from kafka_faults.world import World, told

# A driver stopped before it has fenced anybody may take over lawfully once its successor has ended.
BEFORE_ANY_FENCE = {("start", 1), ("start", 2)}
STOPS = tuple(step for step in (*KAFKA_STEPS, *START_STEPS) if step not in BEFORE_ANY_FENCE)


def stopped_at(world: World, step: tuple[str, int], count: int = 1, **options: Any) -> tuple[Run, int]:
    """A driver that takes over from whoever is silent, and has stopped at its `count`-th arrival at `step`; its pid."""
    run = world.run_of(traps=f"stop:{step[0]}:{step[1]}:{count}", stale_us=0, silent=True, **options)
    pid = world.children.start(run)
    wait_until_stopped(pid)
    assert sprung(run) == [f"stop {step[0]} {step[1]}"], told(run)
    return run, pid


def stop_and_take_over(world: World, seed: int, steps: Iterable[tuple[str, int]], report: KillReport) -> None:
    """Each driver is stopped at a step of its own, and the next takes over; the last commits all; then all are woken.

    None of the woken may change what is committed, and each says that it was taken over.
    """
    draw = random.Random(seed)
    order = list(steps)
    draw.shuffle(order)
    stopped: list[tuple[tuple[str, int], Run, int]] = []
    for step in order:
        world.produce(draw.randrange(15, 40))
        stopped.append((step, *stopped_at(world, step)))
    world.produce(30)
    world.finish(stale_us=0)
    committed = world.checkpoints()
    for step, run, pid in draw.sample(stopped, len(stopped)):
        os.kill(pid, signal.SIGCONT)
        code = world.children.wait(pid)
        assert code == 1, f"{step}: a driver that was taken over ended with {code}: {told(run)}"
        assert report_of(run)["error"] == "FencedError", (step, told(run))
        assert world.checkpoints() == committed, f"{step}: the driver that was taken over has committed"
        report.fault(f"{step[0]} {step[1]}", "SIGSTOP", landed=True)
