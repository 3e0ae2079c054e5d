"""Aggregates of a table's groups: each change of a row takes its old value out of the state of its group, and puts the new one
in, in this order, as one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from headrace.core.retractable import plain, restored, retractable_of
from headrace.core.topology.store_forms import scales_in
from headrace.model import topology as t
from headrace.record import Record
from headrace.serdes.row_changes import RowChange
from headrace.worker.operators.base import Context
from headrace.worker.operators.fields import inside
from headrace.worker.operators.keyed import ABSENT, RecordAggregateOperator, as_stored, initial_of


class FoldedTableOperator(RecordAggregateOperator):
    """`reduce(adder, subtractor)` and `aggregate(initial=, adder=, subtractor=)`. A state of None is none: nothing is taken out
    of it, and the next row starts over."""

    def after(self, before: Any, record: Record) -> Any:
        node, change = self.node, record.value
        assert node.function is not None and node.subtractor is not None and self.state_serde is not None
        state, is_reduce = before, node.kind is t.AggregateKind.REDUCE
        if change.old is not None and state is not ABSENT:
            old = change.old if is_reduce else _with_value(record, change.old)
            state = _kept(node.subtractor(state, old))
        if change.new is not None:
            if not is_reduce:
                state = initial_of(node) if state is ABSENT else state
                state = _kept(node.function(state, _with_value(record, change.new)))
            else:
                state = change.new if state is ABSENT else _kept(node.function(state, change.new))
        return ABSENT if state is ABSENT else as_stored(self.state_serde, state)


class NamedTableOperator(RecordAggregateOperator):
    """`count()` and named aggregates. State: a MessagePack list with one for each (`core.retractable`). A group whose last row
    is taken out stays, with a count of 0, as in Kafka Streams."""

    def __init__(self, node: t.Aggregate, context: Context) -> None:
        super().__init__(node, context)
        named = node.named if node.kind is t.AggregateKind.NAMED else {"count": t.NamedAggregate("count")}
        assert named is not None
        scales = scales_in(node.store.form)
        self._named = {name: retractable_of(aggregate, scales.get(name)) for name, aggregate in named.items()}
        self._paths = [_path(each.field) for each in self._named.values()]
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(list[list[Any]]).decode

    def after(self, before: Any, record: Record) -> Any:
        states = [each.initial for each in self._named.values()] if before is ABSENT else before
        change: RowChange = record.value
        for value, by in ((change.old, -1), (change.new, 1)):
            if value is not None:
                parts = (inside(record.key if is_key else value, path) for is_key, path in self._paths)
                states = [
                    each.moved(state, part, by) for each, state, part in zip(self._named.values(), states, parts, strict=True)
                ]
        self.result(states)  # one that there is none of is the error of the record that makes it so
        return states

    def kept(self, state: Any) -> Any:
        return state  # `after` makes another one

    def result(self, state: Any) -> Any:
        if state is ABSENT:
            return None
        results = {name: each.result(own) for (name, each), own in zip(self._named.items(), state, strict=True)}
        return results["count"] if self.node.kind is t.AggregateKind.COUNT else results

    def read(self, data: bytes) -> Any:
        states = zip(self._named.values(), restored(self._decode(data)), strict=True)
        return [each.exact(state) for each, state in states]

    def stored(self, states: Sequence[Any]) -> list[bytes | None]:
        return [None if state is ABSENT else self._encode(plain(state)) for state in states]


def _with_value(record: Record, value: Any) -> Record:
    return msgspec.structs.replace(record, value=value)


def _kept(state: Any) -> Any:
    return ABSENT if state is None else state


def _path(field: str | None) -> tuple[bool, list[str]]:
    """Whether a field is of the key, and its names within key or value."""
    head, _, rest = (field or "value").partition(".")
    return head == "key", rest.split(".") if rest else []
