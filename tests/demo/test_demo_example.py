"""The example is the demonstration's job, in the repository and as the demonstration leaves it."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from headrace.demo import job

EXAMPLE = Path(__file__).parents[2] / "examples" / "flight_delays.py"


def test_the_package_carries_the_example() -> None:
    assert job.example_text() == EXAMPLE.read_text(encoding="utf-8")


@pytest.mark.parametrize("partitions", [job.PARTITIONS, 7])
def test_the_example_is_the_job(partitions: int, tmp_path: Path) -> None:
    file = tmp_path / "flight_delays.py"
    file.write_text(job.example_text(partitions), encoding="utf-8")
    app = runpy.run_path(str(file))["app"]
    assert app.describe("dict") == job.flight_delays(partitions).describe("dict")
    assert f"{partitions} partitions" in app.describe()
