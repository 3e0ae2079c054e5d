"""`KTable.group_by`: where each row of a table goes, and what its group is told of it.

The store remembers where a row was sent and with which value, so a group is told to take out exactly what it was told to put
in, whatever has changed since: the row's value, the selector in an edited application. A row that stays in its group is one
record with both values, so that no reader sees the group without it. Store: key of the table -> group's key and value
(`serdes.row_changes.Placements`); of results of windows key | start -> the window's end, 8 bytes, and these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from struct import Struct

import numpy as np

from headrace.core.keys.key_layout import TIME_BYTES, state_key, time_bytes, time_from
from headrace.model.table_operators import GroupTable
from headrace.serdes.row_changes import RowChanges, packed_change, packed_place, unpacked_place
from headrace.worker.batch_keys import state_keys
from headrace.worker.operators.base import Operator, binary_field, refused, values_field
from headrace.worker.operators.expiry import expire, forget_expiry
from headrace.worker.operators.outputs import RepartitionOperator
from headrace.worker.rows import Rows

_TIMES = Struct(">qq")  # of a windowed key: start and end


@dataclass(frozen=True, slots=True)
class _Place:
    """Under which entry a row is remembered: that of its key, or of its key and window."""

    key: bytes
    layout: bytes
    end_us: int | None = None


@dataclass(frozen=True, slots=True)
class _Move:
    """What the update of one row does. `before`, `after`: what is stored; `told`: the keys of groups, each with a change."""

    row: int
    place: _Place
    before: bytes | None
    after: bytes | None
    told: list[tuple[bytes, bytes]]


_Update = tuple[int, tuple[bytes, bytes] | None]  # a row, with its group's key and its value; None where it is in none


class GroupTableOperator(Operator):
    """Takes a table's updates, and gives changes of groups: one for an update, or two where the row changes its group."""

    node: GroupTable

    def push(self, rows: Rows) -> None:
        rows = self.keyed(self.encoded(self.of_serdes(rows, None, self.node.value)))
        if not len(rows):
            return
        numbered = rows.numbered()
        deleted = rows.value.is_null()
        new: dict[int, bytes | None] = dict.fromkeys(np.flatnonzero(deleted).tolist())  # by row the group's key, None for none
        if not deleted.all():
            new |= self._groups_of(numbered.where(~deleted))
        self._move(rows, [(row, new[row]) for row in sorted(new)])

    def _groups_of(self, rows: Rows) -> dict[int, bytes | None]:
        rows, given = self.called(self.node.function, rows)
        keys = values_field(self.node.key, given)
        failures = keys.bytes()[1]
        if failures:
            good = np.setdiff1d(np.arange(len(rows)), [index for index, _ in failures])
            rows, keys = self.without(rows, failures), keys.take(good)
        null = keys.is_null()
        if null.any():
            self.context.count("null_keys_dropped", int(null.sum()))
        return dict(zip(rows.rank.tolist(), keys.bytes()[0].to_pylist(), strict=True))

    def _move(self, rows: Rows, new: Sequence[tuple[int, bytes | None]]) -> None:
        """Tell the groups, and remember what they were told. An update that cannot be sent is rejected and changes nothing."""
        every, values = rows.key.bytes()[0].to_pylist(), rows.value.bytes()[0].to_pylist()
        updates = [(row, None if group is None else (group, values[row])) for row, group in new]
        places = self._places([every[row] for row, _ in updates])
        known = dict(zip((place.layout for place in places), self._stored(places), strict=True))
        moves = _moved(updates, places, known)
        while bad := self._unsendable(rows, moves):
            for row, error in bad.items():
                self.reject(rows, row, error)
            kept = [number for number, (row, _) in enumerate(updates) if row not in bad]
            updates, places = [updates[number] for number in kept], [places[number] for number in kept]
            moves = _moved(updates, places, known)
        for move in moves:
            self._remember(move)
        if any(move.told for move in moves):
            self.forward(self._told(rows, moves))

    def _told(self, rows: Rows, moves: Sequence[_Move]) -> Rows:
        serde = rows.value.serde
        assert serde is not None
        told = [(move.row, *change) for move in moves for change in move.told]
        key = binary_field(self.node.key, [group for _, group, _ in told])
        value = binary_field(RowChanges(serde), [change for *_, change in told])
        return replace(rows.take(np.array([row for row, *_ in told], np.int64)), key=key, value=value, headers=None)

    def _unsendable(self, rows: Rows, moves: Sequence[_Move]) -> dict[int, Exception]:
        """The rows of which the repartition stream would not take a change, each with the reason."""
        told = self._told(rows, moves)
        owners = [move.row for move in moves for _ in move.told]
        found: dict[int, Exception] = {}
        for child in self.children:
            if isinstance(child, RepartitionOperator):
                limits = self.context.limits_of(child.node.stream)
                key, value = told.key.bytes()[0], told.value.bytes()[0]
                for row, error in refused(
                    child.node.stream, limits, key, value, None, told.timestamp_us, self.context.now_us
                ):
                    found.setdefault(owners[row], error)
        return found

    def _places(self, keys: Sequence[bytes]) -> list[_Place]:
        if not self.node.by_inner_key:
            return [_Place(key, layout) for key, layout in zip(keys, state_keys(keys), strict=True)]
        found = []
        for key in keys:
            start, end = _TIMES.unpack(key[-_TIMES.size :])
            inner = key[: -_TIMES.size]
            found.append(_Place(inner, state_key(inner, time_bytes(start)), end))
        return found

    def _stored(self, places: Sequence[_Place]) -> list[bytes | None]:
        stored: list[bytes | None] = self.database.get_many([place.layout for place in places])
        return stored

    def _remember(self, move: _Move) -> None:
        windows, place = self.node.windows, move.place
        if place.end_us is not None and windows is None:
            return  # the final result of a window: no other follows
        self.database.put(place.layout, move.after)
        if place.end_us is None or windows is None:
            return
        was, database = None if move.before is None else _end_of(move.before, place), self.node.store.kept_in
        now = None if move.after is None else place.end_us
        if was is not None and was != now:
            forget_expiry(self.context, database, place.key, place.layout, windows.expires_us(was))
        if now is not None and was != now:
            expire(self.context, database, [(place.key, place.layout, windows.expires_us(now))])


