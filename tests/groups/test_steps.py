"""Each thing that befalls processes, at each numbered step of a rebalance (protocol.md, "Steps"): a group of four.

Three run, and the fourth joins. One of them stops itself at a step of what follows; then it happens, to this one or to others.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from groups.group import Group
from groups.held import RECORDS, Held

PARTITIONS = int(os.environ.get("HEADRACE_TEST_GROUP_PARTITIONS", "64"))
pytestmark = [pytest.mark.chaos, pytest.mark.timeout(400), pytest.mark.group(partitions=PARTITIONS, hosts="abcd")]
LEADERS_STEPS, PROCESSORS_STEPS = range(1, 7), range(7, 11)
HELD = [("leader", step) for step in (*LEADERS_STEPS, *PROCESSORS_STEPS)] + [("member", step) for step in PROCESSORS_STEPS]
IN_EACH_RUN = ("sleeps", "leader", 2)


class HeldInRebalance(Held):
    """Three run, and the fourth joins."""

    first = "abc"

    def provoke(self) -> None:
        super().provoke()
        self.start("d")

    def the_new_one_dies(self) -> None:
        self.group.kill("d")
        self.wake()
        self.group.await_shares(*"abc")
        self.start("d")

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


FAULTS: tuple[Callable[[Any], None], ...] = (
    Held.dies,
    Held.dies_and_returns_at_once,
    Held.sleeps,
    Held.hesitates,
    Held.another_dies,
    Held.another_sleeps,
    HeldInRebalance.the_new_one_dies,
    Held.zookeeper_restarts,
    Held.zookeeper_comes_back_empty,
    HeldInRebalance.all_restart_one_after_the_other,
    HeldInRebalance.three_leave_and_come_back,
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
    group: Group, real_zookeeper: Any, fault: Callable[[Any], None], who: str, step: int
) -> None:
    """The outputs are those of a model, no two processors have worked on a task at once, and in the end all four share it."""
    fault(HeldInRebalance(group, real_zookeeper, "a" if who == "leader" else "b", step))
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
