"""Seeded runs with the driver killed, at numbered steps and at random moments; used by tests, and for long by `make soak`."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Sequence
from contextlib import nullcontext

from chaos.world import SeededWorld
from support.checker import KillReport
from support.children import sprung, told
from support.world import COMMIT_STEPS, IN_TRANSACTION, START_STEPS, Step

BATCH = 60
TRIES = 3  # a step may be reached less often than was drawn


def steps_of(kind: str) -> tuple[Step, ...]:
    """All numbered steps of the commit on a system of this kind, and of a start."""
    return (*COMMIT_STEPS[kind], *START_STEPS)


def kill_at_steps(world: SeededWorld, seed: int, steps: Sequence[Step], report: KillReport) -> None:
    """Kill the driver at each of these steps, in seeded order, with new input each time; what is left is the next run's."""
    draw = random.Random(seed)
    for step in draw.sample(steps, len(steps)):
        for _ in range(TRIES):
            if killed_at(world, draw, step, report):
                break


def killed_at(world: SeededWorld, draw: random.Random, step: Step, report: KillReport) -> bool:
    protocol, number = step
    world.produce(draw.randrange(BATCH // 2, BATCH))
    count = 1 if protocol == "start" else draw.randrange(1, 5)
    run = world.run_of(traps=f"kill:{protocol}:{number}:{count}")
    pieces = [draw.randrange(1, 10) for _ in range(3)]
    with world.producing_beside(pieces, 0.1) if world.place.kind == "log" else nullcontext():
        code = world.children.finish(run)
    died = f"kill {protocol} {number}" in sprung(run)
    assert code in (0, -signal.SIGKILL), f"{protocol} {number}: ended with {code}: {told(run)}"
    assert died is (code != 0), f"{protocol} {number}: ended with {code}, the trap sprang: {died}"
    report.fault(f"{protocol} {number}", "SIGKILL", landed=died)
    if died:
        world.note_open(report)
    return died


def kill_at_moments(world: SeededWorld, seed: int, kills: int, within_s: tuple[float, float], report: KillReport) -> None:
    """Kill the driver, `kills` times, after a seeded time."""
    draw = random.Random(seed)
    for _ in range(kills):
        world.produce(draw.randrange(BATCH, 2 * BATCH))
        run = world.run_of()
        pid = world.children.start(run)
        time.sleep(draw.uniform(*within_s))
        os.kill(pid, signal.SIGKILL)
        code = world.children.wait(pid)
        assert code in (0, -signal.SIGKILL), f"ended with {code}: {told(run)}"
        report.fault("at random", "SIGKILL", landed=code != 0)
        if code != 0:
            world.note_open(report)


def finish_and_judge(world: SeededWorld, report: KillReport) -> None:
    """Let it finish, run an undisturbed application on the same input, and judge."""
    world.finish()
    calm = f"calm-{world.name}"
    stores = str(world.folder / "stores-calm")
    run = world.finish(name=calm, input=world.stream("in"), stores=stores, keys={"max_records_per_round": 500})
    world.judge(report, run)


def every_step_landed(report: KillReport, kind: str) -> None:
    missed = [f"{p} {s}" for p, s in steps_of(kind) if not report.landed[f"{p} {s}", "SIGKILL"]]
    assert not missed, f"no kill landed at {', '.join(missed)}\n{report}"
    if kind == "kafka":
        assert report.landed[IN_TRANSACTION, "of these"] > 0, f"no kill came while a transaction was open\n{report}"
