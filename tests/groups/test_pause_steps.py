"""Each thing that befalls processes, at each numbered step of a pause (protocol.md, "Steps"): a group of four.

The leader requests a pause to keep a version of the state as a whole, or to merge tasks for a lower elasticity factor. One
processor stops itself at a step of that; then it happens, to this one or to others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headrace as hr
from groups.group import Group
from groups.held import RECORDS, Held
from headrace.model.startpoint import StartpointStatus
from support.children import sprung

PARTITIONS = 8
pytestmark = [pytest.mark.chaos, pytest.mark.timeout(400), pytest.mark.group(partitions=PARTITIONS, hosts="abcde")]
LEADERS_STEPS, PROCESSORS_STEPS = range(11, 14), range(14, 17)
HELD = [("leader", step) for step in LEADERS_STEPS] + [("member", step) for step in PROCESSORS_STEPS]
IN_EACH_RUN = ("version", "sleeps", "leader", 11)


class HeldInPause(Held):
    """All four run before it."""

    def another_leaves_and_returns(self) -> None:
        self.group.stop(self.other)
        self.wake()
        self.start(self.other)

    def another_joins(self) -> None:
        """It has its share with the four, and leaves."""
        self.start("e")
        self.wake()
        self.group.await_shares(*"abcde")
        self.group.stop("e")


class ForAVersion(HeldInPause):
    """Cuts are taken whenever one is due."""

    def __init__(self, group: Group, zookeeper: Any, id_: str, step: int) -> None:
        super().__init__(group, zookeeper, id_, step, version_interval_s=1.0, tidy_s=10.0)

    def is_done(self) -> bool:
        """The last version that is kept of all tasks at once is the present one."""
        return self.group.is_kept_as_a_whole()


class ForALowerFactor(HeldInPause):
    """Two tasks of each partition become one."""

    def __init__(self, group: Group, zookeeper: Any, id_: str, step: int) -> None:
        super().__init__(group, zookeeper, id_, step, factor=2)

    def provoke(self) -> None:
        super().provoke()
        with hr.elasticity(self.group.application()) as elasticity:
            elasticity.set(1)

    def is_done(self) -> bool:
        """No task waits for the one that it is to be merged with."""
        return sum(map(len, self.group.tasks_of().values())) == 2 * PARTITIONS


class ForAStartpoint(HeldInPause):
    """What the tasks have come to is kept before they go back, all together: to `back_to`, which is the last that was kept.
    All that was sent by then is processed."""

    def __init__(self, group: Group, zookeeper: Any, id_: str, step: int) -> None:
        super().__init__(group, zookeeper, id_, step, version_interval_s=15.0)
        with hr.startpoints(group.application()) as points:
            points.set(f"{group.name}-words", self.ends[0], partition=0, state="rewind")

    def provoke(self) -> None:
        self.group.until(self.group.is_kept_as_a_whole)
        self.ends, self.back_to = self.group.ends(), len(self.group.sent)
        self.group.send(RECORDS)
        self.group.await_all()
        self.group.arm(self.id)


CAUSES: dict[str, type[ForAVersion | ForALowerFactor]] = {"version": ForAVersion, "factor": ForALowerFactor}
FAULTS: tuple[Callable[[Any], None], ...] = (
    Held.dies,
    Held.dies_and_returns_at_once,
    Held.sleeps,
    Held.another_dies,
    Held.another_sleeps,
    Held.zookeeper_restarts,
    Held.zookeeper_comes_back_empty,
    HeldInPause.another_leaves_and_returns,
    HeldInPause.another_joins,
)
CASES = [(cause, fault, who, step) for cause in CAUSES for fault in FAULTS for who, step in HELD]


@pytest.mark.parametrize(
    ("cause", "fault", "who", "step"),
    [
        pytest.param(
            cause, fault, who, step,
            id=f"{cause}-{fault.__name__}-{who}-{step}",
            marks=[] if (cause, fault.__name__, who, step) == IN_EACH_RUN else [pytest.mark.soak],
        )
        for cause, fault, who, step in CASES
    ],
)  # fmt: skip
def test_nothing_is_lost_and_what_a_pause_is_for_is_done_whatever_happens_at_a_step(
    group: Group, real_zookeeper: Any, cause: str, fault: Callable[[Any], None], who: str, step: int
) -> None:
    """The outputs are those of a model, no two processors have worked on a task at once, and rounds go on after it: in the end
    all four share the tasks, and the version is kept, or the factor in force."""
    held = CAUSES[cause](group, real_zookeeper, "a" if who == "leader" else "b", step)
    fault(held)
    group.send(RECORDS)
    group.await_all(120.0)
    group.await_shares(*"abcd")
    group.until(held.is_done, 120.0)
    group.until(lambda: len({len(tasks) for tasks in group.tasks_of().values()}) == 1)
    group.send(RECORDS)
    group.await_all()
    group.stop_all()
    assert group.check() >= 2 * len(group.sent)


FAULTS_THAT_SEND_NOTHING = (
    Held.dies,
    Held.another_dies,
    Held.another_sleeps,
    Held.zookeeper_comes_back_empty,
    HeldInPause.another_leaves_and_returns,
)


@pytest.mark.soak
@pytest.mark.parametrize("fault", [pytest.param(fault, id=fault.__name__) for fault in FAULTS_THAT_SEND_NOTHING])
def test_tasks_go_back_as_a_whole_whatever_happens_while_all_rest(
    group: Group, real_zookeeper: Any, fault: Callable[[Any], None]
) -> None:
    held = ForAStartpoint(group, real_zookeeper, "a", 11)
    sent = len(group.sent)
    fault(held)
    with hr.startpoints(group.application()) as points:
        group.until(lambda: [one.status for one in points.list()] == [StartpointStatus.APPLIED], 120.0)
    group.send(RECORDS)
    again = sent - held.back_to
    group.until(lambda: all(len(group.rows(one)) >= len(group.sent) + again for one in ("numbered", "by-digit")), 120.0)
    group.await_shares(*"abcd")
    group.stop_all()
    assert group.check([(0, sent), (held.back_to, None)]) >= 2 * (len(group.sent) + again)


@pytest.mark.soak
def test_the_others_continue_though_their_leader_hangs_while_all_rest(group: Group) -> None:
    """It is there, and does nothing: a processor rests no longer than for one request. Until then the status says why."""
    for id_ in "abc":
        group.start(id_, traps=group.trap(id_, "hold", 11), run_s=200.0, version_interval_s=1.0)
        if id_ == "a":
            group.await_shares("a")
    group.await_shares(*"abc")
    group.arm("a")
    group.send(RECORDS)
    group.until(lambda: sprung(group.runs[group.pids["a"]]) == ["hold group 11"])
    group.until(lambda: all("a pause of all" in group.shown_waiting_for("source", id_) for id_ in "bc"))
    rows = len(group.rows("numbered"))
    group.send(RECORDS)
    group.until(lambda: len(group.rows("numbered")) > rows)
    group.kill("a")
    group.start("a", version_interval_s=1.0)
    group.await_all()
    group.await_shares(*"abc")
    group.until(group.is_kept_as_a_whole)
    group.stop_all()
    assert group.check() >= 2 * len(group.sent)


@pytest.mark.soak
def test_a_leader_without_tasks_keeps_versions_of_those_that_have_them(group: Group) -> None:
    """It has no part in the pause that it requests."""
    for id_ in "ab":
        group.start(id_, to_the_last=True, version_interval_s=1.0)
        group.await_shares(id_)  # all tasks are with the last one
    for _ in range(2):
        group.send(RECORDS)
        group.await_all()
        group.until(group.is_kept_as_a_whole)
    assert group.status("a")["is_leader"] and group.tasks_of().keys() == {"b"}
    group.stop_all()
    assert group.check() >= 2 * len(group.sent)


def test_each_step_of_a_pause_is_held_for_each_cause() -> None:
    assert {(cause, step) for cause, _, _, step in CASES} == {(cause, step) for cause in CAUSES for step in range(11, 17)}
    assert len(CASES) == len(CAUSES) * len(FAULTS) * 6
