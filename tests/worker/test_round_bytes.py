"""Rounds and outputs are bounded by bytes: what a round reads, and what is put in order at once when it writes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.core.rounds.offset_ranges import Extent, OffsetRange, within_bytes
from headrace.exchange.engine import WORKER_DIED
from headrace.exchange.errors import worker_death
from headrace.model.streams import SSP
from headrace.testing import Driver
from headrace.worker import outputs as task_outputs
from headrace.worker.outputs import Outputs, output_table

A, B = SSP("log", "in", 0), SSP("log", "in", 1)


def test_outputs_above_the_bound_come_in_pieces_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_outputs, "PIECE_BYTES", 1000)
    outputs = Outputs({"out": 2})
    for first in (0, 40):
        numbers = range(first, first + 40)
        keys = pa.array([str(number % 5).encode() for number in numbers], pa.binary())
        parts = [pa.array([b"%03d" % n + bytes(200) for n in part], pa.binary()) for part in (numbers[:7], numbers[7:])]
        times = np.array(numbers, np.int64)
        outputs.add("out", output_table(pa.chunked_array([keys]), pa.chunked_array(parts), times, None), keys, times)
    found: dict[int, list[int]] = {0: [], 1: []}
    tables = list(outputs.by_partition())
    for _, partition, table in tables:
        assert table.num_rows == 1 or table.nbytes <= 1000
        found[partition] += table.column("timestamp_us").to_pylist()
    assert len(tables) > 4
    assert sorted(found[0] + found[1]) == list(range(80))
    assert all(times == sorted(times) for times in found.values())
    assert outputs.records == {"out": 80}


def test_a_round_reads_so_many_bytes_and_at_least_one_record() -> None:
    app = hr.App("bytes")
    app.stream("in", key=hr.Bytes(), value=hr.Bytes()).to("out")
    with Driver(app, partitions={"in": 2, "out": 1}, overrides=["max_bytes_per_round=20_000"]) as d:
        for number in range(6):
            d.send("in", None, bytes([number]) * 30_000, partition=0)
            d.send("in", None, bytes([number]), partition=1)
        rounds = d.run()
        assert 6 <= rounds <= 13
        assert len(d.read("out")) == 12


def test_every_partition_has_its_turn_whatever_the_size_of_its_records() -> None:
    small, large = [Extent(0, 10_000, 1_000_000)], [Extent(0, 4, 4_000_000)]
    reached = {A: 0, B: 0}
    for turn in range(8):
        ranges = [OffsetRange(A, reached[A], 10_000), OffsetRange(B, reached[B], 4)]
        pieces = within_bytes([r for r in ranges if r.records], {A: small, B: large}, 10_000, turn)
        assert pieces
        for piece in pieces:
            assert piece.start == reached[piece.ssp]
            reached[piece.ssp] = piece.end
    assert reached[B] == 4
    assert 300 <= reached[A] <= 900


def test_a_partition_of_unknown_sizes_is_left_as_it_is() -> None:
    ranges = (OffsetRange(A, 3, 9), OffsetRange(B, 0, 4))
    assert within_bytes(ranges, {}, 1, 0) == ranges
    cut: Any = within_bytes(ranges, {B: [Extent(0, 4, 400)]}, 200, 0)
    assert cut == (ranges[0], OffsetRange(B, 0, 2))


def test_a_worker_that_died_is_told_of_with_what_it_worked_on() -> None:
    message, advice = worker_death("source", [OffsetRange(A, 3, 9), OffsetRange(B, 4, 4)], "EOFException")
    assert message == (
        "a worker process died while sub-topology 'source' worked on in partition 0, offsets 3 to 8 (EOFException)"
    )
    assert "max_records_per_round=1" in advice
    assert WORKER_DIED == "PythonWorkerDied"
