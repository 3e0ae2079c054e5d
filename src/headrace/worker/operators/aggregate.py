"""Aggregation by Arrow: `count()` and named aggregates. Rows of a round are gathered as columns and grouped once by
(key, window); then one multi-get, one merge per changed group, one multi-put. Where every update is requested, the rows are
taken one by one within their groups, and what is stored is what the last of them made. A record whose numbers take a sum
too far (`totals`) is left out as if it had never come, and the rest is grouped again.

State per group: for `count()` 8 bytes little endian; for named aggregates a msgpack list with one state each
(`core.accumulators`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.accumulators import KIND, Accumulator, accumulators_of, columns_of
from headrace.model import topology as t
from headrace.model.windows import Windows
from headrace.worker.operators.base import Context, Operator, Reject
from headrace.worker.operators.expiry import Expiry
from headrace.worker.operators.fields import field_arrays
from headrace.worker.operators.running import merged_states, running_counts, states_of_rows
from headrace.worker.operators.totals import Exact, exact_of
from headrace.worker.rows import Field, Rows
from headrace.worker.vectors import state_keys

_BIAS = np.uint64(1 << 63)


def start_bytes(starts: np.ndarray[Any, Any]) -> list[bytes]:
    """Window starts (int64 µs) as 8 bytes each, in the order of time."""
    packed = (starts.astype(np.int64).view(np.uint64) ^ _BIAS).astype(">u8").tobytes()
    return [packed[i : i + 8] for i in range(0, len(packed), 8)]


@dataclass(frozen=True, slots=True)
class _Groups:
    """A round's groups, in the order of their last records, and what is stored of them."""

    table: Any  # what Arrow has made of them
    keys: list[bytes]
    starts: Any  # of their windows, None without
    layouts: list[bytes]
    stored: list[bytes | None]


