"""`headrace startpoint` and `checkpoint` on Kafka: offsets are called so, and the job does what was shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import headrace as hr
from cli.shop import APP, SALES, SHOPS, produce_sales
from headrace.cli.app_loading import load_app
from headrace.cli.commands import application
from headrace.core.keys.hashing import partition_of
from headrace.testing.kafka_server import KafkaServer
from support.world import caught_up

Run = Callable[..., Any]
FULL = partition_of(b"shop-0", 4)  # a partition with records
NAME = ("--application", "again-shop")


def work_off() -> None:
    """Until all is read; what it begins with is kept, to go back to."""
    overrides = ["state_version_interval_s=0"]
    caught_up(load_app("shop.py"), overrides=overrides)


@pytest.fixture
def ran(kafka_server: KafkaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Commands beside a broker on which the shop has run."""
    url = f"kafka://{kafka_server.bootstrap}"
    text = APP.replace('"shop"', '"again-shop"').replace('"sales"', '"again-sales"').replace('"log:./data"', repr(url))
    (tmp_path / "shop.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    with hr.open_system(url) as system:
        system.create_stream("again-sales", 4)
        produce_sales(system, "again-sales")
    work_off()

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(application, [*arguments, "--system", url])

    return run


def answer(done: Any) -> Any:
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def test_a_job_goes_back_and_on_as_it_was_shown(ran: Run, kafka_server: KafkaServer) -> None:
    positions = answer(ran("checkpoint", "export", *NAME))["positions"]
    (end,) = [one["offset"] for one in positions if (one["stream"], one["partition"]) == ("again-sales", FULL)]
    refused = ran("startpoint", "set", "again-sales", *NAME, "-p", str(FULL), "--offset", str(end + 10), "--yes")
    assert (refused.exit_code, "is not there: it holds 0 to " in refused.stderr) == (1, True)
    shown = ran("startpoint", "set", "again-sales", *NAME, "-p", str(FULL), "--earliest")
    assert shown.exit_code == 2
    assert f"{end:,} offsets are read again, 0 are skipped" in shown.stdout
    assert "note: what is counted are offsets: on Kafka some of them may be markers of transactions" in shown.stdout
    assert answer(ran("startpoint", "list", *NAME, "--json"))["startpoints"] == []
    done = answer(ran("startpoint", "set", "again-sales", *NAME, "-p", str(FULL), "--earliest", "--yes", "--json"))
    assert (done["unit"], done["read_again"]) == ("offsets", end)
    work_off()
    (entry,) = answer(ran("state", "get", "per-shop", "shop-0", *NAME, "--json"))["entries"]
    assert entry["value"] == 2 * SALES // SHOPS
    (known,) = answer(ran("startpoint", "list", *NAME, "--json"))["startpoints"]
    assert (known["id"], known["status"]) == (done["startpoints"][0], "applied")

    Path("positions.json").write_text(json.dumps({**answer(ran("checkpoint", "export", *NAME)), "positions": positions}))
    unmoved = ran("checkpoint", "import", "positions.json", *NAME)
    assert "is at these positions already: there is nothing to set" in unmoved.stdout, unmoved.stdout

    with hr.open_system(f"kafka://{kafka_server.bootstrap}") as system:
        system.produce("again-sales", [("shop-0", {"item": "x", "price": 1.0})] * 5, key=hr.String(), value=hr.Json())
    work_off()
    back = ("startpoint", "set", "again-sales", *NAME, "-p", str(FULL), "--offset", str(end), "--state", "rewind")
    done = answer(ran(*back, "--yes", "--json"))
    behind = f"per-item/Partition_{partition_of(b'x', 4)}"
    assert [rewind["task"] for rewind in done["rewinds"]] == [f"Partition_{FULL}", behind]
    (gap,) = done["skipped_ranges"]
    assert [(move["new"], move["in_skipped_ranges"] > 4) for move in done["moves"]] == [(end, False), (gap["start"], True)]
    work_off()
    (entry,) = answer(ran("state", "get", "per-shop", "shop-0", *NAME, "--json"))["entries"]
    assert entry["value"] == 2 * SALES // SHOPS + 5
    entries = answer(ran("state", "get", "per-item", "x", *NAME, "--json"))["entries"]
    assert sum(entry["value"]["n"] for entry in entries) == 5
