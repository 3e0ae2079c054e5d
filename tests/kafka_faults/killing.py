"""Seeded runs with the driver killed, at numbered steps and at random moments; used by tests, and for long by `make soak`."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterable, Sequence

from chaos.checker import KillReport
from chaos.children import sprung
from kafka_faults.world import World, told

KAFKA_STEPS = tuple(("kafka", step) for step in range(1, 12))
START_STEPS = tuple(("start", step) for step in range(1, 13))
BATCH = 60
IN_TRANSACTION = "inside an open transaction"


def kill_at_steps(world: World, seed: int, steps: Iterable[tuple[str, int]], report: KillReport) -> None:
    """Kill the driver at each of these steps, in seeded order; what is left is for the next run to do."""
    draw = random.Random(seed)
    order = list(steps)
    draw.shuffle(order)
    for protocol, step in order:
        world.produce(draw.randrange(BATCH // 2, BATCH))
        count = draw.randrange(1, 4) if protocol == "kafka" else 1
        run = world.run_of(traps=f"kill:{protocol}:{step}:{count}")
        code = world.children.finish(run)
        died = f"kill {protocol} {step}" in sprung(run)
        assert code in (0, -signal.SIGKILL), f"{protocol} {step}: ended with {code}: {told(run)}"
        assert died is (code != 0), f"{protocol} {step}: ended with {code}, the trap sprang: {died}"
        report.fault(f"{protocol} {step}", "SIGKILL", landed=died)
        if died:
            note_open(world, report)


def kill_at_moments(world: World, seed: int, kills: int, within_s: tuple[float, float], report: KillReport) -> None:
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
            note_open(world, report)


def note_open(world: World, report: KillReport) -> None:
    """Note whether a transaction of the driver that has just died is still open: what its successor has to end."""
    report.fault(IN_TRANSACTION, "of these", landed=world.is_in_transaction())


def every_step_landed(report: KillReport, steps: Sequence[tuple[str, int]]) -> None:
    missed = [f"{p} {s}" for p, s in steps if not report.landed[f"{p} {s}", "SIGKILL"]]
    assert not missed, f"no kill landed at {', '.join(missed)}\n{report}"
    assert report.landed[IN_TRANSACTION, "of these"] > 0, f"no kill came while a transaction was open\n{report}"
