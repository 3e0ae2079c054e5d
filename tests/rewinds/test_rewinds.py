"""Rewinds of jobs with two repartition streams in a row: whatever goes back, and when, every store counts each record once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import headrace as hr
from headrace.model.startpoint import StartpointStatus, StatePolicy
from rewinds.conftest import MakeWorld
from rewinds.judge import spans_that_explain
from rewinds.world import EARLIEST, EVEN, LATEST, OFFSET, TIME, UNEVEN, RewindWorld
from support.world import waited

pytestmark = [pytest.mark.search, pytest.mark.soak_on("log")]
PAST = 60  # turns
UPDATES = 25  # of the last output, from one thing that a test does to the next


@contextmanager
def at_work(world: RewindWorld, **keys: Any) -> Iterator[Any]:
    """A job that runs while records come all the time, once it has kept something.

    On the log it has a past of many rounds: what then goes back is more than a round, so that each store is seen to go back.
    """
    if world.place.kind == "log":
        world.write(PAST)
        world.catch_up()
    with world.writing(), world.running(world.job(**keys)) as job:
        go_on(world, job)
        yield job


def go_on(world: RewindWorld, job: Any) -> None:
    """Until records have come all the way through."""
    before = len(world.out("others"))
    waited(lambda: len(world.out("others")) >= before + UPDATES, job)


def rewind_and_wait(world: RewindWorld, job: Any, *what: Any, **options: Any) -> list[str]:
    ids = world.rewind(*what, **options)
    world.wait_for(job, *ids)
    return ids


@pytest.mark.parametrize(("shape", "speeds"), [("stateful", EVEN), ("stateless", UNEVEN)])
def test_of_a_job_that_runs(make_world: MakeWorld, shape: str, speeds: tuple[int, ...]) -> None:
    world = make_world(shape, speeds)
    with at_work(world) as job:
        rewind_and_wait(world, job, OFFSET, 0)
        go_on(world, job)
        rewind_and_wait(world, job, TIME, share=0.9)
        world.write(30)  # so that what is behind lags far behind
        rewind_and_wait(world, job, EARLIEST, 1)
    world.catch_up()
    world.assert_went_back({})


@pytest.mark.parametrize(
    ("place", "shape", "speeds"),
    [("kafka", "stateful", UNEVEN), ("log", "stateful", UNEVEN), ("log", "stateless", EVEN)],
    indirect=["place"],
)
def test_of_a_job_that_is_stopped(make_world: MakeWorld, shape: str, speeds: tuple[int, ...]) -> None:
    world = make_world(shape, speeds)
    with at_work(world):
        pass
    world.catch_up()  # or there may be next to nothing behind the repartition streams that could go back
    for what in ((OFFSET, 1), (TIME,), (EARLIEST,)):
        before = world.times_back()
        ids = world.rewind(*what, share=0.7)
        world.write()
        world.catch_up()
        assert [world.status(id_) for id_ in ids] == [StartpointStatus.APPLIED] * len(ids)
        world.assert_went_back(before)


def test_two_right_after_each_other(world: RewindWorld) -> None:
    with at_work(world) as job:
        world.rewind(OFFSET, 0)
        rewind_and_wait(world, job, TIME, 1, share=0.8)  # the first is taken up, or both are at once
        first = world.rewind(OFFSET, share=0.9)
        waited(lambda: all(world.status(id_) for id_ in first), job)
        rewind_and_wait(world, job, OFFSET, share=0.3)  # as soon as the first is taken up
        go_on(world, job)
    world.rewind(TIME, 0, share=0.4)
    world.rewind(OFFSET, share=0.8)
    world.catch_up()
    world.assert_went_back({})


def test_one_that_is_deleted_right_away(world: RewindWorld) -> None:
    with at_work(world) as job:
        for share in (0.2, 0.5, 0.8):
            ids = world.rewind(OFFSET, share=share)
            if share > 0.2:  # else it may be gone before it is taken up
                waited(lambda ids=ids: all(world.status(id_) for id_ in ids), job)
            world.delete(*ids)
            world.wait_for(job, *ids)
            go_on(world, job)
    world.catch_up()
    before = world.times_back()
    ids = world.rewind(EARLIEST)
    world.delete(*ids)
    world.catch_up()
    assert [world.status(id_) for id_ in ids] == [StartpointStatus.DELETED] * 2
    assert world.times_back() == before, "it went back all the same"


@pytest.mark.parametrize(
    ("place", "kind", "runs"),
    [("kafka", LATEST, True), ("kafka", EARLIEST, False), ("log", LATEST, False), ("log", EARLIEST, True)],
    indirect=["place"],
)
def test_one_that_is_followed_by_another_that_keeps_the_state(make_world: MakeWorld, kind: Any, runs: bool) -> None:
    """Of that partition a span counts twice, or not at all; all else once."""
    world = make_world()
    with at_work(world) as job:
        if runs:
            world.rewind(OFFSET, share=0.8)
            set_after = world.rewind(kind, 0, state=StatePolicy.KEEP)
            world.wait_for(job, *set_after)
    if not runs:
        world.rewind(OFFSET, share=0.8)
        world.rewind(kind, 0, state=StatePolicy.KEEP)
    world.run(world.job())
    world.write()
    world.run(world.job())
    spans = list(spans_that_explain(world.rows_of(world.input), 0, world.state()))
    assert spans, "more is wrong than what was set"
    assert kind is EARLIEST or all(is_left_out for _, _, is_left_out in spans)


def test_of_a_repartition_stream_only_what_is_behind_goes_back(world: RewindWorld) -> None:
    stream = f"{world.name}-by-group-repartition"
    with at_work(world) as job:
        rewind_and_wait(world, job, OFFSET, stream=stream, share=0.8)
        go_on(world, job)
        rewind_and_wait(world, job, TIME, 1, stream=stream)
    assert world.times_back()["keys"] == 0
    world.assert_went_back({"keys": -1})
    world.rewind(OFFSET, 0, share=0.9)
    world.rewind(OFFSET, 1, stream=stream, share=0.7)
    world.catch_up()
    world.assert_went_back({})


def test_what_is_behind_is_purged_meanwhile(world: RewindWorld) -> None:
    stream = f"{world.name}-by-group-repartition"

    def begin() -> int:
        return sum(world.system.beginning_offsets(stream).values())

    def purged_on(job: Any) -> None:
        before = begin()
        waited(lambda: begin() > before, job)

    with at_work(world, keep_state_versions=3) as job:
        purged_on(job)
        rewind_and_wait(world, job, EARLIEST, 0)
        purged_on(job)
    before = world.times_back()
    world.rewind(EARLIEST, 1)
    world.catch_up(keep_state_versions=3)
    world.assert_went_back(before)


@pytest.mark.parametrize("place", ["log"], indirect=True)
def test_as_users_ask_for_it(world: RewindWorld) -> None:
    with at_work(world):
        pass
    world.catch_up()
    before = world.times_back()
    with hr.startpoints(world.job()) as points:
        points.set(world.input, "earliest", partition=0, state="rewind")
    world.catch_up()
    world.assert_went_back(before)
