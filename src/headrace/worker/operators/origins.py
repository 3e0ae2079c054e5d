"""Sub-keys of records that a store keeps by their times."""

from __future__ import annotations

from collections.abc import Sequence

import xxhash

from headrace.core.keys.key_layout import time_bytes
from headrace.worker.operators.base import Context
from headrace.worker.rows import Rows


def origin_subs(context: Context, rows: Rows, sides: Sequence[int]) -> list[bytes]:
    """Time and origin of each record: the same wherever rounds are cut, and no two of a side alike. What comes of a timer has
    no origin; it is identified by the round, and what comes of one record by its number."""
    origins = [xxhash.xxh64_digest(stream.encode()) + partition.to_bytes(4, "big") for stream, partition in context.streams]
    no_origin = xxhash.xxh64_digest(context.plan.round_id.encode()) + bytes(4)
    seen: dict[tuple[int, bytes], int] = {}
    subs = []
    places = zip(sides, rows.timestamp_us.tolist(), rows.ssp.tolist(), rows.offset.tolist(), strict=True)
    for side, time_us, ssp, offset in places:
        sub = time_bytes(time_us) + (origins[ssp] if offset >= 0 else no_origin) + max(offset, 0).to_bytes(8, "big")
        number = seen.get((side, sub), 0)
        seen[side, sub] = number + 1
        subs.append(sub + number.to_bytes(4, "big"))
    return subs
