"""Each thing that befalls processes, at each numbered step of a rebalance (protocol.md, "Steps"): a group of four.

Three run, and the fourth joins. One of them stops itself at a step of what follows; then it happens, to this one or to others.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from groups.group import Group, group_on
from support.children import wait_until_stopped

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(400)]
PARTITIONS = int(os.environ.get("HEADRACE_TEST_GROUP_PARTITIONS", "64"))
RECORDS = 100
ASLEEP_S = 7.0  # longer than a session lives without an answer, by its own timeout and the server's ticks
LEADERS_STEPS, PROCESSORS_STEPS = range(1, 7), range(7, 11)
HELD = [("leader", step) for step in (*LEADERS_STEPS, *PROCESSORS_STEPS)] + [("member", step) for step in PROCESSORS_STEPS]
IN_EACH_RUN = ("sleeps", "leader", 2)


@pytest.fixture
def group(kafka_server: Any, real_zookeeper: Any, tmp_path: Path) -> Iterator[Group]:
    coordinator = f"zookeeper://{real_zookeeper.server.address}/headrace"
    with group_on(kafka_server, coordinator, tmp_path, partitions=PARTITIONS) as made:
        yield made


class Held:
    """A group of which one has stopped itself at a step: `id`. `a` leads, `b` and `c` do not, and `d` has joined.

    What is done to it is a method: when it ends, each of the four runs, and the one that was stopped is awake."""

    def __init__(self, group: Group, zookeeper: Any, id_: str, step: int) -> None:
        self.group, self.zookeeper, self.id = group, zookeeper, id_
        self.other = "b" if id_ == "a" else "a"  # a member, or the leader
        for one in "abc":
            self.start(one, traps=group.trap(one, "stop", step))
            if one == "a":
                group.await_shares("a")  # so it is the one that leads
        group.await_shares(*"abc")
        group.send(RECORDS)
        group.await_all()
        group.arm(id_)
        group.send(RECORDS)
        self.start("d")
        self._await_stop()

    def _await_stop(self) -> None:
        wait_until_stopped(self.group.pids[self.id])
        self.group.note_hit(self.id)

    def start(self, id_: str, **options: Any) -> None:
        self.group.start(id_, run_s=300.0, **options)

    def wake(self, id_: str | None = None) -> None:
        self.group.kill(id_ or self.id, signal.SIGCONT)

    # --- what befalls it ----------------------------------------------------------------------------------------------

    def dies(self) -> None:
        self.group.kill(self.id)
        self.group.await_shares(*(set("abcd") - {self.id}))
        self.start(self.id)

    def dies_and_returns_at_once(self) -> None:
        self.group.kill(self.id)
        self.start(self.id)

    def sleeps(self) -> None:
        self.group.await_shares(*(set("abcd") - {self.id}))
        self.group.send(RECORDS)
        self.wake()

    def hesitates(self) -> None:
        """It wakes when its lease has ended, and its session has not, or just so."""
        time.sleep(3.5)
        self.wake()

    def another_dies(self) -> None:
        self.group.kill(self.other)
        self.wake()
        self.start(self.other)

    def another_sleeps(self) -> None:
        self.group.kill(self.other, signal.SIGSTOP)
        self.wake()
        time.sleep(ASLEEP_S)
        self.wake(self.other)

    def the_new_one_dies(self) -> None:
        self.group.kill("d")
        self.wake()
        self.group.await_shares(*"abc")
        self.start("d")

    def zookeeper_restarts(self) -> None:
        self.zookeeper.restart()
        self.wake()

    def zookeeper_comes_back_empty(self) -> None:
        self.zookeeper.restart(empty=True)
        self.wake()

    def all_restart_one_after_the_other(self) -> None:
        others = [id_ for id_ in "bcda" if id_ != self.id]
        for number, id_ in enumerate([*others, self.id]):
            self.group.stop(id_)
            self.start(id_)
            if number == 0:
                self.wake()

    def three_leave_and_come_back(self) -> None:
        others = [id_ for id_ in "dcba" if id_ != self.id]
        for number, id_ in enumerate(others):
            self.group.stop(id_)
            if number == 0:
                self.wake()
        self.group.send(RECORDS)
        self.group.await_shares(self.id)
        for id_ in others:
            self.start(id_)


FAULTS: tuple[Callable[[Held], None], ...] = (
    Held.dies,
    Held.dies_and_returns_at_once,
    Held.sleeps,
    Held.hesitates,
    Held.another_dies,
    Held.another_sleeps,
    Held.the_new_one_dies,
    Held.zookeeper_restarts,
    Held.zookeeper_comes_back_empty,
    Held.all_restart_one_after_the_other,
    Held.three_leave_and_come_back,
)
CASES = [(fault, who, step) for fault in FAULTS for who, step in HELD]


@pytest.mark.parametrize(
    ("fault", "who", "step"),
    [
        pytest.param(
            fault, who, step,
            id=f"{fault.__name__}-{who}-{step}",
            marks=[] if (fault.__name__, who, step) == IN_EACH_RUN else [pytest.mark.soak],
        )
        for fault, who, step in CASES
    ],
)  # fmt: skip
def test_nothing_is_lost_or_doubled_whatever_happens_at_a_step(
    group: Group, real_zookeeper: Any, fault: Callable[[Held], None], who: str, step: int
) -> None:
    """The outputs are those of a model, no two processors have worked on a task at once, and in the end all four share it."""
    fault(Held(group, real_zookeeper, "a" if who == "leader" else "b", step))
    group.send(RECORDS)
    group.await_shares(*"abcd")
    group.await_all(120.0)
    group.until(lambda: {len(tasks) for tasks in group.tasks_of().values()} == {2 * PARTITIONS // 4})
    group.send(RECORDS)
    group.await_all()
    group.stop_all()
    assert group.check() >= 2 * len(group.sent)


def test_each_step_is_held_by_who_reaches_it() -> None:
    """The cases are all of them: each fault at each step of the leader's, and of a processor's that leads or does not."""
    assert {step for _, who, step in CASES if who == "leader"} == set(range(1, 11))
    assert len(CASES) == len(FAULTS) * (10 + 4)
