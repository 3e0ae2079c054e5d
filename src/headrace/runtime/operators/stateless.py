"""Owns the operators without state: sources, filters, maps, split and merge, repartition and sinks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from headrace.errors import SerdeError
from headrace.model import topology as t
from headrace.model.serde import Failures
from headrace.runtime.operators.base import FAILED, Context, Operator, values_field
from headrace.runtime.rows import HEADERS_TYPE, Field, Rows


class SourceOperator(Operator):
    """Takes what was read: checks that records decode, sets their time, and keeps the highest time seen per SSP."""

    node: t.Source

    def __init__(self, node: t.Source, context: Context, watermarks: dict[int, int]) -> None:
        super().__init__(node, context)
        self._watermarks = watermarks

    def push(self, rows: Rows) -> None:
        if self.node.kind is not t.SourceKind.REPARTITION:
            rows = self.decoded(rows)
        if self.node.timestamp is not None and not self.node.timestamp.in_jvm:
            rows, times = self.called(self.node.timestamp, rows)
            rows = self._timed(rows, times)
        self.seen(rows)
        self.forward(rows)

    def _timed(self, rows: Rows, times: Any) -> Rows:
        values: list[Any] = times.to_pylist() if isinstance(times, pa.Array) else times
        bad: list[tuple[int, Exception]] = []
        out = np.zeros(len(rows), np.int64)
        for i, value in enumerate(values):
            try:
                out[i] = micros(value)
            except (TypeError, ValueError, OverflowError) as error:
                bad.append((i, error))
        return self.without(rows.replaced(timestamp_us=out), bad)

    def seen(self, rows: Rows) -> None:
        if len(rows):
            for ssp in np.unique(rows.ssp).tolist():
                highest = int(rows.timestamp_us[rows.ssp == ssp].max())
                self._watermarks[ssp] = max(highest, self._watermarks.get(ssp, highest))


def micros(value: Any) -> int:
    """µs since the epoch of what a timestamp function gave: an int (µs) or an aware datetime."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    offset = getattr(value, "utcoffset", lambda: None)()
    if offset is None:
        raise TypeError(f"a timestamp must be an int (µs since the epoch) or an aware datetime, not {value!r}")
    whole = value.utctimetuple()
    import calendar

    return calendar.timegm(whole) * 1_000_000 + int(value.microsecond)


class FilterOperator(Operator):
    node: t.Filter

    def push(self, rows: Rows) -> None:
        rows, kept = self.called(self.node.predicate, rows)
        mask = truths(kept)
        self.forward(rows.where(~mask if self.node.negate else mask))


