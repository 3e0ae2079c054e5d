"""Owns previews: what a stream gives for the first records of its inputs, found out beside the job.

The records are copied into a log of their own in a temporary folder, and the part of the topology up to the stream is run
there, in this process, or on Spark where expressions need it. In the user's system nothing is created or committed.
"""

from __future__ import annotations

import heapq
import html
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from headrace import wiring
from headrace.core.topology.resolution import has_open_types
from headrace.core.topology.sub_topologies import ancestors_of
from headrace.dsl.app import App
from headrace.dsl.ktable import KTable
from headrace.errors import ConfigError
from headrace.model.durations import time_text, time_us
from headrace.model.streams import StreamDescription
from headrace.model.topology import (
    Aggregate,
    ForEachRound,
    Function,
    Node,
    Repartition,
    Sink,
    Source,
    SourceKind,
    Suppress,
    Table,
    TableFilter,
    Topology,
    ToStream,
)
from headrace.model.windows import SessionWindows
from headrace.record import Headers, Record
from headrace.serdes.windowed import WindowedKey
from headrace.visible import visible, visible_line

RECORDS_MAX = 10_000
TABLE_RECORDS_MAX = 1_000_000  # of an input that is read as a table
_PRODUCED_AT_ONCE = 10_000
RUN_S_MAX = 300.0
_FAILED = "preview-failed-records"
_CELL_CHARACTERS_MAX = 60
WINDOW, SESSION = "window", "session"


@dataclass(frozen=True, slots=True)
class Preview:
    """Records of a bounded read. `records`: `hr.Record`s in order of time; `notes`: what else there is to know.

    Of an application, a record's `stream` is the output that it would go to. It prints as a table. `windows`: of outputs
    with windowed keys, whether these are windows (`WINDOW`) or sessions (`SESSION`), where that is known.
    """

    title: str
    records: tuple[Record, ...]
    notes: tuple[str, ...] = ()
    windows: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def to_df(self) -> Any:
        """The records as a pandas DataFrame with the columns that are shown."""
        import pandas as pd

        names, rows = self._columns(), [self._row(record) for record in self.records]
        return pd.DataFrame(rows, columns=names)

    def _columns(self) -> list[str]:
        several = len({record.stream for record in self.records}) > 1
        return [*(["stream"] if several else []), "key", "value", "timestamp", "partition"]

    def _row(self, record: Record) -> list[Any]:
        return [getattr(record, name) for name in self._columns()]

    def _cells(self) -> list[list[str]]:
        kinds = [self.windows.get(record.stream or "", "") for record in self.records]
        return [[_cell(value, kind) for value in self._row(record)] for record, kind in zip(self.records, kinds, strict=True)]

    def __repr__(self) -> str:
        names, rows = self._columns(), self._cells()
        widths = [max(len(name), *(len(row[i]) for row in rows), 0) for i, name in enumerate(names)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in [names, ["-" * width for width in widths], *rows]
        ]
        return "\n".join([visible_line(self.title), *lines, *map(visible, self.notes)])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self._columns())
        body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in self._cells())
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        caption = f"<caption>{html.escape(self.title)}</caption>"
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"


def _cell(value: Any, windows: str = "") -> str:
    if isinstance(value, WindowedKey):
        return f"{_cell(value.key)} {_window_text(value, windows)}"
    if isinstance(value, datetime):
        return time_text(time_us(value))
    text = value if isinstance(value, str) else "" if value is None else str(value)
    text = visible_line(text)
    return text if len(text) <= _CELL_CHARACTERS_MAX else f"{text[: _CELL_CHARACTERS_MAX - 1]}…"


def _window_text(key: WindowedKey, windows: str) -> str:
    """A window as [start, end), a session, in which its last record is, as [start, end]; bare where it may be either."""
    start, end = time_text(key.start_us), time_text(key.end_us)
    if windows == SESSION or key.start_us == key.end_us:
        return f"[{start}, {end}]"
    return f"[{start}, {end})" if windows == WINDOW else f"{start} to {end}"


