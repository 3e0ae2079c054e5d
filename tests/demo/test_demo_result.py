"""The demonstration's result equals the same aggregation done by pandas, window by window, however the job is cut up:
into rounds, partitions, containers. Compared are the output's last updates and the state, all of both.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pytest

from headrace.cli.demo import totals_of
from headrace.core.keys.key_layout import split_state_key
from headrace.demo import data
from headrace.demo.run import APPLICATION, OUTPUT, Place, run
from headrace.serdes.json_serde import Json
from headrace.serdes.scalars import String
from headrace.serdes.windowed import Windowed
from headrace.state_files.files import StateFiles

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]  # a first Spark job on a busy machine takes its time

HOUR_US = 3_600_000_000
NEVER_US = -(2**62)  # before any window
RETENTION_US = 7 * 24 * HOUR_US  # of a window whose grace is not given
Windows = dict[tuple[str, int], tuple[int, float]]  # (carrier, start in µs) to (flights, mean delay)


def expected_windows(flights: pd.DataFrame) -> Windows:
    """What the job is to give, by pandas."""
    flown = flights[flights["dep_delay"].notna()]
    start = flown["departure"].dt.floor("h")
    grouped = flown.groupby([flown["carrier"], start])["dep_delay"].agg(["size", "mean"])
    return {
        (carrier, int(start.timestamp()) * 1_000_000): (int(row["size"]), float(row["mean"]))
        for (carrier, start), row in grouped.iterrows()
    }


def given_windows(place: Place) -> Windows:
    """The last update of each window in the output stream."""
    with place.opened(create=False) as system:
        updates = system.consume(OUTPUT, key=Windowed(String()), value=Json())
        return {(one.key.key, one.key.start_us): (one.value["flights"], one.value["mean_delay"]) for one in updates}


def stored_windows(place: Place) -> tuple[Windows, int]:
    """The state of all tasks as committed, and the lowest of their watermarks.

    Read from the files that the checkpoints name, as they are on disk.
    """
    entries: dict[bytes, bytes] = {}
    watermarks = []
    with place.opened(create=False) as system:
        checkpoints = system.job_store(APPLICATION).checkpoints()
    for name, checkpoint in checkpoints.items():
        if checkpoint.head is None:
            continue
        # A task that read all there is in its first round may have none yet: its upstream had not committed by then.
        watermarks.extend(checkpoint.watermarks.values())
        files = StateFiles(str(place.path / ".headrace" / "state"))
        own: dict[bytes, bytes | None] = {}
        for file in checkpoint.head.files:
            for batch in files.batches(file):
                rows = zip(batch["db"].to_pylist(), batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)
                own.update((key, value) for db, key, value in rows if db == "delays")
        kept = {key: value for key, value in own.items() if value is not None}
        assert not kept.keys() & entries.keys(), f"{name} has a window that another task has as well"
        entries |= kept
    found: Windows = {}
    for layout, packed in entries.items():
        carrier, start = split_state_key(layout)
        assert carrier is not None
        flights, (total, count), _ = msgspec.msgpack.decode(packed)  # and the time of the last flight
        assert flights == count
        found[carrier.decode(), int.from_bytes(start, "big") - 2**63] = (flights, total / count)
    return found, min(watermarks, default=NEVER_US)


def assert_same(found: Mapping[Any, Any], expected: Mapping[Any, Any]) -> None:
    """Equal, window by window; a failure shows some that differ instead of all."""
    differ = sorted(key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key))
    shown = {key: (found.get(key), expected.get(key)) for key in differ[:10]}
    assert not differ, f"{len(differ)} of {len(expected)} windows differ, (found, expected): {shown}"


def checked(place: Place, result: Any, flights: pd.DataFrame) -> None:
    """All that a run of the demonstration over `flights` must have left."""
    expected = expected_windows(flights)
    assert result.produced == len(flights)
    assert_same(given_windows(place), expected)
    assert {key: (value["flights"], value["mean_delay"]) for key, value in result.windows.items()} == expected
    stored, watermark_us = stored_windows(place)
    open_still = {key: value for key, value in expected.items() if key[1] + HOUR_US + RETENTION_US > watermark_us}
    assert len(open_still) > 0, "the comparison of the state would compare nothing"
    assert_same({key: stored[key] for key in stored if key in open_still}, open_still)
    # Windows go when a round finds that their time is over: those that nobody looked at since are there still, unchanged.
    assert_same(stored, {key: expected[key] for key in stored.keys() & expected.keys()})
    expired = result.status["sub_topologies"]["by-carrier"]["counters"].get("entries_expired", 0)
    assert len(stored) + expired == len(expected)
    for sub in result.status["sub_topologies"].values():
        assert sub["lag"] == 0
        assert not {name: count for name, count in sub["counters"].items() if "late" in name}


def only_first(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """The demonstration produces its first `count` flights only."""
    whole = data.flights_table
    monkeypatch.setattr(data, "flights_table", lambda: whole().slice(0, count))


@pytest.mark.soak
def test_whole_year(tmp_path: Path, session: Any, flights: pd.DataFrame) -> None:
    place = Place(tmp_path)
    result = run(place, 4, {"max_records_per_round": 80_000}, lambda text: None, session)
    assert result.produced == 336_776
    assert result.status["sub_topologies"]["source"]["round"] >= 5
    checked(place, result, flights)
    assert_sensible_report(result, flights)


def assert_sensible_report(result: Any, flights: pd.DataFrame) -> None:
    flown = flights[flights["dep_delay"].notna()]
    by_carrier = flown.groupby("carrier")["dep_delay"].agg(["size", "mean"])
    totals = totals_of(result.windows, data.airline_names())
    assert [total.carrier for total in totals] == list(by_carrier.sort_values("size", ascending=False).index)
    for total in totals:
        assert total.flights == by_carrier.loc[total.carrier, "size"]
        assert total.mean_delay == pytest.approx(by_carrier.loc[total.carrier, "mean"], rel=1e-12)
    assert totals[0].name == "United Air Lines Inc."


@pytest.mark.parametrize(
    ("max_records_per_round", "partitions", "containers"),
    [
        pytest.param(1_100, 4, 2, id="many small rounds"),
        pytest.param(4_000, 1, 1, id="one partition"),
        pytest.param(3_500, 5, 3, id="more partitions than containers"),
        pytest.param(1_000_000, 4, 4, id="one round"),
    ],
)
def test_first_weeks_however_cut(
    tmp_path: Path,
    session: Any,
    flights: pd.DataFrame,
    monkeypatch: pytest.MonkeyPatch,
    max_records_per_round: int,
    partitions: int,
    containers: int,
) -> None:
    count = 14_000  # more than two weeks: windows expire on the way
    only_first(monkeypatch, count)
    place = Place(tmp_path)
    settings = {"max_records_per_round": max_records_per_round, "containers": containers}
    result = run(place, partitions, settings, lambda text: None, session)
    checked(place, result, flights[:count])
    subs = result.status["sub_topologies"]
    assert subs["source"]["round"] >= -(-count // max_records_per_round)
    assert {name: (sub["tasks"], sub["containers"]) for name, sub in subs.items()} == {
        "source": (partitions, min(partitions, containers)),
        "by-carrier": (partitions, min(partitions, containers)),
    }
