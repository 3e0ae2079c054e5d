"""Sub-keys of records that a store keeps by their times."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from headrace.worker.batch_keys import time_rows
from headrace.worker.operators.base import Context
from headrace.worker.rows import Rows

_TIME, _STREAM, _OFFSET, _NUMBER = slice(0, 8), slice(8, 20), slice(20, 28), slice(28, 32)
SUB_BYTES = 32


def origin_subs(context: Context, rows: Rows, sides: npt.NDArray[np.int64]) -> Any:
    """Time and origin of each record, in rows of 32 bytes: the same wherever rounds are cut, and no two of a side alike. What
    comes of a timer has no origin; it is identified by the round, and what comes of one record by its number."""
    origins = [xxhash.xxh64_digest(stream.encode()) + partition.to_bytes(4, "big") for stream, partition in context.streams]
    origins.append(xxhash.xxh64_digest(context.plan.round_id.encode()) + bytes(4))
    has_origin = rows.offset >= 0
    ssp, offset = np.where(has_origin, rows.ssp, len(context.streams)), np.maximum(rows.offset, 0)
    subs = np.zeros((len(rows), SUB_BYTES), np.uint8)
    subs[:, _TIME] = time_rows(rows.timestamp_us)
    subs[:, _STREAM] = np.frombuffer(b"".join(origins), np.uint8).reshape(-1, 12)[ssp]
    subs[:, _OFFSET] = offset.astype(">u8").view(np.uint8).reshape(-1, 8)
    order = np.lexsort((offset, ssp, rows.timestamp_us, sides))
    alike = [column[order] for column in (offset, ssp, rows.timestamp_us, sides)]
    is_first = np.ones(len(rows), bool)
    is_first[1:] = np.any([column[1:] != column[:-1] for column in alike], axis=0) if len(rows) > 1 else False
    firsts = np.maximum.accumulate(np.where(is_first, np.arange(len(rows)), 0))
    numbers = np.empty(len(rows), np.uint32)
    numbers[order] = np.arange(len(rows)) - firsts
    subs[:, _NUMBER] = numbers.astype(">u4").view(np.uint8).reshape(-1, 4)
    return subs
