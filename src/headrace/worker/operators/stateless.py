"""The operators without state but those that write (`outputs`): sources, filters, maps, split and merge."""

from __future__ import annotations

import calendar
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.core.rounds.event_times import in_us
from headrace.core.rounds.watermarks import TIME_MAX_US, TIME_MIN_US, checked_time_us
from headrace.errors import OutOfRangeError
from headrace.exchange.texts import shown
from headrace.model import topology as t
from headrace.model.serde import Failures
from headrace.worker.operators.base import Context, GatheringOperator, Operator, column_of, values_field
from headrace.worker.rows import Field, Rows


class SourceOperator(Operator):
    """Takes the input: checks that records decode, sets their time, and keeps the highest time seen per SSP."""

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
        self.forward(self.timely(rows))

    def _timed(self, rows: Rows, times: Any) -> Rows:
        values: list[Any] = times.to_pylist() if isinstance(times, pa.Array) else times
        bad: Failures = []
        out = np.zeros(len(rows), np.int64)
        for i, value in enumerate(values):
            try:
                out[i] = checked_time_us(micros(value, self.node.timestamp_unit))
            except (TypeError, ValueError, OverflowError, OutOfRangeError) as error:
                bad.append((i, error))
        timed = self.without(replace(rows, timestamp_us=out), bad)
        own = rows.without([i for i, _ in bad]) if bad else rows
        self.context.far_times.look_at(timed.ssp, timed.offset, timed.timestamp_us, own.timestamp_us)
        return timed

    def timely(self, rows: Rows) -> Rows:
        """The rows whose times can be; of these the highest is kept."""
        if not len(rows):
            return rows
        times = rows.timestamp_us
        if times.min() < TIME_MIN_US or times.max() > TIME_MAX_US:
            bad: Failures = []
            for i in np.flatnonzero((times < TIME_MIN_US) | (times > TIME_MAX_US)).tolist():
                try:
                    checked_time_us(int(times[i]))
                except OutOfRangeError as error:
                    bad.append((i, error))
            rows = self.without(rows, bad)
        for ssp in np.unique(rows.ssp).tolist():
            highest = int(rows.timestamp_us[rows.ssp == ssp].max())
            self._watermarks[ssp] = max(highest, self._watermarks.get(ssp, highest))
        return rows


def micros(value: Any, unit: str = "us") -> int:
    """µs since the epoch of what a timestamp function gave: a whole number of `unit`, or an aware datetime. In seconds and
    milliseconds it may be a float: `time.time()` is one."""
    if isinstance(value, int) and not isinstance(value, bool):
        return in_us(value, unit)
    if isinstance(value, float) and unit in ("s", "ms"):
        return in_us(value, unit)
    offset = getattr(value, "utcoffset", lambda: None)()
    if offset is None:
        units = "µs" if unit == "us" else unit
        raise TypeError(f"a timestamp must be an int ({units} since the epoch) or an aware datetime, not {shown(value)}")
    whole = value.utctimetuple()
    return calendar.timegm(whole) * 1_000_000 + int(value.microsecond)


class _Predicates(Operator):
    """What is common to operators with predicates: a batch function gives booleans."""

    def batch_result(self, result: Any) -> Any:
        if not isinstance(result, pa.Array) or not (pa.types.is_boolean(result.type) or pa.types.is_null(result.type)):
            found = "a RecordBatch" if isinstance(result, pa.RecordBatch) else f"an array of {result.type}"
            raise TypeError(f"a predicate gave {found}, expected an array of booleans")
        return result

    def truths_of(self, predicate: t.Function, rows: Rows) -> tuple[Rows, np.ndarray[Any, np.dtype[np.bool_]]]:
        """The rows that `predicate` took, and for which of them it holds; null is false."""
        rows, results = self.called(predicate, rows)
        if isinstance(results, pa.Array):
            return rows, np.asarray(results.cast(pa.bool_()).fill_null(False).to_numpy(zero_copy_only=False), bool)
        rows, truths = self.mapped(bool, results, rows)  # an object that has no truth is its record's error
        return rows, np.array(truths, bool)


class FilterOperator(_Predicates):
    node: t.Filter

    def push(self, rows: Rows) -> None:
        rows, mask = self.truths_of(self.node.predicate, rows)
        self.forward(rows.where(~mask if self.node.negate else mask))


class MapValuesOperator(Operator):
    """Of a table, a deletion (a null value) passes on as it is: it is no value to be mapped."""

    node: t.MapValues

    def push(self, rows: Rows) -> None:
        deleted = rows.value.is_null() if self.node.of_table else None
        if deleted is None or not deleted.any():
            self.forward(self._mapped(rows))
            return
        null = Field(self.node.value, objects=[None] * int(deleted.sum()))
        numbered = rows.numbered()
        mapped, deletions = self._mapped(numbered.where(~deleted)), replace(numbered.where(deleted), value=null)
        self.forward(merged_by_number([mapped, deletions], rows))

    def _mapped(self, rows: Rows) -> Rows:
        rows, results = self.called(self.node.function, rows)
        return replace(rows, value=values_field(self.node.value, results))

    def batch_result(self, result: Any) -> Any:
        return column_of(result, "value")