def _moved(updates: Sequence[_Update], places: Sequence[_Place], known: Mapping[bytes, bytes | None]) -> list[_Move]:
    """What the updates do, one after the other; `known` is what is stored before the first."""
    now, moves = dict(known), list[_Move]()
    for (row, new), place in zip(updates, places, strict=True):
        before = now[place.layout]
        if new is None and before is not None and _end_of(before, place) != place.end_us:
            continue  # a session that began as this one does, and has been joined since
        old = None if before is None else unpacked_place(before[_head(place) :])
        after = now[place.layout] = None if new is None else _with_end(place) + packed_place(*new)
        moves.append(_Move(row, place, before, after, _changes(old, new)))
    return moves


def _changes(old: tuple[bytes, bytes] | None, new: tuple[bytes, bytes] | None) -> list[tuple[bytes, bytes]]:
    """What is told to which group: its key and a change. Out of one group before into the other."""
    if old is not None and new is not None and old[0] == new[0]:
        return [(old[0], packed_change(old[1], new[1]))]
    told = [] if old is None else [(old[0], packed_change(old[1], None))]
    return told if new is None else [*told, (new[0], packed_change(None, new[1]))]


def _head(place: _Place) -> int:
    return 0 if place.end_us is None else TIME_BYTES


def _with_end(place: _Place) -> bytes:
    return b"" if place.end_us is None else time_bytes(place.end_us)


def _end_of(stored: bytes, place: _Place) -> int | None:
    return None if place.end_us is None else time_from(stored[:TIME_BYTES])


