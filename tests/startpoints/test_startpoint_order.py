"""In which order records are read that startpoints bring back: BOOTSTRAP, partitions that were born, windows, the end."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.core.keys.hashing import partition_of
from headrace.driver.planning.stored_assignment import SystemStreamPartitionAssignmentManager
from headrace.model.startpoint import PositionType, StartpointStatus
from startpoints.checker import alone, passed_from, passes_made
from startpoints.world import LOG_START_US, PassingWorld, to_the_only_one
from support.checker import offsets_of
from support.world import started, waited

BOOTSTRAP, EARLIEST = PositionType.BOOTSTRAP, PositionType.EARLIEST


@pytest.mark.parametrize("runs", [False, True], ids=["stopped", "running"])
def test_a_bootstrapped_stream_is_read_to_its_end_before_any_other_input(world: PassingWorld, runs: bool) -> None:
    other = f"{world.input}-too"
    world.create(2, world.input, other)
    world.send(40)
    world.send(40, stream=other)
    app = world.passing(world.input, other, max_records_per_round=12)
    if runs:
        with world.running(app) as job:
            waited(lambda: len(world.processed()) > 30, job)
            with world.sending(), world.sending(other):
                ids = world.ask(*(world.entry(BOOTSTRAP, partition) for partition in range(2)))
                waited(lambda: all(world.status(id_) is StartpointStatus.APPLIED for id_ in ids), job)
            waited(lambda: world.is_at_its_end(world.input, other), job)
    else:
        world.run(app)
        world.send(3, stream=other)
        ids = world.ask(*(world.entry(BOOTSTRAP, partition) for partition in range(2)))
        job = started(app)  # a restart on the way changes nothing
        waited(lambda: all(world.status(id_) is StartpointStatus.APPLIED for id_ in ids), job)
        job.stop()
        job.wait()
        world.run(app)
    processed, there = world.processed(), offsets_of(world.rows_of(world.input))
    for partition, id_ in enumerate(ids):
        (one,) = world.records()[id_].resolutions
        until = [offset for offset in there[partition] if one.until is not None and offset < one.until]
        assert len(until) >= 40
        assert alone(processed, partition, world.input, until[0], until[-1], other) == len(until)
        mine = [offset for stream, number, offset in processed if (stream, number) == (world.input, partition)]
        passes_made(mine, there[partition], [passed_from(0), passed_from(0, after=world.seen[id_])])
        others = [offset for stream, number, offset in processed if (stream, number) == (other, partition)]
        passes_made(others, offsets_of(world.rows_of(other))[partition], [passed_from(0)])


def test_a_job_until_it_is_caught_up_takes_them_up_and_ends(world: PassingWorld) -> None:
    """BOOTSTRAP too, whose end may lie behind the one that the job runs to."""
    other = f"{world.input}-too"
    world.create(1, world.input, other)
    world.send(120)
    world.send(120, stream=other)
    job = started(world.passing(world.input, other, max_records_per_round=8), until="caught-up")
    world.send(5)
    id_ = world.ask_for(BOOTSTRAP, 0)
    waited(lambda: world.status(id_) is not None, job)
    assert (world.records()[id_].resolutions[0].until or 0) >= world.ends()[0]
    job.wait(30)
    world.run(world.passing(world.input, other))
    processed = world.processed_by_place()
    for stream, passes in ((world.input, [passed_from(0), passed_from(0, after=world.seen[id_])]), (other, [passed_from(0)])):
        passes_made(processed[stream, 0], offsets_of(world.rows_of(stream))[0], passes)


# --- grown streams ----------------------------------------------------------------------------------------------------

KEYS = [b"key-%d" % number for number in range(12)]


@pytest.mark.parametrize("settles", [True, False], ids=["settled", "not settled"])
def test_parents_and_the_partitions_born_from_them_go_back_in_the_order_of_each_key(world: PassingWorld, settles: bool) -> None:
    world.create(2)

    def send(numbers: range, partitions: int) -> None:
        records = [(key, b"%d" % n, partition_of(key, partitions)) for n in numbers for key in KEYS]
        world.system.produce(world.input, [hr.Record(key, value, partition=place) for key, value, place in records])

    def made() -> hr.App:
        app = world.app(max_records_per_round=16, settle_time_s=0.3 if settles else 3600.0)
        read = app.stream(world.input, key=hr.Bytes(), value=hr.Bytes())
        read.to(world.output, partitioner=to_the_only_one)
        return app

    send(range(3), 2)
    with world.running(made()) as job:
        waited(world.is_at_its_end, job)
        world.system.expand_stream(world.input, 4)
        send(range(3, 5), 2)  # its producer does not know yet

        def has_settled() -> bool:
            on_record = SystemStreamPartitionAssignmentManager(world.system.metadata_store(world.name))
            grown = on_record.read_partition_records()[world.input].expansions
            return bool(grown) and (grown[0].settled is not None) is settles

        waited(has_settled, job)
        send(range(5, 8), 4)
        waited(world.is_at_its_end, job)
        once = len(world.rows_of(world.output))
        assert once == 8 * len(KEYS)
        ids = world.ask(*(world.entry(EARLIEST, partition) for partition in range(4)))
        waited(lambda: all(world.status(id_) is StartpointStatus.APPLIED for id_ in ids) and world.is_at_its_end(), job)
    by_key: dict[bytes, list[int]] = {}
    for row in world.rows_of(world.output):
        by_key.setdefault(row["key"], []).append(int(row["value"]))
    assert by_key == {key: [*range(8), *range(8)] for key in KEYS}


# --- event time ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("below", [False, True], ids=["where it is read", "behind a repartition"])
def test_windows_count_again_what_is_read_again(world: PassingWorld, below: bool) -> None:
    """Nothing of it is late, though event time had gone far beyond it."""
    world.create(1)
    app = world.app(max_records_per_round=10, dead_letter_stream=f"{world.name}-dead")

    def time_of(record: Any) -> int:
        return LOG_START_US + int(record.value) * 1_000_000

    records = app.stream(world.input, key=hr.String(), value=hr.Long(), timestamp=time_of)
    if below:
        records = records.repartition(hr.Repartitioned(name="anew", number_of_partitions=1))
    counts = records.group_by_key().windowed_by(hr.Tumbling("10 seconds", grace="1 s")).count(store="n")
    counts.to_stream().to(world.output, partitioner=to_the_only_one)
    world.system.produce(world.input, [("k", number) for number in range(60)], key=hr.String(), value=hr.Long())
    world.run(app)
    first = len(world.rows_of(world.output))
    assert last_of_each(world, 0) == [10] * 6
    world.ask_for(EARLIEST, 0)
    world.run(app)
    counts_again = last_of_each(world, first)
    assert counts_again[-1] == 20, "its window is not over"
    # Of windows that are over the state may have been given back: then they are counted from the start.
    assert len(counts_again) == 6 and set(counts_again) <= {10, 20}
    assert not world.rows_of(f"{world.name}-dead"), "what is read again came late"


def last_of_each(world: PassingWorld, since: int) -> list[int]:
    """Window after window the last count that was written, of what was written `since`."""
    rows = world.rows_of(world.output)[since:]
    counts_of = {row["key"]: int.from_bytes(row["value"], "big") for row in rows}
    return [counts_of[key] for key in sorted(counts_of)]
