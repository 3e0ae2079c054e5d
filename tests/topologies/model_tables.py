"""Tables of the model: kept ones, aggregates, sessions, suppressed windows, and what streams take of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from topologies import functions as f
from topologies.operators import Operator, Row
from topologies.spec import Node

DAY_US = 86_400_000_000
RETENTION_US = 7 * DAY_US
END_US = 253_402_300_799_999_999  # of a window without an end


def last_per_key(rows: Iterable[Row]) -> list[Row]:
    """Of each key the last row, in the order of these."""
    last: dict[Any, Row] = {}
    for row in rows:
        last.pop(row.key, None)
        last[row.key] = row
    return list(last.values())


def closes_us(windows: Node, end_us: int) -> int:
    """The watermark by which a window or session that ends at `end_us` has closed."""
    kept_us = RETENTION_US if windows["grace_us"] is None else windows["grace_us"]
    # of a session the gap has to be over; its end, and that of a sliding window, is in it
    more_us = {"session": windows["size_us"] + 1, "sliding": 1}.get(windows["kind"], 0)
    return int(end_us + more_us + kept_us)


class Taken(Operator):
    """What comes to a table, as others see it."""


class Table(Operator):
    """The last value of each key. `each`: every update is given on."""

    def __init__(self, number: float) -> None:
        super().__init__(number)
        self.each = False
        self.passing: frozenset[Any] = frozenset()
        self.taken = Taken(number)
        self.updates: list[Row] = []
        self._values: dict[Any, Any] = {}
        self._before: dict[Any, Any] = {}
        self._times: dict[Any, int] = {}  # of the rows that there are
        self._times_before: dict[Any, int | None] = {}
        self._held: list[Row] = []

    def begin(self) -> None:
        self.updates, self._before, self._times_before = [], {}, {}

    def push(self, row: Row, port: int) -> None:
        self.taken.emit(row)
        if row.key is not None:
            self._held.append(row)

    def finish(self) -> None:
        held, self._held = self._held, []
        for row in held:
            self._before.setdefault(row.key, self._values.get(row.key))
            self._times_before.setdefault(row.key, self._times.get(row.key))
            self._values[row.key] = row.value
            self._times[row.key] = row.time_us
            if row.value is None:
                del self._times[row.key]
        self.updates = sorted(held, key=lambda row: row.rank)
        for row in held if self.each else last_per_key(held):
            self.emit(row)

    def before(self, key: Any) -> Any:
        return self._before.get(key, self._values.get(key))

    def now(self, key: Any) -> Any:
        return self._values.get(key)

    def time_before(self, key: Any) -> int | None:
        return self._times_before.get(key, self._times.get(key))

    def time_now(self, key: Any) -> int | None:
        return self._times.get(key)

    def seen_by(self, key: Any, rank: int, time_us: int) -> Any:
        found = [row.value for row in self.updates if row.key == key and row.rank < rank]
        return found[-1] if found else self.before(key)


class VersionedTable(Table):
    """The values of each key by their times. A record sees the last one that is not after its own time."""

    def __init__(self, number: float, history_us: int) -> None:
        super().__init__(number)
        self._history_us = history_us
        self._versions: dict[Any, dict[int, Any]] = {}
        self._of_round: list[Row] = []

    def begin(self) -> None:
        super().begin()
        self._of_round = []

    def expire(self) -> None:
        for versions in self._versions.values() if self.watermark_us is not None else ():
            times = sorted(versions)
            ends = dict(pairwise(times))
            if times and versions[times[-1]] is None:
                ends[times[-1]] = times[-1]
            for time_us, end_us in ends.items():
                if end_us + self._history_us <= self.watermark_us:
                    del versions[time_us]

    def push(self, row: Row, port: int) -> None:
        self.taken.emit(row)
        is_late = self.watermark_us is not None and row.time_us + self._history_us < self.watermark_us
        if row.key is not None and not is_late:
            self._held.append(row)

    def finish(self) -> None:
        self._of_round = sorted(self._held, key=lambda row: row.rank)
        highest = {key: max(versions, default=None) for key, versions in self._versions.items()}
        self._held = []
        for row in self._of_round:
            known = highest.get(row.key)
            if known is None or row.time_us >= known:
                highest[row.key] = row.time_us
                self._held.append(row)
        super().finish()

    def record_versions(self) -> None:
        for row in self._of_round:
            self._versions.setdefault(row.key, {})[row.time_us] = row.value

    def seen_by(self, key: Any, rank: int, time_us: int) -> Any:
        versions = dict(self._versions.get(key, {}))
        versions |= {row.time_us: row.value for row in self._of_round if row.key == key and row.rank < rank}
        return versions[max(known)] if (known := [at for at in versions if at <= time_us]) else None


class View(Operator):
    """A table whose values `made` makes of those of another; None where it makes none."""

    def __init__(self, number: float, made: Callable[[Any], Any]) -> None:
        super().__init__(number)
        self._made = made

    def push(self, row: Row, port: int) -> None:
        self.emit(row if row.value is None else replace(row, value=self._made(row.value)))


class Last(Operator):
    """The last update of each key in a round, where the table gives all of them."""

    def __init__(self, number: float, table: Operator) -> None:
        super().__init__(number)
        self._table: Any = table
        self._held: list[Row] = []

    def push(self, row: Row, port: int) -> None:
        if getattr(self._table, "each", False):
            self._held.append(row)
        else:
            self.emit(row)

    def finish(self) -> None:
        held, self._held = self._held, []
        for row in last_per_key(held):
            if row.key not in self._table.passing:
                self.emit(row)


def initial(how: str) -> Any:
    return {"n": None, "least": None, "id": None, "count": 0} if how == "named" else None


def after(how: str, state: Any, value: Any) -> Any:
    """The state of an aggregate after one more value; a state of None is none."""
    match how:
        case "count":
            return (state or 0) + 1
        case "reduce":
            return value if state is None else f.followed(state, value)
        case "general":
            return f.folded(f.START if state is None else state, value)
        case "cogroup":
            place, of_stream = value
            fold = f.followed if place else f.folded
            return fold(f.START if state is None else state, of_stream)
    part = {"n": None, "least": None, "id": None, "count": 1} if value is None else {**value, "least": value["n"], "count": 1}
    return together(how, initial(how) if state is None else state, part)


def together(how: str, earlier: Any, later: Any) -> Any:
    """The state of what two states stand for."""
    match how:
        case "count":
            return earlier + later
        case "reduce":
            return f.followed(earlier, later)
        case "general" | "cogroup":
            return f.united(earlier, later)
    both = {name: [part[name] for part in (earlier, later) if part[name] is not None] for name in ("n", "least", "id")}
    return {
        "n": sum(both["n"]) if both["n"] else None,
        "least": min(both["least"], default=None),
        "id": both["id"][-1] if both["id"] else None,
        "count": earlier["count"] + later["count"],
    }


def has_no_value(how: str, row: Row) -> bool:
    """Whether it is null: of what is grouped together the second part, behind the number of its stream."""
    return (row.value[1] if how == "cogroup" else row.value) is None


class Aggregate(Operator):
    """All aggregates but those of sessions."""

    passing: frozenset[Any] = frozenset()

    def __init__(self, number: float, node: Node) -> None:
        super().__init__(number)
        self._how, self._windows, self.each = node["how"], node["windows"], False
        self._states: dict[Any, Any] = {}
        self._times: dict[Any, int] = {}  # the highest of what each state is of
        self._updates: list[tuple[int, Row]] = []  # each with the number of the record that made it
        self._count = 0
        self._met: list[Any] = []  # in the order in which they were first met in this round

    def begin(self) -> None:
        if self._windows is not None:
            self._states = {at: state for at, state in self._states.items() if self._is_open(at)}

    def push(self, row: Row, port: int) -> None:
        if self._windows is None and has_no_value(self._how, row):
            return
        groups = [row.key] if self._windows is None else self._open(row)
        # of the windows of one record, columns are made of the latest first
        self._met.extend(reversed(groups) if self._how in ("count", "named") else groups)
        self._count += 1
        for at in groups:
            time_us = max(row.time_us, self._times[at]) if at in self._states else row.time_us
            state = after(self._how, self._states.get(at), row.value)
            if state is None:
                self._states.pop(at, None)
            else:
                self._states[at], self._times[at] = state, time_us
            self._updates.append((self._count, replace(row, key=at, value=state, time_us=time_us)))

    def _open(self, row: Row) -> list[Any]:
        if self._windows["kind"] == "unlimited":
            start_us = self._windows["start_us"]
            return [(row.key, start_us, END_US)] if row.time_us >= start_us else []
        size_us, advance_us = self._windows["size_us"], self._windows["advance_us"]
        starts = range(row.time_us // advance_us * advance_us, row.time_us - size_us, -advance_us)
        return [at for start in reversed(starts) if self._is_open(at := (row.key, start, start + size_us))]

    def _is_open(self, at: Any) -> bool:
        never_closes = self._windows["kind"] == "unlimited"
        return never_closes or self.watermark_us is None or closes_us(self._windows, at[2]) > self.watermark_us

    def finish(self) -> None:
        updates, self._updates = self._updates, []
        met, self._met = dict.fromkeys(self._met), []
        if not self.each:
            last = {row.key: (number, row) for number, row in updates}
            updates = sorted((last[at] for at in met), key=lambda update: update[0])
        for _, row in updates:
            self.emit(row)


@dataclass
class _Session:
    start: int
    end: int
    state: Any


class Sessions(Operator):
    def __init__(self, number: float, node: Node) -> None:
        super().__init__(number)
        self._how, self._windows, self.each = node["how"], node["windows"], False
        self.passing: frozenset[Any] = frozenset()
        self._sessions: dict[Any, list[_Session]] = {}
        self._stood: set[Any] = set()
        self._updates: list[Row] = []

    def begin(self) -> None:
        for key, sessions in self._sessions.items():
            self._sessions[key] = [s for s in sessions if not self._is_closed(s.end)]
        self._stood = self._standing()

    def _is_closed(self, end_us: int) -> bool:
        return self.watermark_us is not None and closes_us(self._windows, end_us) <= self.watermark_us

    def _standing(self) -> set[Any]:
        return {(key, s.start, s.end) for key, sessions in self._sessions.items() for s in sessions}

    def push(self, row: Row, port: int) -> None:
        gap_us, time_us = self._windows["size_us"], row.time_us
        sessions = self._sessions.setdefault(row.key, [])
        near = [s for s in sessions if s.end >= time_us - gap_us and s.start <= time_us + gap_us]
        if not near and self._is_closed(time_us):
            return
        state = None
        for session in near:
            state = session.state if state is None else together(self._how, state, session.state)
        state = after(self._how, state, row.value)
        start, end = min([time_us, *(s.start for s in near)]), max([time_us, *(s.end for s in near)])
        left = [s for s in sessions if s not in near] + ([] if state is None else [_Session(start, end, state)])
        self._sessions[row.key] = sorted(left, key=lambda s: s.start)
        for session in near:
            if (session.start, session.end) != (start, end):
                gone = (row.key, session.start, session.end)
                self._updates.append(replace(row, key=gone, value=None, time_us=session.end))
        self._updates.append(replace(row, key=(row.key, start, end), value=state, time_us=end))

    def finish(self) -> None:
        updates, self._updates = self._updates, []
        told = self._stood | self._standing()
        self.passing = frozenset(row.key for row in updates if row.key not in told)
        for row in updates if self.each else [row for row in last_per_key(updates) if row.key in told]:
            self.emit(row)


class TimeLimit(Operator):
    """Of each key the newest update, once the first that waits has waited long enough: by the times of its updates, one after
    the other, and by the watermark."""

    def __init__(self, number: float, limit_us: int) -> None:
        super().__init__(number)
        self._limit_us = limit_us
        self._waiting: dict[Any, tuple[int, Row]] = {}  # when it is due, and the newest one
        self._held: list[Row] = []

    def push(self, row: Row, port: int) -> None:
        if row.key is not None:
            self._held.append(row)

    def finish(self) -> None:
        held, self._held = sorted(self._held, key=lambda row: row.rank), []
        for row in held:
            due_us = self._waiting[row.key][0] if row.key in self._waiting else row.time_us + self._limit_us
            self._waiting[row.key] = due_us, row
            if due_us <= max([row.time_us] + ([] if self.watermark_us is None else [self.watermark_us])):
                del self._waiting[row.key]
                self.emit(replace(row, origin=None))

    def due(self) -> int | None:
        return min((due_us for due_us, _ in self._waiting.values()), default=None)

    def close(self) -> bool:
        assert self.watermark_us is not None
        ready = [key for key, (due_us, _) in self._waiting.items() if due_us <= self.watermark_us]
        for key in sorted(ready, key=lambda key: (self._waiting[key][0], key)):
            self.emit(replace(self._waiting.pop(key)[1], rank=-1, origin=None))
        return bool(ready)


class Suppress(Operator):
    """The last value of each window, once it has closed."""

    def __init__(self, number: float, windows: Node) -> None:
        super().__init__(number)
        self._windows = windows
        self._pending: dict[Any, Row] = {}  # by key and start
        self._held: list[Row] = []

    def push(self, row: Row, port: int) -> None:
        self._held.append(row)

    def finish(self) -> None:
        held, self._held = self._held, []
        for row in last_per_key(held):
            key, start, _ = row.key
            if row.value is not None:
                self._pending[key, start] = row
            elif (known := self._pending.get((key, start))) is not None and known.key == row.key:
                del self._pending[key, start]

    def due(self) -> int | None:
        return min((closes_us(self._windows, row.key[2]) for row in self._pending.values()), default=None)

    def close(self) -> bool:
        now_us = self.watermark_us
        assert now_us is not None
        closed = [row for row in self._pending.values() if closes_us(self._windows, row.key[2]) <= now_us]
        for row in sorted(closed, key=lambda row: (row.key[2], row.key[0], row.key[1])):
            del self._pending[row.key[0], row.key[1]]
            self.emit(replace(row, rank=-1, origin=None))
        return bool(closed)
