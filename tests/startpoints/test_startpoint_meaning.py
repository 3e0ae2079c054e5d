"""What a startpoint is worth: which of several counts, how long it stays, what ends it, and whom it reaches."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest

import headrace as hr
from headrace.errors import OffsetOutOfRangeError
from headrace.model.startpoint import PositionType, StartpointStatus
from startpoints.checker import passed_from, passes_made
from startpoints.world import PassingWorld, to_the_only_one
from support.checker import offsets_of
from support.world import started, waited

EARLIEST, LATEST, SPECIFIC = PositionType.EARLIEST, PositionType.LATEST, PositionType.SPECIFIC_OFFSET


def assert_passed(world: PassingWorld, partition: int, *again: tuple[str, int]) -> None:
    """The partition was passed from 0 on, then for each of these startpoints from an offset on, the last time to its end."""
    processed, there = world.processed_by_place(), offsets_of(world.rows_of(world.input))
    passes = [passed_from(offset, after=world.seen[id_]) for id_, offset in again]
    passes_made(processed[world.input, partition], there[partition], [passed_from(0), *passes])


def test_of_two_in_a_row_the_last_counts(world: PassingWorld) -> None:
    world.create(2)
    world.send(8)
    world.run(world.passing())
    third = offsets_of(world.rows_of(world.input))[0][2]
    first = world.ask_for(EARLIEST, 0)
    second = world.ask_for(SPECIFIC, 0, third)
    world.run(world.passing())
    assert_passed(world, 0, (second, third))
    assert_passed(world, 1)
    assert (world.status(first), world.status(second)) == (StartpointStatus.SUPERSEDED, StartpointStatus.APPLIED)


def test_one_that_came_later_and_was_written_before_does_not_count(world: PassingWorld) -> None:
    world.create(1)
    world.send(4)
    world.run(world.passing())
    end = world.ends()[0]
    newer = world.ask_for(SPECIFIC, 0, end)
    with world.running(world.passing()) as job:
        waited(lambda: world.status(newer) is StartpointStatus.PENDING, job)
        older = world.ask_for(EARLIEST, 0, at_us=1)
        waited(lambda: world.status(older) is StartpointStatus.SUPERSEDED, job)
    assert world.status(newer) is StartpointStatus.PENDING
    world.send(2)
    world.run(world.passing())
    assert_passed(world, 0, (newer, end))


def test_a_quiet_partition_keeps_its_startpoint_while_others_move_and_the_end_does_not_slide(world: PassingWorld) -> None:
    world.create(2)
    world.send(5)
    with world.running(world.passing()) as job:
        waited(world.is_at_its_end, job)
    world.send(3, 0)  # these are passed over
    end = world.ends()[0]
    quiet = world.ask_for(LATEST, 0)
    for _ in range(3):
        world.send(4, 1)
        world.run(world.passing())
        assert world.status(quiet) is StartpointStatus.PENDING
        assert world.offset_of(quiet) == end
    with world.running(world.passing()) as job:
        world.send(4, 0, 1)
        waited(lambda: world.status(quiet) is StartpointStatus.APPLIED, job)
        waited(world.is_at_its_end, job)
    assert world.offset_of(quiet) == end
    there = offsets_of(world.rows_of(world.input))[0]
    passes_made(world.processed_by_place()[world.input, 0], there, [passed_from(0, there[5]), passed_from(end)])
    assert_passed(world, 1)


def test_the_last_offset_again_is_resolved_once_and_a_deletion_puts_the_position_back(world: PassingWorld) -> None:
    world.create(1)
    world.send(4)
    world.run(world.passing())
    world.send(3)
    skipping = world.ask_for(LATEST, 0)
    world.run(world.passing())
    assert world.status(skipping) is StartpointStatus.PENDING
    world.delete(skipping)
    world.run(world.passing())
    assert world.status(skipping) is StartpointStatus.DELETED
    assert_passed(world, 0)
    spent = world.ask_for(EARLIEST, 0)
    world.run(world.passing())
    world.delete(spent)
    world.run(world.passing())
    assert world.status(spent) is StartpointStatus.APPLIED
    assert_passed(world, 0, (spent, 0))


def test_one_that_cannot_be_resolved_refuses_a_start_until_it_is_deleted(world: PassingWorld) -> None:
    world.create(2)
    world.send(4)
    world.run(world.passing())
    end = world.ends()[1]
    entry = world.entry(SPECIFIC, 1, end + 1)
    said = rf"startpoint {entry.id} of .*-in\.1, written by a tester, .*offset {end + 1} .*it holds 0 to {end - 1}"
    world.ask(entry)
    for _ in range(2):
        with pytest.raises(OffsetOutOfRangeError, match=said) as raised:
            started(world.passing())
        assert entry.id in (raised.value.hint or "")
    assert world.requests() == 1
    assert not world.records()
    world.delete(entry.id)
    world.send(2)
    world.run(world.passing())
    assert world.status(entry.id) is StartpointStatus.DELETED
    assert world.requests() == 0
    assert_passed(world, 0)
    assert_passed(world, 1)


def test_one_that_cannot_be_resolved_while_the_job_runs_is_refused_and_no_later_start_is(world: PassingWorld) -> None:
    world.create(2)
    world.send(4)
    with world.running(world.passing()) as job:
        waited(world.is_at_its_end, job)
        (id_,) = world.ask(world.entry(SPECIFIC, 1, world.ends()[1] + 1))
        waited(lambda: world.status(id_) is StartpointStatus.REFUSED and world.requests() == 0, job)
        world.send(2)
        waited(world.is_at_its_end, job)
    world.send(2)
    world.run(world.passing())
    assert (world.status(id_), world.records()[id_].resolutions) == (StartpointStatus.REFUSED, ())
    assert_passed(world, 0)
    assert_passed(world, 1)


def test_where_positions_are_set_anew_at_every_start_it_is_gone_once_it_is_read(world: PassingWorld) -> None:
    world.create(1)
    world.send(4)
    source = {"start": "latest", "reset_offset": True}
    id_ = world.ask_for(EARLIEST, 0)
    job = started(world.passing(source=source))
    assert world.status(id_) is StartpointStatus.APPLIED, "before anything moved"
    waited(world.is_at_its_end, job)
    job.stop()
    job.wait()
    world.send(2)
    world.run(world.passing(source=source))
    there = offsets_of(world.rows_of(world.input))[0]
    assert world.processed_by_place()[world.input, 0] == there[:4]


def test_one_for_a_partition_that_is_not_there_yet_waits_for_it(world: PassingWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.create(1)
    world.send(3)
    with world.running(world.passing()) as job:
        waited(world.is_at_its_end, job)
        both = world.ask(world.entry(EARLIEST, 0), world.entry(LATEST, 1))
        waited(lambda: world.status(both[0]) is StartpointStatus.APPLIED, job)
        epoch = job.status()["epoch"]
        time.sleep(0.5)  # ten looks
        assert job.status()["epoch"] == epoch, "it plans again and again"
        assert (world.requests(), world.status(both[1])) == (1, None)
        world.system.expand_stream(world.input, 2)
        waited(lambda: world.status(both[1]) is StartpointStatus.PENDING, job)
        waited(lambda: world.requests() == 0, job)  # removed after the plan is committed
        world.send(3)
        waited(world.is_at_its_end, job)
    assert_passed(world, 0, (both[0], 0))
    assert_passed(world, 1)


def test_what_was_taken_up_of_a_request_that_waits_is_not_taken_up_again_when_it_is_forgotten(
    world: PassingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.core.job_plan.apply_startpoints.FINISHED_MAX", 1)
    world.create(1)
    world.send(4)
    world.run(world.passing())
    third = offsets_of(world.rows_of(world.input))[0][2]
    old = [world.entry(EARLIEST, 0) for _ in range(5)]
    *_, newest = world.ask(*old, world.entry(EARLIEST, 7), world.entry(SPECIFIC, 0, third))
    for _ in range(3):
        world.run(world.passing())
    assert world.requests() == 1
    assert_passed(world, 0, (newest, third))


def test_it_rescues_a_job_whose_position_was_removed_by_retention(world: PassingWorld) -> None:
    world.create(2)
    world.send(3)
    world.run(world.passing())
    world.send(6)
    middle = {partition: offsets[6] for partition, offsets in offsets_of(world.rows_of(world.input)).items()}
    before = world.processed_by_place()
    world.system.purge(world.input, middle)
    with pytest.raises(OffsetOutOfRangeError):
        started(world.passing())
    world.ask(world.entry(EARLIEST, 0), world.entry(LATEST, 1))
    world.run(world.passing())
    world.send(2)
    world.run(world.passing())
    there, processed = offsets_of(world.rows_of(world.input)), world.processed_by_place()
    since = {place: offsets[len(before[place]) :] for place, offsets in processed.items()}
    assert since[world.input, 0] == [offset for offset in there[0] if offset >= middle[0]]
    assert since[world.input, 1] == there[1][-2:]


def test_one_for_a_task_that_is_gone_reaches_those_that_own_its_partition_now(world: PassingWorld) -> None:
    other = f"{world.input}-too"
    world.create(2, world.input, other)
    streams = (world.input, other)
    for stream in streams:
        world.send(4, stream=stream)
    world.run(world.passing(*streams))
    waiting = world.ask_for(LATEST, 1, stream=other)  # taken up, and moves nothing
    world.run(world.passing(*streams))
    id_ = world.ask_for(EARLIEST, 0, task="Partition_0")
    world.run(world.passing(*streams, ssp_grouper="GroupBySystemStreamPartition"))
    (one,) = world.records()[id_].resolutions
    assert str(one.task) != "Partition_0" and world.status(id_) is StartpointStatus.APPLIED
    assert_passed(world, 0, (id_, 0))
    assert world.status(waiting) is StartpointStatus.PENDING
    world.send(2, stream=other)
    world.run(world.passing(*streams, ssp_grouper="GroupBySystemStreamPartition"))
    assert world.status(waiting) is StartpointStatus.APPLIED
    for partition in range(2):
        there = offsets_of(world.rows_of(other))[partition]
        assert world.processed_by_place()[other, partition] == there


def test_one_that_is_pending_for_a_stream_that_is_taken_out_waits_for_its_return(world: PassingWorld) -> None:
    other = f"{world.input}-too"
    world.create(1, world.input, other)
    world.send(3)
    world.send(3, stream=other)
    world.run(world.passing(world.input, other))
    quiet = world.ask_for(LATEST, 0, stream=other)
    world.run(world.passing(world.input, other))
    world.send(3)
    world.run(world.passing(world.input))
    assert world.status(quiet) is StartpointStatus.PENDING
    world.send(2, stream=other)
    world.run(world.passing(world.input, other))
    assert world.status(quiet) is StartpointStatus.APPLIED
    assert world.processed_by_place()[other, 0] == offsets_of(world.rows_of(other))[0]
    assert_passed(world, 0)


# --- one for all tasks that read a partition, and one for a task ------------------------------------------------------


def joining(world: PassingWorld, table: str) -> hr.App:
    """Each task has all of the table, and passes on what it knows of the one key in it."""
    app = world.app()
    rates = app.global_table(table, key=hr.String(), value=hr.String())
    records = app.stream(world.input, key=hr.Bytes(), value=hr.Bytes())

    where = records.map_values(lambda record: b"%d" % record.partition, value=hr.Bytes())

    def known(partition: bytes, rate: Any) -> bytes:
        return partition + b"=" + str(rate).encode()

    where.left_join(rates, known, key=lambda record: "rate", value=hr.Bytes()).to(
        world.output, partitioner=to_the_only_one
    )
    return app


def known_by_task(world: PassingWorld, table: str) -> dict[int, Counter[str]]:
    """What each of the two tasks knows by now."""
    world.run(joining(world, table))  # a round need not read all of the table before anything else
    seen = len(world.rows_of(world.output))
    world.send(1)
    world.run(joining(world, table))
    found: dict[int, Counter[str]] = {}
    for row in world.rows_of(world.output)[seen:]:
        partition, rate = row["value"].decode().split("=")
        found.setdefault(int(partition), Counter())[rate] += 1
    return found


@pytest.mark.parametrize(
    ("own_at_us", "general_at_us", "first"),
    [(5, 5, "new"), (4, 5, "old"), (6, 5, "new")],
    ids=["at a tie the task's own", "the later one, for all", "the later one, for the task"],
)
def test_of_one_for_all_tasks_and_one_for_a_task(world: PassingWorld, own_at_us: int, general_at_us: int, first: str) -> None:
    table = f"{world.name}-rates"
    world.create(2, world.input)
    world.system.create_stream(table, 1)
    world.put(table, "rate", "old")
    assert known_by_task(world, table) == {0: Counter(old=1), 1: Counter(old=1)}
    world.put(table, "rate", "new")
    own = world.entry(EARLIEST, 0, stream=table, task="Partition_0", at_us=own_at_us)
    general = world.entry(LATEST, 0, stream=table, at_us=general_at_us)
    world.ask(own, general)
    assert known_by_task(world, table) == {0: Counter({first: 1}), 1: Counter(old=1)}
    assert world.status(own.id) is (StartpointStatus.APPLIED if first == "new" else StartpointStatus.SUPERSEDED)
    assert world.status(general.id) is StartpointStatus.PENDING
