"""Aggregation by Arrow: `count()` and named aggregates. Rows of a round are gathered as columns and grouped once by
(key, window); then one multi-get, one merge per changed group, one multi-put. Where every update is requested, the rows are
taken one by one within their groups, and what is stored is what the last of them made. A record whose numbers take a sum
too far (`totals`) is left out as if it had never come, and the rest is grouped again.

A result has the highest time of its records. State per group: for `count()` the number and that time, 8 bytes little endian
each; for named aggregates a msgpack list with one state each (`core.accumulators`), and the time. Older versions have none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.codec.aggregate_states import decoded_states, encoded_states
from headrace.core.accumulators import KIND, Accumulator, accumulators_of, columns_of, exact_of_stored
from headrace.core.topology.store_forms import scales_in
from headrace.exchange.messages import Reject
from headrace.model import topology as t
from headrace.model.windows import TimeWindows, UnlimitedWindows, Windows, skips_null_values
from headrace.worker.batch_keys import as_bytes, state_keys, time_rows
from headrace.worker.operators.base import Context, Operator
from headrace.worker.operators.entry_times import NO_TIME_US
from headrace.worker.operators.expiry import count_expired, expire, outlasting
from headrace.worker.operators.fields import field_arrays
from headrace.worker.operators.totals import Exact, exact_of
from headrace.worker.rows import Field, Rows, flat, order_of

_COUNT_BYTES = 16
_NO_TIME = NO_TIME_US.to_bytes(8, "little", signed=True)
_NO_COUNT = bytes(8) + _NO_TIME
State = list[Any]  # of named aggregates: one part for each accumulator


def start_bytes(starts: np.ndarray[Any, Any]) -> list[bytes]:
    """Window starts (int64 µs) as 8 bytes each, in the order of time."""
    return as_bytes(time_rows(starts))


@dataclass(frozen=True, slots=True)
class _Groups:
    """A round's groups, in the order of their last records, and what is stored of them."""

    table: Any  # what Arrow has made of them
    keys: list[bytes]
    starts: Any  # of their windows, None without
    layouts: list[bytes]
    stored: list[bytes | None]

    @property
    def times(self) -> Any:
        """The highest times of their records in the round."""
        return self.table["time_max"].to_numpy()


def begun(windows: TimeWindows | None, rows: Rows) -> Rows:
    """The rows that are not before the beginning of the only window."""
    return rows.where(rows.timestamp_us >= windows.start_us) if isinstance(windows, UnlimitedWindows) else rows