def merged_by_rank(parts: list[Rows]) -> Rows:
    """Rows of several branches in the order in which the task took them."""
    rows = Rows.concat(parts)
    return rows.take(np.argsort(rows.rank, kind="stable")) if len(parts) > 1 else rows


def merged_by_number(parts: list[Rows], rows: Rows) -> Rows:
    """Parts of `rows.numbered()` in the order that the rows had, with their ranks again: several may come of one record."""
    merged = merged_by_rank(parts)
    merged.rank = rows.rank[merged.rank]
    return merged


class SelectKeyOperator(Operator):
    node: t.SelectKey

    def push(self, rows: Rows) -> None:
        rows, results = self.called(self.node.function, rows)
        self.forward(replace(rows, key=values_field(self.node.key, results)))

    def batch_result(self, result: Any) -> Any:
        return column_of(result, "key")


class MapOperator(Operator):
    """The function gives a (key, value) pair, a batch function a RecordBatch with the columns key and value."""

    node: t.Map

    def push(self, rows: Rows) -> None:
        rows, results = self.called(self.node.function, rows)
        if isinstance(results, pa.RecordBatch):
            keys: Any = results.column("key")
            values: Any = results.column("value")
        else:
            text = "map: expected a pair (key, value), got {}"
            bad: Failures = [(i, TypeError(text.format(shown(one)))) for i, one in enumerate(results) if not _is_pair(one)]
            rows, pairs = self.without(rows, bad), list(filter(_is_pair, results)) if bad else results
            keys, values = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        self.forward(replace(rows, key=values_field(self.node.key, keys), value=values_field(self.node.value, values)))

    def batch_result(self, result: Any) -> Any:
        if not isinstance(result, pa.RecordBatch):
            raise TypeError(f"map: a batch function gave an array of {result.type}, expected a RecordBatch: key and value")
        for name in ("key", "value"):
            column_of(result, name)
        return result


def _is_pair(result: Any) -> bool:
    return isinstance(result, tuple) and len(result) == 2


class _FlatOperator(Operator):
    """What is common to operators whose function gives lists."""

    def flattened(
        self, function: t.Function, rows: Rows, items_of: Callable[[Any], list[Any]] = list
    ) -> tuple[Rows, list[Any]]:
        """Every item of what `function` gave, as `items_of` takes it apart, and the row that it is of."""
        rows, given = self.called(function, rows)
        rows, lists = self.mapped(items_of, given, rows)  # a generator runs here: what it raises is its record's error
        lengths = np.fromiter((len(result) for result in lists), np.int64, len(lists))
        return rows.take(np.repeat(np.arange(len(lists)), lengths)), [item for result in lists for item in result]


def _pairs_of(given: Any) -> list[tuple[Any, Any]]:
    pairs = list(given)
    for pair in pairs:
        if not _is_pair(pair):
            raise TypeError(f"flat_map: expected pairs (key, value), got {shown(pair)}")
    return pairs


class FlatMapOperator(_FlatOperator):
    """The function gives any number of (key, value) pairs."""

    node: t.FlatMap

    def push(self, rows: Rows) -> None:
        rows, pairs = self.flattened(self.node.function, rows, _pairs_of)
        keys = Field(self.node.key, objects=[pair[0] for pair in pairs])
        values = Field(self.node.value, objects=[pair[1] for pair in pairs])
        self.forward(replace(rows, key=keys, value=values))


class FlatMapValuesOperator(_FlatOperator):
    node: t.FlatMapValues

    def push(self, rows: Rows) -> None:
        rows, values = self.flattened(self.node.function, rows)
        self.forward(replace(rows, value=Field(self.node.value, objects=values)))


class PeekOperator(Operator):
    node: t.Peek

    def push(self, rows: Rows) -> None:
        rows, _ = self.called(self.node.function, rows)
        self.forward(rows)


class SplitOperator(_Predicates):
    """Each record goes to the first output whose predicate holds, else to the last."""

    node: t.Split

    def push(self, rows: Rows) -> None:
        outputs = {child.node.index: child for child in self.children if isinstance(child, SplitOutputOperator)}
        for index, predicate in enumerate(self.node.predicates):
            rows, mask = self.truths_of(predicate, rows)
            if index in outputs and mask.any():
                outputs[index].push(rows.where(mask))
            rows = rows.where(~mask)
        if len(self.node.predicates) in outputs and len(rows):
            outputs[len(self.node.predicates)].push(rows)


class SplitOutputOperator(Operator):
    node: t.SplitOutput


class MergeOperator(GatheringOperator):
    """Restores the order in which the task took its records, batch by batch."""

    def batch_end(self) -> None:
        if self.held:
            self.forward(merged_by_rank(self.release()))

    finish = batch_end


class GroupOperator(Operator):
    """Drops and counts records with a null key."""

    def push(self, rows: Rows) -> None:
        self.forward(self.keyed(rows))
