"""The operators that write: to an output stream, or to the internal one of a repartition. Which partition a record goes to is
decided here where the user gave a partitioner; else by its key, in `Outputs`. What a partitioner chose is a list of partitions
for each record (`_CHOSEN`): an empty one drops it, a null is the one of its key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.codec.record_batches import HEADERS_TYPE, record_sizes
from headrace.core.topology.partitioning import called_for, checked_partition, chosen_partitions
from headrace.errors import OutOfRangeError, SerdeError
from headrace.exchange.texts import shown
from headrace.model import topology as t
from headrace.model.serde import Failures, routing_keys
from headrace.model.stream_operators import SetHeaders
from headrace.worker.batch_keys import partitions_of
from headrace.worker.operators.base import FAILED, Operator, column_of
from headrace.worker.rows import Rows, flat

PIECE_BYTES = 256 * 1024 * 1024  # of copies made at once: an Arrow array of bytes ends at 2 GiB
_CHOSEN = pa.list_(pa.int64())  # the partitions of each record


class _WritingOperator(Operator):
    node: t.Sink | t.Repartition

    def written(self, rows: Rows, stream: str) -> None:
        """Write what can be: a record that fails in any way is written nowhere."""
        chosen: Any = None
        if self.node.partitioner is not None:
            rows, chosen = self._partitioned(self.node.partitioner, rows, stream)
            rows = rows.numbered()
        rows = self.sendable(self.of_serdes(rows, self.node.key, self.node.value), stream)
        if not len(rows):
            return
        key, value = rows.key.bytes()[0], rows.value.bytes()[0]
        if chosen is None:
            self.context.emit(stream, rows, routing=routing_keys(rows.key.serde, key))
            return
        if len(chosen) != len(rows):
            chosen = chosen.take(pa.array(rows.rank))
        if chosen.null_count:
            count = self.context.program.partition_counts[stream]
            by_key = partitions_of(flat(routing_keys(rows.key.serde, key)), rows.offset, count)
            chosen = _with_keys(chosen, by_key)
        partitions = chosen.flatten().to_numpy().astype(np.int32)
        for start, copies in _copies(rows, chosen, key, value):
            self.context.emit(stream, rows.take(copies), partitions=partitions[start : start + len(copies)])

    def _partitioned(self, partitioner: t.Function, rows: Rows, stream: str) -> tuple[Rows, Any]:
        function, count = called_for(partitioner.body, stream), self.context.program.partition_counts[stream]
        if partitioner.kind is t.FunctionKind.BATCH:
            rows, chosen = self._called_batch(lambda batch: function(batch, count), rows)
            rows, chosen = self._in_range(rows, chosen, count)
        else:
            rows = self.decoded(rows)
            records = rows.records(self.context.streams)
            rows, results = self.mapped(lambda record: chosen_partitions(function(record, count), count), records, rows)
            chosen = pa.array(results, _CHOSEN)
        if not len(rows):
            return rows, pa.array([], _CHOSEN)
        kept = np.flatnonzero(_lengths(chosen, of_null=1))
        if len(kept) < len(rows):
            self.context.count("records_dropped_by_partitioner", len(rows) - len(kept))
            rows, chosen = rows.take(kept), chosen.take(pa.array(kept))
        return rows, chosen

    def batch_result(self, result: Any) -> Any:
        """What a vectorised partitioner gave, as lists of numbers; a null stays one."""
        kind = getattr(result, "type", None)
        if isinstance(result, pa.Array) and pa.types.is_null(result.type):
            return pa.nulls(len(result), _CHOSEN)
        if isinstance(result, pa.Array) and pa.types.is_integer(result.type):
            there = result.is_valid()
            return _lists(there.cast(pa.int64()).to_numpy(), result.drop_null().cast(pa.int64()), pc.invert(there))
        if isinstance(result, pa.Array) and _is_lists(result.type):
            if pa.types.is_fixed_size_list(result.type):
                lengths = result.is_valid().cast(pa.int64()).to_numpy() * result.type.list_size
            else:
                lengths = _lengths(result, of_null=0)
            return _lists(lengths, result.flatten().cast(pa.int64()), result.is_null())
        raise TypeError(
            f"a partitioner gave {'a RecordBatch' if kind is None else f'an array of {kind}'}, expected one of integers, or of "
            "lists of integers"
        )

    def _in_range(self, rows: Rows, chosen: Any, count: int) -> tuple[Rows, Any]:
        """Reject records for which a partition was chosen that the stream does not have; of each the rest but once."""
        if not len(rows):
            return rows, chosen
        numbers = chosen.flatten()
        lengths = _lengths(chosen, of_null=0)
        owners = np.repeat(np.arange(len(rows)), lengths)
        bad: Failures = []
        outside = pc.fill_null(pc.or_(pc.less(numbers, 0), pc.greater_equal(numbers, count)), True)
        if pc.any(outside).as_py():
            for owner in np.unique(owners[outside.to_numpy(zero_copy_only=False)]).tolist():
                bad.append((owner, _refusal(chosen[owner].as_py(), count)))
            good = np.setdiff1d(np.arange(len(rows)), [owner for owner, _ in bad])
            rows, chosen = self.without(rows, bad), chosen.take(pa.array(good))
        if len(lengths) and lengths.max() > 1:
            once = [None if one is None else list(dict.fromkeys(one)) for one in chosen.to_pylist()]
            chosen = pa.array(once, _CHOSEN)
        return rows, chosen


def _refusal(numbers: list[int | None], count: int) -> Exception:
    try:
        for number in numbers:
            if number is None:
                raise TypeError("the partitioner gave a list with a null in it: expected numbers of partitions")
            checked_partition(number, count)
    except (TypeError, OutOfRangeError) as error:
        return error
    raise AssertionError(f"{numbers} of {count} partitions are refused for nothing")


def _lists(lengths: npt.NDArray[np.int64], numbers: Any, mask: Any = None) -> Any:
    """`numbers` as lists of these lengths, a null where `mask` is true; so what a null hides is left out."""
    bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(bounds), numbers, mask=mask)


def _lengths(chosen: Any, of_null: int) -> npt.NDArray[np.int64]:
    """How many partitions each record has, `of_null` for a null."""
    lengths: npt.NDArray[np.int64] = pc.fill_null(chosen.value_lengths(), of_null).to_numpy().astype(np.int64)
    return lengths


def _with_keys(chosen: Any, by_key: npt.NDArray[np.int32]) -> Any:
    """`chosen`, with the partition of its key for each record that has a null."""
    lengths, of_key = _lengths(chosen, of_null=1), chosen.is_null().to_numpy(zero_copy_only=False)
    numbers, places = np.empty(lengths.sum(), np.int64), np.repeat(of_key, lengths)
    numbers[places], numbers[~places] = by_key[of_key], chosen.flatten().to_numpy()
    return _lists(lengths, pa.array(numbers))


def _is_lists(kind: pa.DataType) -> bool:
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        return False
    return bool(pa.types.is_integer(kind.value_type) or pa.types.is_null(kind.value_type))  # null: lists that are all empty


def _copies(rows: Rows, chosen: Any, key: Any, value: Any) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Which row each record written is a copy of, in their order: in pieces, each with its place among all of them."""
    copies = np.repeat(np.arange(len(rows)), chosen.value_lengths().to_numpy())
    if len(copies) == len(rows):
        yield 0, copies
        return
    ends = np.cumsum(record_sizes(key, value, rows.headers)[copies])
    starts = [0, *(np.flatnonzero(np.diff(ends // PIECE_BYTES)) + 1).tolist()]
    for start, stop in zip(starts, [*starts[1:], len(copies)], strict=True):
        yield start, copies[start:stop]


class SinkOperator(_WritingOperator):
    """Writes to an output stream, or to the stream that a record function names."""

    node: t.Sink

    def push(self, rows: Rows) -> None:
        node = self.node
        names: list[Any] | None = None
        if node.headers is not None or not isinstance(node.stream, str):
            rows = self.decoded(rows)  # as the functions are to see them, before other serdes are set
        if not isinstance(node.stream, str):
            rows, named = self.called(node.stream, rows)
            bad = [i for i, name in enumerate(named) if not (isinstance(name, str) and self.context.may_choose(name))]
            text = "is no stream that existed when the job started, or one that the job itself reads; create it before a start"
            rows = self.without(rows, [(i, LookupError(f"to(): {shown(named[i])} {text}")) for i in bad])
            names = [name for name in named if isinstance(name, str) and self.context.may_choose(name)]
        if node.headers is not None:
            rows, names = self._with_headers(node.headers, rows, names)
        if names is None:
            assert isinstance(node.stream, str)
            self.written(rows, node.stream)
            return
        for name in sorted(set(names)):
            self.written(rows.where(np.fromiter((other == name for other in names), bool, len(rows))), name)

    def _with_headers(self, function: t.Function, rows: Rows, names: list[Any] | None) -> tuple[Rows, list[Any] | None]:
        """The rows with the headers that `function` gives, and the names of those that are left."""
        results = self.each(lambda record: header_entries(function.body(record)), rows.records(self.context.streams), rows)
        good = [i for i, result in enumerate(results) if result is not FAILED]
        headers = pa.array([results[i] for i in good], HEADERS_TYPE)
        rows = replace(rows.take(np.array(good, np.int64)), headers=headers)
        return rows, None if names is None else [names[i] for i in good]


class SetHeadersOperator(Operator):
    """Gives records other headers."""

    node: SetHeaders

    def push(self, rows: Rows) -> None:
        function = self.node.function
        if function.kind is t.FunctionKind.BATCH:
            rows, headers = self.called(function, rows)
        else:
            rows = self.decoded(rows)
            records = rows.records(self.context.streams)
            rows, headers = self.mapped(lambda record: header_entries(function.body(record)), records, rows)
        self.forward(replace(rows, headers=headers if isinstance(headers, pa.Array) else pa.array(headers, HEADERS_TYPE)))

    def batch_result(self, result: Any) -> Any:
        column = column_of(result, "headers")
        try:
            made = column.cast(HEADERS_TYPE)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise TypeError(f"with_headers: a batch function gave an array of {column.type}, expected {HEADERS_TYPE}") from None
        if pc.struct_field(made.flatten(), "name").null_count:
            raise TypeError("with_headers: a batch function gave a header without a name")
        return made


class RepartitionOperator(_WritingOperator):
    node: t.Repartition

    def push(self, rows: Rows) -> None:
        self.written(rows, self.node.stream)


def header_entries(given: Any) -> list[dict[str, Any]] | None:
    """What a user gave as headers, pairs or a mapping of names to bytes or text, as Arrow takes it."""
    entries = []
    for name, value in given.items() if isinstance(given, dict) else given or ():
        if isinstance(value, str):
            value = value.encode()
        if not isinstance(name, str) or not (value is None or isinstance(value, bytes)):
            raise SerdeError(f"header {shown(name)}: expected a text name and bytes or text, got {type(value).__name__}")
        try:
            name.encode()
        except UnicodeEncodeError:
            raise SerdeError(
                f"header {shown(name)}: its name has a lone surrogate, which is no UTF-8",
                "remove it from the name",
            ) from None
        entries.append({"name": name, "value": value})
    return entries or None
