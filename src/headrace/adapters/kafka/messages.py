"""Owns the two forms of records here: rows of an Arrow table (`ports.RECORD_FIELDS`), and Kafka's messages.

Kafka keeps milliseconds: a timestamp in µs loses what is below.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from headrace.record_coding import HEADERS_TYPE


def messages_of(table: pa.Table) -> Iterator[dict[str, Any]]:
    """The rows of a table as the arguments of `Producer.produce`."""
    keys, values = table.column("key").to_pylist(), table.column("value").to_pylist()
    times = [max(0, time_us // 1000) for time_us in table.column("timestamp_us").to_pylist()]
    headers = table.column("headers")
    if headers.null_count == len(headers):
        for key, value, time_ms in zip(keys, values, times, strict=True):
            yield {"key": key, "value": value, "timestamp": time_ms}
        return
    for key, value, time_ms, items in zip(keys, values, times, headers.to_pylist(), strict=True):
        pairs = [(item["name"], item["value"]) for item in items or ()]
        yield {"key": key, "value": value, "timestamp": time_ms, **({"headers": pairs} if pairs else {})}


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
