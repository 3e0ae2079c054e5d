"""Operators of the model: what they have in common, and the plain ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from topologies import functions as f
from topologies.spec import Node


@dataclass(frozen=True)
class Origin:
    """Where the record lies that a row comes of."""

    stream: str
    partition: int
    offset: int


@dataclass(frozen=True)
class Row:
    """`rank`: the place of its record in the round, -1 for what comes of time alone, which has no origin either."""

    rank: int
    key: Any
    value: Any
    time_us: int
    origin: Origin | None


class Operator:
    """`number`: its place in the topology, by which a round ends in one after the other."""

    round_id = ""
    watermark_us: int | None = None

    def __init__(self, number: float) -> None:
        self.number = number
        self.children: list[tuple[Operator, int]] = []

    def begin(self) -> None:
        """Forget what has closed, and has nothing to say."""

    def due(self) -> int | None:
        """The earliest time at which something of it closes."""
        return None

    def close(self) -> bool:
        """Give what has closed; whether anything has."""
        return False

    def push(self, row: Row, port: int) -> None:
        raise NotImplementedError

    def record_done(self) -> None:
        """A record has come to all operators."""

    def finish(self) -> None:
        """The round's records have come to all operators."""

    def emit(self, row: Row) -> None:
        for child, port in self.children:
            child.push(row, port)


class Simple(Operator):
    """Gives for each row what `made` gives of it."""

    def __init__(self, number: float, made: Callable[[Row], Iterable[Row]]) -> None:
        super().__init__(number)
        self._made = made

    def push(self, row: Row, port: int) -> None:
        for made in self._made(row):
            self.emit(made)


class Merge(Operator):
    def __init__(self, number: float) -> None:
        super().__init__(number)
        self._held: list[Row] = []

    def push(self, row: Row, port: int) -> None:
        self._held.append(row)

    def record_done(self) -> None:
        held, self._held = self._held, []
        for row in sorted(held, key=lambda row: row.rank):
            self.emit(row)

    finish = record_done


class DropDuplicates(Operator):
    def __init__(self, number: float, node: Node) -> None:
        super().__init__(number)
        self._within_us, self._by_kind = node["within_us"], node["by_kind"]
        self._passed: dict[Any, int] = {}

    def begin(self) -> None:
        now_us = self.watermark_us
        if now_us is not None:
            self._passed = {at: time for at, time in self._passed.items() if time + 2 * self._within_us > now_us}

    def push(self, row: Row, port: int) -> None:
        if row.key is None:
            return
        at = row.key, f.kind_of(row.value) if self._by_kind else None
        before = self._passed.get(at)
        if before is None or abs(row.time_us - before) >= self._within_us:
            self._passed[at] = row.time_us if before is None else max(before, row.time_us)
            self.emit(row)
