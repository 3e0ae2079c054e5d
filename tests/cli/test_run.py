"""`headrace run`: to the end, to an error, to a signal. On Spark only where Spark is the point."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.adapters.common.lease_holder import this_process
from headrace.cli.run import _summary
from headrace.wiring import launch
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine

Run = Callable[..., Any]
SOURCE = Path(__file__).parents[2] / "src"
COLUMNS = """
import headrace as hr
from pyspark.sql import functions as F

app = hr.App("columns", system="log:./data")
app.stream("sales", key=hr.String(), value=hr.Json("price double")).filter(F.col("value.price") >= 5).to("large")
"""
TWICE = """
import headrace as hr

app = hr.App("twice", system="log:./data")
sales = app.stream("sales", key=hr.String(), value=hr.Json())
sales.select_key(lambda sale: "all", key=hr.String()).group_by_key().count(store="all").to_stream().to("counts")
"""
FAILING = """
import headrace as hr

app = hr.App("failing", system="log:./data")

def halved(sale):
    return 1 / (sale.value["price"] - 3)

app.stream("sales", key=hr.String(), value=hr.Json()).map_values(halved, value=hr.Double()).to("out")
"""


@pytest.fixture
def in_process(fresh: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A log with ten sales, where `run` uses the engine that needs no Spark."""
    monkeypatch.setattr(launch, "spark_engine", lambda app, config: InlineEngine(run_container))
    (tmp_path / "failing.py").write_text(FAILING)
    (tmp_path / "columns.py").write_text(COLUMNS)
    with hr.open_system("log:./data") as system:
        system.create_stream("sales", 2)
        system.produce("sales", [(f"k{n}", {"price": n}) for n in range(10)], key=hr.String(), value=hr.Json())
    return fresh


def test_a_record_that_fails_shows_the_users_traceback_then_the_error(in_process: Run) -> None:
    result = in_process("run", "failing.py", "--until", "caught-up", "--no-progress")
    assert result.exit_code == 1
    text = result.stderr[result.stderr.index("Traceback") :]
    trace, _, error = text.partition("\n\n")
    assert 'failing.py", line 7, in halved' in trace
    assert trace.endswith("ZeroDivisionError: division by zero")
    assert error.startswith("error: a record could not be processed: sales, partition")
    assert "\nhint: nothing of this round was committed" in error
    with hr.open_system("log:./data") as system:
        assert list(system.consume("out")) == []


def test_until_caught_up_ends_with_a_line_or_json(in_process: Run) -> None:
    options = ("--until", "caught-up", "--no-progress", "--set", "dead_letter_stream=dead")
    result = in_process("run", "failing.py", *options)
    assert result.exit_code == 0, result.stderr
    assert result.stderr.endswith("failing has caught up: 10 input records read; 1 dead letter went to dead\n")
    assert result.stdout == ""
    again = json.loads(in_process("run", "failing.py", *options, "--json").stdout)
    assert again["sub_topologies"]["source"]["records"] == 0
    with hr.open_system("log:./data") as system:
        assert len(list(system.consume("out"))) == 9


def test_dead_letters_are_counted_over_all_runs(in_process: Run) -> None:
    options = ("--until", "caught-up", "--no-progress", "--set", "dead_letter_stream=dead")

    def counted() -> tuple[str, dict[str, Any]]:
        text, data = in_process("status", "failing.py").stdout, in_process("status", "failing.py", "--json").stdout
        return text.splitlines()[-1], json.loads(data)["sub_topologies"]["source"]

    def produce(*prices: int) -> None:
        with hr.open_system("log:./data") as system:
            system.produce("sales", [("k", {"price": price}) for price in prices], key=hr.String(), value=hr.Json())

    in_process("run", "failing.py", *options)
    assert counted()[0] == "source: dead_letters 1"
    quiet = in_process("run", "failing.py", *options)
    assert quiet.stderr.endswith("failing has caught up: 0 input records read\n"), "of this run"
    assert counted()[0] == "source: dead_letters 0 (1 in all runs)"
    produce(3, 3, 5)
    last = in_process("run", "failing.py", *options)
    assert last.stderr.endswith("failing has caught up: 3 input records read; 2 dead letters went to dead\n")
    text, source = counted()
    assert text == "source: dead_letters 2 (3 in all runs)"
    assert source["counters"]["dead_letters"] == 2
    assert source["counters_of_all_runs"] == {"dead_letters": 3, "records": 13, "records_written": 13}


def test_a_run_that_is_stopped_or_shows_its_progress_tells_of_dead_letters(in_process: Run) -> None:
    result = in_process("run", "failing.py", "--until", "caught-up", "--set", "dead_letter_stream=dead")
    progress, last = result.stderr.splitlines()[-2:]
    assert "source: 10 records" in progress
    assert ", 1 dead letter; first commit after " in progress
    assert last.endswith("1 dead letter went to dead")


