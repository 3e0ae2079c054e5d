"""Startpoints of jobs on Spark: what comes again goes through its engine, and to the functions of `for_each_round`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.model.startpoint import PositionType, StartpointStatus
from startpoints.checker import passed_from, passes_made
from startpoints.world import PassingWorld
from support.checker import offsets_of
from support.world import waited

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]
SOURCE = Path(hr.__file__).parents[1]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from headrace.adapters.spark import session

    made = session.started({"spark.master": "local[2,4]"}, "tests", tmp_path_factory.mktemp("spark"), [str(SOURCE)])
    yield made
    session.released(made)


class Given:
    """What a function was given: (id, {(partition, offset)}) of each call, in order. It raises where it is told to."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, set[tuple[int, int]]]] = []
        self.fails_at = -1

    def __call__(self, df: Any, round_id: int) -> None:
        found = {(row.partition, row.offset) for row in df.select("partition", "offset").collect()}
        self.calls.append((round_id, found))
        if round_id == self.fails_at:
            raise OSError("the sink is gone")


def given_app(world: PassingWorld, spark: Any, given: Given) -> hr.App:
    keys = {"local_store_dir": str(world.folder / "stores"), "trigger_interval_ms": 10}
    app = hr.App(world.name, world.url, spark, **keys)
    read = app.stream(world.input, key=hr.Bytes(), value=hr.Bytes())
    read.for_each_round(given)
    return app


on_the_log = pytest.mark.parametrize("place", ["log"], indirect=True)  # which id is given out is not the system's


@on_the_log
def test_the_functions_of_for_each_round_are_given_it_again_under_new_ids(world: PassingWorld, spark: Any) -> None:
    world.create(2)
    world.send(6)
    given = Given()
    given_app(world, spark, given).start(until="caught-up").wait(100)
    there = {(partition, offset) for partition, offsets in offsets_of(world.rows_of(world.input)).items() for offset in offsets}
    assert [found for _, found in given.calls] == [there]
    middle = offsets_of(world.rows_of(world.input))[0][3]
    for position in (0, middle):  # where the round that was handed over began, and within it
        world.ask_for(PositionType.SPECIFIC_OFFSET, 0, position)
        given_app(world, spark, given).start(until="caught-up").wait(100)
        number, found = given.calls[-1]
        assert (number, found) == (len(given.calls) - 1, {place for place in there if place[0] == 0 and place[1] >= position})
    assert len(given.calls) == 3


@on_the_log
def test_an_interrupted_handover_does_not_come_again_under_its_id_with_other_records(world: PassingWorld, spark: Any) -> None:
    world.create(2)
    world.send(6)
    given = Given()
    given.fails_at = 0
    with pytest.raises(hr.RoundFailedError, match="the sink is gone"):
        given_app(world, spark, given).start(until="caught-up").wait(100)
    given.fails_at = -1
    middle = offsets_of(world.rows_of(world.input))[0][3]
    world.ask_for(PositionType.SPECIFIC_OFFSET, 0, middle)
    given_app(world, spark, given).start(until="caught-up").wait(100)
    there = {(partition, offset) for partition, offsets in offsets_of(world.rows_of(world.input)).items() for offset in offsets}
    by_id: dict[int, set[tuple[int, int]]] = {}
    for number, found in given.calls:
        assert by_id.setdefault(number, found) == found, f"id {number} came with other records"
    assert by_id[0] == there
    assert by_id[1] == {place for place in there if place[0] == 1 or place[1] >= middle}
    assert set(by_id) == {0, 1}


def test_a_job_that_runs_on_spark_takes_them_up(world: PassingWorld, spark: Any) -> None:
    world.create(2)
    world.send(8)
    keys = {"local_store_dir": str(world.folder / "stores"), "trigger_interval_ms": 10}
    app = hr.App(world.name, world.url, spark, **keys)
    read = app.stream(world.input, key=hr.Bytes(), value=hr.Bytes())
    world.is_passing = True
    where = f"concat('{world.input}:', partition, ':', offset)"
    read.map_values(f"encode({where}, 'UTF-8')", value=hr.Bytes()).to(world.output, partitioner=lambda record, count: 0)
    job = app.start()
    try:
        waited(world.is_at_its_end, job)
        ids = world.ask(*(world.entry(PositionType.EARLIEST, partition) for partition in range(2)))
        world.send(3)
        waited(lambda: all(world.status(id_) is StartpointStatus.APPLIED for id_ in ids) and world.is_at_its_end(), job)
    finally:
        job.stop()
    there, processed = offsets_of(world.rows_of(world.input)), world.processed_by_place()
    for partition, id_ in enumerate(ids):
        passes = [passed_from(0), passed_from(0, after=world.seen[id_])]
        passes_made(processed[world.input, partition], there[partition], passes)
