"""Processors that are there and have no tasks, or are not to be there: spares, other code, another group."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest

from groups.group import Group

pytestmark = [pytest.mark.chaos, pytest.mark.group(partitions=1)]
PLANNED_S = 3.0  # longer than a leader waits for more processors to come before it makes a plan
MORE, RENAMED = {"letters": True}, {"seen": "counted", "settings": {"rename_stores": "seen=counted"}}
EDITS = [
    pytest.param({}, MORE, id="a sub-topology more"),
    pytest.param(MORE, {"settings": {"drop_stores": "letters"}}, id="one fewer", marks=pytest.mark.soak),
    pytest.param({}, RENAMED, id="a store renamed", marks=pytest.mark.soak),
]


@pytest.fixture
def coordinator(real_zookeeper: Any) -> str:
    return f"zookeeper://{real_zookeeper.server.address}"


def test_a_spare_takes_over_from_those_that_are_killed(group: Group) -> None:
    """It has been ready all the time: it is the same process, which has joined once."""
    for id_ in "abc":
        group.start(id_)
    group.until(lambda: group.version() and all(group.status(id_) for id_ in "abc"))
    group.send(40)
    group.await_all()
    holders = set(group.tasks_of())
    spares = {id_ for id_ in "abc" if id_ not in holders}
    assert spares, "two tasks and three processors"
    for id_ in holders:
        group.kill(id_)
    group.send(40)
    group.until(lambda: set(group.tasks_of()) <= spares)
    group.await_all()
    for told in (group.told(group.pids[id_]) for id_ in group.tasks_of()):
        assert told.count("has joined the group") == 1, told
    group.stop_all()
    assert group.check() >= 160


def test_a_second_group_of_an_application_is_refused(group: Group, coordinator: str) -> None:
    """It meets elsewhere; the application is held in Kafka. Its status says what it waits for."""
    group.start("a")
    group.await_shares("a")
    group.send(40)
    group.await_all()
    group.start("x", coordinator=f"{coordinator}/another", held_s=6.0)
    said = f"the lead of the group: application '{group.name}'"
    group.until(lambda: said in group.status("x").get("waiting_for", ""))
    group.until(lambda: any(said in sub["waiting_for"] for sub in group.status("x").get("sub_topologies", {}).values()))
    error = group.await_refusal("x")
    assert error["error"] == "JobHeldError" and group.name in error["message"], error
    group.send(40)
    group.await_all()
    assert group.tasks_of().keys() == {"a"}
    group.stop_all()
    assert group.check() >= 160


def test_one_of_other_code_waits_until_the_last_of_the_old_has_left(group: Group) -> None:
    group.start("a")
    group.await_shares("a")
    group.send(40)
    group.await_all()
    group.start("b", factor=2)
    group.until(lambda: "differ" in group.waiting_for("b"))
    group.until(lambda: "differ" in group.shown()["processors"].get("b", {}).get("waiting_for", ""))
    shown = group.shown()["processors"]
    assert {id_: (one["is_leader"], one["is_spare"]) for id_, one in shown.items()} == {"a": (True, False), "b": (False, True)}
    group.send(40)
    group.await_all()
    assert group.tasks_of().keys() == {"a"}
    group.stop("a")
    group.await_shares("b")
    assert len(group.tasks_of()["b"]) == 4
    group.send(40)
    group.await_all()
    group.stop_all()
    assert group.check() >= 240


def test_other_code_has_a_job_model_of_its_own_also_where_the_plan_is_the_same(group: Group) -> None:
    """One that comes with the former code is a spare; and it would have got all tasks."""
    group.start("a")
    group.await_shares("a")
    group.stop("a")
    group.start("a", to_the_last=True)
    group.until(lambda: group.version() == 2)
    group.start("b")
    group.until(lambda: "differ" in group.waiting_for("b"))
    group.send(40)
    group.await_all()
    assert group.tasks_of().keys() == {"a"} and group.version() == 2
    group.stop_all()
    assert group.check() >= 80


def test_a_grouper_of_ones_own_says_who_has_which_tasks(group: Group) -> None:
    group.send(40)
    for id_ in "abc":
        group.start(id_, to_the_last=True)
        group.await_shares(id_)
        group.await_all()
    group.send(40)
    group.kill("c")
    group.await_shares("b")
    group.await_all()
    group.stop_all()
    assert group.check() >= 160


def test_one_of_other_code_is_back_first_in_a_zookeeper_that_is_empty(group: Group, real_zookeeper: Any) -> None:
    """It leads while the others are not there, and takes nothing of theirs: what the plan in force is of is in Kafka."""
    for id_ in "ab":
        group.start(id_, return_wait_s=60.0)
    group.await_shares("a", "b")
    group.start("s", return_wait_s=60.0, **MORE)
    group.until(lambda: "differ" in group.waiting_for("s"))
    group.send(40)
    group.await_all()
    version, shares = group.version(), group.tasks_of()
    for id_ in "ab":
        group.kill(id_, signal.SIGSTOP)
    real_zookeeper.stop()
    group.until(lambda: "ZooKeeper" in group.waiting_for("s") or "ZooKeeper" in group.told(group.pids["s"]), 30.0)
    real_zookeeper.restart(empty=True)
    group.until(lambda: group.status("s").get("is_leader"))
    time.sleep(PLANNED_S)
    for id_ in "ab":
        group.kill(id_, signal.SIGCONT)
    group.send(40)
    group.await_all()
    group.until(lambda: "differ" in group.waiting_for("s"))
    assert (group.version(), group.tasks_of()) == (version, shares)
    group.stop_all()
    assert group.check() >= 160


# --- an edit of the application ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "after"), EDITS)
def test_an_edit_is_started_after_all_have_stopped(group: Group, before: dict[str, Any], after: dict[str, Any]) -> None:
    """The first of them leads, and has no grant until it has planned: it does not load the plan of the former code."""
    group.start("a", **before)
    group.await_shares("a")
    group.send(40)
    group.await_all()
    group.stop("a")
    group.start("a", **after)
    group.until(lambda: group.version() == 2)
    group.send(40)
    group.await_all()
    group.stop_all()
    assert group.check() >= 160


@pytest.mark.parametrize(("before", "after"), EDITS)
def test_an_edit_comes_to_one_processor_after_the_other(group: Group, before: dict[str, Any], after: dict[str, Any]) -> None:
    """The first with the edit is a spare until the last with the former code has left; then it leads."""
    for id_ in "ab":
        group.start(id_, **before)
    group.until(lambda: group.version() and all(group.status(id_) for id_ in "ab"))
    group.send(40)
    group.await_all()
    group.stop("a")
    group.start("a", **after)
    group.until(lambda: "differ" in group.waiting_for("a"))
    group.send(40)
    group.await_all()
    assert "differ" in group.waiting_for("a"), "its code is not that of the plan"
    version = group.version()
    group.stop("b")
    group.until(lambda: group.version() > version)
    group.start("b", **after)
    group.until(lambda: group.status("b"))
    group.send(40)
    group.await_all()
    group.stop_all()
    assert group.check() >= 240
