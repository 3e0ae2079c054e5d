"""Previews: what a stream gives for the first records of its inputs, computed outside of the job. The records are copied into a
log of their own in a temporary folder, and the part of the topology up to the stream is run there, in this process, or on Spark
where expressions need it. In the user's system nothing is created or committed."""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from msgspec import structs

from headrace import wiring
from headrace.core.topology.resolution import has_open_types
from headrace.core.topology.sub_topologies import ancestors_of
from headrace.dsl.builder import Builder
from headrace.dsl.displayable import Displayable
from headrace.dsl.ktable import KTable
from headrace.dsl.preview import SESSION, WINDOW, Preview
from headrace.errors import ConfigError
from headrace.exchange.engine import Engine
from headrace.model.streams import StreamDescription
from headrace.model.table_operators import ForeignKeyResults, LimitUpdates
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
from headrace.model.windows import SessionWindows, SlidingWindows
from headrace.record import Record
from headrace.wiring.spark_sessions import SessionSlot, session_of, spark_engine

RECORDS_MAX = 10_000
TABLE_RECORDS_MAX = 1_000_000  # of an input that is read as a table
_PRODUCED_AT_ONCE = 10_000
RUN_S_MAX = 300.0
_TABLES = (Aggregate, Suppress, Table, TableFilter, LimitUpdates, ForeignKeyResults)
_FAILED = "preview-failed-records"


class DeclaredApplication(wiring.Application, Protocol):
    """An application of which the operators are known, as far as they are written."""

    @property
    def builder(self) -> Builder: ...


def preview(app: DeclaredApplication, part: Displayable | None, n: int = 20) -> Preview:
    """What `part`, a stream or a table, gives for the first `n` records of each of its inputs; without it the application. An
    input that is read as a table is taken whole, so that joins find what they look up. At most `n` records are given. Of an
    application: what each output gets. A record that fails is counted and left out, as with a dead-letter stream."""
    if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= RECORDS_MAX:
        raise ConfigError(f"preview({n!r}): expected a number of records, 1 to {RECORDS_MAX:,}")
    node = None if part is None else part.flow.node
    title = f"{app.name}: what the first {n} records of each input give" if node is None else f"{node} of {app.name}"
    topology, outputs = _with_outputs(app.builder.topology(), node, isinstance(part, KTable))
    run = _Part(app.name, app.folder, app.config_folder, app.session, app.config_arguments, topology)
    with tempfile.TemporaryDirectory(prefix="headrace-preview-") as folder:
        records, notes = _run(run, outputs, Path(folder), n)
    windows = {title: kind for stream, title in outputs.items() if (kind := _windows_of(topology, stream))}
    return Preview(title, tuple(records), tuple(notes), windows)


@dataclass(frozen=True)
class _Part:
    """A part of an application, as wiring sees one."""

    name: str
    folder: Path | None
    config_folder: Path | None
    session: SessionSlot
    config_arguments: Mapping[str, Any]
    nodes: Topology

    def topology(self) -> Topology:
        return self.nodes


def _with_outputs(topology: Topology, node: str | None, is_table: bool) -> tuple[Topology, dict[str, str]]:
    """The part of a topology that makes `node` (None: all), with a sink of ours for each output: its stream to a title. Sinks
    of the user's are left out: where they write depends on the user's system."""
    if node is not None:
        part, ends = ancestors_of(topology, node), {node: node}
    else:
        sinks = [one for one in topology.nodes if isinstance(one, Sink | ForEachRound)]
        part = Topology(topology.application, tuple(one for one in topology.nodes if one not in sinks))
        leaves = [one for one in part.nodes if not part.children(one.name) and not isinstance(one, Repartition)]
        ends = {sink.parents[0]: _sink_title(sink) for sink in sinks} or {one.name: one.name for one in leaves}
    # Of a source neither `latest` nor an offset means anything in a copy.
    nodes: list[Node] = [
        replace(one, start="earliest", reset_offset=False) if isinstance(one, Source) else one for one in part.nodes
    ]
    outputs = {}
    for number, (name, title) in enumerate(ends.items()):
        stream, parent = f"preview-{number}", name
        if is_table or isinstance(topology.node(name), _TABLES):
            parent = f"{stream}-updates"
            nodes.append(ToStream(name=parent, parents=(name,)))
        nodes.append(Sink(name=stream, parents=(parent,), stream=stream))
        outputs[stream] = title
    return Topology(topology.application, tuple(nodes)), outputs


def _windows_of(topology: Topology, name: str) -> str:
    """Whether the windowed keys that reach an operator are of windows or sessions; empty where that is not known."""
    node = topology.node(name)
    if isinstance(node, (Aggregate, Suppress)) and node.windows is not None:
        return SESSION if isinstance(node.windows, SessionWindows | SlidingWindows) else WINDOW
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

    configured = wiring.config_of(part)
    config = replace(
        configured,
        system=f"log:{folder / 'log'}",
        local_store_dir=str(folder / "stores"),
        state_uri=str(folder / "state"),
        dead_letter_stream=_FAILED,
        coordinator=None,
        processor_id=None,
        startpoint_metadata_store=None,
        metrics_address=None,
        traces="off",
        containers=None,
        own_values={},  # of sub-topologies that this part may not have
        max_records_per_round=2 * TABLE_RECORDS_MAX,  # a table is there before what looks it up
        max_bytes_per_round=1 << 62,
    )
    notes = _copied(part.topology(), configured.system, config.system, n)
    topology = part.topology()
    if has_open_types(topology):
        session_of(part, configured)  # the application's own, which it keeps
        engine: Engine = spark_engine(part, config)
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
            structs.replace(record, stream=title)
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
                ours.produce(stream, [structs.replace(record, offset=None, stream=None) for record in some])
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


def _failures(failed: list[Record]) -> list[str]:
    """What records that failed say for themselves; their headers are those of `worker.dead_letters`."""
    from headrace.worker.dead_letters import PREFIX

    if not failed:
        return []
    said = {name.removeprefix(PREFIX): (data or b"").decode(errors="replace") for name, data in failed[0].headers}
    where = f"stream {said['stream']!r} partition {said['partition']} at {said['operator']!r}"
    count = "1 record" if len(failed) == 1 else f"{len(failed)} records"
    return [f"{count} failed; the first one, of {where}: {said['error-class']}: {said['error-message']}"]
