"""When a reader of a repartition stream may go by the event time of those that write it: once it has read all they wrote."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.core.topology.sub_topologies import sub_topologies_of
from headrace.driver.rounds.task_positions import CLAIMS_MAX, TaskPositions
from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.job_model import ContainerModel, SubTopologyModel, TaskModel
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName

TASK = TaskName.parse("by/Partition_0")
PLACE = SSP("k", "app-by-repartition", 0)


class Written:
    """A system of which only the end of what was written is known."""

    name = "k"

    def __init__(self) -> None:
        self.end, self.partitions = 0, 1

    def high_watermarks(self, stream: str) -> dict[int, int]:
        return dict.fromkeys(range(self.partitions), self.end)


def standing(written: Any, position: int = 0, tasks: int = 1) -> TaskPositions:
    app = hr.App("app")
    app.stream("in").group_by(lambda record: record.key, hr.Repartitioned.as_("by"), key=hr.Bytes()).count()
    sub = next(sub for sub in sub_topologies_of(app.topology()) if sub.name == "by")
    models = [TaskModel(TaskName.parse(f"by/Partition_{n}"), (SSP("k", PLACE.stream, n),)) for n in range(tasks)]
    checkpoints = {one.name: Checkpoint(one.name, RoundId(1, "by", 1), 1, {one.partitions[0]: position}) for one in models}
    return TaskPositions(sub, SubTopologyModel("by", (ContainerModel(0, tuple(models)),)), checkpoints, written)


def at(position: int) -> Checkpoint:
    return Checkpoint(TASK, RoundId(1, "by", 1), 1, {PLACE: position})


def test_what_cannot_be_read_yet_is_waited_for() -> None:
    """A commit has returned, its records are written, and the end of what can be read still lies before them."""
    written = Written()
    written.end = 10
    here = standing(written)
    here.note_upstream(70)
    assert here.upstream_within({PLACE: 4}) == {}, "the records at 4 to 9 may be older"
    (task,) = here.tasks
    assert here.watermarks(set())(task) is None
    assert here.upstream_within({PLACE: 10}) == {PLACE: (10, 70)}
    here.move_to([at(10)])
    assert here.watermarks(set())(task) == 70


def test_under_load_that_does_not_end_older_claims_come_to_count() -> None:
    written = Written()
    here = standing(written)
    for number in range(1, 6):
        written.end = 10 * number
        here.note_upstream(number)
    assert here.upstream_within({PLACE: 35}) == {PLACE: (30, 3)}
    for number in range(6, 100):
        written.end = 10 * number
        here.note_upstream(number)
    assert here.upstream_within({PLACE: 990}) == {PLACE: (990, 99)}
    for position in range(10, 1000, 10):
        _, watermark = here.upstream_within({PLACE: position})[PLACE]
        assert position / 10 - 2 * 99 / CLAIMS_MAX < watermark <= position / 10


@pytest.mark.parametrize("backlog", [0, 5_000, 100_000])
def test_event_time_continues_behind_a_backlog_of_any_length(backlog: int) -> None:
    """A reader that is so many records behind, all the time, and reads a thousand of them in each round."""
    written = Written()
    here = standing(written)
    (task,) = here.tasks
    seen: list[int] = []
    for number in range(1, 1001):
        written.end = backlog + 1000 * number
        here.note_upstream(number)
        here.move_to([at(1000 * number)])
        seen.append(here.watermarks(set())(task) or 0)
    assert seen == sorted(seen)
    late = (backlog + 2 * backlog / CLAIMS_MAX) / 1000 + 2
    assert all(number - late <= watermark <= number for number, watermark in enumerate(seen, 1))


@pytest.mark.parametrize("behind", [0, 1, 3], ids=lambda rounds: f"readable {rounds} rounds later")
def test_a_partition_that_stands_still_does_not_hold_the_event_time_of_others_back(behind: int) -> None:
    """Its task is restored, say; the others read all that can be read, which on Kafka is what was written a moment ago."""
    written, other = Written(), SSP("k", PLACE.stream, 1)
    written.partitions = 2
    here = standing(written, tasks=2)
    task = here.tasks[1]
    late = []
    for number in range(1, 1001):
        written.end = 1000 * number
        here.note_upstream(number)
        position = max(0, 1000 * (number - behind))
        here.move_to([Checkpoint(task.name, RoundId(1, "by", number), 1, {other: position})])
        late.append(number - (here.watermarks(set())(task) or 0))
    assert max(late[10:]) <= behind + 1


@pytest.mark.parametrize("every", [100, 40, 7])
def test_event_time_continues_over_plans(every: int) -> None:
    """Behind a backlog that is longer than the time from one plan to the next."""
    written = Written()
    here = standing(written)
    (task,) = here.tasks
    for number in range(1, 1001):
        if number % every == 0:
            before, here = here, standing(written, 1000 * (number - 1))
            assert here.continues(before)
            here.inherit_from(before, continues=True)
        written.end = 50_000 + 1000 * number
        here.note_upstream(number)
        here.move_to([at(1000 * number)])
    assert (here.watermarks(set())(task) or 0) > 900


def test_behind_a_plan_that_sets_back_nothing_counts_of_before() -> None:
    written = Written()
    before, here = standing(written, 10), standing(written, 5)
    written.end = 10
    before.note_upstream(70)
    assert not here.continues(before)
    here.inherit_from(before, continues=False)
    assert here.upstream_within({PLACE: 10}) == {}


def test_the_first_end_that_was_seen_for_a_watermark_is_enough() -> None:
    written = Written()
    here = standing(written)
    written.end = 10
    here.note_upstream(7)
    written.end = 20
    here.note_upstream(7)
    here.note_upstream(None)
    assert here.upstream_within({PLACE: 10}) == {PLACE: (10, 7)}
