"""Drivers that are killed in the middle of an expansion, at numbered steps and at random moments, again and again."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Sequence

from chaos.checker import KillReport
from chaos.children import sprung
from expansion.world import PARTITIONS, World, told

CHANGE_STEPS = tuple(("start", step) for step in range(1, 13))
ROUND_STEPS = {
    True: tuple(("kafka", step) for step in (2, 4, 6, 7, 8, 9, 10)),
    False: tuple(("log", step) for step in (1, 4, 5, 9, 11, 12, 13)),
}
AT_RANDOM = ("random", 0)
GROWTHS = 2  # of each application: from 2 to 4 to 8 partitions
REST = {"max_records_per_round": 600}  # the last run is not killed: it need not do what is left in many small rounds


def kill_in_changes(world: World, draw: random.Random, steps: Sequence[tuple[str, int]], report: KillReport) -> None:
    """Have the input grow once for each of `steps`, and kill the driver there; then the next goes on."""
    with world.producers():
        partitions = PARTITIONS
        for protocol, step in steps:
            partitions *= 2
            kill_in_change(world, draw, (protocol, step), partitions, report)
    world.finish(keys=REST)


def kill_in_change(
    world: World, draw: random.Random, at: tuple[str, int], partitions: int, report: KillReport
) -> None:
    """Kill a driver while its input grows to `partitions`: of a start's steps at that of the change, of a round's at the
    first or second round of a container under the new job model."""
    protocol, step = at
    traps, later = "", ""
    if protocol == "start":
        traps = f"kill:start:{step}:2"
    elif at != AT_RANDOM:
        later = f"kill:{protocol}:{step}:{draw.randrange(1, 3)}"
    run = world.run_of(traps=traps, later=later)
    pid = world.at_work(run)
    world.expand(partitions)
    if at == AT_RANDOM:
        time.sleep(draw.uniform(0.0, 1.2))
        os.kill(pid, signal.SIGKILL)
    code = world.children.wait(pid)
    assert code == -signal.SIGKILL, f"{protocol} {step}: ended with {code}: {told(run)}"
    assert at == AT_RANDOM or sprung(run) == [f"kill {protocol} {step}"], told(run)
    report.fault("at random" if at == AT_RANDOM else f"{protocol} {step}", "SIGKILL", landed=True)


def drawn_pairs(draw: random.Random, steps: Sequence[tuple[str, int]]) -> list[list[tuple[str, int]]]:
    """The steps in seeded order, as many for each application as it grows."""
    order = list(steps)
    draw.shuffle(order)
    return [order[start : start + GROWTHS] for start in range(0, len(order), GROWTHS)]
