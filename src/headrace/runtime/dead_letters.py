"""Owns the form of dead letters: the record as it was read, with headers that say where it came from and what was wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from headrace.runtime.operators.base import Reject
from headrace.runtime.rows import HEADERS_TYPE

PREFIX = "headrace."


def write(
    outputs: Any, stream: str, rejects: Sequence[Reject], originals: Sequence[Any], ssps: Sequence[Any], now_us: int
) -> None:
    """Add one dead letter per reject to `outputs`. `originals`: (key, value, timestamp, headers), None for a timer."""
    import numpy as np

    from headrace.runtime.task_run import output_batch

    keys, values, times, headers = [], [], [], []
    for reject, original in zip(rejects, originals, strict=True):
        key, value, time_us, own = original or (None, None, now_us, None)
        _, name, partition = ssps[reject.ssp]
        keys.append(key)
        values.append(value)
        times.append(time_us)
        headers.append(list(own or ()) + _headers(reject, name, partition))
    raw = pa.array(keys, pa.binary())
    batch = output_batch(raw, pa.array(values, pa.binary()), np.array(times, np.int64), pa.array(headers, HEADERS_TYPE))
    outputs.add(stream, batch, raw, np.array([max(reject.offset, 0) for reject in rejects], np.int64))


def _headers(reject: Reject, stream: str, partition: int) -> list[dict[str, Any]]:
    facts = {
        "stream": stream,
        "partition": partition,
        "offset": reject.offset,
        "operator": reject.operator,
        "error-class": reject.error_class,
        "error-message": reject.message,
    }
    return [{"name": PREFIX + name, "value": str(fact).encode()} for name, fact in facts.items()]
