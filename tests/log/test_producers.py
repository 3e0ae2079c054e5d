"""Many producers and readers of one log at the same time, and what is left when they die."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.adapters.log import records as log_records
from headrace.adapters.log.commits import PRODUCER_FILE_AGE_S
from headrace.adapters.log.data_files import ChunkWriter, read_chunk
from headrace.adapters.log.system import LogSystem, open_system
from headrace.codec import record_batches
from headrace.errors import OffsetOutOfRangeError, SerdeError, StorageError, StreamNotFoundError
from headrace.record import Record

Start = Callable[..., Any]  # see `start` in conftest.py

PRODUCER = """
import sys
from headrace.adapters.log.system import open_system
folder, producer, calls, records = sys.argv[1:]
with open_system(f"log:{folder}") as system:
    for call in range(int(calls)):
        first = call * int(records)
        system.produce("s", [(producer.encode(), b"%d" % (first + i)) for i in range(int(records))])
        print(call, flush=True)
"""


def test_processes_produce_into_one_stream(system: LogSystem, folder: Path, start: Start) -> None:
    system.create_stream("s", 3)
    producers = [start(PRODUCER, folder, f"p{number}", 25, 20) for number in range(3)]
    seen = 0
    while any(producer.poll() is None for producer in producers):  # read while they write
        offsets: dict[int | None, list[int | None]] = {}
        for record in system.consume("s"):
            offsets.setdefault(record.partition, []).append(record.offset)
        assert all(found == list(range(len(found))) for found in offsets.values())
        count = sum(map(len, offsets.values()))
        assert count >= seen
        seen = count
    assert [producer.wait() for producer in producers] == [0, 0, 0]
    values: dict[bytes, list[int]] = {}
    for record in system.consume("s"):
        values.setdefault(record.key, []).append(int(record.value))
    assert values == {b"p%d" % number: list(range(500)) for number in range(3)}


def test_a_killed_producer_leaves_whole_calls_and_rubbish_that_goes(
    system: LogSystem, folder: Path, start: Start
) -> None:
    system.create_stream("s", 1)
    producer = start(PRODUCER, folder, "p", 10_000, 10)
    assert producer.stdout is not None
    for _ in range(5):
        producer.stdout.readline()
    producer.kill()
    producer.wait()
    values = [int(record.value) for record in system.consume("s")]
    assert values == list(range(len(values))) and len(values) >= 50 and len(values) % 10 == 0
    left = _uncommitted_file(folder)
    now_us = time.time_ns() // 1000
    assert system.collect_garbage(now_us) == ()  # it could still be committed
    removed = system.collect_garbage(now_us + (PRODUCER_FILE_AGE_S + 60) * 1_000_000)
    assert left in removed
    assert [int(record.value) for record in system.consume("s")] == values


def test_a_producer_that_wakes_after_its_file_was_collected_is_refused(
    system: LogSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    system.create_stream("s", 1)
    close = ChunkWriter.close

    def slow_close(writer: ChunkWriter) -> object:
        chunks = close(writer)
        system.collect_garbage(time.time_ns() // 1000 + 2 * PRODUCER_FILE_AGE_S * 1_000_000)
        return chunks

    monkeypatch.setattr(ChunkWriter, "close", slow_close)
    with pytest.raises(StorageError, match=r"is missing.*nothing was committed"):
        system.produce("s", [(b"k", b"v")])
    assert system.end_offsets("s") == {0: 0}


def test_large_input_is_committed_in_batches_each_all_or_nothing(
    system: LogSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_records, "COMMIT_RECORDS", 250)
    system.create_stream("s", 2)
    with pytest.raises(SerdeError, match="value of record 620 is str"):
        system.produce("s", ((b"%d" % i, "bad" if i == 620 else b"v") for i in range(1000)))
    assert sum(system.end_offsets("s").values()) == 500
    assert len(list(system.root.rglob("*.arrow"))) == 2  # nothing is left of the third


def test_large_records_are_committed_in_smaller_batches(system: LogSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_records, "_COMMIT_BYTES", 100_000)
    monkeypatch.setattr(record_batches, "_STEP_BYTES", 20_000)
    system.create_stream("s", 1)
    records = [(b"k", b"%d" % i + bytes(2_000)) for i in range(500)]
    assert system.produce("s", records) == 500
    assert [record.value for record in system.consume("s")] == [value for _, value in records]
    assert 5 < len(list(system.root.rglob("*.arrow"))) < 20


def test_a_stream_made_anew_during_a_call_is_refused(system: LogSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_records, "COMMIT_RECORDS", 10)
    system.create_stream("s", 4)

    def records() -> object:
        for i in range(20):
            if i == 10:
                system.delete_stream("s")
                system.create_stream("s", 1)
            yield (b"k", b"%d" % i)

    with pytest.raises(StreamNotFoundError, match="deleted and recreated meanwhile; 10 records were written"):
        system.produce("s", records())  # type: ignore[arg-type]
    assert system.end_offsets("s") == {0: 0}


class TestPurge:
    @pytest.fixture
    def filled(self, system: LogSystem) -> LogSystem:
        """Offsets 0 to 29 of partition 0, ten to a file; 0 to 9 of partition 1."""
        system.create_stream("s", 2)
        for i in range(3):
            system.produce("s", [Record(b"k", b"%d" % (i * 10 + j), i * 10 + j, partition=0) for j in range(10)])
        system.produce("s", [Record(b"k", b"v", partition=1)] * 10)
        return system

    def test_what_is_purged_is_gone_and_offsets_stay(self, filled: LogSystem) -> None:
        filled.purge("s", {0: 15})
        assert filled.beginning_offsets("s") == {0: 15, 1: 0}
        assert filled.end_offsets("s") == {0: 30, 1: 10}
        found = list(filled.consume("s", partitions=[0]))
        assert [record.offset for record in found] == [int(record.value) for record in found] == list(range(15, 30))
        with pytest.raises(
            OffsetOutOfRangeError, match=r"it holds 15 to 30 \(exclusive\)\n.*before 15 has been purged"
        ):
            filled.consume("s", partitions=[0], start=14)
        with pytest.raises(OffsetOutOfRangeError):
            filled.chunks("s", 0, 14, 20)
        assert filled.offsets_for_time("s", 3)[0] == 15

    def test_a_smaller_offset_changes_nothing_and_a_larger_one_is_refused(self, filled: LogSystem) -> None:
        filled.purge("s", {0: 15})
        filled.purge("s", {0: 3})
        for wrong in ({1: 5, 0: 31}, {1: 5, 2: 0}):
            with pytest.raises(OffsetOutOfRangeError):
                filled.purge("s", wrong)
        assert filled.beginning_offsets("s") == {0: 15, 1: 0}

    def test_a_whole_partition_can_be_purged_and_goes_on(self, filled: LogSystem) -> None:
        filled.purge("s", {0: 30})
        assert list(filled.consume("s", partitions=[0])) == []
        filled.produce("s", [Record(b"k", b"30", partition=0)])
        assert [(r.offset, r.value) for r in filled.consume("s", partitions=[0])] == [(30, b"30")]

    def test_files_go_when_nothing_in_them_is_left(self, filled: LogSystem) -> None:
        later = time.time_ns() // 1000 + 2 * PRODUCER_FILE_AGE_S * 1_000_000
        assert filled.collect_garbage(later) == ()
        filled.purge("s", {0: 15})
        (removed,) = filled.collect_garbage(later)
        assert not (filled.root / removed).exists()
        assert len(list(filled.consume("s"))) == 25
        filled.delete_stream("s")
        assert len(filled.collect_garbage(later)) == 3
        assert not list(filled.root.rglob("*.arrow"))

    def test_a_reader_that_has_begun_is_told_what_is_missing(self, filled: LogSystem) -> None:
        found = filled.consume("s")
        assert next(found).offset == 0
        filled.purge("s", {0: 30})
        filled.collect_garbage(time.time_ns() // 1000 + 2 * PRODUCER_FILE_AGE_S * 1_000_000)
        with pytest.raises(StorageError, match="is missing; it holds offsets 10 to 19 of 's' partition 0"):
            list(found)


def test_chunks_cover_what_is_asked_for(system: LogSystem) -> None:
    system.create_stream("s", 1)
    for i in range(4):
        system.produce("s", [(b"k", b"%d" % j) for j in range(i * 5, i * 5 + 5)])
    for start in range(20):
        for end in range(start, 21):
            chunks = system.chunks("s", 0, start, end)
            assert [chunk.base_offset for chunk in chunks] == [b for b in (0, 5, 10, 15) if b < end and b + 5 > start]
    assert read_chunk(system.root, system.chunks("s", 0, 5, 6)[0]).column(1).to_pylist() == [
        b"5",
        b"6",
        b"7",
        b"8",
        b"9",
    ]


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("produce"), st.integers(0, 1), st.integers(0, 6)),
            st.tuples(st.just("purge"), st.integers(0, 1), st.integers(0, 8)),
            st.tuples(st.just("collect"), st.just(0), st.just(0)),
        ),
        max_size=12,
    )
)
def test_a_log_is_what_a_list_with_a_beginning_is(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]
) -> None:
    model: list[list[bytes]] = [[], []]
    begins = [0, 0]
    with open_system(f"log:{tmp_path_factory.mktemp('log')}") as system:
        system.create_stream("s", 2)
        for kind, partition, number in steps:
            match kind:
                case "produce":
                    values = [b"%d" % (len(model[partition]) + i) for i in range(number)]
                    system.produce("s", [Record(None, value, partition=partition) for value in values])
                    model[partition] += values
                case "purge":
                    begins[partition] = max(begins[partition], min(number, len(model[partition])))
                    system.purge("s", {partition: begins[partition]})
                case "collect":
                    system.collect_garbage(time.time_ns() // 1000 + 2 * PRODUCER_FILE_AGE_S * 1_000_000)
        assert system.beginning_offsets("s") == dict(enumerate(begins))
        assert system.end_offsets("s") == dict(enumerate(map(len, model)))
        for partition in (0, 1):
            found = [(record.offset, record.value) for record in system.consume("s", partitions=[partition])]
            assert found == list(enumerate(model[partition]))[begins[partition] :]


def _uncommitted_file(folder: Path) -> str:
    """A data file as a producer leaves it that dies before its commit."""
    path = folder / "data" / "produced" / f"batch-{os.urandom(16).hex()}.arrow"
    path.write_bytes(b"half a fil")
    return str(path.relative_to(folder))
