"""Data files of the embedded log: what goes in comes out, and what is damaged is named."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.adapters.log import data_files
from headrace.adapters.log.chunks import Chunk
from headrace.adapters.log.data_files import (
    CHUNK_BYTES_MAX,
    CHUNK_RECORDS_MAX,
    ChunkWriter,
    read_chunk,
    read_range,
)
from headrace.adapters.log.file_names import PRODUCER_PARTS, new_file_name, parts_of_round, round_of
from headrace.codec.record_batches import HEADERS_TYPE, RECORD_SCHEMA
from headrace.core.rounds.stream_limits import RECORD_BYTES_MAX
from headrace.errors import InvalidNameError, RecordTooLargeError, StorageError
from headrace.model.checkpoint import RoundId


def batch(values: list[bytes | None], first_time: int = 0, headers: Any = None) -> pa.RecordBatch:
    count = len(values)
    return pa.RecordBatch.from_arrays(
        [
            pa.nulls(count, pa.binary()),
            pa.array(values, pa.binary()),
            pa.array(range(first_time, first_time + count), pa.int64()),
            pa.nulls(count, HEADERS_TYPE) if headers is None else pa.array(headers, HEADERS_TYPE),
        ],
        schema=RECORD_SCHEMA,
    )


def committed(chunks: tuple[Chunk, ...], stream: str = "s", partition: int = 0) -> list[Chunk]:
    """The chunks of one partition with offsets from 0, as the catalog would give them."""
    placed, base = [], 0
    for chunk in chunks:
        if (chunk.stream, chunk.partition) == (stream, partition):
            placed.append(replace(chunk, base_offset=base))
            base += chunk.records
    return placed


def values_of(root: Path, chunks: list[Chunk], start: int, end: int) -> list[bytes]:
    found: list[bytes] = []
    for offset, part in read_range(root, chunks, start, end):
        assert offset == start + len(found)
        found += part.column(1).to_pylist()
    return found


def test_nothing_written_makes_no_file(tmp_path: Path) -> None:
    writer = ChunkWriter(tmp_path, PRODUCER_PARTS)
    writer.write("s", 0, batch([]))
    assert writer.close() == ()
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=40, deadline=None)
@given(
    writes=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.integers(0, 12)), max_size=12),
    records_max=st.integers(1, 9),
    data=st.data(),
)
def test_any_range_of_any_partition_reads_back(
    tmp_path_factory: pytest.TempPathFactory, writes: Any, records_max: int, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("log")
    writer = ChunkWriter(root, parts_of_round("app", RoundId(3, None, 7)))
    model: dict[tuple[str, int], list[bytes]] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_files, "CHUNK_RECORDS_MAX", records_max)
        for number, (stream, partition, count) in enumerate(writes):
            values = [b"%d-%d" % (number, i) for i in range(count)]
            model.setdefault((stream, partition), []).extend(values)
            # a slice of something larger, as operators give it
            writer.write(stream, partition, batch([b"before", *values, b"after"]).slice(1, count))
        chunks = writer.close()
    assert all(0 < chunk.records <= records_max for chunk in chunks)
    assert len({chunk.file for chunk in chunks}) <= 1
    for (stream, partition), values in model.items():
        mine = committed(chunks, stream, partition)
        start = data.draw(st.integers(0, len(values)))
        end = data.draw(st.integers(start, len(values)))
        assert values_of(root, mine, start, end) == values[start:end]
        assert values_of(root, mine, 0, len(values)) == values


def test_small_batches_become_one_chunk(tmp_path: Path) -> None:
    writer = ChunkWriter(tmp_path, PRODUCER_PARTS)
    for i in range(100):
        writer.write("s", i % 2, batch([b"x"], first_time=i))
    first, second = writer.close()
    assert (first.partition, first.records, first.max_timestamp_us) == (0, 50, 98)
    assert (second.partition, second.records, second.max_timestamp_us) == (1, 50, 99)
    assert second.position % 64 == 0


def test_large_batches_are_cut(tmp_path: Path) -> None:
    writer = ChunkWriter(tmp_path, PRODUCER_PARTS)
    writer.write("s", 0, batch([b"x"] * (CHUNK_RECORDS_MAX * 2 + 1)))
    writer.write("s", 1, batch([bytes(CHUNK_BYTES_MAX // 3)] * 7))
    chunks = writer.close()
    assert [chunk.records for chunk in chunks if chunk.partition == 0] == [CHUNK_RECORDS_MAX, CHUNK_RECORDS_MAX, 1]
    assert sum(chunk.records for chunk in chunks if chunk.partition == 1) == 7
    assert all(chunk.length <= CHUNK_BYTES_MAX + 10_000 for chunk in chunks)


def test_what_is_buffered_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "_BUFFERED_BYTES_MAX", 10_000)
    writer = ChunkWriter(tmp_path, PRODUCER_PARTS)
    for i in range(300):
        writer.write("s", i % 3, batch([b"%3d" % i + bytes(1000)]))
        assert writer._buffered <= 10_000
    chunks = writer.close()
    for partition in range(3):
        mine = committed(chunks, "s", partition)
        assert [int(value[:3]) for value in values_of(tmp_path, mine, 0, 100)] == list(range(partition, 300, 3))


def test_a_record_above_the_limit_is_refused_and_the_rest_is_not(tmp_path: Path) -> None:
    writer = ChunkWriter(tmp_path, PRODUCER_PARTS)
    half = RECORD_BYTES_MAX // 2
    writer.write("s", 0, batch([bytes(half + 1), bytes(half)]))  # the batch is above the limit, no record is
    in_headers = batch([bytes(half)] * 2, headers=[None, [("a", bytes(half)), ("b", None)]])
    for wrong in (batch([b"x", bytes(RECORD_BYTES_MAX + 1)]), in_headers):
        with pytest.raises(
            RecordTooLargeError, match=rf"'s' partition 1 has [0-9,]+ bytes, at most {RECORD_BYTES_MAX:,}"
        ):
            writer.write("s", 1, wrong)
    assert {chunk.partition for chunk in writer.close()} == {0}


def test_headers_and_nulls_come_back_without_a_copy(tmp_path: Path) -> None:
    given_batch = batch([None, b"", b"x"], headers=[None, [], [("h", None), ("h", b"1")]])
    writer = ChunkWriter(tmp_path, PRODUCER_PARTS)
    writer.write("s", 0, given_batch)
    (chunk,) = writer.close()
    found = read_chunk(tmp_path, chunk)
    assert found.equals(given_batch)
    allocated = pa.total_allocated_bytes()
    again = read_chunk(tmp_path, chunk)
    assert pa.total_allocated_bytes() == allocated
    (tmp_path / chunk.file).unlink()
    assert again.equals(given_batch)  # a reader keeps what it has mapped


def test_arrays_of_arrow_functions_are_taken(tmp_path: Path) -> None:
    """Their schemas are nullable throughout."""
    nullable = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b"k"]),
            "value": pa.array([b"v"]),
            "timestamp_us": pa.array(np.array([7])),
            "headers": pa.nulls(1, HEADERS_TYPE),
        }
    )
    writer = ChunkWriter(tmp_path, PRODUCER_PARTS)
    writer.write("s", 0, nullable)
    (chunk,) = writer.close()
    assert read_chunk(tmp_path, chunk).schema.equals(RECORD_SCHEMA)


class TestDamage:
    @pytest.fixture
    def chunk(self, tmp_path: Path) -> Chunk:
        writer = ChunkWriter(tmp_path, PRODUCER_PARTS)
        writer.write("a", 0, batch([b"first"] * 100))
        writer.write("flights", 3, batch([b"second"] * 100))
        return replace(writer.close()[1], base_offset=40)

    def test_any_flipped_byte_is_found_and_named(self, tmp_path: Path, chunk: Chunk) -> None:
        path = tmp_path / chunk.file
        whole = path.read_bytes()
        for at in range(chunk.position, chunk.position + chunk.length, 37):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
            with pytest.raises(StorageError) as caught:
                list(read_range(tmp_path, [chunk], 40, 140))
            assert chunk.file in str(caught.value)
            assert f"bytes {chunk.position} to {chunk.position + chunk.length - 1}" in str(caught.value)
            assert "offsets 40 to 139 of 'flights' partition 3" in str(caught.value)

    def test_damage_elsewhere_in_the_file_does_no_harm(self, tmp_path: Path, chunk: Chunk) -> None:
        path = tmp_path / chunk.file
        whole = path.read_bytes()
        path.write_bytes(bytes(chunk.position) + whole[chunk.position :])
        assert read_chunk(tmp_path, chunk).num_rows == 100

    def test_a_cut_file_is_named(self, tmp_path: Path, chunk: Chunk) -> None:
        for size in (0, chunk.position, chunk.position + chunk.length - 1):
            os.truncate(tmp_path / chunk.file, size)
            with pytest.raises(StorageError, match=f"{chunk.file} is damaged"):
                read_chunk(tmp_path, chunk)

    def test_a_missing_file_is_named(self, tmp_path: Path, chunk: Chunk) -> None:
        (tmp_path / chunk.file).unlink()
        with pytest.raises(StorageError, match=f"{chunk.file} is missing; it holds offsets 40 to 139 of 'flights'"):
            read_chunk(tmp_path, chunk)

    def test_chunks_that_leave_a_gap_are_refused(self, tmp_path: Path, chunk: Chunk) -> None:
        for start, end in ((39, 50), (100, 141)):
            with pytest.raises(StorageError, match="is in none of the given chunks"):
                list(read_range(tmp_path, [chunk], start, end))


def test_discard_takes_the_file_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "CHUNK_RECORDS_MAX", 1)
    for closed in (False, True):
        writer = ChunkWriter(tmp_path, PRODUCER_PARTS)
        writer.write("s", 0, batch([b"x", b"y"]))
        if closed:
            writer.close()
        assert list(tmp_path.rglob("*.arrow"))
        writer.discard()
        assert not list(tmp_path.rglob("*.arrow"))


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").touch()  # a file where the folder should be: as root, rights stop nothing
    writer = ChunkWriter(tmp_path, PRODUCER_PARTS)
    writer.write("s", 0, batch([b"x"]))
    with pytest.raises(StorageError, match=r"data file .*data/produced/batch-.* cannot be written"):
        writer.close()


@pytest.mark.parametrize("round_id", [RoundId(3, None, 12), RoundId(40, "by-carrier", 0), RoundId(1, "a.b", 7)])
def test_names_say_which_round_wrote(round_id: RoundId) -> None:
    name = new_file_name(parts_of_round("my.app", round_id))
    assert round_of(name) == ("my.app", round_id)
    assert name != new_file_name(parts_of_round("my.app", round_id))


def test_names_of_producers_and_strangers_are_of_no_round() -> None:
    assert round_of(new_file_name(PRODUCER_PARTS)) is None
    assert round_of("data/jobs/app/x/source/1-00.arrow") is None
    for parts in (("..",), ("a/b", "c"), ("",)):
        with pytest.raises(InvalidNameError):
            new_file_name(parts)


@pytest.mark.parametrize("headers", [None, [[{"name": "n", "value": b"v"}]] + [None] * 199_998 + [[]]], ids=["none", "first"])
def test_a_chunk_is_as_large_as_its_own_records(tmp_path: Path, headers: Any) -> None:
    """Of a batch without headers each chunk held the offsets of all of it: at 2 million records nine times its own bytes."""
    whole = batch([b"12345678"] * 200_000, headers=headers)
    at_once, one_by_one = ChunkWriter(tmp_path, PRODUCER_PARTS), ChunkWriter(tmp_path, PRODUCER_PARTS)
    at_once.write("s", 0, whole)
    for start in range(0, 200_000, CHUNK_RECORDS_MAX):
        piece = whole.slice(start, CHUNK_RECORDS_MAX)
        one_by_one.write("s", 0, pa.RecordBatch.from_pylist(piece.to_pylist(), schema=RECORD_SCHEMA))
    lengths = [chunk.length for chunk in at_once.close()]
    assert lengths == pytest.approx([chunk.length for chunk in one_by_one.close()], rel=0.05)
    assert sum(part.num_rows for _, part in read_range(tmp_path, committed(at_once._chunks), 0, 200_000)) == 200_000
    assert pa.Table.from_batches([part for _, part in read_range(tmp_path, committed(at_once._chunks), 0, 200_000)]).equals(
        pa.Table.from_batches([whole])
    )
