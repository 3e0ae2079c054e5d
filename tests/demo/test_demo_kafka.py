"""The demonstration on Kafka gives what it gives on the log, window by window; its topics are its own, and no others."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

import headrace as hr
from demo.test_demo_result import assert_same, expected_windows, given_windows, only_first
from headrace.cli.commands import application
from headrace.demo import run as runs
from headrace.testing import KafkaServer

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
FLIGHTS = int(os.environ.get("HEADRACE_TEST_DEMO_FLIGHTS", "6000"))  # the whole year in `make soak`


@pytest.fixture
def url(kafka_server: KafkaServer) -> Any:
    yield f"kafka://{kafka_server.bootstrap}"
    with hr.open_system(f"kafka://{kafka_server.bootstrap}") as system:
        for name in runs.topics_in(system):
            system.delete_stream(name)


def test_it_gives_the_same_result_and_begins_anew(
    url: str, tmp_path: Path, session: Any, flights: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_first(monkeypatch, FLIGHTS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runs, "run", functools.partial(runs.run, spark=session))
    expected = expected_windows(flights[:FLIGHTS])
    for again in (False, True):
        done = CliRunner().invoke(application, ["demo", "--system", url, "--max-records-per-round", "2500", "--json"])
        assert done.exit_code == 0, done.output
        assert f"{url} has the topics of an earlier demonstration" in done.stderr or not again
        shown = json.loads(done.stdout)
        assert (shown["flights_produced"], shown["windows"], shown["system"]) == (FLIGHTS, len(expected), url)
        assert_same(given_windows(runs.Place(tmp_path / "headrace-demo", url)), expected)
        if FLIGHTS > 50_000:
            break
    assert f'system="{url}"' in (tmp_path / "headrace-demo" / "flight_delays.py").read_text()
    example = str(tmp_path / "headrace-demo" / "flight_delays.py")
    status = CliRunner().invoke(application, ["status", example, "--json"])
    assert status.exit_code == 0, status.output
    assert {sub["lag"] for sub in json.loads(status.stdout)["sub_topologies"].values()} == {0}


def test_topics_of_others_are_left_alone(url: str, tmp_path: Path) -> None:
    with hr.open_system(url) as system:
        system.create_stream(runs.INPUT, 1)
        system.produce(runs.INPUT, [(b"mine", b"precious")])
        done = CliRunner().invoke(application, ["demo", "--system", url, "--dir", str(tmp_path / "d")])
        assert done.exit_code == 1
        assert f"{url} has flights already, and no demonstration of this folder made them" in done.stderr
        assert [record.key for record in system.consume(runs.INPUT)] == [b"mine"]


@pytest.mark.soak
def test_with_a_broker_of_its_own(tmp_path: Path, session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    only_first(monkeypatch, 900)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runs, "run", functools.partial(runs.run, spark=session))
    done = CliRunner().invoke(application, ["demo", "--with-kafka"])
    assert done.exit_code == 0, done.output
    assert "starting a Kafka broker" in done.stderr
    assert "Kafka is at 127.0.0.1:" in done.stderr
    assert "900 flights, " in done.stdout
    commands = dict(map(str.strip, line.split(" headrace ", 1)) for line in done.stdout.splitlines() if " headrace " in line)
    restart = commands["start its broker"].split()
    assert restart[:4] == ["kafka", "start", "--dir", "kafka"]
    monkeypatch.chdir(tmp_path / "headrace-demo")
    with KafkaServer(folder="kafka", port=int(restart[5])):
        for meaning in ("its progress", "its streams", "its output", "a carrier's state", "what it is made of"):
            shown = CliRunner().invoke(application, next(c for m, c in commands.items() if m.startswith(meaning)).split())
            assert shown.exit_code == 0, (meaning, shown.output)
            assert shown.stdout
    monkeypatch.chdir(tmp_path)
    again = CliRunner().invoke(application, ["demo", "--with-kafka", "--json"])
    assert again.exit_code == 0, again.output
    assert "has the topics of an earlier demonstration; they are recreated" in again.stderr
    assert json.loads(again.stdout)["flights_produced"] == 900


def test_both_options_are_one_too_many(tmp_path: Path) -> None:
    for arguments, words in [
        (["--with-kafka", "--system", "kafka://a:1"], "not both"),
        (["--system", "log:./x"], "expected kafka://HOST:PORT"),
    ]:
        refused = CliRunner().invoke(application, ["demo", "--dir", str(tmp_path / "x"), *arguments])
        assert refused.exit_code == 2
        assert words in refused.stderr
