"""The form of dead letters: the record as it was read, with headers that say where it came from and what was wrong. A letter
must be accepted for any record: of one that is too large for the stream, with these headers, a part is left out, and one whose
time the stream does not take gets another. A header reports the change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.codec.record_batches import HEADERS_TYPE
from headrace.core.rewind.replays import REPLAY_HEADERS
from headrace.core.rounds.stream_limits import ANY, StreamLimits
from headrace.core.topology.program import Program
from headrace.exchange.messages import Reject
from headrace.worker.outputs import Outputs, output_table
from headrace.worker.replay_header import mark_of

PREFIX = "headrace."
_WHOSE = "application"  # whose letter it is: several may write to one stream
_CUT_BYTES = 300  # at least what the header takes that says what was left out
_FACT_BYTES_MIN = 40  # of what is said of a record, where the stream takes small ones only


def write(
    outputs: Outputs,
    program: Program,
    rejects: Sequence[Reject],
    originals: Sequence[Any],
    ssps: Sequence[Any],
    now_us: int,
) -> None:
    """Add one dead letter per reject of `program` to `outputs`. `originals`: (key, value, timestamp, headers), None for a
    timer."""
    stream = program.dead_letter
    assert stream is not None
    limits = program.limits.get(stream, ANY)
    routing, keys, values, times, headers = [], [], [], [], []
    for reject, original in zip(rejects, originals, strict=True):
        key, value, time_us, own = original or (None, None, now_us, None)
        _, name, partition = ssps[reject.ssp]
        routing.append(key)
        added = _headers(reject, name, partition, now_us, program.application)
        time_us, said = _taken_time(time_us, limits, now_us)
        own = list(own or ())
        if reject.replay is not None:
            own, said = [one for one in own if one["name"] not in REPLAY_HEADERS], [*said, mark_of(reject.replay)]
        key, value, own = _fitting(key, value, own, added + said, limits.bytes_max)
        keys.append(key)
        values.append(value)
        times.append(time_us)
        headers.append(own)
    table = output_table(
        pa.array(keys, pa.binary()), pa.array(values, pa.binary()), np.array(times, np.int64), pa.array(headers, HEADERS_TYPE)
    )
    offsets = np.array([max(reject.offset, 0) for reject in rejects], np.int64)
    outputs.add(stream, table, pa.array(routing, pa.binary()), offsets)


def _headers(reject: Reject, stream: str, partition: int, now_us: int, application: str) -> list[dict[str, Any]]:
    facts = {
        "stream": stream,
        "partition": partition,
        "offset": reject.offset,
        "operator": reject.operator,
        "error-class": reject.error_class,
        "error-message": reject.message,
        "failed-at-us": now_us,
        _WHOSE: application,
    }
    return [_header(name, fact) for name, fact in facts.items()]


def _header(name: str, fact: Any) -> dict[str, Any]:
    return {"name": PREFIX + name, "value": str(fact).encode()}


def _taken_time(time_us: int, limits: StreamLimits, now_us: int) -> tuple[int, list[dict[str, Any]]]:
    """A time that the stream takes, and a header with the record's own where that is another."""
    earliest, latest = limits.times(now_us)
    if earliest <= time_us <= latest:
        return time_us, []
    taken_us = limits.time_min_us if time_us < limits.time_min_us and earliest == limits.time_min_us else now_us
    return taken_us, [_header("timestamp-us", time_us)]


def _fitting(
    key: bytes | None, value: bytes | None, own: list[dict[str, Any]], added: list[dict[str, Any]], bytes_max: int
) -> tuple[bytes | None, bytes | None, list[dict[str, Any]]]:
    """Key, value and all headers, `added` last. Where they are too large for a record, the value is cut off; where that
    is not enough, its own headers go, and then the key is cut off too; last what is said of the record."""
    if len(key or b"") + len(value or b"") + _size(own) + _size(added) <= bytes_max:
        return key, value, own + added
    if _size(added) > bytes_max - _CUT_BYTES:
        most = max(_FACT_BYTES_MIN, (bytes_max - _CUT_BYTES) // len(added) - _FACT_BYTES_MIN)
        # A name that is cut would be another application's: a letter without one counts for any.
        added = [one for one in added if one["name"] != PREFIX + _WHOSE or len(one["value"]) <= most]
        added = [{"name": fact["name"], "value": fact["value"][:most]} for fact in added]
    room = max(0, bytes_max - _size(added) - _CUT_BYTES)
    notes = []
    kept = (key or b"")[:room]
    if len(kept) < len(key or b""):
        notes.append(f"key: its first {len(kept)} of {len(key or b'')} bytes")
    room -= len(kept)
    if _size(own) > room:
        notes.append(f"headers: none of {len(own)}")
        own = []
    room -= _size(own)
    begun = (value or b"")[:room]
    if len(begun) < len(value or b""):
        notes.append(f"value: its first {len(begun)} of {len(value or b'')} bytes")
    whole_headers = [*own, *added, _header("cut", "; ".join(notes))]
    return None if key is None else kept, None if value is None else begun, whole_headers


def _size(headers: list[dict[str, Any]]) -> int:
    return sum(len(header["name"].encode()) + len(header["value"] or b"") for header in headers)