def test_an_unknown_key_and_a_bad_until_are_refused(in_process: Run) -> None:
    unknown = in_process("run", "failing.py", "--set", "containes=2")
    assert unknown.exit_code == 1
    assert unknown.stderr.endswith("hint: did you mean 'containers'?\n")
    misspelt = in_process("run", "failing.py", "--until", "caughtup")
    assert misspelt.exit_code == 2
    assert "expected caught-up, found 'caughtup'; did you mean 'caught-up'?" in misspelt.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--processor-id", "a"], "error: processor_id is 'a', and coordinator is not set"),
        (["--coordinator", "zookeeper://127.0.0.1:1/x"], "error: system 'log:./data': a group runs on Kafka"),
        (["--coordinator", "zookeeper://127.0.0.1:1/x", "--set", "system=kafka://127.0.0.1:1"], "processor_id is not set"),
        (
            ["--coordinator", "localhost:2181", "--processor-id", "a", "--set", "system=kafka://127.0.0.1:1"],
            "coordinator 'localhost:2181': expected zookeeper://HOST:PORT/ROOT",
        ),
    ],
)
def test_a_wrong_start_in_a_group_is_refused_and_says_what_to_do(in_process: Run, options: list[str], said: str) -> None:
    result = in_process("run", "failing.py", *options)
    assert result.exit_code == 1 and said in result.stderr and "\nhint: " in result.stderr, result.stderr
    with hr.open_system("log:./data") as system:
        assert system.applications() == []


def test_an_empty_option_of_a_group_is_wrong_usage(in_process: Run) -> None:
    for option in ("--coordinator", "--processor-id"):
        result = in_process("run", "failing.py", option, " ")
        assert result.exit_code == 2 and f"{option}: expected a text, found ' '" in result.stderr, result.stderr


def test_records_that_go_through_a_repartition_stream_are_not_counted_twice(in_process: Run, tmp_path: Path) -> None:
    (tmp_path / "twice.py").write_text(TWICE)
    result = in_process("run", "twice.py", "--until", "caught-up", "--no-progress")
    assert result.stderr.endswith("twice has caught up: 10 input records read\n"), result.stderr
    with hr.open_system("log:./data") as system:
        assert list(system.consume("counts", value=hr.Long()))[-1].value == 10


def test_a_run_of_what_is_not_there_says_so_before_spark_and_makes_nothing(fresh: Run, tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text(FAILING)
    result = fresh("run", "failing.py")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: input stream 'sales' does not exist on log:./data\n")
    assert "hint: create it first: headrace stream create sales --system log:./data\n" in result.stderr
    assert not (tmp_path / "data").exists()


def test_a_second_driver_is_told_who_holds_the_job(in_process: Run) -> None:
    now_us = time.time_ns() // 1000
    with hr.open_system("log:./data") as system:
        system.job_store("failing").acquire(this_process("other", now_us), now_us)
        result = in_process("run", "failing.py", "--until", "caught-up")
    assert result.exit_code == 1
    assert f"error: application 'failing' is run by process {os.getpid()}" in result.stderr


@pytest.mark.spark
def test_columns_at_import_start_spark_and_sigterm_stops_cleanly(in_process: Run, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", "from headrace.cli import main; main()", "run", "columns.py", "--no-progress"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until_s = time.monotonic() + 90
        while time.monotonic() < until_s and process.poll() is None:
            found = in_process("status", "--application", "columns", "--json")
            if found.exit_code == 0 and json.loads(found.stdout)["sub_topologies"]["source"].get("records") == 10:
                break
            time.sleep(0.2)
        assert json.loads(found.stdout)["running"] is True
    finally:
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert output == ""
    assert "starting Spark: the application builds Columns when it is imported" in errors
    assert errors.count("starting Spark") == 1, errors
    assert errors.endswith("stopped columns: committed rounds are kept, the next run resumes from there\n")
    assert json.loads(in_process("status", "--json").stdout)["running"] is False
    with hr.open_system("log:./data") as system:
        assert len(list(system.consume("large"))) == 5


@pytest.mark.parametrize(
    ("count", "unit", "said"), [(1, "offset", "1 input offset read"), (2, "record", "2 input records read")]
)
def test_on_kafka_the_last_line_is_of_offsets(count: int, unit: str, said: str) -> None:
    """Markers of transactions are among them."""
    status = {"application": "a", "sub_topologies": {"source": {"records": count, "lag": 0}}}
    assert _summary(status, unit) == f"a has caught up: {said}"
