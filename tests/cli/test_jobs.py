"""`status`, `tasks`, `checkpoint list`, `describe`: what is stored about a job, and what its file says."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.adapters.common.lease_holder import this_process
from headrace.codec.job_records import HISTORY
from headrace.wiring import opened_system

Run = Callable[..., Any]


def test_status_shows_what_was_done_and_that_nothing_runs(headrace: Run) -> None:
    found = json.loads(headrace("status", "shop.py", "--json").stdout)
    assert (found["application"], found["running"], found["holder"]) == ("shop", False, None)
    assert set(found["sub_topologies"]) == {"source", "per-item"}
    assert found["sub_topologies"]["source"]["records"] == 60
    assert [sub["lag"] for sub in found["sub_topologies"].values()] == [0, 0]


def test_status_needs_only_the_system_and_finds_the_only_application_there(headrace: Run) -> None:
    by_app = headrace("status", "--app", "shop.py").stdout
    assert "shop on log:./data: not running" in by_app
    assert headrace("status", "--application", "shop", "--system", "log:./data").stdout == by_app
    assert headrace("status").stdout == by_app


COMMANDS = [("status",), ("tasks",), ("history",), ("checkpoint", "list"), ("state", "get", "per-shop", "shop-1")]


@pytest.mark.parametrize("command", [*COMMANDS, ("state", "dump", "per-shop", "--output")])
def test_every_command_takes_its_application_in_every_way(headrace: Run, tmp_path: Path, command: tuple[str, ...]) -> None:
    whole = [*command, str(tmp_path / "out.parquet")] if command[-1] == "--output" else list(command)
    ways = [("shop.py",), ("--app", "shop.py:app"), ("--application", "shop", "--system", "log:./data"), ()]
    ways += [("--application", "shop", "--set", "system=log:data")]
    found = [headrace(*whole, *way) for way in ways]
    assert [result.exit_code for result in found] == [0] * len(ways), [result.stderr for result in found]
    assert len({result.stdout.replace("log:data", "log:./data") for result in found}) == 1
    assert headrace(*whole, "shop.py", "--app", "shop.py").exit_code == 2
    assert "--system: expected a URL" in headrace(*whole, "--system", "").stderr


def test_status_counts_lag_from_the_committed_positions(fresh: Run, place: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(place, tmp_path, dirs_exist_ok=True)
    with hr.open_system("log:./data") as system:
        system.produce("sales", [("shop-0", None)] * 5, key=hr.String())
    found = json.loads(fresh("status", "--json").stdout)
    assert found["sub_topologies"]["source"]["lag"] == 5
    tasks = json.loads(fresh("tasks", "--json").stdout)["tasks"]
    assert sum(task["lag"] for task in tasks if task["sub_topology"] == "source") == 5


@pytest.mark.parametrize(
    ("partitions", "why"), [(8, "the job picks them up at its next start"), (6, "the next start will fail")]
)
def test_partitions_that_were_not_taken_up_are_counted_and_said(
    fresh: Run, place: Path, tmp_path: Path, partitions: int, why: str
) -> None:
    import shutil

    shutil.copytree(place, tmp_path, dirs_exist_ok=True)
    with hr.open_system("log:./data") as system:
        system.expand_stream("sales", partitions)
        system.produce("sales", [hr.Record("shop-0", None, 0, partition=5)] * 7, key=hr.String())
        system.produce("sales", [hr.Record("shop-0", None, 0, partition=1)] * 2, key=hr.String())
    found = json.loads(fresh("status", "--json").stdout)["sub_topologies"]
    assert [sub["lag"] for sub in found.values()] == [9, 0]
    (note,) = found["source"]["notes"]
    assert note.startswith(f"partitions 4 to {partitions - 1} of stream 'sales' are not read")
    assert why in note
    assert f"source: {note}\n" in fresh("status").stdout
    for command in (("tasks",), ("checkpoint", "list")):
        assert json.loads(fresh(*command, "--json").stdout)["notes"] == [note]
        assert fresh(*command).stdout.endswith(f"{note}\n")


def test_status_tells_a_running_job_from_one_that_died(fresh: Run, place: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(place, tmp_path, dirs_exist_ok=True)
    now_us = time.time_ns() // 1000
    with hr.open_system("log:./data") as system:
        store = system.job_store("shop")
        epoch = store.acquire(this_process("run-1", now_us), now_us)
        assert "running: process" in fresh("status").stdout
        assert "\nrecords and rounds: of this run; records/s of the last minute\n" in fresh("status").stdout
        store.release(epoch)
        silent_us = now_us - 60_000_000
        store.acquire(this_process("run-2", silent_us), silent_us)
        assert "ended, or is stopped, without releasing the job" in fresh("status").stdout
        assert json.loads(fresh("status", "--json").stdout)["running"] is False
        assert "\nrecords and rounds: of the last run; records/s on average\n" in fresh("status").stdout


def test_tasks_shows_the_job_model(headrace: Run) -> None:
    tasks = json.loads(headrace("tasks", "shop.py", "--json").stdout)["tasks"]
    names = [task["task"] for task in tasks]
    assert [name for name in names if "/" not in name] == [f"Partition_{number}" for number in range(4)]
    assert "per-item/Partition_3" in names
    assert next(task for task in tasks if task["task"] == "Partition_2")["reads"] == ["sales/2"]
    assert "Partition_2" in headrace("tasks", "shop.py").stdout


def test_checkpoint_list_shows_positions_against_ends(headrace: Run) -> None:
    found = json.loads(headrace("checkpoint", "list", "--app", "shop.py", "--json").stdout)["checkpoints"]
    positions = [one for checkpoint in found for one in checkpoint["positions"] if one["stream"] == "sales"]
    assert sum(one["position"] for one in positions) == 60
    assert all(one["position"] == one["end"] for one in positions)
    text = headrace("checkpoint", "list").stdout
    assert "sales/0" in text
    assert "state version" in text


def test_describe_shows_the_topology_in_three_ways(headrace: Run) -> None:
    assert "store per-item: window" in headrace("describe", "shop.py").stdout
    assert headrace("describe", "shop.py", "--mermaid").stdout.startswith("flowchart")
    described = json.loads(headrace("describe", "shop.py:app", "--json").stdout)
    assert [sub["name"] for sub in described["sub_topologies"]] == ["source", "per-item"]
    assert headrace("describe", "shop.py", "--mermaid", "--json").exit_code == 2


def test_an_unknown_application_names_those_that_are_known(headrace: Run) -> None:
    result = headrace("status", "--application", "shoop")
    assert result.exit_code == 1
    assert result.stderr == "error: application 'shoop' has not run on log:./data yet\nhint: there are: shop\n"


def test_a_folder_without_a_log_is_said_and_none_is_made(fresh: Run, tmp_path: Path) -> None:
    result = fresh("status", "--application", "shop", "--system", "log:./nowhere")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "error: there is no log in" in result.stderr
    assert not (tmp_path / "nowhere").exists()


def test_wrong_usage_ends_with_2(headrace: Run) -> None:
    assert headrace("status", "--bogus").exit_code == 2
    assert headrace("status", "shop.py", "--application", "shop").exit_code == 2
    assert headrace("nonsense").exit_code == 2


def test_the_history_shows_what_has_changed_the_plan(headrace: Run) -> None:
    (entry,) = json.loads(headrace("history", "shop.py", "--json").stdout)["changes"]
    assert (entry["kind"], entry["what"], entry["outcome"]) == ("start", "first start", "applied")
    assert (entry["from"], entry["to"], entry["job_model"], entry["pause_ms"]) == (None, "job model 1", 1, None)
    text = headrace("history", "shop.py").stdout
    assert text.splitlines()[0].split()[0] == "when"
    assert entry["at"] in text and "start: first start" in text


def test_an_entry_of_the_history_that_is_damaged_does_not_hide_the_others(fresh: Run, place: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(place, tmp_path, dirs_exist_ok=True)
    with opened_system("log:./data") as system:
        store, lease = system.job_store("shop"), this_process("a tester", 1)
        store.write_metadata(epoch := store.acquire(lease, 1), HISTORY, {"9": b"no entry"})
        store.release(epoch)
    shown = fresh("history", "shop.py", "--json")
    assert [one["what"] for one in json.loads(shown.stdout)["changes"]] == ["first start"]
    assert "entry '9' of the history" in shown.stderr


def test_version_and_help_teach(headrace: Run) -> None:
    assert headrace("--version").stdout == f"headrace {hr.__version__}\n"
    root = headrace("--help").stdout
    assert "headrace run flights.py --until caught-up" in root
    for command in ("run", "status", "describe", "tasks", "history", "checkpoint", "stream", "state", "demo"):
        assert f"  {command} " in root


def test_every_command_has_examples_and_json(headrace: Run) -> None:
    commands = [("run",), ("status",), ("describe",), ("tasks",), ("history",), ("checkpoint", "list"), ("state", "get")]
    commands += [("state", "dump")]
    commands += [("stream", name) for name in ("create", "list", "describe", "produce", "consume", "delete")]
    for command in commands:
        text = headrace(*command, "--help").stdout
        assert f"headrace {' '.join(command)} " in text.partition("xamples:")[2], command
        assert "--json" in text, command
