"""Drivers that are killed in the middle of an expansion, at numbered steps and at random moments, again and again."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial

from expansion.world import PARTITIONS, GrowingWorld
from support.checker import KillReport
from support.world import Step

ROUND_STEPS = {
    "kafka": tuple(("kafka", step) for step in (2, 4, 6, 7, 8, 9, 10)),
    "log": tuple(("log", step) for step in (1, 4, 5, 9, 11, 12, 13)),
}
GROWTHS = 2  # of each application: from 2 to 4 to 8 partitions
REST = {"max_records_per_round": 600}  # the last run is not killed: it need not do what is left in many small rounds


def kill_in_changes(world: GrowingWorld, draw: random.Random, steps: Sequence[Step | None], report: KillReport) -> None:
    """Have the input grow once for each of `steps`, and kill the driver there: of a start's steps at that of the change, of a
    round's at the first or second round of a container under the new job model, of None at a random moment. Then the next
    goes on."""
    with world.producers():
        partitions = PARTITIONS
        for at in steps:
            partitions *= 2
            count, within_s = draw.randrange(1, 3), draw.uniform(0.0, 1.2)
            world.killed_at_work(at, partial(world.expand, partitions), count=count, within_s=within_s)
            report.fault(f"{at[0]} {at[1]}" if at else "at random", "SIGKILL", landed=True)
    world.finish(keys=REST)


def drawn_pairs(draw: random.Random, steps: Sequence[Step | None]) -> list[list[Step | None]]:
    """The steps in seeded order, as many for each application as it grows."""
    order = list(steps)
    draw.shuffle(order)
    return [order[start : start + GROWTHS] for start in range(0, len(order), GROWTHS)]