class VectorAggregateOperator(Operator):
    node: t.Aggregate

    def __init__(self, node: t.Aggregate, context: Context) -> None:
        super().__init__(node, context)
        assert node.windows is None or isinstance(node.windows, TimeWindows)
        self._windows: TimeWindows | None = node.windows
        named = node.named if node.kind is t.AggregateKind.NAMED else {"count": t.NamedAggregate("count")}
        assert named is not None
        self._names = list(named)
        self._accumulators: list[Accumulator] = accumulators_of(named, scales_in(node.store.form))
        self._exact = exact_of_stored(self._accumulators)
        self._fields = fields_of(named)
        self._tables: list[Any] = []
        self._origins: list[tuple[Any, ...]] = []  # SSP, offset and rank of every row
        self._ordinal = 0
        self._key_serde: Any = None

    def push(self, rows: Rows) -> None:
        rows = begun(self._windows, self.valued(rows) if skips_null_values(self._windows) else rows)
        rows, arrays = with_fields(self, self.without(rows, rows.key.bytes()[1]), self._fields)
        if not len(rows):
            return
        self._key_serde = rows.key.serde
        ordinal = np.arange(self._ordinal, self._ordinal + len(rows))
        self._ordinal += len(rows)
        self._origins.append((rows.ssp, rows.offset, rows.rank))
        own = {"group": rows.key.bytes()[0], "ordinal": pa.array(ordinal), "time": pa.array(rows.timestamp_us, pa.int64())}
        table = pa.table({**own, **arrays})
        if self._windows is None:
            self._tables.append(table)
        else:
            self._tables.extend(self._windowed(table, rows))

    def _windowed(self, table: Any, rows: Rows) -> list[Any]:
        """The rows once for each of their windows that is still open, with the window's start."""
        windows = self._windows
        assert windows is not None
        times = rows.timestamp_us
        last = windows.last_start(times)
        watermark = self.context.watermark_us
        kept, open_anywhere = [], np.zeros(len(rows), bool)
        for back in range(windows.per_record):
            starts = last - back * windows.advance_us
            ends = windows.end_of(starts)
            mask = ends > times
            if watermark is not None:
                mask &= ends + windows.open_us > watermark
            open_anywhere |= mask
            if mask.any():
                part = table.append_column("start", pa.array(starts))
                kept.append(part if mask.all() else part.filter(pa.array(mask)))
        if not open_anywhere.all():
            self.late(rows, np.flatnonzero(~open_anywhere))
        return kept

    def finish(self) -> None:
        if not self._tables:
            return
        tables, self._tables = self._tables, []
        batches, self._origins = self._origins, []
        origins = [np.concatenate(arrays) for arrays in zip(*batches, strict=True)]
        table = typed_columns(self._fields, pa.concat_tables(tables, promote_options="permissive").combine_chunks())
        if self._windows is not None and self._windows.per_record > 1:
            # a window's rows lie in several tables: first and last go by their order
            by = ["ordinal", "start"] if self.gives_each else ["ordinal"]
            table = table.sort_by([(name, "ascending") for name in by])
        groups = self._grouped(table)
        if self.node.kind is t.AggregateKind.COUNT:
            self._store_counts(table, groups, origins)
            return
        old, times = self._states_of(groups)
        exact = exact_of(table, groups.table, self._by, self._accumulators, old)
        if exact is not None and exact.refused:
            for ordinal, error in exact.refused.items():
                self.context.reject(Reject.of(int(origins[0][ordinal]), int(origins[1][ordinal]), self.node.name, error))
            table = table.filter(pc.invert(pc.is_in(table["ordinal"], pa.array(exact.refused, pa.int64()))))
            if not len(table):
                return
            groups = self._grouped(table)
            old, times = self._states_of(groups)
        if self.gives_each:
            self._store_running_states(table, groups, old, times, origins)
        else:
            self._store_states(groups, old, times, exact, origins)

    def _states_of(self, groups: _Groups) -> tuple[list[State | None], Any]:
        """What is stored of the groups, and the highest times of their records."""
        count = len(self._accumulators)
        old = [None if data is None else self._exact(decoded_states(data)) for data in groups.stored]
        times = [NO_TIME_US if state is None or len(state) == count else state.pop() for state in old]
        return old, np.array(times, np.int64)

    @property
    def _by(self) -> list[str]:
        return ["group"] if self._windows is None else ["group", "start"]

    def _grouped(self, table: Any) -> _Groups:
        groups = _aggregated(table, self._by, self._accumulators, [("ordinal", "max"), ("time", "max")]).sort_by("ordinal_max")
        keys = groups["group"].to_pylist()
        starts = None if self._windows is None else groups["start"].to_numpy()
        layouts = state_keys(keys, b"" if starts is None else start_bytes(starts))
        stored = self.database.get_many(layouts)
        return _Groups(groups, keys, starts, layouts, stored)

    def _store_counts(self, table: Any, groups: _Groups, origins: list[Any]) -> None:
        before, times = _counts_of(groups.stored)
        totals, highest = before + groups.table["ordinal_count"].to_numpy(), np.maximum(times, groups.times)
        packed = np.column_stack([totals, highest]).astype("<i8").tobytes()
        self._keep(groups, lambda place: packed[place * _COUNT_BYTES : (place + 1) * _COUNT_BYTES])
        if self.gives_each:
            numbers = self._numbers_of_groups(table, groups)
            running = Field(self.node.value, typed=pa.array(before[numbers] + running_counts(numbers)))
            self._done(groups, table, running, running_highest(numbers, table["time"].to_numpy(), times), origins)
        else:
            self._done(groups, groups.table, Field(self.node.value, typed=pa.array(totals)), highest, origins)

    def _store_states(
        self, groups: _Groups, old: list[State | None], times: Any, exact: Exact | None, origins: list[Any]
    ) -> None:
        states = [
            [
                partial if state is None else accumulator.merged(state[number], partial)
                for state, partial in zip(old, accumulator.partials(groups.table), strict=True)
            ]
            for number, accumulator in enumerate(self._accumulators)
        ]
        if exact is not None:
            self._correct(groups, states, exact)
        results = [[each.result(state) for state in mine] for each, mine in zip(self._accumulators, states, strict=True)]
        highest = np.maximum(times, groups.times)
        stored = list(zip(*states, highest.tolist(), strict=True))
        self._keep(groups, lambda place: encoded_states(stored[place]))
        values = [dict(zip(self._names, row, strict=True)) for row in zip(*results, strict=True)]
        self._done(groups, groups.table, Field(self.node.value, objects=values), highest, origins)

    def _store_running_states(
        self, table: Any, groups: _Groups, old: list[State | None], times: Any, origins: list[Any]
    ) -> None:
        now, values = list(old), []
        numbers = self._numbers_of_groups(table, groups)
        parts = states_of_rows(table, ["ordinal", *self._by[1:]], self._accumulators)
        for number, part in zip(numbers.tolist(), parts, strict=True):
            before = now[number]
            after = now[number] = part if before is None else merged_states(self._accumulators, before, part)
            values.append(result_of(self._names, self._accumulators, after))
        newest = np.maximum(times, groups.times).tolist()
        self._keep(groups, lambda place: encoded_states([*(now[place] or ()), newest[place]]))
        highest = running_highest(numbers, table["time"].to_numpy(), times)
        self._done(groups, table, Field(self.node.value, objects=values), highest, origins)

    def _numbers_of_groups(self, table: Any, groups: _Groups) -> Any:
        """For each row of `table` the place of its group."""
        return pc.index_in(self._result_keys(table), value_set=self._result_keys(groups.table)).to_numpy().astype(np.int64)

    def _result_keys(self, table: Any) -> Any:
        keys = flat(table["group"])
        windows = self._windows
        if windows is None:
            return keys
        serde: Any = self.node.key
        starts = table["start"].to_numpy()
        return serde.encode_parts(keys, starts, windows.end_of(starts))

    def _correct(self, groups: _Groups, states: list[list[Any]], exact: Exact) -> None:
        """Put in the totals that were added record by record: on the way to them Arrow's may have overflowed."""
        keys = zip(*(groups.table[name].to_pylist() for name in self._by), strict=True)
        for place, key in enumerate(keys):
            for number, total in exact.totals.get(key, {}).items():
                with_total = self._accumulators[number].with_total
                assert with_total is not None
                states[number][place] = with_total(states[number][place], total)

    def _keep(self, groups: _Groups, state_of: Callable[[int], bytes]) -> None:
        """Store what the groups have come to, by their places; not what begins and expires within the round."""
        layouts, places = groups.layouts, list(range(len(groups.layouts)))
        if isinstance(self._windows, Windows):
            ends_us = groups.starts + (self._windows.size_us + self._windows.kept_us)
            is_new = np.array([state is None for state in groups.stored])
            wanted = outlasting(self.context, ends_us)
            places = np.flatnonzero(wanted | ~is_new).tolist()
            new = np.flatnonzero(wanted & is_new).tolist()
            count_expired(self.context, len(layouts) - len(places))
            expiring = [(groups.keys[at], layouts[at], int(ends_us[at])) for at in new]
            expire(self.context, self.node.store.kept_in, expiring)
        self.database.put_many([layouts[at] for at in places], list(map(state_of, places)))

    def _done(self, groups: _Groups, of: Any, value: Field, times: Any, origins: list[Any]) -> None:
        """Give a value and its time for each row of the table `of`: that of the records, or of the groups."""
        key = Field(self._key_serde if self._windows is None else self.node.key, raw=self._result_keys(of))
        at = of["ordinal_max" if of is groups.table else "ordinal"].to_numpy()
        ssp, offset, rank = (array[at] for array in origins)
        self.forward(Rows(ssp, offset, times, key, value, None, rank))


