"""Operators that send each row of a table on, by a key that a function gives, and remember what they have sent: so that a later
update can take it back. What cannot be sent is rejected, and is not remembered."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pyarrow as pa

from headrace.model.serde import Serde
from headrace.model.table_operators import GroupTable, SendByForeignKey
from headrace.worker.batch_keys import state_keys
from headrace.worker.operators.base import Operator, binary_field, refused, values_field
from headrace.worker.operators.outputs import RepartitionOperator
from headrace.worker.rows import Rows


class RowPlace(msgspec.Struct, frozen=True, gc=False):
    """Under which entry a row is remembered: that of its key, or of its key and window."""

    key: bytes
    layout: bytes
    end_us: int | None = None


class RowUpdate(msgspec.Struct, frozen=True, gc=False):
    """A row's new value, and the key that the function gives; both None for a deletion. `number`: which row it is."""

    number: int
    place: RowPlace
    goes_to: bytes | None
    value: bytes | None


class RowMove(msgspec.Struct, frozen=True, gc=False):
    """What an update does. `before`, `after`: what is stored; `messages`: keys and values of records."""

    number: int
    place: RowPlace
    before: bytes | None
    after: bytes | None
    messages: Sequence[tuple[bytes | None, bytes]]


class TableSender(Operator):
    """Takes a table's updates, and gives the messages that others have to get of them."""

    node: GroupTable | SendByForeignKey
    drops_null_keys = True  # a row for which the function gives None goes nowhere

    @abstractmethod
    def message_serde(self, value: Serde) -> Serde:
        """That of the messages; `value` is that of the rows."""

    @abstractmethod
    def moved(self, updates: Sequence[RowUpdate], known: Mapping[bytes, bytes | None]) -> list[RowMove]:
        """What the updates do, one after the other; `known` is what is stored before the first."""

    def places(self, keys: Sequence[bytes]) -> list[RowPlace]:
        return [RowPlace(key, layout) for key, layout in zip(keys, state_keys(keys), strict=True)]

    def remember(self, moves: Sequence[RowMove]) -> None:
        """Store what the moves have come to; of one row there may be several."""
        self.database.put_many([move.place.layout for move in moves], [move.after for move in moves])

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
            RowUpdate(number, place, goes_to[number], values[number]) for number, place in zip(numbers, places, strict=True)
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

    def _send(self, rows: Rows, updates: Sequence[RowUpdate]) -> None:
        layouts = [update.place.layout for update in updates]
        known = dict(zip(layouts, self.database.get_many(layouts), strict=True))
        moves = self.moved(updates, known)
        messages = self._messages(rows, moves)
        while bad := self._unsendable(messages, moves):
            for number, error in bad.items():
                self.reject(rows, number, error)
            updates = [update for update in updates if update.number not in bad]
            moves = self.moved(updates, known)
            messages = self._messages(rows, moves)
        self.remember(moves)
        self.forward(messages)

    def _messages(self, rows: Rows, moves: Sequence[RowMove]) -> Rows:
        serde = rows.value.serde
        assert serde is not None
        messages = [(move.number, *one) for move in moves for one in move.messages]
        key = binary_field(self.node.key, [key for _, key, _ in messages])
        value = binary_field(self.message_serde(serde), [value for *_, value in messages])
        return replace(rows.take(np.array([number for number, *_ in messages], np.int64)), key=key, value=value, headers=None)

    def _unsendable(self, messages: Rows, moves: Sequence[RowMove]) -> dict[int, Exception]:
        """The rows of which the repartition stream would not take a message, each with the reason."""
        owners = [move.number for move in moves for _ in move.messages]
        key: pa.Array = messages.key.bytes()[0]
        value: pa.Array = messages.value.bytes()[0]
        found: dict[int, Exception] = {}
        for child in self.children:
            if isinstance(child, RepartitionOperator):
                stream, times_us = child.node.stream, messages.timestamp_us
                limits, now_us = self.context.limits_of(stream), self.context.now_us
                for row, error in refused(stream, limits, key, value, None, times_us, now_us):
                    found.setdefault(owners[row], error)
        return found
