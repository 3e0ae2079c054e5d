"""Operators that send each row of a table on, by a key that a function gives, and remember what they have sent: so that a later
update can take it back. What cannot be sent is rejected, and is not remembered."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from headrace.model.serde import Serde
from headrace.model.table_operators import GroupTable, SendByForeignKey
from headrace.worker.batch_keys import state_keys
from headrace.worker.operators.base import Operator, binary_field, refused, values_field
from headrace.worker.operators.outputs import RepartitionOperator
from headrace.worker.rows import Rows


@dataclass(frozen=True, slots=True)
class Place:
    """Under which entry a row is remembered: that of its key, or of its key and window."""

    key: bytes
    layout: bytes
    end_us: int | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """A row's new value, and the key that the function gives; both None for a row that is gone. `number`: which row it is."""

    number: int
    place: Place
    goes_to: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Move:
    """What an update does. `before`, `after`: what is stored; `told`: what is written, keys and values."""

    number: int
    place: Place
    before: bytes | None
    after: bytes | None
    told: Sequence[tuple[bytes | None, bytes]]


class TableSender(Operator):
    """Takes a table's updates, and gives what they have to be told to whom."""

    node: GroupTable | SendByForeignKey
    drops_null_keys = True  # a row for which the function gives None goes nowhere

    @abstractmethod
    def told_serde(self, value: Serde) -> Serde:
        """That of what is written; `value` is that of the rows."""

    @abstractmethod
    def moved(self, updates: Sequence[Update], known: Mapping[bytes, bytes | None]) -> list[Move]:
        """What the updates do, one after the other; `known` is what is stored before the first."""

    def places(self, keys: Sequence[bytes]) -> list[Place]:
        return [Place(key, layout) for key, layout in zip(keys, state_keys(keys), strict=True)]

    def remember(self, move: Move) -> None:
        self.database.put(move.place.layout, move.after)

    def push(self, rows: Rows) -> None:
        rows = self.keyed(self.encoded(self.of_serdes(rows, None, self.node.value)))
        if not len(rows):
            return
        numbered = rows.numbered()
        deleted = rows.value.is_null()
        goes_to: dict[int, bytes | None] = dict.fromkeys(np.flatnonzero(deleted).tolist())  # by row
        if not deleted.all():
            goes_to |= self._keys_of(numbered.where(~deleted))
        numbers = sorted(goes_to)
        keys, values = rows.key.bytes()[0].to_pylist(), rows.value.bytes()[0].to_pylist()
        places = self.places([keys[number] for number in numbers])
        updates = [
            Update(number, place, goes_to[number], values[number]) for number, place in zip(numbers, places, strict=True)
        ]
        self._send(rows, updates)

    def _keys_of(self, rows: Rows) -> dict[int, bytes | None]:
        """By the number of a row the key that the function gives."""
        rows, given = self.called(self.node.function, rows)
        keys = values_field(self.node.key, given)
        failures = keys.bytes()[1]
        if failures:
            good = np.setdiff1d(np.arange(len(rows)), [index for index, _ in failures])
            rows, keys = self.without(rows, failures), keys.take(good)
        null = keys.is_null()
        if self.drops_null_keys and null.any():
            self.context.count("null_keys_dropped", int(null.sum()))
        return dict(zip(rows.rank.tolist(), keys.bytes()[0].to_pylist(), strict=True))

    def _send(self, rows: Rows, updates: Sequence[Update]) -> None:
        layouts = [update.place.layout for update in updates]
        known = dict(zip(layouts, self.database.get_many(layouts), strict=True))
        moves = self.moved(updates, known)
        told = self._told(rows, moves)
        while bad := self._unsendable(told, moves):
            for number, error in bad.items():
                self.reject(rows, number, error)
            updates = [update for update in updates if update.number not in bad]
            moves = self.moved(updates, known)
            told = self._told(rows, moves)
        for move in moves:
            self.remember(move)
        self.forward(told)

    def _told(self, rows: Rows, moves: Sequence[Move]) -> Rows:
        serde = rows.value.serde
        assert serde is not None
        told = [(move.number, *one) for move in moves for one in move.told]
        key = binary_field(self.node.key, [key for _, key, _ in told])
        value = binary_field(self.told_serde(serde), [value for *_, value in told])
        return replace(rows.take(np.array([number for number, *_ in told], np.int64)), key=key, value=value, headers=None)

    def _unsendable(self, told: Rows, moves: Sequence[Move]) -> dict[int, Exception]:
        """The rows of which the repartition stream would not take something, each with the reason."""
        owners = [move.number for move in moves for _ in move.told]
        key: pa.Array = told.key.bytes()[0]
        value: pa.Array = told.value.bytes()[0]
        found: dict[int, Exception] = {}
        for child in self.children:
            if isinstance(child, RepartitionOperator):
                stream, times_us = child.node.stream, told.timestamp_us
                limits, now_us = self.context.limits_of(stream), self.context.now_us
                for row, error in refused(stream, limits, key, value, None, times_us, now_us):
                    found.setdefault(owners[row], error)
        return found
