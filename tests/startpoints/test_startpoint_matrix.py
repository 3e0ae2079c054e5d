"""Each type of startpoint, for one partition and for all, of a job that runs and of one that is stopped, on a stream as it is
and on one whose partitions grew in between, while records arrive. What is processed is compared record by record."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from headrace.model.startpoint import PositionType, StartpointStatus
from startpoints.checker import Pass, first_at, passed_from, passed_within, passes_made
from startpoints.world import PassingWorld
from support.checker import offsets_of
from support.world import waited

GROWN = 4
Passes = dict[int, list[Pass]]
ROUND_RECORDS = 40  # so that there is much to read while somebody asks


def position_of(world: PassingWorld, position_type: PositionType, partition: int) -> int | None:
    """Somewhere in the middle of what is there now: an offset or a time, for types that have one."""
    rows = [row for row in world.rows_of(world.input) if row["partition"] == partition]
    middle = rows[len(rows) // 2] if rows else {"offset": 0, "timestamp_us": 0}
    found = {PositionType.SPECIFIC_OFFSET: middle["offset"], PositionType.TIMESTAMP: middle["timestamp_us"]}
    return found.get(position_type)


def begins_at(world: PassingWorld, position_type: PositionType, position: int | None, partition: int) -> int:
    """What a startpoint means in what the stream holds now, without Headrace."""
    end = world.ends()[partition]
    if position_type is PositionType.SPECIFIC_OFFSET:
        assert position is not None
        return position
    if position_type is PositionType.TIMESTAMP:
        assert position is not None
        return first_at(world.rows_of(world.input), partition, position, end)
    return end if position_type is PositionType.LATEST else 0


def assert_passes(world: PassingWorld, passes: Passes) -> None:
    there, processed = offsets_of(world.rows_of(world.input)), world.processed_by_place()
    for partition, mine in passes.items():
        try:
            passes_made(processed.get((world.input, partition), []), there.get(partition, []), mine)
        except AssertionError as error:
            raise AssertionError(f"partition {partition}, passes {mine}: {error}") from error


def closed(passes: list[Pass], end: int) -> None:
    """What was begun last has come to `end`."""
    passes[-1] = Pass(passes[-1].first, end)


@pytest.mark.parametrize("grows", [False, True], ids=["as it is", "grown"])
def test_of_a_job_that_is_stopped(world: PassingWorld, grows: bool) -> None:
    world.create(2)
    world.send(8)
    world.run(world.passing())
    passes: Passes = {partition: [passed_from(0)] for partition in range(2)}
    for position_type in PositionType:
        for which in ((0,), tuple(sorted(passes))):
            world.send(5)
            ends = world.ends()  # all were passed up to the records that came while the job was stopped
            asked = []
            for partition in which:
                position = position_of(world, position_type, partition)
                asked.append(world.entry(position_type, partition, position))
                closed(passes[partition], ends[partition] - _last(world, partition, 5))
                passes[partition].append(passed_from(begins_at(world, position_type, position, partition)))
            world.ask(*asked)
            if grows and position_type is PositionType.SPECIFIC_OFFSET and which == (0,):
                world.system.expand_stream(world.input, GROWN)
                world.send(5, 2, 3)
                passes |= {partition: [passed_from(0)] for partition in (2, 3)}
            world.run(world.passing())
            late = position_type is PositionType.LATEST
            expected = StartpointStatus.PENDING if late else StartpointStatus.APPLIED
            assert {world.status(entry.id) for entry in asked} == {expected}, position_type
    assert_passes(world, passes)


def _last(world: PassingWorld, partition: int, count: int) -> int:
    """How many offsets the last `count` records of a partition take up to its end: on Kafka, markers have some too."""
    offsets = offsets_of(world.rows_of(world.input))[partition]
    return world.ends()[partition] - offsets[-count]


@pytest.mark.parametrize("grows", [False, True], ids=["as it is", "grown"])
def test_of_a_job_that_runs(world: PassingWorld, grows: bool) -> None:
    world.create(2)
    world.send(150)
    passes: Passes = {partition: [passed_from(0)] for partition in range(2)}
    app = world.passing(max_records_per_round=ROUND_RECORDS)
    with world.running(app) as job:
        with world.sending():
            for position_type in (*PositionType, PositionType.EARLIEST, PositionType.LATEST):
                for which in ((1,), tuple(sorted(passes))):
                    asked = _ask_while_it_runs(world, job, position_type, which, passes)
                    if grows and position_type is PositionType.SPECIFIC_OFFSET and which == (1,):
                        world.system.expand_stream(world.input, GROWN)
                        passes |= {partition: [passed_from(0)] for partition in (2, 3)}
                        waited(lambda: job.status()["sub_topologies"]["source"]["tasks"] == GROWN, job)
        waited(world.is_at_its_end, job)
    assert_passes(world, passes)
    assert world.requests() == 0
    assert all(one.status is not StartpointStatus.PENDING for one in world.records().values() if one.entry.id not in asked)
    times = [one.applied_at_us for one in sorted(world.records().values(), key=lambda one: one.entry.written_at_us)]
    assert all(before <= after for before, after in pairwise(times))


def _ask_while_it_runs(
    world: PassingWorld, job: Any, position_type: PositionType, which: tuple[int, ...], passes: Passes
) -> list[str]:
    asked = []
    before = world.ends()
    for partition in which:
        asked.append(world.entry(position_type, partition, position_of(world, position_type, partition)))
    ids = world.ask(*asked)
    waited(lambda: ids[-1] in world.records(), job)
    after = world.ends()
    for entry in asked:
        partition, seen = entry.key.ssp.partition, world.seen[entry.id]
        if position_type is PositionType.LATEST:
            passes[partition].append(passed_within(before[partition], after[partition], seen))
        else:
            begin = begins_at(world, position_type, entry.startpoint.position, partition)
            passes[partition].append(passed_from(begin, after=seen))
    return ids

