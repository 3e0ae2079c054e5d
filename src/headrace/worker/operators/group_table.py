"""`KTable.group_by`: where each row of a table goes, and the changes that its group gets.

The store remembers where a row was sent and with which value: so a group takes out just what it put in before, also where the
row's value has changed since, or the function in an edited application. A row that stays in its group is one record with both
values, so that no reader sees the group without it. Store: key of the table -> group's key and value
(`serdes.row_changes.Placements`); of results of windows key | start -> the window's end, 8 bytes, and these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.core.keys.key_layout import TIME_BYTES, state_key, time_bytes, time_from
from headrace.model.serde import Serde
from headrace.model.table_operators import GroupTable
from headrace.model.windows import UnlimitedWindows
from headrace.serdes.row_changes import RowChanges, packed_change, packed_place, unpacked_place
from headrace.worker.operators.expiry import expire, forget_expiry
from headrace.worker.operators.suppress import window_of
from headrace.worker.operators.table_sending import RowMove, RowPlace, RowUpdate, TableSender


class GroupTableOperator(TableSender):
    """Gives changes of groups: one for an update, or two where the row changes its group."""

    node: GroupTable

    def message_serde(self, value: Serde) -> Serde:
        return RowChanges(value)

    def places(self, keys: Sequence[bytes]) -> list[RowPlace]:
        if not self.node.by_inner_key:
            return super().places(keys)
        found = []
        for key in keys:
            inner, start, end = window_of(key)
            found.append(RowPlace(inner, state_key(inner, time_bytes(start)), end))
        return found

    def moved(self, updates: Sequence[RowUpdate], known: Mapping[bytes, bytes | None]) -> list[RowMove]:
        now, moves = dict(known), list[RowMove]()
        for update in updates:
            place, before, new = update.place, now[update.place.layout], _placed(update)
            if new is None and before is not None and _end_of(before, place) != place.end_us:
                continue  # a session that began as this one does, and has been joined since
            old = None if before is None else unpacked_place(before[_head_bytes(place) :])
            after = now[place.layout] = None if new is None else _with_end(place) + packed_place(*new)
            moves.append(RowMove(update.number, place, before, after, _changes(old, new)))
        return moves

    def remember(self, moves: Sequence[RowMove]) -> None:
        # the final result of a window is not remembered: no other follows
        super().remember([move for move in moves if move.place.end_us is None or self.node.windows is not None])
        for move in moves:
            if move.place.end_us is not None:
                self._expire(move)

    def _expire(self, move: RowMove) -> None:
        windows, place = self.node.windows, move.place
        if windows is None or isinstance(windows, UnlimitedWindows):
            return
        was, database = None if move.before is None else _end_of(move.before, place), self.node.store.kept_in
        now = None if move.after is None else place.end_us
        if was is not None and was != now:
            forget_expiry(self.context, database, place.key, place.layout, windows.expires_us(was))
        if now is not None and was != now:
            expire(self.context, database, [(place.key, place.layout, windows.expires_us(now))])


def _placed(update: RowUpdate) -> tuple[bytes, bytes] | None:
    """The key of the group that a row is in now, and its value."""
    return None if update.goes_to is None or update.value is None else (update.goes_to, update.value)


def _changes(old: tuple[bytes, bytes] | None, new: tuple[bytes, bytes] | None) -> list[tuple[bytes, bytes]]:
    """The changes of groups: each the group's key and its change. Out of one group before into the other."""
    if old is not None and new is not None and old[0] == new[0]:
        return [(old[0], packed_change(old[1], new[1]))]
    changes = [] if old is None else [(old[0], packed_change(old[1], None))]
    return changes if new is None else [*changes, (new[0], packed_change(None, new[1]))]


def _head_bytes(place: RowPlace) -> int:
    return 0 if place.end_us is None else TIME_BYTES


def _with_end(place: RowPlace) -> bytes:
    return b"" if place.end_us is None else time_bytes(place.end_us)


def _end_of(stored: bytes, place: RowPlace) -> int | None:
    return None if place.end_us is None else time_from(stored[:TIME_BYTES])
