"""The way between records as Python objects and Arrow batches of `RECORD_SCHEMA`, for `produce` and `consume` of all
systems."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from time import time_ns
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.keys.hashing import partition_of
from headrace.core.rounds.stream_limits import RECORD_BYTES_MAX
from headrace.errors import OffsetOutOfRangeError, RecordTooLargeError, SerdeError
from headrace.model.serde import Serde, routing_keys
from headrace.record import Headers, Record

HEADERS_TYPE = pa.list_(pa.struct([pa.field("name", pa.string()), pa.field("value", pa.binary())]))
RECORD_SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("timestamp_us", pa.int64(), nullable=False),
        pa.field("headers", HEADERS_TYPE),
    ]
)

Partitions = np.ndarray[Any, np.dtype[np.int64]]
_STEP_BYTES = 32 * 1024 * 1024  # encoded at once: bounds memory whatever the size of the records
_STEP_RECORDS_FIRST, _STEP_RECORDS_MAX = 100, 10_000
_KNOWN_KEYS_MAX = 1_000_000
_DECODED_AT_ONCE = 10_000  # bounds the Python objects in memory while consuming
_SERDE_HINTS = {str: "String()", int: "Long()", float: "Double()", dict: "Json()", list: "Json()"}
_BYTES_LIKE = (bytes, bytearray, memoryview)


class ProducedBatches:
    """The records of one call of `produce` as batches. `round_robin` gives the partition of the next null key."""

    def __init__(self, key: Serde | None, value: Serde | None, round_robin: int) -> None:
        self._key, self._value, self.round_robin = key, value, round_robin
        self._partitions = 0
        self._known: dict[bytes, int] = {}  # partitions of keys
        self._step = _STEP_RECORDS_FIRST
        self._taken = 0

    def of(self, records: Iterator[Any], partitions: int) -> Iterator[tuple[pa.RecordBatch, Partitions]]:
        """The next of them, of a stream with so many `partitions`, and the partition of each. Raises as `batch_of`."""
        if partitions != self._partitions:
            self._partitions, self._known = partitions, {}
        while step := list(islice(records, self._step)):
            batch, requested = batch_of(step, self._key, self._value, self._taken, time_ns() // 1000)
            if len(self._known) > _KNOWN_KEYS_MAX:
                self._known.clear()
            keys = routing_keys(self._key, batch.column(0))
            chosen = partitions_of(keys, requested, partitions, self.round_robin, self._known)
            self.round_robin += keys.null_count
            self._taken += len(step)
            fits = _STEP_BYTES * len(step) // max(1, batch.nbytes)
            self._step = max(1, min(fits, self._step * 10, _STEP_RECORDS_MAX))
            yield batch, chosen


def batch_of(
    records: Sequence[Any], key: Serde | None, value: Serde | None, first: int, now_us: int
) -> tuple[pa.RecordBatch, list[int | None] | None]:
    """`records` ((key, value) pairs or `Record`s) as one batch, and the requested partitions (None: none is). `first` is the
    number of the first one among all that are produced, for errors; `now_us` the timestamp of those that have none.
    `SerdeError`, naming the record, for one that cannot be encoded or is no record."""
    if all(type(record) is tuple and len(record) == 2 for record in records):
        keys, values = zip(*records, strict=True)
        whole: list[Record] | None = None
    else:
        whole = [_record(record, first + index) for index, record in enumerate(records)]
        keys, values = tuple(record.key for record in whole), tuple(record.value for record in whole)
    encoded_keys = _encoded("key", keys, key, first)
    encoded_values = _encoded("value", values, value, first)
    if whole is None:
        times, headers = pa.array(np.full(len(records), now_us, np.int64)), pa.nulls(len(records), HEADERS_TYPE)
        requested = []
    else:
        times, headers = _times(whole, first, now_us), _headers(whole, first)
        requested = [record.partition for record in whole]
    batch = pa.RecordBatch.from_arrays([encoded_keys, encoded_values, times, headers], schema=RECORD_SCHEMA)
    return batch, requested if any(partition is not None for partition in requested) else None


def partitions_of(
    keys: pa.Array, requested: Sequence[int | None] | None, partitions: int, round_robin: int, known: dict[bytes, int]
) -> Partitions:
    """The partition of each record: the requested one, else Kafka's default for its key, else one after the other. A null
    key takes part `round_robin`, `round_robin + 1`, …; `known` remembers the partitions of keys between calls."""
    if partitions == 1:
        chosen = np.zeros(len(keys), np.int64)
    else:
        by_key = keys.dictionary_encode()
        unique = by_key.dictionary.to_pylist()
        for key in unique:
            if key not in known:
                known[key] = partition_of(key, partitions)
        table = np.array([known[key] for key in unique] or [0], np.int64)
        indices = by_key.indices.fill_null(0).to_numpy(zero_copy_only=False)
        chosen = table[indices]
        if keys.null_count:
            null = np.flatnonzero(keys.is_null().to_numpy(zero_copy_only=False))
            chosen[null] = (round_robin + np.arange(len(null))) % partitions
    if requested is not None:
        for index, partition in enumerate(requested):
            if partition is None:
                continue
            if not isinstance(partition, int) or not 0 <= partition < partitions:
                raise OffsetOutOfRangeError(f"a record names partition {partition!r}: expected 0 to {partitions - 1}")
            chosen[index] = partition
    return chosen


def split(batch: pa.RecordBatch, partitions: Partitions) -> Iterator[tuple[int, pa.RecordBatch]]:
    """`batch`, of `RECORD_SCHEMA` and not empty, cut by partition, each part in its order."""
    if bool((partitions == partitions[0]).all()):
        yield int(partitions[0]), batch
        return
    order = np.argsort(partitions, kind="stable")
    numbers, places = partitions[order], pa.array(order)
    columns = [column.take(places) for column in batch.columns[:3]]
    headers = batch.column(3)  # a `take` makes work of them even where no record has any
    columns.append(headers if headers.null_count == len(headers) else headers.take(places))
    batch = pa.RecordBatch.from_arrays(columns, schema=batch.schema)
    starts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist()]
    for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
        yield int(numbers[start]), batch.slice(start, stop - start)


def record_sizes(key: Any, value: Any, headers: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    """How many bytes each record has: key, value, and the names and values of its headers (None: there are none)."""
    sizes = np.zeros(len(key), np.int64)
    for part in (key, value):
        sizes += pc.fill_null(pc.binary_length(part), 0).to_numpy(zero_copy_only=False)
    if headers is not None and headers.null_count < len(headers):
        parents = pc.list_parent_indices(headers).to_numpy(zero_copy_only=False)
        for part in pc.list_flatten(headers).flatten():
            np.add.at(sizes, parents, pc.fill_null(pc.binary_length(part), 0).to_numpy(zero_copy_only=False))
    return sizes


def refuse_too_large(batch: pa.RecordBatch, target: str, first: int | None = None) -> None:
    """`RecordTooLargeError` if one of the records, which are for `target`, is above `RECORD_BYTES_MAX`. `first` is the number
    of the first one, where they have numbers."""
    if batch.nbytes <= RECORD_BYTES_MAX:
        return  # not even the whole batch is as large
    sizes = record_sizes(batch.column(0), batch.column(1), batch.column(3))
    largest = int(sizes.argmax())
    if sizes[largest] > RECORD_BYTES_MAX:
        record = "a record" if first is None else f"record {first + largest}"
        raise RecordTooLargeError(
            f"{record} for {target} has {sizes[largest]:,} bytes, at most {RECORD_BYTES_MAX:,} are taken",
            "split it, or store the payload elsewhere and send a reference to it",
        )


def records_of(
    batch: pa.RecordBatch, stream: str, partition: int, offsets: Sequence[int], key: Serde | None, value: Serde | None
) -> Iterator[Record]:
    """The rows of `batch` (the columns of `RECORD_SCHEMA`), which have these `offsets` in one partition, as records.
    `SerdeError` naming the first record that does not decode; those before it have been given by then."""
    for start in range(0, batch.num_rows, _DECODED_AT_ONCE):
        part = batch.slice(start, _DECODED_AT_ONCE)
        keys, key_failures = _decoded(part.column("key"), key)
        values, value_failures = _decoded(part.column("value"), value)
        failures = [(index, error, "key") for index, error in key_failures]
        failures += [(index, error, "value") for index, error in value_failures]
        bad = min(failures, key=lambda failure: failure[0], default=None)
        good = part.num_rows if bad is None else bad[0]
        rows = zip(keys, values, part.column("timestamp_us").to_pylist(), header_tuples(part.column("headers")), strict=True)
        for index, (k, v, time, headers) in enumerate(rows):
            if index == good:
                break
            yield Record(k, v, time, headers, partition, offsets[start + index], stream)
        if bad is not None:
            raise SerdeError(
                f"the {bad[2]} of offset {offsets[start + bad[0]]} of {stream!r} partition {partition} "
                f"does not decode: {bad[1]}",
                f"was it written with another serde? read it as bytes, without {bad[2]}=",
            ) from bad[1]


def _record(record: Any, number: int) -> Record:
    if isinstance(record, Record):
        return record
    if isinstance(record, (tuple, list)) and len(record) == 2:
        return Record(record[0], record[1])
    raise SerdeError(
        f"record {number}: expected a (key, value) pair or a Record, found {type(record).__name__} {str(record)[:60]}",
        "give a null key as (None, value)",
    )


def _encoded(part: str, values: Sequence[Any], serde: Serde | None, first: int) -> pa.Array:
    if serde is not None:
        encoded, failures = serde.encode_many(values)
        if failures:
            index, error = failures[0]
            raise SerdeError(f"the {part} of record {first + index} does not encode: {error}") from error
        return encoded
    kinds = set(map(type, values))
    if not kinds <= {bytes, type(None)}:
        for index, given in enumerate(values):
            if given is not None and not isinstance(given, _BYTES_LIKE):
                kind = type(given)
                raise SerdeError(
                    f"the {part} of record {first + index} is {kind.__name__}: without a serde only bytes or None are taken",
                    f"give one, such as {part}=hr.{_SERDE_HINTS.get(kind, 'Json()')}",
                )
        values = [None if given is None else bytes(given) for given in values]
    return pa.array(values, pa.binary())


def _decoded(data: pa.Array, serde: Serde | None) -> tuple[list[Any], list[tuple[int, Exception]]]:
    return (data.to_pylist(), []) if serde is None else serde.decode_many(data)


def _times(records: Sequence[Record], first: int, now_us: int) -> pa.Array:
    times = [now_us if record.timestamp_us is None else record.timestamp_us for record in records]
    if set(map(type, times)) == {int}:  # Arrow would cut a float
        with suppress(OverflowError, pa.ArrowException):
            return pa.array(times, pa.int64())
    for index, time in enumerate(times):
        if type(time) is not int or not -(2**63) <= time < 2**63:
            raise SerdeError(f"record {first + index}: timestamp_us {time!r}: expected whole µs since the epoch")
    raise AssertionError("timestamps that Arrow refused")


def _headers(records: Sequence[Record], first: int) -> pa.Array:
    if not any(record.headers for record in records):
        return pa.nulls(len(records), HEADERS_TYPE)
    for index, record in enumerate(records):
        for header in record.headers or ():
            if not _is_header(header):
                raise SerdeError(f"record {first + index}: header {header!r}: expected (name, bytes or None)")
    return pa.array([list(record.headers) if record.headers else None for record in records], HEADERS_TYPE)


def _is_header(header: Any) -> bool:
    return (
        isinstance(header, tuple)
        and len(header) == 2
        and isinstance(header[0], str)
        and (header[1] is None or isinstance(header[1], bytes))
    )


def header_tuples(headers: pa.Array) -> list[Headers]:
    if headers.null_count == len(headers):
        return [()] * len(headers)
    return [() if row is None else tuple((one["name"], one["value"]) for one in row) for row in headers.to_pylist()]
