"""Joins by foreign keys of the model: what is said of a row, what is answered, and what the rows have become."""

from __future__ import annotations

import struct
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from topologies import functions as f
from topologies.model_tables import Table, last_per_key
from topologies.operators import Operator, Row
from topologies.spec import Node

NEVER_US = -(1 << 62)
IS_HERE, HAS_MOVED, IS_NOWHERE = 1, 2, 3


class Send(Operator):
    """Sends each row to where its foreign key is. What is said: [what, row, version, settled, value]."""

    def __init__(self, number: float, node: Node) -> None:
        super().__init__(number)
        self._by, self._keeps_all = node["by"], node["kind"] == "left"
        self._sent: dict[Any, str | None] = {}
        self._updates = Counter[Any]()  # of each row, in this round

    def begin(self) -> None:
        self._updates.clear()

    def push(self, row: Row, port: int) -> None:
        if row.key is None:
            return
        is_known, was_at = row.key in self._sent, self._sent.pop(row.key, None)
        now_at = None if row.value is None else f.looked_up(row.key, row.value, self._by)
        is_kept = now_at is not None or (self._keeps_all and row.value is not None)
        if is_kept:
            self._sent[row.key] = now_at
        epoch, _, number = self.round_id.split(":")
        self._updates[row.key] += 1
        version = struct.pack(">QQQ", int(epoch), int(number), self._updates[row.key]).hex()
        settled_us = NEVER_US if self.watermark_us is None else self.watermark_us + 1
        said = [row.key, version, settled_us]
        if now_at is not None:
            if was_at is not None and was_at != now_at:
                self.emit(replace(row, key=was_at, value=[HAS_MOVED, *said, None]))
            self.emit(replace(row, key=now_at, value=[IS_HERE, *said, row.value]))
        elif is_known or is_kept:
            self.emit(replace(row, key=was_at, value=[IS_NOWHERE, *said, row.value]))


class ForeignJoin(Operator):
    """Keeps what was said, and answers: [version, settled, result]."""

    def __init__(self, number: float, kind: str, table: Table) -> None:
        super().__init__(number)
        self._kind, self.table, self.each = kind, table, False
        self._here: dict[Any, dict[Any, Any]] = defaultdict(dict)  # by foreign key: of each row version, settled, value
        self._said: list[Row] = []

    def push(self, row: Row, port: int) -> None:
        self._said.append(row)

    def finish(self) -> None:
        said, self._said = sorted(self._said, key=lambda row: row.rank), []
        updates = self.table.updates
        if self.each:
            events = sorted([(row, False) for row in said] + [(row, True) for row in updates], key=lambda event: event[0].rank)
        else:
            events = [(row, False) for row in said] + [(row, True) for row in last_per_key(updates)]
        keys = {row.key for row, _ in events}
        right = {key: self.table.before(key) if self.each else self.table.now(key) for key in keys}
        times = {key: self.table.time_before(key) if self.each else self.table.time_now(key) for key in keys}
        answers = [(row.key, answer) for row, is_update in events for answer in self._answers(row, is_update, right, times)]
        if self.each:
            for _, answer in answers:
                self.emit(answer)
            return
        of_row: dict[Any, list[Row]] = defaultdict(list)
        for foreign, answer in answers:
            of_row[foreign, answer.key].append(answer)
        for same in of_row.values():
            self.emit(self._timed(same[-1], same))

    def _timed(self, answer: Row, answers: list[Row]) -> Row:
        """The last answer of a row, with the time of the record that came last where there are several."""
        newest = max(answers, key=lambda one: one.rank)
        if newest.rank > answer.rank:
            return replace(answer, time_us=newest.time_us)
        return answer

    def _answers(
        self, row: Row, is_update: bool, right: dict[Any, Any], times: dict[Any, int | None]
    ) -> Iterator[Row]:
        if is_update:
            right[row.key] = row.value
            times[row.key] = None if row.value is None else row.time_us
            for key, (version, settled_us, value) in self._here[row.key].items():
                yield replace(row, key=key, value=[version, settled_us, self._joined(value, row.value)])
            return
        what, key, version, settled_us, value = row.value
        self._here[row.key].pop(key, None)
        if what == IS_HERE:
            self._here[row.key][key] = version, settled_us, value
        if what != HAS_MOVED:
            there = right[row.key] if what == IS_HERE else None
            time_us = max(row.time_us, times[row.key] or row.time_us)
            yield replace(row, key=key, time_us=time_us, value=[version, settled_us, self._joined(value, there)])

    def _joined(self, left: Any, right: Any) -> Any:
        if left is None or (right is None and self._kind == "inner"):
            return None
        return f.joined(left, right)


@dataclass
class _Known:
    version: str
    settled_us: int
    value: Any


class ForeignResults(Operator):
    """The newest result of each row."""

    def __init__(self, number: float) -> None:
        super().__init__(number)
        self.each, self.passing = False, frozenset[Any]()
        self._known: dict[Any, _Known] = {}
        self._held: list[Row] = []

    def begin(self) -> None:
        self._forget()

    def push(self, row: Row, port: int) -> None:
        self._held.append(row)

    def finish(self) -> None:
        held, self._held = self._held, []
        before = {row.key: self._value(row.key) for row in held}
        updates = []
        for row in sorted(held, key=lambda row: row.rank):
            version, settled_us, value = row.value
            known = self._known.get(row.key)
            if known is not None and version < known.version:
                continue
            if value is not None or (known is not None and known.value is not None):
                updates.append(replace(row, value=value))
            self._known[row.key] = _Known(version, settled_us, value)
        self.passing = frozenset(key for key, was in before.items() if was is None and self._value(key) is None)
        for row in updates if self.each else last_per_key(updates):
            if self.each or row.key not in self.passing:
                self.emit(row)
        self._forget()

    def _value(self, key: Any) -> Any:
        return self._known[key].value if key in self._known else None

    def _forget(self) -> None:
        now_us = self.watermark_us
        if now_us is not None:
            gone = [key for key, one in self._known.items() if one.value is None and one.settled_us <= now_us]
            for key in gone:
                del self._known[key]
