"""What `headrace demo` shows, on a part of the data."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headrace.cli.commands import application
from headrace.cli.demo import CarrierTotal, report_tables, totals_of, worst_hour_of
from headrace.demo import data
from headrace.demo import run as runs

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, session: Any) -> Path:
    """The command takes the session that is there, and produces a day's flights."""
    whole = data.flights_table
    monkeypatch.setattr(data, "flights_table", lambda: whole().slice(0, 900))
    monkeypatch.setattr(runs, "run", functools.partial(runs.run, spark=session))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.spark
def test_the_command(small: Path) -> None:
    first = CliRunner().invoke(application, ["demo"])
    assert first.exit_code == 0, first.output
    assert "Busiest carriers" in first.stdout
    assert "Most delayed carriers" in first.stdout
    assert "900 flights, " in first.stdout
    assert "cd headrace-demo\n" in first.stdout
    assert "producing 900 flights" in first.stderr
    assert "source: 900 records" in first.stderr
    again = CliRunner().invoke(application, ["demo", "--json", "--partitions", "2"])
    assert again.exit_code == 0, again.output
    assert "headrace-demo holds an earlier demonstration" in again.stderr
    shown = json.loads(again.stdout)
    assert shown["flights_produced"] == 900
    assert sum(carrier["flights"] for carrier in shown["carriers"]) == 900 - 4
    assert {sub["tasks"] for sub in shown["status"]["sub_topologies"].values()} == {2}
    assert (small / "headrace-demo" / "flight_delays.py").is_file()


def test_a_folder_with_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    refused = CliRunner().invoke(application, ["demo", "--dir", str(tmp_path)])
    assert refused.exit_code == 1
    assert f"error: folder {tmp_path} is not empty" in refused.stderr
    assert "hint: choose another one" in refused.stderr


WINDOWS = {
    ("AA", 0): {"flights": 9, "mean_delay": 1.0},
    ("AA", 3_600_000_000): {"flights": 1, "mean_delay": 90.0},
    ("UA", 0): {"flights": 30, "mean_delay": -2.0},
}


def test_totals_weigh_hours_by_their_flights() -> None:
    assert totals_of(WINDOWS, {"AA": "American"}) == [
        CarrierTotal("UA", "UA", 30, -2.0, 1),
        CarrierTotal("AA", "American", 10, 9.9, 2),
    ]


def test_the_worst_hour_has_enough_flights() -> None:
    worst = worst_hour_of(WINDOWS, {})
    assert worst is not None
    assert (worst["carrier"], worst["flights"]) == ("AA", 9)
    assert worst_hour_of({("AA", 0): {"flights": 1, "mean_delay": 90.0}}, {}) is None


@pytest.mark.parametrize(("width", "beside"), [(110, True), (60, False)])
def test_the_table_is_never_cut(width: int, beside: bool) -> None:
    from rich.console import Console

    console = Console(width=width)
    with console.capture() as captured:
        console.print(report_tables(totals_of(WINDOWS, {"AA": "American Airlines Incorporated"})))
    lines = captured.get().strip().splitlines()
    assert ("Busiest" in lines[0] and "Most delayed" in lines[0]) is beside
    assert not any("…" in line for line in lines)
