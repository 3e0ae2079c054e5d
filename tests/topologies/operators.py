"""What the operators of the model have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


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

    streams: tuple[tuple[str, int], ...] = ()
    round_id = ""
    watermark_us: int | None = None

    def __init__(self, number: float) -> None:
        self.number = number
        self.children: list[tuple[Operator, int]] = []

    def begin(self, watermark_us: int | None) -> None:
        """Forget what has closed, and has nothing to say."""

    def due(self) -> tuple[int, str] | None:
        """The earliest time at which something of it closes, and the name under which it waits for that."""
        return None

    def close(self, watermark_us: int | None) -> bool:
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
