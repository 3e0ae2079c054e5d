"""Joins of tables by foreign keys, in three steps, each by another key.

A task of the left table sends each row to where its foreign key is (`SendByForeignKeyOperator`). There it is kept, is joined
with the right table's row, now and whenever that changes, and the result is sent to where the left row's key is
(`ForeignKeyJoin`). There the newest result of each row is the table (`ForeignKeyResultsOperator`).

The results of a row may come from several tasks, where its foreign key has changed, and in any order. So all that is said of a
row has a version, which grows with the rounds of the task that has the row, and a result of a former version is dropped. What
is known of a row that has no result has to be kept until none of a former version can come any more: until the watermark has
come to where it was when the row was sent. All tasks between have read by then what was sent up to there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import msgspec
import numpy as np
import xxhash

from headrace.core.keys.key_layout import SUB_BYTES_MAX, state_key, time_bytes, time_from
from headrace.model import topology as t
from headrace.model.serde import Serde
from headrace.model.table_operators import ForeignKeyResults, JoinByForeignKey, SendByForeignKey
from headrace.serdes.foreign_keys import (
    NEVER_US,
    VERSION_BYTES,
    AnswerBytes,
    Answers,
    RowIs,
    Subscription,
    Subscriptions,
    answer_of,
    packed,
    subscription_of,
    version_of,
)
from headrace.worker.batch_keys import state_keys
from headrace.worker.checkpoints import round_id_of
from headrace.worker.operators.base import Context, GatheringOperator, Operator, binary_field
from headrace.worker.operators.entry_times import NO_TIME_US
from headrace.worker.operators.expiry import expire, forget_expiry
from headrace.worker.operators.joining.joins import JoinWithTable, keys_of
from headrace.worker.operators.stateless import merged_by_number, merged_by_rank
from headrace.worker.operators.table_sending import RowMove, RowUpdate, TableSender
from headrace.worker.operators.tables import last_per_key
from headrace.worker.rows import Rows

_NO_KEY, _WITH_KEY = b"\0", b"\1"
_AFTER_ALL_SUBS = b"\xff" * SUB_BYTES_MAX


class SendByForeignKeyOperator(TableSender):
    """Store: key of the table -> 1 and the bytes of the foreign key, or 0 where the row has none and a result all the same."""

    node: SendByForeignKey

    def __init__(self, node: SendByForeignKey, context: Context) -> None:
        super().__init__(node, context)
        self.drops_null_keys = not node.keeps_all
        round_id = round_id_of(context.round_id)
        self._version = cache(partial(version_of, round_id.epoch, round_id.number))
        self._updates = dict[bytes, int]()  # of each row how many, in this round

    def message_serde(self, value: Serde) -> Serde:
        return Subscriptions()

    def moved(self, updates: Sequence[RowUpdate], known: Mapping[bytes, bytes | None]) -> list[RowMove]:
        watermark_us = self.context.watermark_us
        settled_us = NEVER_US if watermark_us is None else watermark_us + 1
        now, moves = dict(known), list[RowMove]()
        for update in updates:
            place, goes_to = update.place, update.goes_to
            row, before = place.key, now[place.layout]
            was_at = before[1:] if before is not None and before[:1] == _WITH_KEY else None
            after = now[place.layout] = self._entry_of(update)
            number = self._updates[row] = self._updates.get(row, 0) + 1
            version = self._version(number)
            messages: list[tuple[bytes | None, bytes]] = []  # each value a `Subscription`
            if goes_to is not None:
                if was_at is not None and was_at != goes_to:
                    messages.append((was_at, packed((RowIs.HAS_MOVED, row, version, settled_us, None))))
                messages.append((goes_to, packed((RowIs.IS_HERE, row, version, settled_us, update.value))))
            elif before is not None or after is not None:
                messages.append((was_at, packed((RowIs.IS_NOWHERE, row, version, settled_us, update.value))))
            moves.append(RowMove(update.number, place, before, after, messages))
        return moves

    def _entry_of(self, update: RowUpdate) -> bytes | None:
        if update.goes_to is not None:
            return _WITH_KEY + update.goes_to
        return _NO_KEY if self.node.keeps_all and update.value is not None else None


class _Kept(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the store has of a row under its foreign key."""

    row: bytes
    version: bytes
    settled_us: int
    value: bytes


_kept_of = msgspec.msgpack.Decoder(_Kept).decode


class _Result(msgspec.Struct, frozen=True, gc=False):
    """A result to be made for a row: of `left` and `right`, None for no value. `at`: the place of what it comes of; `other_us`:
    the time of the other side's row, of which it is the later one that counts."""

    at: int
    row: bytes
    version: bytes
    settled_us: int
    left: bytes | None
    right: bytes | None
    other_us: int = NO_TIME_US


