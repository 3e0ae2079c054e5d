"""Folds: what a state of sessions and sliding windows is and how it grows, by a record, or by being joined to another one. One
per kind of aggregate.

A fold looks at the records of a batch beforehand (`take`), and then returns one after the other (`added`). What it is given is
never changed in place, so that a record that fails leaves everything as it was, and windows may share a state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from headrace.codec.aggregate_states import decoded_states, encoded_states
from headrace.core.accumulators import accumulators_of, exact_of_stored
from headrace.core.topology.store_forms import scales_in
from headrace.model import topology as t
from headrace.model.serde import Serde
from headrace.worker.operators.aggregate import (
    State,
    fields_of,
    merged_states,
    result_of,
    states_of_rows,
    typed_columns,
    with_fields,
)
from headrace.worker.operators.base import Operator
from headrace.worker.operators.keyed import ABSENT, copied, state_after
from headrace.worker.operators.totals import check_totals
from headrace.worker.rows import Field, Rows


class Fold(Protocol):
    """`states` are those that a record joins, by time, and is put into; None stands for a state that there is no more."""

    def take(self, rows: Rows) -> Rows:
        """The rows that can be folded, which `added` returns by their place."""

    def added(self, states: Sequence[Any], row: int) -> Any | None: ...

    def encoded(self, state: Any) -> bytes: ...

    def decoded(self, data: bytes) -> Any: ...

    def results(self, states: Sequence[Any | None]) -> Field:
        """What is given of states; nulls where there is none."""


class CountFold:
    """A number of records, stored as 8 bytes little endian."""

    def __init__(self, operator: Operator, node: t.Aggregate) -> None:
        self._serde = node.value

    def take(self, rows: Rows) -> Rows:
        return rows

    def added(self, states: Sequence[int], row: int) -> int:
        return sum(states) + 1

    def encoded(self, state: int) -> bytes:
        return state.to_bytes(8, "little", signed=True)

    def decoded(self, data: bytes) -> int:
        return int.from_bytes(data, "little", signed=True)

    def results(self, states: Sequence[int | None]) -> Field:
        return Field(self._serde, typed=pa.array(states, pa.int64()))


class NamedFold:
    """Named aggregates: a state for each (`core.accumulators`), stored as a msgpack list."""

    def __init__(self, operator: Operator, node: t.Aggregate) -> None:
        named = node.named or {}
        self._operator, self._serde, self._names = operator, node.value, list(named)
        self._accumulators = accumulators_of(named, scales_in(node.store.form))
        self._exact = exact_of_stored(self._accumulators)
        self._fields = fields_of(named)
        self._parts: list[State] = []
        self.encoded: Callable[[State], bytes] = encoded_states

    def decoded(self, data: bytes) -> State:
        return self._exact(decoded_states(data))

    def take(self, rows: Rows) -> Rows:
        rows, arrays = with_fields(self._operator, rows, self._fields)
        table = pa.table({"ordinal": pa.array(np.arange(len(rows))), **arrays})
        self._parts = states_of_rows(typed_columns(self._fields, table), ["ordinal"], self._accumulators) if len(rows) else []
        return rows

    def added(self, states: Sequence[State], row: int) -> State:
        state = reduce(partial(merged_states, self._accumulators), [*states, self._parts[row]])
        check_totals(self._accumulators, state)
        return state

    def results(self, states: Sequence[State | None]) -> Field:
        names, accumulators = self._names, self._accumulators
        return Field(self._serde, objects=[None if one is None else result_of(names, accumulators, one) for one in states])


class FunctionFold:
    """`reduce`, whose function joins sessions too, and the general `aggregate` with its merger."""

    def __init__(self, operator: Operator, node: t.Aggregate) -> None:
        self._operator, self._node = operator, node
        self._given: Serde | None = node.store.value or node.value
        self._records: list[Any] = []

    @property
    def _serde(self) -> Serde:
        assert self._given is not None
        return self._given

    def take(self, rows: Rows) -> Rows:
        rows = self._operator.decoded(rows)
        self._given = self._given or rows.value.serde
        self._records = rows.records(self._operator.context.streams)
        return rows

    def added(self, states: Sequence[Any], row: int) -> Any | None:
        node = self._node
        merger: Any = node.function if node.kind is t.AggregateKind.REDUCE else node.merger  # None where no states are joined
        own = map(copied, states)  # a function may change in place what it is given, and then raise
        after = state_after(node, self._serde, reduce(merger, own) if states else ABSENT, self._records[row])
        return None if after is ABSENT else after

    def encoded(self, state: Any) -> bytes:
        return self._serde.encode(state)

    def decoded(self, data: bytes) -> Any:
        return self._serde.decode(data)

    def results(self, states: Sequence[Any | None]) -> Field:
        return Field(self._serde, objects=[copied(state) for state in states])


def fold_for(operator: Operator, node: t.Aggregate) -> Fold:
    kinds: dict[t.AggregateKind, Callable[[Operator, t.Aggregate], Fold]]
    kinds = {t.AggregateKind.COUNT: CountFold, t.AggregateKind.NAMED: NamedFold}
    return kinds.get(node.kind, FunctionFold)(operator, node)
