"""SIGKILL of the driver at every step of the planning that takes up a rewind, and in the rounds right behind it: each record
counts once all the same."""

from __future__ import annotations

import json
import random
from itertools import cycle

import pytest

from headrace.model.startpoint import StartpointStatus
from rewinds.jobs import TIDY_S
from rewinds.world import EARLIEST, OFFSET, TIME, RewindWorld
from support.world import START_STEPS, waited

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]
SEED = 20340
ROUND_STEPS = {
    "kafka": tuple(("kafka", step) for step in (2, 4, 7, 8, 9, 10, 11)),
    "log": tuple(("log", step) for step in (1, 4, 6, 9, 11, 12, 13)),
}
BEFORE_THE_FIRST_ROUND = ("start", 11)
JUDGED_EVERY = 5  # kills


def with_a_past(world: RewindWorld) -> None:
    """A job that has kept versions, and has read all that there is."""
    with world.writing(), world.running(world.job()) as job:
        waited(lambda: len(world.out("others")) > 40, job)
    world.catch_up()


@pytest.mark.soak_on("kafka")
def test_each_counts_once_wherever_the_driver_is_killed(world: RewindWorld) -> None:
    with_a_past(world)
    draw = random.Random(SEED)
    steps = [*START_STEPS, *ROUND_STEPS[world.place.kind]]
    draw.shuffle(steps)
    asked = cycle([(OFFSET, 0), (TIME,), (OFFSET, 1), (EARLIEST, 0), (OFFSET,)])
    before = world.times_back()
    for number, (protocol, step) in enumerate(steps, 1):
        world.rewind(*next(asked), share=draw.uniform(0.1, 0.9))
        world.write(3)
        count = 1 if protocol == "start" else draw.randrange(1, 4)  # of any of the sub-topologies
        world.killed((protocol, step), count, tidy_s=TIDY_S)
        if number % JUDGED_EVERY == 0 or number == len(steps):
            world.catch_up()
            world.assert_went_back(before)
            before = world.times_back()


def test_one_that_was_taken_up_and_moved_nothing_yet_is_undone_as_a_whole(world: RewindWorld) -> None:
    with_a_past(world)
    before = world.times_back()
    ids = world.rewind(OFFSET, share=0.3)
    world.killed(BEFORE_THE_FIRST_ROUND, tidy_s=TIDY_S)
    assert [world.status(id_) for id_ in ids] == [StartpointStatus.PENDING] * 2
    world.delete(*ids)
    world.write()
    world.catch_up()
    assert [world.status(id_) for id_ in ids] == [StartpointStatus.DELETED] * 2
    assert world.times_back() == before, "it went back all the same"


@pytest.mark.parametrize("place", ["log"], indirect=True)
def test_of_two_where_the_first_moved_nothing_yet_only_the_last_counts(world: RewindWorld) -> None:
    """The second goes back from where the application was before the first: to almost the end of what it has read."""
    with_a_past(world)
    before = {(row["partition"], row["offset"]) for row in world.out("groups")}
    first = world.rewind(EARLIEST)
    world.killed(BEFORE_THE_FIRST_ROUND, tidy_s=TIDY_S)
    second = world.rewind(OFFSET, share=1.0)
    world.write()
    world.catch_up()
    assert [world.status(id_) for id_ in (*first, *second)] == [StartpointStatus.SUPERSEDED] * 2 + [
        StartpointStatus.APPLIED
    ] * 2
    counts = [((row["partition"], row["offset"]), json.loads(row["value"])["n"]) for row in world.out("groups")]
    written_again = [count for place, count in counts if place not in before]
    assert min(written_again) > max(count for _, count in counts) / 2, "it began further back than was asked for"
