"""The header that says in which replay a record was written (`core.rewind.replays`): put on outputs, found on inputs. One that
came with an input of the job is passed on like any other header, until the job's own takes its place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.codec.record_batches import HEADERS_TYPE
from headrace.core.rewind.replays import REPLAY_HEADER, REPLAY_HEADERS
from headrace.worker.rows import flat

_DIGITS_MAX = 18


def mark_of(number: int) -> dict[str, Any]:
    """The header, in the form of a record's headers."""
    return {"name": REPLAY_HEADER, "value": str(number).encode()}


def marked(headers: Any, count: int, number: int) -> Any:
    """The headers of `count` records, None for none at all, with this replay's mark as the last of each."""
    marks = pa.array([[mark_of(number)]], HEADERS_TYPE).take(pa.array(np.zeros(count, np.int64)))
    if headers is None or headers.null_count == count:
        return marks
    headers = flat(headers)
    entries = headers.flatten()
    kept = np.flatnonzero(~_is_mark(entries))
    owners = pc.list_parent_indices(headers).to_numpy()[kept]
    order = np.argsort(np.concatenate([owners, np.arange(count)]), kind="stable")  # of each record the mark comes last
    indices = np.concatenate([kept, np.arange(len(entries), len(entries) + count)])[order]
    bounds = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=count) + 1)]).astype(np.int32)
    all_entries = pa.concat_arrays([entries, marks.flatten()])
    return pa.ListArray.from_arrays(pa.array(bounds), all_entries.take(pa.array(indices))).cast(HEADERS_TYPE)


def found_in(headers: Any) -> int | None:
    """The highest number of a replay that any of these records was written in; None where none was."""
    if headers is None or headers.null_count == len(headers):
        return None
    entries = flat(headers).flatten()
    values = pc.struct_field(entries, "value").filter(pa.array(_is_mark(entries))).to_pylist()
    # Anybody may write such a header; only what a job of ours writes is a number.
    return max((int(value) for value in values if value and value.isdigit() and len(value) <= _DIGITS_MAX), default=None)


def _is_mark(entries: Any) -> Any:
    return pc.is_in(pc.struct_field(entries, "name"), pa.array(sorted(REPLAY_HEADERS))).to_numpy(zero_copy_only=False)
