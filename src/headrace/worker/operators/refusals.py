"""Finding the records of a batch that the stream they are for would not take (`core.rounds.stream_limits`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from headrace.codec.record_batches import record_sizes
from headrace.core.rounds.stream_limits import StreamLimits
from headrace.errors import OutOfRangeError, RecordTooLargeError
from headrace.model.serde import Failures


def refused(stream: str, limits: StreamLimits, key: Any, value: Any, headers: Any, times_us: Any, now_us: int) -> Failures:
    """By row, in their order, why the stream would not take it. Rows are looked at one by one only where one is refused."""
    if not len(times_us):
        return []
    bad = _large(stream, limits, key, value, headers)
    earliest, latest = limits.times(now_us)
    if times_us.min() < earliest or times_us.max() > latest:
        for row in np.flatnonzero((times_us < earliest) | (times_us > latest)).tolist():
            text = limits.refusal_of_time(stream, int(times_us[row]), now_us)
            bad.setdefault(row, OutOfRangeError(text or ""))
    return sorted(bad.items())


def _large(stream: str, limits: StreamLimits, key: Any, value: Any, headers: Any) -> dict[int, Exception]:
    if key.nbytes + value.nbytes + (0 if headers is None else headers.nbytes) <= limits.bytes_max:
        return {}  # not even all of them together are as large
    sizes = record_sizes(key, value, headers)
    bad: dict[int, Exception] = {}
    for row in np.flatnonzero(sizes > limits.bytes_max).tolist():
        size = packed_size(int(sizes[row]), value[row].as_py(), limits.compression)
        text = limits.refusal_of_size(stream, size)
        if text is not None:
            bad[row] = RecordTooLargeError(text)
    return bad


def packed_size(size: int, value: bytes | None, compression: str | None) -> int:
    """What is left of a record of `size` bytes when its value is packed; no more than it had."""
    if compression is None or not value:
        return size
    return min(size, size - len(value) + len(pa.compress(value, codec=compression, asbytes=True)))
