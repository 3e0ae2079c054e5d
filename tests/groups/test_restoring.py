"""The stores of tasks that come to a processor are restored in the background: the others have their rounds meanwhile."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from groups.group import PARTITIONS, Group

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(200)]


def behind(group: Group) -> set[str]:
    """The tasks that have not read all of what was sent."""
    ends = {"words": group.ends(), "by-digit": group.system.high_watermarks(f"{group.name}-by-digit-repartition")}
    return {
        str(task)
        for task, one in group.system.job_store(group.name).checkpoints().items()
        for ssp, position in one.positions.items()
        if position < ends["words" if ssp.stream.endswith("-words") else "by-digit"][ssp.partition]
    }


def restoring(group: Group, id_: str) -> dict[str, Any]:
    """By task how far it is restored there."""
    subs = group.status(id_).get("sub_topologies", {}).values()
    return {one["task"]: one for sub in subs for one in sub["restoring"]}


def restore_that_stopped(group: Group, id_: str) -> int:
    """The process that has stopped while it restores there; 0 before."""
    log = Path(group.runs[group.pids[id_]].steps_log)
    lines = [line.split() for line in (log.read_text().splitlines() if log.exists() else ())]
    return next((int(pid) for action, protocol, _, pid in lines if (action, protocol) == ("stop", "restore")), 0)


@pytest.mark.parametrize(
    "is_killed",
    [pytest.param(False, marks=pytest.mark.soak), True],
    ids=["it comes on", "its processor is killed in the midst"],
)
def test_tasks_that_stay_have_their_rounds_while_those_of_a_lost_one_are_restored(group: Group, is_killed: bool) -> None:
    armed = group.folder / "restore-trap"
    armed.write_bytes(b"...")
    for id_ in "ab":
        group.start(id_, traps=f"stop:restore:1:1@{armed}", inline_bytes=0)
        group.await_shares(*"ab"[: "ab".index(id_) + 1])
    group.send(200)
    group.await_all()
    shares = group.tasks_of()
    assert {id_: len(tasks) for id_, tasks in shares.items()} == dict.fromkeys("ab", PARTITIONS)
    armed.write_bytes(b"")
    group.kill("b")
    group.await_shares("a")
    group.send(100)
    group.until(lambda: restore_that_stopped(group, "a"))
    words = {task for task in shares["b"] if "by-digit" not in task}
    group.until(lambda: words <= behind(group) <= shares["b"])
    assert words, shares
    group.until(lambda: restoring(group, "a").keys() >= words)
    shown = restoring(group, "a")
    assert shown.keys() <= shares["b"] and {one["location"] for one in shown.values()} == {"a"}, shown
    group.send(100)
    group.until(lambda: words <= behind(group) <= shares["b"])
    process = restore_that_stopped(group, "a")
    if is_killed:
        group.kill("a")
        group.start("a", inline_bytes=0)
    os.kill(process, signal.SIGCONT)
    group.await_all()
    group.until(lambda: not restoring(group, "a"))
    group.stop_all()
    assert group.check() >= 800
