"""Grouped tables of the model: what a group is told of its rows, and what it makes of that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from topologies import functions as f
from topologies.model_tables import Aggregate
from topologies.operators import Operator, Row
from topologies.spec import Node


def changed(data: bytes) -> tuple[bytes | None, bytes | None]:
    """The old and the new value of a change of a row, as it is in a repartition stream."""
    has_old, has_new, rest = data[0] & 1, data[0] & 2, data[1:]
    if has_old and has_new:
        length = int.from_bytes(rest[:4], "big")
        return rest[4 : 4 + length], rest[4 + length :]
    return (rest, None) if has_old else (None, rest)


class GroupTable(Operator):
    """Where each row was sent, and with which value. A change is the list of the old and the new value."""

    def __init__(self, number: float, by: int) -> None:
        super().__init__(number)
        self._by = by
        self._sent: dict[Any, tuple[str, Any]] = {}

    def push(self, row: Row, port: int) -> None:
        if row.key is None:
            return
        group = None if row.value is None else f.new_key(row.value, self._by)
        old = self._sent.pop(row.key, None)
        if group is not None:
            self._sent[row.key] = group, row.value
        if old is not None and old[0] == group:
            self.emit(replace(row, key=group, value=[old[1], row.value]))
            return
        if old is not None:
            self.emit(replace(row, key=old[0], value=[old[1], None]))
        if group is not None:
            self.emit(replace(row, key=group, value=[None, row.value]))


class TableAggregate(Aggregate):
    """What a group has become with each change."""

    def __init__(self, number: float, node: Node) -> None:
        super().__init__(number, {**node, "windows": None})
        self._rows: dict[Any, list[Any]] = {}  # of each group the values that are in it: nothing is taken out of a total

    def push(self, row: Row, port: int) -> None:
        old, new = row.value
        rows = self._rows.setdefault(row.key, [])
        if old is not None:
            rows.remove(old)
        if new is not None:
            rows.append(new)
        self._met.append(row.key)
        self._count += 1
        made = self._made(rows)
        time_us = max(row.time_us, self._times.get(row.key, row.time_us))
        self._times[row.key] = time_us
        if made is None:
            del self._times[row.key]
        self._updates.append((self._count, replace(row, value=made, time_us=time_us)))

    def _made(self, rows: list[Any]) -> Any:
        match self._how:
            case "count":
                return len(rows)
            case "named":
                numbers = [value["n"] for value in rows if value["n"] is not None]
                mean = sum(numbers) / len(numbers) if numbers else None
                return {"n": sum(numbers) if numbers else None, "mean": mean, "id": len(rows)}
        return {"id": len(rows), "n": sum(map(f.number, rows))} if rows else None
