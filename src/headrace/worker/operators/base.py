"""What every operator of a task shares: how rows are pushed on, how user functions are called, how a failing record
is rejected. An operator takes rows in `push`, closes a batch in `batch_end` and a round in `finish`; in this order,
parents before children."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from headrace.codec.record_batches import HEADERS_TYPE, record_sizes
from headrace.core.rounds.async_calls import queues_of
from headrace.core.rounds.stream_limits import StreamLimits
from headrace.errors import PACKAGE_FOLDER, HeadraceError, OutOfRangeError, RecordTooLargeError, TopologyError
from headrace.exchange.messages import Reject
from headrace.exchange.texts import traceback_of
from headrace.model.calls import Calls
from headrace.model.serde import Failures, Serde
from headrace.model.topology import Function, FunctionKind, Node
from headrace.worker.async_calls import Raised, gathered
from headrace.worker.operators.faults import checked_fault
from headrace.worker.rows import Field, Rows, flat

if TYPE_CHECKING:
    from headrace.worker.task import TaskRun

Context: TypeAlias = "TaskRun"  # what operators use of the task that they run in
Due = tuple[int, bytes, str, str]  # of a timer: time, key, name, clock
FAILED = object()  # what stands in for the result of a function that raised


class Operator:
    gives_each = False  # of a table: every update, not the last of each key in a round (`core.topology.emission`)
    passing: Collection[bytes] = ()  # of a table that gives each: the keys that came and went within the round
    gives_key_once = False  # at a time: several processors that share a store follow, and each record of a key goes through all

    def __init__(self, node: Node, context: Context) -> None:
        self.node = node
        self.context = context
        self.children: list[Operator] = []

    def push(self, rows: Rows) -> None:
        """Take rows; most operators work on them at once and push the result on."""
        self.forward(rows)

    def batch_end(self) -> None:
        """All rows of one input batch have been pushed."""

    def finish(self) -> None:
        """All rows of the round have been pushed."""

    def fire(self, due: list[Due], until_us: Mapping[str, int]) -> tuple[str, int]:
        """Take timers of this operator that are due, all of one clock; `until_us`: up to which times timers are due, by clock.
        Gives a metric, and how much to count under it. That of an operator that sets none: an edit has changed which it is."""
        return "timers_orphaned", len(due)

    def inlet(self, parent: str, operator: Operator) -> Operator | None:
        """What takes the rows of `operator`, which processes (the end of) `parent`; None where they are not pushed."""
        return self

    def forward(self, rows: Rows, to: str | None = None) -> None:
        """Push rows on to all operators that follow, or to the one named `to`."""
        if not len(rows):
            return
        for part in rows.with_distinct_keys() if self.gives_key_once else (rows,):
            for child in self.children:
                if to is None or child.node.name == to:
                    child.push(part)

    @property
    def database(self) -> Any:
        return self.context.database(self.node.store.kept_in)  # type: ignore[attr-defined]

    def reject(self, rows: Rows, index: int, error: BaseException) -> None:
        """Set a record aside for `error`; raises where that is no record's fault (`faults`)."""
        error = checked_fault(error, self.node.name)
        frames = _user_frames(error)
        text = "" if frames is None and isinstance(error, HeadraceError) else traceback_of(error, frames or error.__traceback__)
        self.context.reject(Reject.of(int(rows.ssp[index]), int(rows.offset[index]), self.node.name, error, text))

    def late(self, rows: Rows, indices: Any) -> None:
        """These rows came after their windows had closed."""
        for index in indices.tolist():
            self.context.late(int(rows.ssp[index]), int(rows.offset[index]), self.node.name)

    def without(self, rows: Rows, failures: Failures) -> Rows:
        """Set the failing rows aside and give the rest."""
        for index, error in failures:
            self.reject(rows, index, error)
        return rows.without([index for index, _ in failures]) if failures else rows

    def keyed(self, rows: Rows) -> Rows:
        """The rows that have a key; the others are counted."""
        null = rows.key.is_null()
        if null.any():
            self.context.count("null_keys_dropped", int(null.sum()))
        return rows.where(~null)

    def valued(self, rows: Rows) -> Rows:
        """The rows that have a value; the others are counted."""
        null = rows.value.is_null()
        if null.any():
            self.context.count("null_values_dropped", int(null.sum()))
        return rows.where(~null)

    def decoded(self, rows: Rows, *, key: bool = True, value: bool = True) -> Rows:
        """The rows whose keys and values decode to Python values."""
        began_ns = perf_counter_ns()
        if key:
            rows = self.without(rows, rows.key.objects()[1])
        if value:
            rows = self.without(rows, rows.value.objects()[1])
        self.context.decode_ns += perf_counter_ns() - began_ns
        return rows

    def encoded(self, rows: Rows) -> Rows:
        """The rows whose keys and values can be encoded."""
        rows = self.without(rows, rows.key.bytes()[1])
        return self.without(rows, rows.value.bytes()[1])

    def of_serdes(self, rows: Rows, key: Serde | None, value: Serde | None) -> Rows:
        """The rows, to be written by other serdes where one is given; what does not decode is rejected."""
        rows = self.decoded(rows, key=_is_recoded(rows.key, key), value=_is_recoded(rows.value, value))
        own_key, own_value = rows.key, rows.value
        return replace(
            rows,
            key=own_key if key is None else own_key.of_serde(key),
            value=own_value if value is None else own_value.of_serde(value),
        )

    def sendable(self, rows: Rows, stream: str) -> Rows:
        """The rows whose keys and values can be encoded and are, with their headers and time, what `stream` takes."""
        rows = self.encoded(rows)
        key, value = rows.key.bytes()[0], rows.value.bytes()[0]
        limits = self.context.limits_of(stream)
        return self.without(rows, refused(stream, limits, key, value, rows.headers, rows.timestamp_us, self.context.now_us))

    def called(self, function: Function, rows: Rows) -> tuple[Rows, list[Any] | pa.Array | pa.RecordBatch]:
        """The rows that `function` took, and its results for them: a list, or for a batch function what it gave."""
        if function.kind is FunctionKind.BATCH:
            return self._called_batch(function.body, rows)
        rows = self.decoded(rows)
        records = rows.records(self.context.streams)
        if function.calls is None:
            rows, results = self.mapped(function.body, records, rows)
            check_not_async(results, f"operator {self.node.name!r}: {function.label}")
            return rows, results
        calls, body = function.calls, function.body
        keys = [record.key for record in records] if calls.by_key else [None] * len(records)
        results = self.awaited(calls, function.label, queues_of(keys), lambda place: body(records[place]), rows)
        return self._succeeded(results, rows)

    def mapped(self, function: Callable[[Any], Any], records: Iterable[Any], rows: Rows) -> tuple[Rows, list[Any]]:
        """The rows that `function` took, of which `records` has what it is given, and its results for them."""
        return self._succeeded(self.each(function, records, rows), rows)

    def _succeeded(self, results: list[Any], rows: Rows) -> tuple[Rows, list[Any]]:
        failed = [i for i, result in enumerate(results) if result is FAILED]
        if failed:
            rows = rows.without(failed)
            results = [result for result in results if result is not FAILED]
        return rows, results

    def each(self, function: Callable[[Any], Any], records: Iterable[Any], rows: Rows) -> list[Any]:
        """`function` of each record; `FAILED` (and a reject) where it raised. Continues behind the record that raised."""
        results: list[Any] = []
        append = results.append
        remaining = iter(records)
        while True:
            try:
                for record in remaining:
                    append(function(record))
                return results
            except BaseException as error:  # the user's function: anything may come
                self.reject(rows, len(results), error)
                append(FAILED)

    def awaited(
        self, calls: Calls, label: str, queues: list[list[int]], call: Callable[[int], Awaitable[Any]], rows: Rows
    ) -> list[Any]:
        """What `call` gave for the place of each row, `FAILED` (and a reject) where it raised; all calls have ended. Those of
        one queue run one after another; `label`: what errors call it."""
        if not len(rows):
            return []
        name = self.node.name
        self.context.fills[name] = self.context.fills.get(name, 0.0) + len(rows) / calls.concurrency
        found, retried = gathered(calls, f"operator {name!r}: {label}", queues, call, self.context.check)
        if retried:
            self.context.count("calls_retried", retried)
        for place, result in enumerate(found):
            if isinstance(result, Raised):
                self.reject(rows, place, result.error)
                found[place] = FAILED
        return found

    def _called_batch(self, function: Callable[[Any], Any], rows: Rows) -> tuple[Rows, Any]:
        rows, key, value = self.columns(rows)
        return self.called_on(function, record_batch(rows, key, value, self.context.streams), rows)

    def called_on(self, function: Callable[[Any], Any], batch: pa.RecordBatch, rows: Rows) -> tuple[Rows, Any]:
        """The rows that a batch function took, of which `batch` has what it is given, and its results for them."""
        good, results = self._bisected(function, batch, rows, 0)
        if len(good) != len(rows):
            rows = rows.take(np.array(good, np.int64))
        return rows, _joined(results)

    def columns(self, rows: Rows) -> tuple[Rows, Any, Any]:
        """The rows whose keys and values make Arrow arrays, and these arrays."""
        rows = self.without(rows, rows.key.arrow()[1])
        rows = self.without(rows, rows.value.arrow()[1])
        return rows, rows.key.arrow()[0], rows.value.arrow()[0]

    def _bisected(self, function: Any, batch: Any, rows: Rows, base: int) -> tuple[list[int], list[Any]]:
        """Call on the whole; where it raises, on halves, until the single rows that fail are found."""
        if batch.num_rows == 0:
            return [], []
        try:
            result = self.batch_result(_plain(function(batch)))
            if len(result) != batch.num_rows:
                raise ValueError(f"a batch function gave {len(result)} rows for {batch.num_rows}; expected the same number")
            return list(range(base, base + batch.num_rows)), [result]
        except BaseException as error:  # the user's function: anything may come
            checked_fault(error, self.node.name)
            if batch.num_rows == 1:
                self.reject(rows, base, error)
                return [], []
            half = batch.num_rows // 2
            left = self._bisected(function, batch.slice(0, half), rows, base)
            right = self._bisected(function, batch.slice(half), rows, base + half)
            return left[0] + right[0], left[1] + right[1]

    def batch_result(self, result: Any) -> Any:
        """What the operator takes of a batch function's result, an array or a RecordBatch; raises if it is not there."""
        return result


