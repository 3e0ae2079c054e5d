"""Rows on their way to librdkafka: none lost, those of a partition in their order and together, with all that they had."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.adapters.kafka import messages
from headrace.adapters.kafka.messages import Message, messages_of
from headrace.codec.record_batches import HEADERS_TYPE, RECORD_SCHEMA

Row = tuple[bytes | None, bytes | None, int, list[dict[str, Any]] | None]
BYTES = st.none() | st.binary(max_size=3)
HEADERS = st.none() | st.lists(st.fixed_dictionaries({"name": st.text(max_size=2), "value": BYTES}), max_size=2)
ROWS = st.lists(st.tuples(st.tuples(BYTES, BYTES, st.integers(0, 10**16), HEADERS), st.integers(0, 3)), max_size=30)


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [{"key": key, "value": value, "timestamp_us": time_us, "headers": h} for key, value, time_us, h in rows], RECORD_SCHEMA
    )


def expected_of(rows: list[tuple[Row, int]], partition: int) -> list[Message]:
    return [
        (value, key, partition, max(time_us // 1000, 1), [(h["name"], h["value"]) for h in headers] if headers else None)
        for (key, value, time_us, headers), own in rows
        if own == partition
    ]


@pytest.fixture(scope="module", autouse=True)
def small_pieces() -> Any:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(messages, "_PIECE", 7)
        yield


@given(ROWS)
def test_each_partition_is_given_its_rows_whole_and_in_order(rows: list[tuple[Row, int]]) -> None:
    found = list(messages_of(batch_of([row for row, _ in rows]), np.array([own for _, own in rows], np.int32)))
    assert len(found) == len(rows)
    for partition in range(4):
        assert [message for message in found if message[2] == partition] == expected_of(rows, partition)


def test_those_of_a_partition_follow_each_other_within_a_piece() -> None:
    batch = batch_of([(b"%d" % number, b"v", 0, None) for number in range(9)])
    found = [(key, partition) for _, key, partition, *_ in messages_of(batch, np.array([1, 0, 1, 0, 1, 0, 1, 1, 0]))]
    first = [(b"1", 0), (b"3", 0), (b"5", 0), (b"0", 1), (b"2", 1), (b"4", 1), (b"6", 1)]
    assert found == [*first, (b"8", 0), (b"7", 1)]


def test_rows_that_are_cut_out_of_others_are_these_rows() -> None:
    headers = [None, [{"name": "a", "value": b"1"}], None, [{"name": "b", "value": None}]]
    whole = pa.RecordBatch.from_arrays(
        [pa.array([b"0", b"1", None, b"3"]), pa.array([None, b"x", b"y", b"z"]), pa.array([0, 5000, 6000, 7999]),
         pa.array(headers, HEADERS_TYPE)],
        schema=RECORD_SCHEMA,
    )  # fmt: skip
    assert list(messages_of(whole.slice(1, 3), np.array([2, 0, 2]))) == [
        (b"y", None, 0, 6, None),
        (b"x", b"1", 2, 5, [("a", b"1")]),
        (b"z", b"3", 2, 7, [("b", None)]),
    ]