def preview(target: Any, n: int = 20) -> Preview:
    """What `target`, a stream, a table or an application, gives for the first `n` records of each of its inputs.

    An input that is read as a table is taken whole, so that joins find what they look up. At most `n` records are given.
    Of an application: what each output gets. A record that fails is counted and left out, as with a dead-letter stream.
    """
    if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= RECORDS_MAX:
        raise ConfigError(f"preview({n!r}): expected a number of records, 1 to {RECORDS_MAX:,}")
    app = target if isinstance(target, App) else target.app
    node = None if isinstance(target, App) else target.flow.node
    title = f"{app.name}: what the first {n} records of each input give" if node is None else f"{node} of {app.name}"
    topology, outputs = _with_outputs(app.builder.topology(), node, isinstance(target, KTable))
    with tempfile.TemporaryDirectory(prefix="headrace-preview-") as folder:
        records, notes = _run(_Part(app, topology), outputs, Path(folder), n)
    windows = {title: kind for stream, title in outputs.items() if (kind := _windows_of(topology, stream))}
    return Preview(title, tuple(records), tuple(notes), windows)


class _Part:
    """A part of an application, as wiring sees one."""

    def __init__(self, app: App, topology: Topology) -> None:
        self.whole = app
        self.name = app.name
        self.folder = getattr(app, "folder", None)
        self.spark_given = app.spark_given
        self.config_arguments = app.config_arguments
        self._topology = topology

    def topology(self) -> Topology:
        return self._topology


def _with_outputs(topology: Topology, node: str | None, is_table: bool) -> tuple[Topology, dict[str, str]]:
    """The part of a topology that makes `node` (None: all), with a sink of ours for each output: its stream to a title.

    Sinks of the user's are left out: where they write depends on the user's system.
    """
    if node is not None:
        part, ends = ancestors_of(topology, node), {node: node}
    else:
        sinks = [one for one in topology.nodes if isinstance(one, Sink | ForEachRound)]
        part = Topology(topology.application, tuple(one for one in topology.nodes if one not in sinks))
        ends = {sink.parents[0]: _sink_title(sink) for sink in sinks} or {
            one.name: one.name for one in part.nodes if not part.children(one.name) and not isinstance(one, Repartition)
        }
    # Of a source neither `latest` nor an offset means anything in a copy.
    nodes: list[Node] = [
        replace(one, start="earliest", reset_offset=False) if isinstance(one, Source) else one for one in part.nodes
    ]
    outputs = {}
    for number, (name, title) in enumerate(ends.items()):
        stream = f"preview-{number}"
        parent = name
        if is_table or isinstance(topology.node(name), (Aggregate, Suppress, Table, TableFilter)):
            parent = f"{stream}-updates"
            nodes.append(ToStream(name=parent, parents=(name,)))
        nodes.append(Sink(name=stream, parents=(parent,), stream=stream))
        outputs[stream] = title
    return Topology(topology.application, tuple(nodes)), outputs


def _windows_of(topology: Topology, name: str) -> str:
    """Whether the windowed keys that reach an operator are of windows or sessions; empty where that is not known."""
    node = topology.node(name)
    if isinstance(node, (Aggregate, Suppress)) and node.windows is not None:
        return SESSION if isinstance(node.windows, SessionWindows) else WINDOW
    kinds = {_windows_of(topology, parent) for parent in node.parents}
    return kinds.pop() if len(kinds) == 1 else ""


def _sink_title(sink: Sink | ForEachRound) -> str:
    if isinstance(sink, ForEachRound):
        return sink.label
    return sink.stream.label if isinstance(sink.stream, Function) else sink.stream


