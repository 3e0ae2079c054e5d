"""Each thing that befalls processes, at each numbered step of a pause (protocol.md, "Steps"): a group of four.

The leader requests a pause to keep a version of the state as a whole, or to merge tasks for a lower elasticity factor. One
processor stops itself at a step of that; then it happens, to this one or to others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from groups.group import Group, group_on
from groups.held import RECORDS, Held

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(400)]
PARTITIONS = 8
LEADERS_STEPS, PROCESSORS_STEPS = range(11, 14), range(14, 17)
HELD = [("leader", step) for step in LEADERS_STEPS] + [("member", step) for step in PROCESSORS_STEPS]
IN_EACH_RUN = ("version", "sleeps", "leader", 11)


@pytest.fixture
def group(kafka_server: Any, real_zookeeper: Any, tmp_path: Path) -> Iterator[Group]:
    coordinator = f"zookeeper://{real_zookeeper.server.address}/headrace"
    with group_on(kafka_server, coordinator, tmp_path, partitions=PARTITIONS) as made:
        yield made


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
        super().__init__(group, zookeeper, id_, step, version_interval_s=1.0)

    def is_done(self) -> bool:
        """The last version that is kept of all tasks at once is the present one."""
        return self.group.is_kept_as_a_whole()


class ForALowerFactor(HeldInPause):
    """Two tasks of each partition become one."""

    def __init__(self, group: Group, zookeeper: Any, id_: str, step: int) -> None:
        super().__init__(group, zookeeper, id_, step, factor=2)

    def provoke(self) -> None:
        with hr.elasticity(self.group.application()) as elasticity:
            elasticity.set(1)

    def is_done(self) -> bool:
        """No task waits for the one that it is to be merged with."""
        return sum(map(len, self.group.tasks_of().values())) == 2 * PARTITIONS


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


def test_each_step_of_a_pause_is_held_for_each_cause() -> None:
    assert {(cause, step) for cause, _, _, step in CASES} == {(cause, step) for cause in CAUSES for step in range(11, 17)}
    assert len(CASES) == len(CAUSES) * len(FAULTS) * 6