def check_not_async(results: Sequence[Any], what: str) -> None:
    """Raise where `what` gave something to await, though it is no async function: a predicate would always hold."""
    if results and inspect.iscoroutine(results[0]):
        for result in results:
            result.close()
        raise TopologyError(
            f"{what} gave a coroutine, and is not an async function: nothing awaits it",
            "write it as `async def`, and await what it calls",
        )


def _is_recoded(field: Field, serde: Serde | None) -> bool:
    return serde is not None and field.only_raw and (field.serde is None or field.serde.form != serde.form)


def record_batch(rows: Rows, key: Any, value: Any, streams: Sequence[tuple[str, int]]) -> pa.RecordBatch:
    """What a batch function is given: key, value, timestamp (µs, UTC), partition, offset, headers."""
    partitions = np.array([partition for _, partition in streams], np.int32)
    columns = {
        "key": key,
        "value": value,
        "timestamp": pa.array(rows.timestamp_us, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
        "partition": pa.array(partitions[rows.ssp]),
        "offset": pa.array(rows.offset, pa.int64()),
        "headers": pa.nulls(len(rows), HEADERS_TYPE) if rows.headers is None else rows.headers,
    }
    return pa.RecordBatch.from_pydict(columns)


def _plain(result: Any) -> Any:
    if isinstance(result, pa.Table):
        result = result.combine_chunks().to_batches()[0] if result.num_rows else result
    if isinstance(result, (pa.RecordBatch, pa.Array)):
        return result
    if isinstance(result, pa.ChunkedArray):
        return result.combine_chunks()
    if isinstance(result, np.ndarray):
        return pa.array(result)
    raise TypeError(f"a batch function gave {type(result).__name__}, expected a pyarrow RecordBatch or Array")


def column_of(result: Any, name: str) -> Any:
    """The array that a batch function gave, or the column `name` of the RecordBatch that it gave."""
    if not isinstance(result, pa.RecordBatch):
        return result
    if name not in result.schema.names:
        raise KeyError(f"a batch function gave a RecordBatch without the column {name!r}; it has {result.schema.names}")
    return result.column(name)


def _joined(results: list[Any]) -> Any:
    """The results for the parts of a batch as one; types may differ where one part had only nulls, or only integers."""
    if not results:
        return []
    if len(results) == 1:
        return results[0]
    if isinstance(results[0], pa.RecordBatch):
        return _one_table([pa.Table.from_batches([result]) for result in results]).to_batches()[0]
    column = _one_table([pa.table({"value": result}) for result in results]).column("value")
    return column.combine_chunks()


def _one_table(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables, promote_options="permissive").combine_chunks()


def _user_frames(error: BaseException) -> Any:
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(PACKAGE_FOLDER):
        trace = trace.tb_next
    return trace


class GatheringOperator(Operator):
    """What is common to operators that keep the rows they take until the batch or the round ends."""

    def __init__(self, node: Node, context: Context) -> None:
        super().__init__(node, context)
        self.held: list[Rows] = []

    def push(self, rows: Rows) -> None:
        self.held.append(rows)

    def release(self) -> list[Rows]:
        held, self.held = self.held, []
        return held


def values_field(serde: Any, results: list[Any] | pa.Array) -> Field:
    """A function's results as a field: a list of Python values, or a typed Arrow array."""
    if isinstance(results, (pa.Array, pa.ChunkedArray)):
        return Field(serde, typed=flat(results))
    return Field(serde, objects=list(results))


def binary_field(serde: Any, values: Sequence[bytes | None]) -> Field:
    return Field(serde, raw=pa.array(values, pa.binary()))


def windowed_field(serde: Any, windows: Sequence[tuple[bytes, int, int]]) -> Field:
    """A field of windowed keys: of key, start and end."""
    keys = pa.array([key for key, *_ in windows], pa.binary())
    starts, ends = (np.array([window[at] for window in windows], np.int64) for at in (1, 2))
    return Field(serde, raw=serde.encode_parts(keys, starts, ends))


def rows_of_timers(times_us: Any, key: Field, value: Field) -> Rows:
    """Rows that come of no record."""
    nowhere = np.full(len(times_us), -1, np.int64)
    return Rows(np.zeros(len(times_us), np.int32), nowhere, times_us, key, value, None, nowhere)


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