def _aggregated(table: Any, by: Sequence[str], accumulators: Sequence[Accumulator], wanted: Sequence[Any]) -> Any:
    """The groups of `table`, with what all accumulators want of each, and `wanted`."""
    every = [*wanted, *(one for accumulator in accumulators for one in accumulator.wanted(table.column_names))]
    return table.group_by(list(by), use_threads=False).aggregate(list(dict.fromkeys(every)))


def states_of_rows(table: Any, by: Sequence[str], accumulators: Sequence[Accumulator]) -> list[State]:
    """The states of groups of one row each, in the order of `table`, which is that of `by`: they tell rows apart."""
    rows = _aggregated(table, by, accumulators, []).sort_by([(name, "ascending") for name in by])
    return list(map(list, zip(*(accumulator.partials(rows) for accumulator in accumulators), strict=True)))


def merged_states(accumulators: Sequence[Accumulator], one: State, other: State) -> State:
    """What two states are together; the records of `other` count as the later ones."""
    return [each.merged(a, b) for each, a, b in zip(accumulators, one, other, strict=True)]


def result_of(names: Sequence[str], accumulators: Sequence[Accumulator], state: State) -> dict[str, Any]:
    return {name: each.result(part) for name, each, part in zip(names, accumulators, state, strict=True)}


