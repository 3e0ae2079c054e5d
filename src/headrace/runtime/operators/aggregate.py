"""Owns aggregation by Arrow: `count()` and named aggregates. Rows of a round are gathered as columns and grouped once by
(key, window); then one multi-get, one merge per changed group, one multi-put.

State per group: for `count()` 8 bytes little endian; for named aggregates a msgpack list with one state each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from headrace.core.accumulators import Accumulator, accumulators_of
from headrace.model import topology as t
from headrace.runtime.operators.base import Context, Operator
from headrace.runtime.operators.expiry import Expiry
from headrace.runtime.operators.fields import field_arrays
from headrace.runtime.rows import Field, Rows
from headrace.runtime.vectors import state_keys

_BIAS = np.uint64(1 << 63)


def start_bytes(starts: np.ndarray[Any, Any]) -> list[bytes]:
    """Window starts (int64 µs) as 8 bytes each, in the order of time."""
    packed = (starts.astype(np.int64).view(np.uint64) ^ _BIAS).astype(">u8").tobytes()
    return [packed[i : i + 8] for i in range(0, len(packed), 8)]


class VectorAggregateOperator(Operator):
    """`count()` and named aggregates, with or without windows."""

    node: t.Aggregate

    def __init__(self, node: t.Aggregate, context: Context) -> None:
        super().__init__(node, context)
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
        self._kinds: dict[str, str] = {}  # of fields without a schema, as this round's first records have them
        self._ordinal = 0
        self._key_serde: Any = None

    def push(self, rows: Rows) -> None:
        rows = self.without(rows, rows.key.bytes()[1])
        arrays, failures = field_arrays(rows, self._fields, self.context.streams, self._kinds) if self._fields else ({}, [])
        if failures:
            rows = self.without(rows, failures)
            arrays, _ = field_arrays(rows, self._fields, self.context.streams, self._kinds)
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
        if self.node.windows is None:
            self._tables.append(table)
        else:
            self._tables.extend(self._windowed(table, rows))

    def _windowed(self, table: Any, rows: Rows) -> list[Any]:
        """The rows once for each of their windows that is still open, with the window's start."""
        windows = self.node.windows
        assert windows is not None
        times = rows.timestamp_us
        last = times - times % windows.advance_us
        watermark = self.context.watermark_us
        kept, open_anywhere = [], np.zeros(len(rows), bool)
        for back in range(-(-windows.size_us // windows.advance_us)):
            starts = last - back * windows.advance_us
            mask = starts + windows.size_us > times
            if watermark is not None:
                mask &= starts + (windows.size_us + windows.kept_us) > watermark
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
        origins, self._origins = self._origins, []
        by = ["group"] if self.node.windows is None else ["group", "start"]
        wanted: list[Any] = [("ordinal", "max")]
        for accumulator in self._accumulators:
            wanted.extend(accumulator.wanted)
        unified = _with_types(pa.concat_tables(tables, promote_options="permissive").combine_chunks())
        if self.node.windows is not None and self.node.windows.advance_us < self.node.windows.size_us:
            unified = unified.sort_by("ordinal")  # a window's rows lie in several tables: first and last go by their order
        groups = unified.group_by(by, use_threads=False).aggregate(list(dict.fromkeys(wanted)))
        groups = groups.sort_by("ordinal_max")
        self._merge(groups, [np.concatenate(arrays) for arrays in zip(*origins, strict=True)])

    def _merge(self, groups: Any, origins: list[Any]) -> None:
        keys_array = _flat(groups["group"])
        keys = keys_array.to_pylist()
        starts = None if self.node.windows is None else groups["start"].to_numpy()
        layouts = state_keys(keys, b"" if starts is None else start_bytes(starts))
        database = self.context.database(self.node.store.name)
        stored = database.get_many(layouts)
        last = groups["ordinal_max"].to_numpy()
        if self.node.kind is t.AggregateKind.COUNT:
            before = np.fromiter((0 if s is None else int.from_bytes(s, "little") for s in stored), np.int64, len(stored))
            totals = before + groups["ordinal_count"].to_numpy()
            packed = totals.astype("<i8").tobytes()
            database.put_many(layouts, [packed[i : i + 8] for i in range(0, len(packed), 8)])
            value = Field(self.node.value, typed=pa.array(totals))
        else:
            value = Field(self.node.value, objects=self._merged(groups, stored, layouts, database))
        if starts is not None:
            self._expire_later(keys, starts, layouts, stored)
        self._emit(keys_array, starts, value, [array[last] for array in origins])

    def _merged(self, groups: Any, stored: Sequence[bytes | None], layouts: list[bytes], database: Any) -> list[Any]:
        decode, encode = msgspec.msgpack.Decoder(list[Any]).decode, msgspec.msgpack.Encoder().encode
        old = [None if s is None else decode(s) for s in stored]
        states: list[list[Any]] = []
        results: list[list[Any]] = []
        for number, accumulator in enumerate(self._accumulators):
            partials = accumulator.partials(groups)
            merged = [
                partial if state is None else accumulator.merged(state[number], partial)
                for state, partial in zip(old, partials, strict=True)
            ]
            states.append(merged)
            results.append([accumulator.result(state) for state in merged])
        database.put_many(layouts, [encode(state) for state in zip(*states, strict=True)])
        return [dict(zip(self._names, row, strict=True)) for row in zip(*results, strict=True)]

    def _expire_later(self, keys: list[bytes], starts: Any, layouts: list[bytes], stored: Sequence[bytes | None]) -> None:
        windows = self.node.windows
        assert windows is not None
        after = windows.size_us + windows.kept_us
        fresh = [
            (key, layout, start + after)
            for key, layout, start, state in zip(keys, layouts, starts.tolist(), stored, strict=True)
            if state is None
        ]
        Expiry(self.context).add(self.node.store.name, fresh)

    def _emit(self, keys: Any, starts: Any, value: Field, origins: list[Any]) -> None:
        if starts is None:
            key = Field(self._key_serde, raw=keys)
        else:
            serde: Any = self.node.key
            windows = self.node.windows
            assert windows is not None
            key = Field(serde, raw=serde.encode_parts(keys, starts, starts + windows.size_us))
        ssp, offset, timestamp_us, rank = origins
        self.forward(Rows(ssp, offset, timestamp_us, key, value, None, rank))


def _with_types(table: Any) -> Any:
    """A column that holds nothing but nulls has no type, and Arrow cannot aggregate it: any type will do."""
    for number, field in enumerate(table.schema):
        if pa.types.is_null(field.type):
            table = table.set_column(number, field.name, table.column(number).cast(pa.int64()))
    return table


def _flat(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def late(operator: Operator, rows: Rows, indices: Any) -> None:
    for index in indices.tolist():
        operator.context.late(int(rows.ssp[index]), int(rows.offset[index]), operator.node.name)
