"""Processors that get the tasks of one that was lost, and lose none of their own: they work on meanwhile (protocol.md 7)."""

from __future__ import annotations

import signal

import pytest

from groups.group import Group
from support.children import wait_until_stopped

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300), pytest.mark.group(partitions=12)]
STOPS = "changes what this processor runs: its rounds end"
STEPS = (6, 9, 10)  # the leader's; of one that gets tasks: it has loaded the plan, its rounds have begun


def together(group: Group, step: int = 0) -> None:
    """Three that share the tasks; `a` leads, and stops itself at a step once that is armed."""
    for id_ in "abc":
        group.start(id_, **({"traps": group.trap(id_, "stop", step)} if id_ == "a" and step else {}))
        if id_ == "a":
            group.await_shares("a")
    group.await_shares(*"abc")
    group.send(60)
    group.await_all()


def test_they_get_tasks_without_a_stop(group: Group) -> None:
    together(group)
    stops = {id_: group.told(group.pids[id_]).count(STOPS) for id_ in "ab"}
    before = group.tasks_of()
    with group.sending():
        group.kill("c")
        group.await_shares(*"ab")
        group.until(lambda: all(f"{len(group.tasks_of()[id_])} of 24 tasks" in group.told(group.pids[id_]) for id_ in "ab"))
    group.await_all()
    assert all(before[id_] < tasks for id_, tasks in group.tasks_of().items())
    assert {id_: group.told(group.pids[id_]).count(STOPS) for id_ in "ab"} == stops
    group.kill("b")  # and once more, of what was only just begun
    group.send(60)
    group.await_shares("a")
    group.await_all()
    for id_ in "bc":
        group.start(id_)
    group.await_shares(*"abc")
    group.send(60)
    group.await_all()
    group.stop_all()
    assert group.check() >= 400


@pytest.mark.parametrize("step", [pytest.param(step, marks=[] if step == 9 else [pytest.mark.soak]) for step in STEPS])
@pytest.mark.parametrize("fault", ["dies", pytest.param("sleeps", marks=pytest.mark.soak)])
def test_one_is_lost_as_it_gets_them(group: Group, fault: str, step: int) -> None:
    """In the midst of that its own tasks, and those that it was just given, go to another."""
    together(group, step)
    group.arm("a")
    with group.sending():
        group.kill("c")
        wait_until_stopped(group.pids["a"])
        group.note_hit("a")
        if fault == "dies":
            group.kill("a")
        group.await_shares("b")
        if fault == "sleeps":
            group.kill("a", signal.SIGCONT)
        else:
            group.start("a")
        group.start("c")
        group.await_shares(*"abc")
    group.await_all()
    group.stop_all()
    assert group.check() >= 240