class VectorAggregateOperator(Operator):
    """`count()` and named aggregates, with or without windows."""

    node: t.Aggregate

    def __init__(self, node: t.Aggregate, context: Context) -> None:
        super().__init__(node, context)
        assert node.windows is None or isinstance(node.windows, Windows)
        self._windows: Windows | None = node.windows
        named = node.named if node.kind is t.AggregateKind.NAMED else {"count": t.NamedAggregate("count")}
        assert named is not None
        self._names = list(named)
        self._accumulators: list[Accumulator] = accumulators_of(named)
        self._fields: dict[str, set[str]] = {}
        for aggregate in named.values():
            if aggregate.field is not None:
                self._fields.setdefault(aggregate.field, set()).add(aggregate.kind)
        self._tables: list[Any] = []
        self._origins: list[tuple[Any, ...]] = []  # SSP, offset, time and rank of every row
        self._ordinal = 0
        self._key_serde: Any = None

    def push(self, rows: Rows) -> None:
        rows = self.without(rows, rows.key.bytes()[1])
        arrays, failures = field_arrays(rows, self._fields, self.context.streams) if self._fields else ({}, [])
        if failures:
            rows = self.without(rows, failures)
            arrays, _ = field_arrays(rows, self._fields, self.context.streams)
        if not len(rows):
            return
        self._key_serde = rows.key.serde
        ordinal = np.arange(self._ordinal, self._ordinal + len(rows))
        self._ordinal += len(rows)
        self._origins.append((rows.ssp, rows.offset, rows.timestamp_us, rows.rank))
        columns: dict[str, Any] = {"group": rows.key.bytes()[0], "ordinal": pa.array(ordinal)}
        for path, array in arrays.items():
            columns[path] = array
        table = pa.table(columns)
        if self._windows is None:
            self._tables.append(table)
        else:
            self._tables.extend(self._windowed(table, rows))

    def _windowed(self, table: Any, rows: Rows) -> list[Any]:
        """The rows once for each of their windows that is still open, with the window's start."""
        windows = self._windows
        assert windows is not None
        times = rows.timestamp_us
        last = times - times % windows.advance_us
        watermark = self.context.watermark_us
        kept, open_anywhere = [], np.zeros(len(rows), bool)
        for back in range(windows.per_record):
            starts = last - back * windows.advance_us
            mask = starts + windows.size_us > times
            if watermark is not None:
                mask &= starts + (windows.size_us + windows.open_us) > watermark
            open_anywhere |= mask
            if mask.any():
                part = table.append_column("start", pa.array(starts))
                kept.append(part if mask.all() else part.filter(pa.array(mask)))
        if not open_anywhere.all():
            late(self, rows, np.flatnonzero(~open_anywhere))
        return kept

    def finish(self) -> None:
        if not self._tables:
            return
        tables, self._tables = self._tables, []
        batches, self._origins = self._origins, []
        origins = [np.concatenate(arrays) for arrays in zip(*batches, strict=True)]
        table = typed_columns(self._fields, pa.concat_tables(tables, promote_options="permissive").combine_chunks())
        if self._windows is not None and self._windows.advance_us < self._windows.size_us:
            # a window's rows lie in several tables: first and last go by their order
            by = ["ordinal", "start"] if self.gives_each else ["ordinal"]
            table = table.sort_by([(name, "ascending") for name in by])
        groups = self._grouped(table)
        if self.node.kind is t.AggregateKind.COUNT:
            self._store_counts(table, groups, origins)
            return
        decode = msgspec.msgpack.Decoder(list[Any]).decode
        old = [None if s is None else decode(s) for s in groups.stored]
        exact = exact_of(table, groups.table, self._by, self._accumulators, old)
        if exact is not None and exact.refused:
            self._refuse(exact, origins)
            table = table.filter(pc.invert(pc.is_in(table["ordinal"], pa.array(exact.refused, pa.int64()))))
            if not len(table):
                return
            groups = self._grouped(table)
            old = [None if s is None else decode(s) for s in groups.stored]
        if self.gives_each:
            self._store_running_states(table, groups, old, origins)
        else:
            self._store_states(groups, old, exact, origins)

    @property
    def _by(self) -> list[str]:
        return ["group"] if self._windows is None else ["group", "start"]

    def _grouped(self, table: Any) -> _Groups:
        wanted: list[Any] = [("ordinal", "max")]
        for accumulator in self._accumulators:
            wanted.extend(accumulator.wanted(table.column_names))
        groups = table.group_by(self._by, use_threads=False).aggregate(list(dict.fromkeys(wanted))).sort_by("ordinal_max")
        keys = groups["group"].to_pylist()
        starts = None if self._windows is None else groups["start"].to_numpy()
        layouts = state_keys(keys, b"" if starts is None else start_bytes(starts))
        stored = self.context.database(self.node.store.kept_in).get_many(layouts)
        return _Groups(groups, keys, starts, layouts, stored)

    def _refuse(self, exact: Exact, origins: list[Any]) -> None:
        ssp, offset = origins[0], origins[1]
        for ordinal, error in exact.refused.items():
            place = int(ssp[ordinal]), int(offset[ordinal])
            self.context.reject(Reject.of(*place, self.node.name, error))

    def _store_counts(self, table: Any, groups: _Groups, origins: list[Any]) -> None:
        stored = groups.stored
        before = np.fromiter((0 if s is None else int.from_bytes(s, "little") for s in stored), np.int64, len(stored))
        totals = before + groups.table["ordinal_count"].to_numpy()
        packed = totals.astype("<i8").tobytes()
        database = self.context.database(self.node.store.kept_in)
        database.put_many(groups.layouts, [packed[i : i + 8] for i in range(0, len(packed), 8)])
        if self.gives_each:
            numbers = self._numbers_of_groups(table, groups)
            running = before[numbers] + running_counts(numbers)
            self._done_each(table, groups, Field(self.node.value, typed=pa.array(running)), origins)
        else:
            self._done(groups, Field(self.node.value, typed=pa.array(totals)), origins)

    def _store_states(
        self, groups: _Groups, old: list[list[Any] | None], exact: Exact | None, origins: list[Any]
    ) -> None:
        states: list[list[Any]] = []
        for number, accumulator in enumerate(self._accumulators):
            partials = accumulator.partials(groups.table)
            states.append(
                [
                    partial if state is None else accumulator.merged(state[number], partial)
                    for state, partial in zip(old, partials, strict=True)
                ]
            )
        if exact is not None:
            self._correct(groups, states, exact)
        results = [[each.result(state) for state in mine] for each, mine in zip(self._accumulators, states, strict=True)]
        encode = msgspec.msgpack.Encoder().encode
        database = self.context.database(self.node.store.kept_in)
        database.put_many(groups.layouts, [encode(state) for state in zip(*states, strict=True)])
        values = [dict(zip(self._names, row, strict=True)) for row in zip(*results, strict=True)]
        self._done(groups, Field(self.node.value, objects=values), origins)

    def _store_running_states(
        self, table: Any, groups: _Groups, old: list[list[Any] | None], origins: list[Any]
    ) -> None:
        now = list(old)
        values = []
        by = ["ordinal", *self._by[1:]]
        parts = states_of_rows(table, by, self._accumulators)
        for number, part in zip(self._numbers_of_groups(table, groups).tolist(), parts, strict=True):
            before = now[number]
            after = now[number] = part if before is None else merged_states(self._accumulators, before, part)
            results = (each.result(state) for each, state in zip(self._accumulators, after, strict=True))
            values.append(dict(zip(self._names, results, strict=True)))
        encode = msgspec.msgpack.Encoder().encode
        self.context.database(self.node.store.kept_in).put_many(groups.layouts, list(map(encode, now)))
        self._done_each(table, groups, Field(self.node.value, objects=values), origins)

    def _numbers_of_groups(self, table: Any, groups: _Groups) -> Any:
        """For each row of `table` the place of its group."""
        return pc.index_in(self._result_keys(table), value_set=self._result_keys(groups.table)).to_numpy().astype(np.int64)

    def _result_keys(self, table: Any) -> Any:
        """The keys of results, as bytes, of rows or groups."""
        keys = _flat(table["group"])
        windows = self._windows
        if windows is None:
            return keys
        serde: Any = self.node.key
        starts = table["start"].to_numpy()
        return serde.encode_parts(keys, starts, starts + windows.size_us)

    def _done_each(self, table: Any, groups: _Groups, value: Field, origins: list[Any]) -> None:
        if groups.starts is not None:
            self._expire_later(groups.keys, groups.starts, groups.layouts, groups.stored)
        ordinals = table["ordinal"].to_numpy()
        self._emit(self._result_keys(table), value, [array[ordinals] for array in origins])

    def _correct(self, groups: _Groups, states: list[list[Any]], exact: Exact) -> None:
        """Put in the totals that were added record by record: on the way to them Arrow's may have overflowed."""
        keys = zip(*(groups.table[name].to_pylist() for name in self._by), strict=True)
        for place, key in enumerate(keys):
            for number, total in exact.totals.get(key, {}).items():
                with_total = self._accumulators[number].with_total
                assert with_total is not None
                states[number][place] = with_total(states[number][place], total)

    def _done(self, groups: _Groups, value: Field, origins: list[Any]) -> None:
        if groups.starts is not None:
            self._expire_later(groups.keys, groups.starts, groups.layouts, groups.stored)
        last = groups.table["ordinal_max"].to_numpy()
        self._emit(self._result_keys(groups.table), value, [array[last] for array in origins])

    def _expire_later(self, keys: list[bytes], starts: Any, layouts: list[bytes], stored: Sequence[bytes | None]) -> None:
        windows = self._windows
        assert windows is not None
        after = windows.size_us + windows.kept_us
        fresh = [
            (key, layout, start + after)
            for key, layout, start, state in zip(keys, layouts, starts.tolist(), stored, strict=True)
            if state is None
        ]
        Expiry(self.context).add(self.node.store.kept_in, fresh)

    def _emit(self, keys: Any, value: Field, origins: list[Any]) -> None:
        key = Field(self._key_serde if self._windows is None else self.node.key, raw=keys)
        ssp, offset, timestamp_us, rank = origins
        self.forward(Rows(ssp, offset, timestamp_us, key, value, None, rank))


def typed_columns(fields: Iterable[str], table: Any) -> Any:
    """The fields of a round's rows as Arrow can aggregate them."""
    return _with_kinds(fields, _with_types(table))


def _with_types(table: Any) -> Any:
    """A column that holds nothing but nulls has no type, and Arrow cannot aggregate it: any type will do."""
    for number, field in enumerate(table.schema):
        if pa.types.is_null(field.type):
            table = table.set_column(number, field.name, table.column(number).cast(pa.int64()))
    return table


def _with_kinds(fields: Iterable[str], table: Any) -> Any:
    """Where a field has values of several kinds, each in its column, say in which of them each value is."""
    for field in fields:
        columns = columns_of(field, table.column_names)
        if len(columns) > 1:
            kinds = pa.nulls(table.num_rows, pa.int8())
            for number, column in enumerate(columns):
                kinds = pc.if_else(table[column].is_valid(), pa.scalar(number, pa.int8()), kinds)
            table = table.append_column(field + KIND, kinds)
    return table


def _flat(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def late(operator: Operator, rows: Rows, indices: Any) -> None:
    for index in indices.tolist():
        operator.context.late(int(rows.ssp[index]), int(rows.offset[index]), operator.node.name)
