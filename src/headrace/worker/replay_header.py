"""The header that says in which replay a record was written (`core.rewind.replays`): put on outputs, found on inputs.

One that came with an input of the job is passed on like any other header, until the job's own takes its place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.rewind.replays import REPLAY_HEADER, REPLAY_HEADERS
from headrace.core.rounds.stream_limits import StreamLimits
from headrace.worker.rows import HEADERS_TYPE

_DIGITS_MAX = 18


def mark_of(number: int) -> dict[str, Any]:
    """The header, in the form of a record's headers."""
    return {"name": REPLAY_HEADER, "value": str(number).encode()}


def marked(headers: Any, count: int, number: int) -> Any:
    """The headers of `count` records, None for none at all, with this replay's mark as the last of each."""
    mark = pa.array([[mark_of(number)]], HEADERS_TYPE)
    if headers is None or headers.null_count == count:
        return mark.take(pa.array(np.zeros(count, np.int64)))
    headers = _flat(headers)
    lengths = pc.fill_null(headers.value_lengths(), 0).to_numpy(zero_copy_only=False)
    entries = headers.flatten()
    kept = np.flatnonzero(~_is_mark(entries))
    owners = np.repeat(np.arange(count), lengths)[kept]
    order = np.argsort(np.concatenate([owners, np.arange(count)]), kind="stable")  # of each record the mark comes last
    indices = np.concatenate([kept, np.full(count, len(entries))])[order]
    bounds = np.zeros(count + 1, np.int32)
    np.cumsum(np.bincount(owners, minlength=count) + 1, out=bounds[1:])
    all_entries = pa.concat_arrays([entries, mark.flatten()])
    return pa.ListArray.from_arrays(pa.array(bounds), all_entries.take(pa.array(indices))).cast(HEADERS_TYPE)


def found_in(headers: Any) -> int | None:
    """The highest number of a replay that any of these records was written in; None where none was."""
    if headers is None or headers.null_count == len(headers):
        return None
    entries = _flat(headers).flatten()
    values = pc.struct_field(entries, "value").filter(pa.array(_is_mark(entries))).to_pylist()
    # Anybody may write such a header; only what a job of ours writes is a number.
    return max((int(value) for value in values if value and value.isdigit() and len(value) <= _DIGITS_MAX), default=None)


def with_room(limits: StreamLimits, number: int) -> StreamLimits:
    """What the stream takes of a record that is yet to be marked."""
    return limits.with_room_for(len(REPLAY_HEADER) + len(str(number)))


def _is_mark(entries: Any) -> np.ndarray[Any, Any]:
    names = pc.is_in(pc.struct_field(entries, "name"), pa.array(sorted(REPLAY_HEADERS)))
    found: np.ndarray[Any, Any] = names.to_numpy(zero_copy_only=False)
    return found


def _flat(array: Any) -> Any:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