class ForeignKeyJoin(JoinWithTable):
    """Keeps the rows that have a foreign key, and joins them with the row of that key. Gives once per round and foreign key the
    result of each row that has changed, or whose other side has; where every update is requested, one for each. The time of a
    result is that of the update; of a left row's that of the right row, if it is later, as in Kafka Streams. Store: foreign key
    | digest of the left row's key -> that key, version, value."""

    node: JoinByForeignKey

    def inlet(self, parent: str, operator: Operator) -> Operator | None:
        inlet = super().inlet(parent, operator)
        if self._table is not None:
            self._table.has_times = True
        return inlet

    @property
    def database(self) -> Any:
        return self.context.database(self.node.stores[0].kept_in)

    def finish(self) -> None:
        assert self._table is not None
        messages = merged_by_rank(self.release()) if self.held else None
        updates = self._table.updates
        if updates is not None and not self.gives_each:
            updates = last_per_key(updates)
        parts = [rows for rows in (messages, updates) if rows is not None]
        if not parts:
            return
        every = Rows.concat([keys_of(rows) for rows in parts])
        said = [] if messages is None else [subscription_of(data) for data in messages.value.bytes()[0].to_pylist()]
        new = [] if updates is None else updates.value.bytes()[0].to_pylist()
        results = list(self._results_of(every, said, new))
        if not self.gives_each:
            results = self._last_of(results, every)
        self._give(every, results)

    def _results_of(self, every: Rows, said: Sequence[Subscription], new: Sequence[bytes | None]) -> Iterator[_Result]:
        """`every`: the keys of what was said, then of the right table's updates. Of single updates each is taken at its own
        place; of the last ones of a round all that was said before is joined with them already."""
        assert self._table is not None
        keys = every.key.bytes()[0].to_pylist()
        known = [key for key in dict.fromkeys(keys) if key is not None]
        table = self._table
        of_table = table.before(known) if self.gives_each else table.after(known)
        times_of_table = table.times_before(known) if self.gives_each else table.times_after(known)
        right, times = dict(zip(known, of_table, strict=True)), dict(zip(known, times_of_table, strict=True))
        order = np.argsort(every.rank, kind="stable").tolist() if self.gives_each else range(len(every))
        database = self.database
        subs = list(map(xxhash.xxh3_128_digest, (one.row for one in said)))
        layouts = state_keys([key or b"" for key in keys[: len(said)]], subs)
        for at in order:
            key = keys[at]
            if at < len(said):
                if key is not None:
                    database.put(layouts[at], _kept(said[at]))
                yield from _answers(at, said[at], right.get(key), times.get(key, NO_TIME_US))
                continue
            right[key] = new[at - len(said)]
            times[key] = NO_TIME_US if right[key] is None else int(every.timestamp_us[at])
            for _, stored in database.scan(state_key(key), state_key(key, _AFTER_ALL_SUBS)):
                kept = _kept_of(stored)
                yield _Result(at, kept.row, kept.version, kept.settled_us, kept.value, right[key])

    def _last_of(self, results: Sequence[_Result], every: Rows) -> list[_Result]:
        """The last result of each row, per foreign key: what a task gives is that of its keys, each alone. All of them have
        what both sides came to; where the left row came after the right one's update, its result is the last."""
        keys, ranks = every.key.bytes()[0].to_pylist(), every.rank.tolist()
        last: dict[tuple[bytes | None, bytes], _Result] = {}
        for one in results:
            before = last.get((keys[one.at], one.row))
            if before is None or ranks[before.at] <= ranks[one.at]:
                last[keys[one.at], one.row] = one
        return list(last.values())

    def _give(self, every: Rows, results: Sequence[_Result]) -> None:
        if not results:
            return
        rows = every.take(np.array([one.at for one in results], np.int64))
        times = np.maximum(rows.timestamp_us, np.array([one.other_us for one in results], np.int64))
        rows = replace(rows, timestamp_us=times, key=binary_field(self.node.table_key, [one.row for one in results]))
        numbered, is_left = rows.numbered(), self.node.kind is t.JoinKind.LEFT
        joined = np.array([one.left is not None and (is_left or one.right is not None) for one in results], bool)
        parts = []
        if joined.any():
            sides = [(results[at].left, results[at].right) for at in np.flatnonzero(joined).tolist()]
            left, right = zip(*sides, strict=True)
            given = self.encoded(self.results(numbered.where(joined), *self._fields(left, right)))
            parts.append(self._answers(given, results, given.value.bytes()[0].to_pylist()))
        if not joined.all():
            others = numbered.where(~joined)
            parts.append(self._answers(others, results, [None] * len(others)))
        if parts := [part for part in parts if len(part)]:
            self.forward(merged_by_number(parts, rows))

    def _fields(self, left: Sequence[bytes | None], right: Sequence[bytes | None]) -> Any:
        assert self._table is not None
        return binary_field(self.node.left_value, left), binary_field(self._table.serde, right)

    def _answers(self, rows: Rows, results: Sequence[_Result], values: Sequence[bytes | None]) -> Rows:
        """The rows, whose ranks are the numbers of their results, as messages to where the left row is."""
        assert self.node.value is not None
        said = (results[number] for number in rows.rank.tolist())
        answers = [packed((one.version, one.settled_us, value)) for one, value in zip(said, values, strict=True)]
        return replace(rows, value=binary_field(Answers(self.node.value), answers))