def truths(results: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Booleans of a predicate's results; null is false."""
    if isinstance(results, (pa.Array, pa.ChunkedArray)):
        return np.asarray(results.cast(pa.bool_()).fill_null(False).to_numpy(zero_copy_only=False), bool)
    return np.fromiter((bool(result) for result in results), bool, len(results))


class MapValuesOperator(Operator):
    node: t.MapValues

    def push(self, rows: Rows) -> None:
        rows, results = self.called(self.node.function, rows)
        if isinstance(results, pa.RecordBatch):
            results = results.column("value")
        self.forward(rows.replaced(value=values_field(self.node.value, results)))


class SelectKeyOperator(Operator):
    node: t.SelectKey

    def push(self, rows: Rows) -> None:
        rows, results = self.called(self.node.function, rows)
        if isinstance(results, pa.RecordBatch):
            results = results.column("key")
        self.forward(rows.replaced(key=values_field(self.node.key, results)))


class MapOperator(Operator):
    """The function gives a (key, value) pair, a batch function a RecordBatch with the columns key and value."""

    node: t.Map

    def push(self, rows: Rows) -> None:
        rows, results = self.called(self.node.function, rows)
        if isinstance(results, pa.RecordBatch):
            keys: Any = results.column("key")
            values: Any = results.column("value")
        else:
            pairs, bad = _pairs(results, "map")
            rows = self.without(rows, bad)
            keys, values = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        self.forward(
            rows.replaced(key=values_field(self.node.key, keys), value=values_field(self.node.value, values))
        )


def _pairs(results: Any, operator: str) -> tuple[list[tuple[Any, Any]], list[tuple[int, Exception]]]:
    good, bad = [], []
    for i, result in enumerate(results):
        if isinstance(result, tuple) and len(result) == 2:
            good.append(result)
        else:
            bad.append((i, TypeError(f"{operator}: expected a pair (key, value), got {result!r:.80}")))
    return good, bad  # type: ignore[return-value]


class FlatMapOperator(Operator):
    """The function gives any number of (key, value) pairs."""

    node: t.FlatMap

    def push(self, rows: Rows) -> None:
        function = self.node.function.body

        def pairs_of(record: Any) -> list[tuple[Any, Any]]:
            pairs = list(function(record))
            for pair in pairs:
                if not (isinstance(pair, tuple) and len(pair) == 2):
                    raise TypeError(f"flat_map: expected pairs (key, value), got {pair!r:.80}")
            return pairs

        rows = self.decoded(rows)
        results = self.each(pairs_of, rows.records(self.context.streams), rows)
        indices, pairs = _flattened(results)
        self.forward(
            rows.take(indices).replaced(
                key=Field(self.node.key, objects=[pair[0] for pair in pairs]),
                value=Field(self.node.value, objects=[pair[1] for pair in pairs]),
            )
        )


class FlatMapValuesOperator(Operator):
    node: t.FlatMapValues

    def push(self, rows: Rows) -> None:
        function = self.node.function.body
        rows = self.decoded(rows)
        results = self.each(lambda record: list(function(record)), rows.records(self.context.streams), rows)
        indices, values = _flattened(results)
        self.forward(rows.take(indices).replaced(value=Field(self.node.value, objects=values)))


def _flattened(results: list[Any]) -> tuple[np.ndarray[Any, np.dtype[np.int64]], list[Any]]:
    lists = [() if result is FAILED else result for result in results]
    lengths = np.fromiter((len(result) for result in lists), np.int64, len(lists))
    return np.repeat(np.arange(len(lists)), lengths), [item for result in lists for item in result]


class PeekOperator(Operator):
    node: t.Peek

    def push(self, rows: Rows) -> None:
        rows, _ = self.called(self.node.function, rows)
        self.forward(rows)


class SplitOperator(Operator):
    """Each record goes to the first output whose predicate holds, else to the last."""

    node: t.Split

    def push(self, rows: Rows) -> None:
        outputs = {child.node.index: child for child in self.children if isinstance(child, SplitOutputOperator)}
        for index, predicate in enumerate(self.node.predicates):
            rows, kept = self.called(predicate, rows)
            mask = truths(kept)
            if index in outputs and mask.any():
                outputs[index].push(rows.where(mask))
            rows = rows.where(~mask)
        if len(self.node.predicates) in outputs and len(rows):
            outputs[len(self.node.predicates)].push(rows)


class SplitOutputOperator(Operator):
    node: t.SplitOutput


class MergeOperator(Operator):
    """Restores the order in which the task took its records, batch by batch."""

    def __init__(self, node: t.Node, context: Context) -> None:
        super().__init__(node, context)
        self._held: list[Rows] = []

    def push(self, rows: Rows) -> None:
        self._held.append(rows)

    def batch_end(self) -> None:
        if self._held:
            held, self._held = self._held, []
            rows = Rows.concat(held)
            self.forward(rows.take(np.argsort(rows.rank, kind="stable")) if len(held) > 1 else rows)

    finish = batch_end


class GroupOperator(Operator):
    """Drops and counts records with a null key."""

    def push(self, rows: Rows) -> None:
        null = rows.key.is_null()
        if null.any():
            self.context.count("null_keys_dropped", int(null.sum()))
            rows = rows.where(~null)
        self.forward(rows)


class SinkOperator(Operator):
    """Writes to an output stream, or to the stream that a record function names."""

    node: t.Sink

    def push(self, rows: Rows) -> None:
        node = self.node
        rows = self.of_serdes(rows, node.key, node.value)
        if node.headers is not None:
            rows, results = self.called(node.headers, rows)
            rows = self._with_headers(rows, list(results))
        if isinstance(node.stream, str):
            self._write(rows, node.stream)
            return
        rows, names = self.called(node.stream, rows)
        unknown = [i for i, name in enumerate(names) if not self.context.knows_stream(str(name))]
        if unknown:
            rows = self.without(
                rows, [(i, LookupError(f"to(): {names[i]!r} is no stream that existed when the job started")) for i in unknown]
            )
            gone = set(unknown)
            names = [name for i, name in enumerate(names) if i not in gone]
        for name in sorted(set(map(str, names))):
            picked = np.fromiter((str(n) == name for n in names), bool, len(rows))
            self._write(rows.where(picked), name)

    def _with_headers(self, rows: Rows, results: list[Any]) -> Rows:
        """The rows with the headers that the user's function gave for them."""
        headers: list[Any] = []
        failures: Failures = []
        for index, result in enumerate(results):
            try:
                headers.append(_header_entries(result))
            except (SerdeError, TypeError, ValueError) as error:
                headers.append(None)
                failures.append((index, error))
        return self.without(rows.with_headers(pa.array(headers, HEADERS_TYPE)), failures)

    def _write(self, rows: Rows, stream: str) -> None:
        rows = self.sendable(rows)
        if len(rows):
            key, value = rows.key.bytes()[0], rows.value.bytes()[0]
            self.context.emit(
                stream, key, value, rows.timestamp_us, rows.headers, routing_keys(rows.key, key), rows.offset
            )


class RepartitionOperator(Operator):
    """Writes the internal stream that the next sub-topology reads."""

    node: t.Repartition

    def push(self, rows: Rows) -> None:
        node = self.node
        rows = self.sendable(self.of_serdes(rows, node.key, node.value))
        if len(rows):
            key, value = rows.key.bytes()[0], rows.value.bytes()[0]
            self.context.emit(
                node.stream, key, value, rows.timestamp_us, rows.headers, routing_keys(rows.key, key), rows.offset
            )


def routing_keys(field: Field, raw: Any) -> Any:
    """The bytes that choose the partition: of a windowed key the inner key, else the key."""
    inner = getattr(field.serde, "inner_many", None)
    return raw if inner is None else inner(raw)


def _header_entries(result: Any) -> list[dict[str, Any]] | None:
    """One record's headers in the row shape, from a mapping or (name, value) pairs of text and bytes."""
    entries = []
    for name, value in result.items() if isinstance(result, dict) else result or ():
        if isinstance(value, str):
            value = value.encode()
        if not isinstance(name, str) or not (value is None or isinstance(value, bytes)):
            raise SerdeError(f"header {name!r}: expected a text name and bytes or text, got {type(value).__name__}")
        entries.append({"name": name, "value": value})
    return entries or None


def _headers_array(results: list[Any]) -> pa.Array:
    return pa.array([_header_entries(result) for result in results], HEADERS_TYPE)
