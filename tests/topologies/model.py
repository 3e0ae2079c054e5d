"""A plain model of one task: given the cuts of its rounds and what it read, it says what the task wrote.

Record by record and in dicts. A round begins with what its watermark has closed, takes its records by (time, tables first,
stream, partition, offset), never past a smaller offset of the same partition, and ends with what tables and joins give.
It shares nothing with Headrace but the users' functions.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from topologies.graph import Graph, Written
from topologies.model_groups import changed
from topologies.model_process import Punctuated
from topologies.model_tables import Suppress, VersionedTable
from topologies.operators import Operator, Origin, Row
from topologies.recording import Read, Round
from topologies.spec import Node, Spec

TIMES = struct.Struct(">qq")


def decoded(node: Node, read: Read) -> tuple[Any, Any]:
    """Key and value as the rows of `node` have them; a windowed key is (key, start, end)."""
    key: Any = None
    if read.key is not None:
        is_windowed = node["keys"] == "windowed"
        key = (read.key[:-16].decode(), *TIMES.unpack(read.key[-16:])) if is_windowed else read.key.decode()
    value: Any = None
    if read.value is not None:
        value = _value(node["values"], read.value)
    return key, value


def _value(kind: str, data: bytes | None) -> Any:
    """A value by what it is said to be; `change KIND` and the like are what tables tell others of values of that kind."""
    if data is None:
        return None
    told, _, inner = kind.partition(" ")
    match told:
        case "change":
            return [_value(inner, part) for part in changed(data)]
        case "said":
            what, row, version, settled_us, value = msgspec.msgpack.decode(data)
            return [what, row.decode(), version.hex(), settled_us, _value(inner, value)]
        case "answer":
            version, settled_us, value = msgspec.msgpack.decode(data)
            return [version.hex(), settled_us, _value("json", value)]
        case "long":
            return int.from_bytes(data, "big", signed=True)
    return json.loads(data)


def work_together(tasks: Sequence[tuple[Task, Round]]) -> list[list[Written]]:
    """What the parts of one task give in its round: what has closed in one of them stays closed in all."""
    _agree(tasks)
    written = [task.work(round_) for task, round_ in tasks]
    _agree(tasks)
    return written


def _agree(tasks: Sequence[tuple[Task, Round]]) -> None:
    closed_us = max((task.closed_us for task, _ in tasks if task.closed_us is not None), default=None)
    for task, _ in tasks:
        task.closed_us = closed_us


def _record_done(operators: Iterable[Operator]) -> None:
    for operator in operators:
        operator.record_done()


class Task:
    """The model of one task, or of a part of one. `counts`: of all streams that there are, how many partitions they have."""

    def __init__(self, spec: Spec, counts: Mapping[str, int]) -> None:
        self._graph = Graph(spec, counts)
        self.closed_us: int | None = None  # the watermark at which the last window has closed

    def work(self, round_: Round) -> list[Written]:
        watermark_us, operators = self._watermark(round_), self._graph.operators
        for operator in operators:
            operator.round_id, operator.watermark_us = round_.id, watermark_us
            operator.begin()
        for operator in operators if watermark_us is not None else ():  # what comes of one comes to the next before it closes
            due_us = operator.due()
            if due_us is not None and due_us <= watermark_us:
                if operator.close() and isinstance(operator, Suppress):
                    self.closed_us = watermark_us
                _record_done(operators)
        versioned = [operator for operator in operators if isinstance(operator, VersionedTable)]
        for table in versioned:
            table.expire()
        for processor in operators:
            if isinstance(processor, Punctuated):
                processor.punctuate()
                _record_done(operators)
        for rank, read in enumerate(self._in_order(round_)):
            entry = self._graph.entries[read.stream]
            origin = Origin(read.stream, read.partition, read.offset)
            entry.operator.push(Row(rank, *decoded(entry.rows, read), read.time_us, origin), 0)
            _record_done(operators)
        for operator in operators:
            operator.finish()
        for table in versioned:
            table.record_versions()
        written, self._graph.written = self._graph.written, []
        return written

    def _watermark(self, round_: Round) -> int | None:
        """The round's; but what has closed stays closed."""
        known = [mark for mark in (round_.watermark_us, self.closed_us) if mark is not None]
        return max(known, default=None)

    def _in_order(self, round_: Round) -> Iterable[Read]:
        keyed = []
        for read in round_.read:
            is_stream = not self._graph.entries[read.stream].is_table
            keyed.append(((read.order_us, is_stream, read.stream, read.partition, read.offset), read))
        return [read for _, read in sorted(keyed, key=lambda pair: pair[0])]
