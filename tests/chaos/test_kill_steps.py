"""SIGKILL of the driver at every numbered step of the log's commit and of a start, many times in a seeded run."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.killing import LOG_STEPS, START_STEPS, every_step_landed, kill_run

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]
SEED = 20260
STEPS = (*LOG_STEPS, *START_STEPS)


def test_nothing_is_lost_or_doubled_when_the_driver_is_killed_at_every_step(tmp_path: Path) -> None:
    report = kill_run(tmp_path, SEED, 3, STEPS)
    print(report)
    report.verify(landed_min=60)
    every_step_landed(report, STEPS)
