"""SIGKILL of the driver at every numbered step of Kafka's commit and of a start, and at random moments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chaos.checker import KillReport
from chaos.children import Children
from kafka_faults.killing import KAFKA_STEPS, START_STEPS, every_step_landed, kill_at_moments, kill_at_steps
from kafka_faults.world import SERVER, World

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]
SEED = 20270
STEPS = (*KAFKA_STEPS, *START_STEPS)


def test_nothing_is_lost_or_doubled_when_the_driver_is_killed_at_every_step(tmp_path: Path, kafka_server: Any) -> None:
    report = KillReport()
    with Children(tmp_path, SERVER) as children:
        world = World(kafka_server.client_settings(), tmp_path, SEED, children)
        kill_at_steps(world, SEED, STEPS, report)
        kill_at_moments(world, SEED, 3, (0.3, 2.0), report)
        world.finish()
        world.judge(report)
    print(report)
    report.verify(landed_min=len(STEPS))
    every_step_landed(report, STEPS)