def _run(part: _Part, outputs: Mapping[str, str], folder: Path, n: int) -> tuple[list[Record], list[str]]:
    from headrace.wiring import launch
    from headrace.wiring.worker import entry as worker
    from headrace.wiring.worker import worker_state
    from headrace.worker.inline_engine import InlineEngine

    asked = wiring.config_of(part)
    config = replace(
        asked,
        system=f"log:{folder / 'log'}",
        local_store_dir=str(folder / "stores"),
        state_uri=str(folder / "state"),
        dead_letter_stream=_FAILED,
        containers=None,
        own_values={},  # of sub-topologies that this part may not have
        max_records_per_round=2 * TABLE_RECORDS_MAX,  # a table is there before what looks it up
        max_bytes_per_round=1 << 62,
    )
    notes = _copied(part.topology(), asked.system, config.system, n)
    topology = part.topology()
    if has_open_types(topology):
        launch.session_of(part.whole, asked)  # the application's own, which it keeps
        part._headrace_session = part.whole._headrace_session  # type: ignore[attr-defined]
        engine = launch.spark_engine(part, config)
    else:
        engine = InlineEngine(worker.run_container)
    try:
        _, sides = launch.resolved_topology(topology, engine)
        job = wiring.start(part, "caught-up", config=config, engine=engine, log=lambda text: None)
        try:
            job.wait(RUN_S_MAX)
        finally:
            job.stop()
    finally:
        engine.close()
        worker_state.forget(part.name, str(folder / "state"))
    with wiring.open_configured(config) as system:
        records = [
            _renamed(record, title)
            for stream, title in outputs.items()
            for record in islice(_in_order(system, stream, *sides[stream]), n)
        ]
        failed = list(system.consume(_FAILED))
    return records, notes + _failures(failed)


def _copied(topology: Topology, source: str, target: str, n: int) -> list[str]:
    """Copy the first `n` records of each input, of a table all, to another system; what there is to say about it."""
    inputs = sorted({one.stream for one in topology.sources if one.kind is not SourceKind.REPARTITION})
    tables = {one.stream for one in topology.sources if one.kind is SourceKind.TABLE}
    notes = []
    with wiring.open_system(source, create=False) as users, wiring.open_system(target) as ours:
        for stream in inputs:
            described: StreamDescription = users.describe_stream(stream)
            ours.create_stream(stream, described.partitions)
            found = _in_order(users, stream, None, None)
            most, copied = TABLE_RECORDS_MAX if stream in tables else n, 0
            while some := list(islice(found, min(_PRODUCED_AT_ONCE, most - copied))):
                ours.produce(stream, [_unplaced(record) for record in some])
                copied += len(some)
            if not copied:
                notes.append(f"input stream {stream} is empty")
            elif stream in tables and copied == most and next(found, None) is not None:
                notes.append(f"of the table {stream} the first {most:,} records were taken")
    return notes


def _in_order(system: Any, stream: str, key: Any, value: Any) -> Iterator[Record]:
    """The records of a stream by time, never past a smaller offset of the same partition."""
    partitions = range(system.describe_stream(stream).partitions)
    streams = [system.consume(stream, key, value, [partition]) for partition in partitions]
    return heapq.merge(*streams, key=lambda record: record.timestamp_us)


def _unplaced(record: Record) -> Record:
    """As `produce` takes it: of the same partition."""
    return Record(record.key, record.value, record.timestamp_us, record.headers, record.partition)


def _renamed(record: Record, stream: str) -> Record:
    headers: Headers = record.headers
    return Record(record.key, record.value, record.timestamp_us, headers, record.partition, record.offset, stream)


def _failures(failed: list[Record]) -> list[str]:
    """What records that failed say for themselves; their headers are those of `worker.dead_letters`."""
    from headrace.worker.dead_letters import PREFIX

    if not failed:
        return []
    said = {name.removeprefix(PREFIX): (data or b"").decode(errors="replace") for name, data in failed[0].headers}
    where = f"stream {said['stream']!r} partition {said['partition']} at {said['operator']!r}"
    count = "1 record" if len(failed) == 1 else f"{len(failed)} records"
    return [f"{count} failed; the first one, of {where}: {said['error-class']}: {said['error-message']}"]
