"""Keys of windows behind a repartition: all windows of a key are in one task, and are found there from outside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace.cli.commands import application as cli
from headrace.testing import Driver

KEYS = [f"k{number}" for number in range(20)]
SECOND = 1_000_000


def windowed_again(folder: Path) -> hr.App:
    """Counts per key and 10 s; then, behind a repartition, stores under those windowed keys: one without windows, one with,
    one that holds results back, and one of a `Processor`."""
    app = hr.App("again", system=f"log:{folder / 'log'}", state_uri=str(folder / "state"))
    rows = app.stream("in", key=hr.String(), value=hr.Long())
    table = rows.group_by_key().windowed_by(hr.Tumbling("10 seconds")).count(store="first")
    again = table.to_stream().repartition(hr.Repartitioned(name="again", number_of_partitions=4))
    again.group_by_key().count(store="again", name="counted")
    windows = hr.Tumbling("1 minute", grace="0 seconds")
    nested = again.group_by_key().windowed_by(windows).count(store="nested")
    nested.suppress(hr.until_window_closes(), store="held").to_stream().to("out")
    again.process(Last, name="last", value=hr.Long()).to("last-out")
    return app


class Last(hr.Processor[Any, int, Any, int]):
    stores = (hr.KeyValueStore("kept", value=hr.Long()), hr.WindowStore("times", value=hr.Long()))

    def init(self, context: Any) -> None:
        self.context = context

    def process(self, record: hr.Record) -> None:
        self.context.store("kept").put(record.value)
        self.context.store("times").put(record.value, at=record.timestamp_us)
        self.context.forward(value=record.value)


@pytest.fixture
def ran(tmp_path: Path) -> hr.App:
    app = windowed_again(tmp_path)
    with Driver(app, directory=tmp_path, partitions=3) as d:
        for number, key in enumerate(KEYS):
            d.send("in", key, number, at=20 * SECOND + number)
        d.run()
        assert len(d.store("again").all()) == len(KEYS)
    return app


def key_of(name: str) -> hr.WindowedKey:
    return hr.WindowedKey(name, 20 * SECOND, 30 * SECOND)


def test_each_windowed_key_is_found_by_a_look_from_outside(ran: hr.App) -> None:
    for number, name in enumerate(KEYS):
        key, at = key_of(name), 20 * SECOND + number
        assert ran.state("first").get(name) == {key: 1}
        assert ran.state("first").get(key) == 1
        assert ran.state("again").get(key) == 1
        assert [entry.value for entry in ran.state("again").entries(key)] == [1]
        minute = hr.WindowedKey(key, 0, 60 * SECOND)
        assert ran.state("nested").get(key) == {minute: 1}
        assert ran.state("nested").get(minute) == 1
        assert ran.state("held").get(key) == {minute: 1}
        assert ran.state("kept").get(key) == 1
        assert ran.state("times").get(key) == {at: 1}
    assert ran.state("again").get(hr.WindowedKey("k0", 0, 10 * SECOND)) is None
    assert ran.state("nested").get(hr.WindowedKey(key_of("k0"), 60 * SECOND, 120 * SECOND), "none") == "none"


def test_each_windowed_key_is_found_from_the_command_line(ran: hr.App, tmp_path: Path) -> None:
    place = ["--application", "again", "--system", f"log:{tmp_path / 'log'}", "--set", f"state_uri={tmp_path / 'state'}"]
    for name in KEYS:
        key = {"key": name, "start": "1970-01-01T00:00:20Z", "end": "1970-01-01T00:00:30Z"}
        result = CliRunner().invoke(cli, ["state", "get", "again", json.dumps(key), *place, "--json"])
        assert result.exit_code == 0, result.output
        shown = json.loads(result.stdout)
        assert [entry["value"] for entry in shown["entries"]] == [1]
        assert shown["key"] == key
    result = CliRunner().invoke(cli, ["state", "get", "again", "k0", *place])
    assert result.exit_code != 0


@pytest.mark.parametrize("partitions", [2, 7])
def test_what_is_produced_by_windowed_keys_is_where_a_job_writes_it(tmp_path: Path, partitions: int) -> None:
    app = hr.App("copy", system=f"log:{tmp_path / 'log'}", state_uri=str(tmp_path / "state"))
    key = hr.Windowed(hr.String())
    app.stream("in", key=key, value=hr.Long()).repartition(
        hr.Repartitioned(name="by-key", number_of_partitions=partitions)
    ).to("out")
    with Driver(app, directory=tmp_path, partitions={"in": partitions, "out": partitions}) as d:
        log = d._system
        log.produce("in", [(hr.WindowedKey(name, at, at + 1), 1) for name in KEYS for at in range(3)], key=key, value=hr.Long())
        d.run()
        places = {
            stream: {r.key: r.partition for r in log.consume(stream, key=key, value=hr.Long())}
            for stream in ("in", "copy-by-key-repartition", "out")
        }
    assert len(places["in"]) == 3 * len(KEYS)
    assert places["in"] == places["out"]
    together = {(each.key, partition) for each, partition in places["in"].items()}
    assert len(together) == len(KEYS), "all windows of a key are in one partition"
