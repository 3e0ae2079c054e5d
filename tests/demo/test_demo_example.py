"""The example is the demonstration's job, in the repository and as the demonstration leaves it."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from headrace.demo import run

EXAMPLE = Path(__file__).parents[2] / "examples" / "flight_delays.py"


def test_the_package_carries_the_example() -> None:
    assert run.example_text() == EXAMPLE.read_text(encoding="utf-8")


@pytest.mark.parametrize("partitions", [run.PARTITIONS, 7])
def test_the_example_has_the_partitions(partitions: int, tmp_path: Path) -> None:
    file = tmp_path / "flight_delays.py"
    file.write_text(run.example_text(partitions), encoding="utf-8")
    app = runpy.run_path(str(file))["app"]
    assert app.name == run.APPLICATION
    assert f"{partitions} partitions" in app.describe()


def test_the_example_on_a_cluster() -> None:
    text = run.example_text(system="kafka://a:1")
    assert 'system="kafka://a:1"' in text
    assert "log:" not in text