def _kept(said: Subscription) -> bytes | None:
    """What is stored of a row under its foreign key; None where it is not here any more."""
    if said.row_is is not RowIs.IS_HERE or said.value is None:
        return None
    return packed((said.row, said.version, said.settled_us, said.value))  # a `_Kept`


def _answers(at: int, said: Subscription, right: bytes | None, right_us: int) -> Iterator[_Result]:
    if said.row_is is not RowIs.HAS_MOVED:
        there = right if said.row_is is RowIs.IS_HERE else None
        yield _Result(at, said.row, said.version, said.settled_us, said.value, there, right_us)


class ForeignKeyResultsOperator(GatheringOperator):
    """The newest result of each row. Stores: key of the left table -> version and value; and for a row that has no result,
    version and the time from which on no older one can come."""

    node: ForeignKeyResults

    def finish(self) -> None:
        if not self.held:
            return
        rows = merged_by_rank(self.release())
        keys = rows.key.bytes()[0].to_pylist()
        answers = [answer_of(data) for data in rows.value.bytes()[0].to_pylist()]
        before = self._known(list(dict.fromkeys(keys)))
        now, given = dict(before), list[int]()
        for at, (key, answer) in enumerate(zip(keys, answers, strict=True)):
            known = now[key]
            if known is not None and answer.version < known.version:
                continue  # of a foreign key that the row had before
            now[key] = answer
            if answer.value is not None or _has_value(known):
                given.append(at)
        self._keep(before, now)
        self.passing = frozenset(key for key in now if not _has_value(before[key]) and not _has_value(now[key]))
        if given:
            value = binary_field(self.node.value, [answers[at].value for at in given])
            updates = replace(rows.take(np.array(given, np.int64)), value=value)
            self.forward(updates if self.gives_each else self._last(updates))

    def _last(self, updates: Rows) -> Rows:
        last = last_per_key(updates)
        return last.where(np.array([key not in self.passing for key in last.key.bytes()[0].to_pylist()], bool))

    @property
    def _databases(self) -> tuple[Any, Any]:
        results, deleted = self.node.stores
        return self.context.database(results.kept_in), self.context.database(deleted.kept_in)

    def _known(self, keys: Sequence[bytes]) -> dict[bytes, AnswerBytes | None]:
        layouts = state_keys(keys)
        found: dict[bytes, AnswerBytes | None] = {}
        for key, stored, deleted in zip(keys, *(database.get_many(layouts) for database in self._databases), strict=True):
            found[key] = None
            if stored is not None:
                found[key] = AnswerBytes(stored[:VERSION_BYTES], NEVER_US, stored[VERSION_BYTES:])
            elif deleted is not None:
                found[key] = AnswerBytes(deleted[:VERSION_BYTES], time_from(deleted[VERSION_BYTES:]))
        return found

    def _keep(self, before: Mapping[bytes, AnswerBytes | None], now: Mapping[bytes, AnswerBytes | None]) -> None:
        (results, deleted), database, watermark_us = self._databases, self.node.stores[1].kept_in, self.context.watermark_us
        kept: dict[bytes, bytes] = {}
        expiring: list[tuple[bytes, bytes, int]] = []
        for (key, answer), layout in zip(now.items(), state_keys(list(now)), strict=True):
            was = before[key]
            if answer is None or answer is was:
                continue
            if was is not None and was.value is None:
                deleted.delete(layout)
                forget_expiry(self.context, database, key, layout, was.settled_us)
            if answer.value is not None:
                kept[layout] = answer.version + answer.value
                continue
            if _has_value(was):
                results.delete(layout)
            if watermark_us is None or watermark_us < answer.settled_us:
                deleted.put(layout, answer.version + time_bytes(answer.settled_us))
                expiring.append((key, layout, answer.settled_us))
        results.put_many(list(kept), list(kept.values()))
        expire(self.context, database, expiring)


def _has_value(answer: AnswerBytes | None) -> bool:
    return answer is not None and answer.value is not None
