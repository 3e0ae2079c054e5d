"""Processors of the model: what each keeps of a key, what comes of time, and a store that two of them share."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

from topologies import functions as f
from topologies.operators import Operator, Row
from topologies.spec import Node


class Process(Operator):
    """Gives each value with what it has of the key by then; a key that is null has nothing."""

    def push(self, row: Row, port: int) -> None:
        kept = -1 if row.key is None else self.kept(row)
        self.emit(replace(row, value=f.counted(row.value, kept)))

    def kept(self, row: Row) -> int:
        raise NotImplementedError


class Counting(Process):
    def __init__(self, number: float, node: Node) -> None:
        super().__init__(number)
        self.seen: dict[Any, int] = {}
        self.every_us = node["every_us"]

    def kept(self, row: Row) -> int:
        self.seen[row.key] = self.seen.get(row.key, 0) + 1
        return self.seen[row.key]

    def tell(self, key: Any, at_us: int) -> None:
        self.emit(Row(-1, key, f.told(self.seen.get(key, 0)), at_us, None))


class Listing(Process):
    def __init__(self, number: float, node: Node) -> None:
        super().__init__(number)
        self._lists: dict[Any, list[int]] = defaultdict(list)

    def kept(self, row: Row) -> int:
        mine = [*self._lists[row.key], f.number(row.value)]
        self._lists[row.key] = mine[-f.LIST_MAX :]
        return f.digest(self._lists[row.key])


class Mapping(Process):
    def __init__(self, number: float, node: Node) -> None:
        super().__init__(number)
        self._maps: dict[Any, dict[int, int]] = defaultdict(dict)

    def kept(self, row: Row) -> int:
        mine = self._maps[row.key]
        mine.pop(f.sub_key(row.value), None)
        if not f.is_removed(row.value):
            mine[f.sub_key(row.value)] = f.number(row.value)
        low, high = f.SUB_KEYS
        seen = [pair for pair in sorted(mine.items(), reverse=True) if low <= pair[0] < high][: f.SUB_KEYS_MAX]
        return f.digest(part for pair in seen for part in pair)


class Timed(Counting):
    """Tells of a key, and forgets it, so long after its last record."""

    def __init__(self, number: float, node: Node) -> None:
        super().__init__(number, node)
        self._set: dict[Any, int] = {}

    def kept(self, row: Row) -> int:
        self._set[row.key] = row.time_us + self.every_us
        return super().kept(row)

    def due(self) -> int | None:
        return min(self._set.values(), default=None)

    def close(self) -> bool:
        assert self.watermark_us is not None
        due = sorted((at_us, key) for key, at_us in self._set.items() if at_us <= self.watermark_us)
        for at_us, key in due:
            del self._set[key]
            self.tell(key, at_us)
            self.seen.pop(key, None)
        return bool(due)


class Punctuated(Counting):
    """Tells of all keys at each multiple of its interval that time has passed, and forgets some of them. It begins behind the
    round of its first record, with the multiples that are yet to come then."""

    def __init__(self, number: float, node: Node) -> None:
        super().__init__(number, node)
        self._is_at_work = False
        self._done_us: int | None = None

    def push(self, row: Row, port: int) -> None:
        if not self._is_at_work:
            self._is_at_work, self._done_us = True, self.watermark_us
        super().push(row, port)

    def punctuate(self) -> None:
        if not self._is_at_work or self.watermark_us is None:
            return
        at_us = self.watermark_us // self.every_us * self.every_us
        if self._done_us is None or at_us > self._done_us:
            for key in sorted(self.seen):
                self.tell(key, at_us)
                if f.is_forgotten(self.seen[key]):
                    del self.seen[key]
        self._done_us = self.watermark_us if self._done_us is None else max(self._done_us, self.watermark_us)


PROCESSES = {"count": Counting, "list": Listing, "map": Mapping, "timed": Timed, "punctuated": Punctuated}


class Writes(Process):
    """Appends to a list that another processor takes from."""

    def __init__(self, number: float, lists: dict[Any, list[int]]) -> None:
        super().__init__(number)
        self._lists = lists

    def kept(self, row: Row) -> int:
        self._lists[row.key].append(f.number(row.value))
        return f.digest(self._lists[row.key])


class Takes(Writes):
    def kept(self, row: Row) -> int:
        mine = self._lists[row.key]
        return mine.pop(0) if mine else -1
