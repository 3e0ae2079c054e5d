"""The two forms of records here: rows of an Arrow table (`codec.record_batches.RECORD_SCHEMA`), and Kafka's messages.

Kafka keeps milliseconds: a timestamp in µs loses what is below.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.codec.record_batches import HEADERS_TYPE

# Value, key, partition, timestamp (ms) and headers: plain tuples, as a round may write a million of them.
Message = tuple[bytes | None, bytes | None, int, int, list[tuple[str, str | bytes | None]] | None]
_PIECE = 10_000  # rows that are Python objects at a time: few enough to stay in the processor's cache


def messages_of(batch: pa.RecordBatch, partitions: Any) -> Iterator[Message]:
    """The rows of a batch, each for its partition (an array of ints), as what `lanes.produce_all` takes. Piece by piece
    those of one partition follow each other, each in its order: the client then keeps what goes out together together, and
    spends a third less on a record than where every one goes elsewhere than the one before it."""
    for start in range(0, batch.num_rows, _PIECE):
        some, numbers = batch.slice(start, _PIECE), partitions[start : start + _PIECE]
        if len(numbers) and bool((numbers != numbers[0]).any()):
            order = np.argsort(numbers, kind="stable")
            some, numbers = some.take(pa.array(order)), numbers[order]
        yield from _messages(some, numbers.tolist())


def _messages(batch: pa.RecordBatch, partitions: list[int]) -> Iterator[Message]:
    keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
    times_us = batch.column("timestamp_us").to_numpy()
    times_ms = np.maximum(times_us // 1000, 1).tolist()  # 0 would be now
    headers = batch.column("headers")
    if headers.null_count == len(headers):
        return zip(values, keys, partitions, times_ms, repeat(None, len(keys)), strict=True)
    pairs = [[(item["name"], item["value"]) for item in items or ()] or None for items in headers.to_pylist()]
    return zip(values, keys, partitions, times_ms, pairs, strict=True)


def batch_of(messages: Sequence[Any]) -> pa.RecordBatch:
    """Messages as rows: timestamp_us, headers, key, value."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array([message.timestamp()[1] * 1000 for message in messages], pa.int64()),
            pa.array([_headers(message) for message in messages], HEADERS_TYPE),
            pa.array([message.key() for message in messages], pa.binary()),
            pa.array([message.value() for message in messages], pa.binary()),
        ],
        names=["timestamp_us", "headers", "key", "value"],
    )


def _headers(message: Any) -> list[dict[str, Any]] | None:
    found = message.headers()
    return [{"name": name, "value": value} for name, value in found] if found else None
