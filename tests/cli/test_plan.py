"""`headrace plan`: what the next start, or an expansion, would change; nothing is stored."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli.shop import APP
from headrace import wiring
from headrace.adapters.common.lease_holder import this_process
from headrace.cli.app_loading import load_app
from headrace.core.affinity.members import Member, TaskHistory, TasksToAssign, assigned_together
from headrace.environment import this_user
from support.world import caught_up

Run = Callable[..., Any]
KEPT = "a start would keep it: streams, tasks, containers, stores and positions stay\n"


@pytest.fixture(autouse=True)
def one_container(tmp_path: Path) -> None:
    """The engine that has run `shop` runs one at a time."""
    (tmp_path / "headrace.toml").write_text('spark.master = "local[1]"\n')


def stored(run: Run) -> tuple[str, ...]:
    """All that commands show of what is stored."""
    looks = (("tasks",), ("checkpoint", "list"), ("startpoint", "list"), ("history",), ("stream", "list"))
    return tuple(run(*look, "--json").stdout for look in looks)


def test_after_a_run_a_start_changes_nothing(ran: Run) -> None:
    done = ran("plan", "shop.py")
    assert (done.exit_code, done.stdout) == (0, f"application shop, job model 1\n{KEPT}")


def test_before_the_first_run_all_of_the_plan_is_new(fresh: Run, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP)
    fresh("stream", "create", "sales", "-p", "2")
    lines = fresh("plan", "shop.py").stdout.splitlines()
    assert lines[0] == "application shop, not run yet"
    assert all(line.startswith("+ ") for line in lines[1:])
    assert "+ creates per-shop-out: 2 partitions" in lines
    assert [stream["name"] for stream in json.loads(fresh("stream", "list", "--json").stdout)] == ["sales"]


def test_an_expansion_is_shown_and_not_done(ran: Run) -> None:
    before = stored(ran)
    shown = json.loads(ran("plan", "shop.py", "--expand", "sales=8", "--json").stdout)
    assert shown["job_model"] == {"before": 1, "after": 2} and shown["refused"] is None
    added = [line for line in shown["lines"] if line.startswith("+") and "reads log.sales." in line]
    assert [line.split(" reads ")[1].split()[0] for line in added] == [f"log.sales.{number}" for number in (4, 5, 6, 7)]
    assert [line.split(" task ")[1].split()[0] for line in added] == [f"Partition_{number}" for number in (0, 1, 2, 3)]
    assert stored(ran) == before


def test_what_is_shown_is_what_a_start_then_does(ran: Run) -> None:
    """Line by line: the expansion done and the job run again, a start changes nothing more, and has what was shown."""
    shown = json.loads(ran("plan", "shop.py", "--expand", "sales=8", "--json").stdout)["lines"]
    ran("stream", "expand", "sales", "-p", "8")
    again = json.loads(ran("plan", "shop.py", "--json").stdout)["lines"]
    assert [line.removesuffix(f", requested by {this_user()}") for line in again] == shown
    caught_up(load_app("shop.py"))
    assert ran("plan", "shop.py").stdout == f"application shop, job model 2\n{KEPT}"
    history = [line.removeprefix("+ history: ") for line in shown if line.startswith("+ history: ")]
    done = json.loads(ran("history", "--json").stdout)["changes"][1:]
    assert [line.split(":")[0] for line in history] == [f"{one['kind']} {one['outcome']}" for one in done]


def test_a_repartition_is_named_as_its_application_names_it(ran: Run) -> None:
    names = [one["name"] for one in json.loads(ran("stream", "list", "--json").stdout)]
    name = next(one for one in names if one.endswith("-repartition"))
    short = name.removeprefix("shop-").removesuffix("-repartition")
    shown = [ran("plan", "shop.py", "--expand", f"{one}=8").stdout for one in (name, short)]
    assert shown[0] == shown[1] and f"reads {name}: 8 partitions, was 4" in shown[0]


def test_waiting_startpoints_are_in_it(ran: Run) -> None:
    ran("startpoint", "set", "sales", "shop.py", "--earliest", "--partition", "0", "--yes")
    before = stored(ran)
    lines = ran("plan", "shop.py").stdout.splitlines()
    assert any(line.startswith("+ startpoint ") and "log.sales.0" in line for line in lines)
    assert stored(ran) == before


def test_an_edit_is_in_it(ran: Run, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP.replace('store="dearest"', 'store="dear"'))
    done = ran("plan", "shop.py", "--set", "rename_stores=dearest=dear")
    assert "+ store dear" in done.stdout and "- store dearest" in done.stdout


def test_what_a_start_would_refuse_is_an_error(ran: Run, tmp_path: Path) -> None:
    done = ran("plan", "shop.py", "--expand", "sales=6")
    assert done.exit_code == 1 and "no multiple of 4" in done.stderr
    answer = ran("plan", "shop.py", "--expand", "sales=6", "--json")
    assert answer.exit_code == 1 and "no multiple of 4" in json.loads(answer.stdout)["refused"]["error"]
    assert "no multiple of 4" in answer.stderr


def test_of_two_reasons_the_one_that_counts_first_is_said(ran: Run) -> None:
    done = ran("plan", "shop.py", "--expand", "sales=6", "--drop-store", "nothing")
    assert done.exit_code == 1 and "has no store 'nothing'" in done.stderr and "multiple" not in done.stderr


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("sale=8", "did you mean 'sales'?"),
        ("sales=4", "cannot be expanded to 4"),
        ("sales=2", "cannot be expanded to 2"),
        ("sales", "expected STREAM=N"),
        ("=8", "expected STREAM=N"),
        ("sales=1e3", "expected a whole number"),
        ("sales=0", "at least 1"),
        ("sales=1000000", "100,000"),
    ],
)
def test_wrong_expansions_are_refused(ran: Run, given: str, said: str) -> None:
    done = ran("plan", "shop.py", "--expand", given)
    assert done.exit_code != 0 and said in done.output.replace("\n", " ")


def test_containers_are_as_many_as_the_cores_that_a_start_would_have(ran: Run) -> None:
    shown = ran("plan", "shop.py", "--set", "spark.master=local[3,4]").stdout
    lanes = set(re.findall(r"^\+ \S+ container (\d+)", shown, re.MULTILINE))
    assert lanes == {"1", "2"}  # what was in 0 stays there
    assert ran("plan", "shop.py", "--set", "spark.master=spark://somewhere:7077").stdout.endswith(KEPT)


def test_of_a_stream_that_is_not_read_it_says_so(ran: Run) -> None:
    done = ran("plan", "shop.py", "--expand", "per-shop-out=8")
    assert done.exit_code == 1 and "does not read stream 'per-shop-out'" in done.stderr


def test_before_the_first_start_a_repartition_is_not_there_yet(fresh: Run, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP)
    fresh("stream", "create", "sales", "--partitions", "4")
    done = fresh("plan", "shop.py", "--expand", "per-item=8")
    assert done.exit_code == 1 and "does not exist" in done.stderr


def test_stores_are_renamed_and_dropped_as_run_does(ran: Run, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP.replace('store="dearest"', 'store="dear"'))
    assert ran("plan", "shop.py").exit_code == 1
    assert "+ store dear" in ran("plan", "shop.py", "--rename-store", "dearest=dear").stdout


def test_one_stream_is_expanded_to_one_number(ran: Run) -> None:
    done = ran("plan", "shop.py", "--expand", "sales=8", "--expand", "sales=16")
    assert done.exit_code == 2 and "sales is given 8 and 16 partitions" in done.output.replace("\n", " ")


def test_without_checkpoints_it_says_so(ran: Run) -> None:
    with sqlite3.connect("data/catalog.sqlite") as catalog:
        catalog.execute("delete from checkpoints")
    done = ran("plan", "shop.py")
    assert done.exit_code == 0 and "no checkpoint" in done.stdout


def test_in_a_group_it_is_the_plan_of_its_leader(ran: Run, tmp_path: Path) -> None:
    """For the processors that have tasks, in their slots: each keeps its own."""
    shop = load_app("shop.py")
    with wiring.open_configured(wiring.config_of(shop)) as system:
        store = system.job_store("shop")
        model = store.job_model()
        assert model is not None
        slots = [Member("a", "h"), Member("a#1", "h"), Member("b", "i")]
        shares = assigned_together([TasksToAssign(list(sub.tasks), slots, TaskHistory()) for sub in model.sub_topologies])
        stamped = [tuple(replace(one, since=2) for one in own) for own in shares]
        subs = tuple(replace(sub, containers=own) for sub, own in zip(model.sub_topologies, stamped, strict=True))
        checkpoints = [replace(one, job_model_version=2) for one in store.checkpoints().values()]
        now_us = time.time_ns() // 1000
        epoch = store.acquire(this_process("run-2", now_us), now_us)
        store.commit_job_model(epoch, replace(model, version=2, sub_topologies=subs), checkpoints)
        store.release(epoch)
    (tmp_path / "headrace.toml").write_text('spark.master = "local[1]"\ncoordinator = "zookeeper://127.0.0.1:1/none"\n')
    assert ran("plan", "shop.py").stdout == f"application shop, job model 2\n{KEPT}"
    shown = json.loads(ran("plan", "shop.py", "--expand", "sales=8", "--json").stdout)
    assert shown["job_model"] == {"before": 2, "after": 3}
    assert {line.split(" container ")[1].split()[0] for line in shown["lines"] if " container " in line} == {"0", "1", "2"}
    (tmp_path / "headrace.toml").write_text('spark.master = "local[1]"\n')
    assert json.loads(ran("plan", "shop.py", "--json").stdout)["job_model"] == {"before": 2, "after": 3}, "one driver has all"