def running_counts(numbers: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """For each row how many of its group there are up to and with it; `numbers` is the group of each row.

    >>> running_counts(np.array([0, 1, 0, 0])).tolist()
    [1, 1, 2, 3]
    """
    order = order_of(numbers)
    by_group = numbers[order]
    firsts = np.flatnonzero(np.diff(by_group, prepend=-1))
    counts = np.empty(len(numbers), np.int64)
    counts[order] = np.arange(len(numbers)) - np.repeat(firsts, np.diff(firsts, append=len(numbers))) + 1
    return counts


def running_highest(numbers: np.ndarray[Any, Any], times: np.ndarray[Any, Any], before: np.ndarray[Any, Any]) -> Any:
    """For each row the highest time of its group up to and with it; `numbers` is the group of each row, `before` what each
    group had.

    >>> running_highest(np.array([0, 1, 0, 0]), np.array([5, 7, 4, 9]), np.array([3, 8])).tolist()
    [5, 8, 5, 9]
    """
    order = order_of(numbers)
    by_group, (known, places) = numbers[order], np.unique(times[order], return_inverse=True)
    # each group's places in a span of its own, so that no group's are above those of the next
    firsts = by_group * len(known)
    highest = np.empty(len(numbers), np.int64)
    highest[order] = known[np.maximum.accumulate(firsts + places) - firsts]
    return np.maximum(highest, before[numbers])


def _counts_of(stored: Sequence[bytes | None]) -> tuple[Any, Any]:
    """The stored counts, and the highest times of their records."""
    packed = b"".join([_NO_COUNT if s is None else s if len(s) == _COUNT_BYTES else s + _NO_TIME for s in stored])
    table = np.frombuffer(packed, "<i8").reshape(-1, 2)
    return table[:, 0], table[:, 1]


def fields_of(named: Mapping[str, t.NamedAggregate]) -> dict[str, set[str]]:
    fields: dict[str, set[str]] = {}
    for aggregate in named.values():
        if aggregate.field is not None:
            fields.setdefault(aggregate.field, set()).add(aggregate.kind)
    return fields


def with_fields(operator: Operator, rows: Rows, fields: Mapping[str, set[str]]) -> tuple[Rows, dict[str, Any]]:
    """The rows of which all fields can be aggregated, and their columns (`fields.field_arrays`)."""
    arrays, failures = field_arrays(rows, fields, operator.context.streams) if fields else ({}, [])
    if failures:
        rows = operator.without(rows, failures)
        arrays, _ = field_arrays(rows, fields, operator.context.streams)
    return rows, arrays


def typed_columns(fields: Iterable[str], table: Any) -> Any:
    """The fields of a round's rows as Arrow can aggregate them: a column of nothing but nulls gets a type (any will do), and
    where a field has values of several kinds, each in its column, one more column tells in which of them each value is."""
    for number, column in enumerate(table.schema):
        if pa.types.is_null(column.type):
            table = table.set_column(number, column.name, table.column(number).cast(pa.int64()))
    for field in fields:
        columns = columns_of(field, table.column_names)
        if len(columns) > 1:
            kinds = pa.nulls(table.num_rows, pa.int8())
            for number, name in enumerate(columns):
                kinds = pc.if_else(table[name].is_valid(), pa.scalar(number, pa.int8()), kinds)
            table = table.append_column(field + KIND, kinds)
    return table
