"""SIGKILL of the driver at every step of the planning that takes up a rewind, and in the rounds right behind it: each record
counts once all the same."""

from __future__ import annotations

import json
import random
import signal
from itertools import cycle

import pytest

from chaos.children import Children, sprung
from expansion.child import Run
from expansion.world import told
from headrace.model.startpoint import Became
from rewinds.world import EARLIEST, OFFSET, TIME, World
from startpoints.world import waited

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]
SEED = 20340
START_STEPS = tuple(("start", step) for step in range(1, 13))
ROUND_STEPS = {
    True: tuple(("kafka", step) for step in (2, 4, 7, 8, 9, 10, 11)),
    False: tuple(("log", step) for step in (1, 4, 6, 9, 11, 12, 13)),
}
BEFORE_THE_FIRST_ROUND = "kill:start:11:1"
JUDGED_EVERY = 5  # kills


def with_a_past(world: World) -> None:
    """A job that has kept versions, and has read all that there is."""
    with world.producing(), world.running(world.job()) as job:
        waited(lambda: len(world.out("others")) > 40, job)
    world.catch_up()


def killed(world: World, children: Children, traps: str) -> None:
    files = children.files()
    run = Run(world.name, world.url, str(world.root), build=world.shape, until="caught-up", traps=traps, **files)
    code = children.finish(run)
    action, protocol, step, _ = traps.split(":")
    assert (code, sprung(run)) == (-signal.SIGKILL, [f"{action} {protocol} {step}"]), told(run)


def test_each_counts_once_wherever_the_driver_is_killed(world: World, children: Children) -> None:
    with_a_past(world)
    draw = random.Random(SEED)
    steps = [*START_STEPS, *ROUND_STEPS[world.is_on_kafka]]
    draw.shuffle(steps)
    asked = cycle([(OFFSET, 0), (TIME,), (OFFSET, 1), (EARLIEST, 0), (OFFSET,)])
    before = world.times_back()
    for number, (protocol, step) in enumerate(steps, 1):
        world.rewind(*next(asked), share=draw.uniform(0.1, 0.9))
        world.write(3)
        count = 1 if protocol == "start" else draw.randrange(1, 4)  # of any of the sub-topologies
        killed(world, children, f"kill:{protocol}:{step}:{count}")
        if number % JUDGED_EVERY == 0 or number == len(steps):
            world.catch_up()
            world.assert_went_back(before)
            before = world.times_back()


def test_one_that_was_taken_up_and_moved_nothing_yet_is_undone_as_a_whole(world: World, children: Children) -> None:
    with_a_past(world)
    before = world.times_back()
    ids = world.rewind(OFFSET, share=0.3)
    killed(world, children, BEFORE_THE_FIRST_ROUND)
    assert [world.became(id_) for id_ in ids] == [Became.PENDING] * 2
    world.delete(*ids)
    world.write()
    world.catch_up()
    assert [world.became(id_) for id_ in ids] == [Became.DELETED] * 2
    assert world.times_back() == before, "it went back all the same"


@pytest.mark.parametrize("make_world", ["log"], indirect=True)
def test_of_two_where_the_first_moved_nothing_yet_only_the_last_counts(world: World, children: Children) -> None:
    """The second goes back from where the application was before the first: to almost the end of what it has read."""
    with_a_past(world)
    before = {(row["partition"], row["offset"]) for row in world.out("groups")}
    first = world.rewind(EARLIEST)
    killed(world, children, BEFORE_THE_FIRST_ROUND)
    second = world.rewind(OFFSET, share=1.0)
    world.write()
    world.catch_up()
    assert [world.became(id_) for id_ in (*first, *second)] == [Became.SUPERSEDED] * 2 + [Became.APPLIED] * 2
    counts = [((row["partition"], row["offset"]), json.loads(row["value"])["n"]) for row in world.out("groups")]
    written_again = [count for place, count in counts if place not in before]
    assert min(written_again) > max(count for _, count in counts) / 2, "it began further back than was asked for"
