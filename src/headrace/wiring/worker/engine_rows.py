"""The worker's two ends of a Column prefix: reading a source into typed rows, and taking the rows that come out. A record that
does not decode never enters Spark's engine. The reader reports it at the end of its rows, and the container, which gets the
report after all its rows have come, rejects it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Container, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from functools import cache, partial
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.codec.record_batches import HEADERS_TYPE
from headrace.core.topology.program import Program
from headrace.errors import TopologyError
from headrace.exchange.messages import RAW, ContainerPlan, Reject, decoded_plan
from headrace.model.topology import Source
from headrace.serdes.serdes import type_in_spark
from headrace.wiring.worker.entry import run_planned
from headrace.wiring.worker.fetched_ranges import FetchedRanges
from headrace.wiring.worker.log_worker import records_of
from headrace.wiring.worker.worker_state import signals_of
from headrace.worker.batch_keys import key_lows
from headrace.worker.merging import merging_tasks
from headrace.worker.ports import ReaderReport, RoundSignals
from headrace.worker.rows import Field, Rows, flat

_REPORT = msgspec.json.Decoder(ReaderReport)
Read = Generator[pa.RecordBatch, None, bytes]  # rows, then a `ReaderReport`
Reads = Generator[pa.RecordBatch, None, list[bytes]]
Given = Sequence[tuple[Sequence[bytes], Collection[int]]]
Pieces = Iterable[tuple[int, Any, pa.RecordBatch]]  # SSP number, offsets, rows


def read_prefix(given: Given, group: int, program: Program, endpoint: int, batches: Iterable[pa.RecordBatch]) -> Reads:
    """The rows of one endpoint's source, in the reader's schema (`adapters.spark.columns.reader_schema`), and a report of each
    reader. `given`: by reader the plans of the containers that take its rows, and the SSPs that it reads, which no other does.
    Which readers these are say the numbers that Spark gives, not the Spark task that it is in (`group`): a user's function may
    have put several of them into one."""
    reports = []
    for number in (number for batch in batches for number in batch.column(0).to_pylist()):
        (payloads, ssps), cuts = given[number], dict[int, int]()
        plans = [decoded_plan(payload) for payload in payloads]
        reports.append((yield from _read(plans, program, endpoint, partial(_pieces_of_log, plans, ssps, cuts), cuts)))
    return reports


def _pieces_of_log(plans: Sequence[ContainerPlan], ssps: Collection[int], cuts: Container[int], stream: str) -> Pieces:
    pieces = {piece.ssp: (plan, piece) for plan in plans for piece in plan.ranges if piece.ssp in ssps}
    for ssp, (plan, piece) in sorted(pieces.items()):
        if plan.ssps[ssp][1] == stream:
            for offset, batch in records_of(plan, piece, piece.start, piece.end):
                yield ssp, np.arange(offset, offset + batch.num_rows), batch
                if ssp in cuts:
                    break


def decoded_prefix(given: Given, group: int, program: Program, endpoint: int, batches: Iterable[pa.RecordBatch]) -> Reads:
    """Like `read_prefix`, of rows that Spark read. Past the time limit the rest of the rows goes by: the first that did is
    where the next round begins."""

    def pieces(stream: str) -> Pieces:
        for batch in batches:
            ssps = batch.column("ssp").to_numpy()
            for start, stop in _runs(ssps, ssps):
                piece = batch.slice(start, stop - start)
                yield int(ssps[start]), piece.column("offset").to_numpy(), piece

    plans = [decoded_plan(payload) for payload in given[group][0]]
    return [(yield from _read(plans, program, endpoint, pieces, {}))]


def _read(
    plans: Sequence[ContainerPlan], program: Program, endpoint: int, pieces_of: Callable[[str], Pieces], cuts: dict[int, int]
) -> Read:
    """The rows of pieces, and the report. `cuts` is filled: SSPs that the time limit cut short, and the offset of each."""
    source = program.source(endpoint)
    rejects: list[Reject] = []
    # one that is not to be cut keeps the others from it: their rows come through the same reader
    deadline_s, has_begun = max(_deadline_s(plan, program, source) for plan in plans), False
    known = {(failure.ssp, failure.offset) for plan in plans for failure in plan.known_failures}
    with closing(signals_of(plans[0])) as signals:
        for ssp, offsets, batch in pieces_of(source.stream):
            if signals.is_stopped():
                return msgspec.json.encode(ReaderReport([], {}, stopped=True))
            if has_begun and _is_over(signals, deadline_s):
                cuts.setdefault(ssp, int(offsets[0]))
            has_begun = True
            if ssp not in cuts:
                yield from _typed(plans[0], source, (ssp, offsets, batch), known, rejects, program.is_elastic)
    return msgspec.json.encode(ReaderReport(rejects, cuts))


def _deadline_s(plan: ContainerPlan, program: Program, source: Source) -> float:
    """When to stop reading. Only one reader of a stream may: several would stop at different offsets; and none of a container
    with a task that merges what it reads."""
    if merging_tasks(plan, program):
        return math.inf
    readers = sum(program.endpoints[number].source == source.name for number in range(len(program.endpoints)))
    streams = sum(isinstance(node, Source) and node.stream == source.stream for node in program.nodes)
    return time.monotonic() + plan.deadline_s if readers == streams == 1 else math.inf


def _is_over(signals: RoundSignals, deadline_s: float) -> bool:
    """Whether to stop reading: at the deadline, or because the driver asks for it. An endless one is never cut."""
    return deadline_s < math.inf and (time.monotonic() > deadline_s or signals.is_cut())


def _typed(
    plan: ContainerPlan,
    source: Source,
    piece: tuple[int, Any, pa.RecordBatch],
    known: set[tuple[int, int]],
    rejects: list[Reject],
    is_elastic: bool,
) -> Iterator[pa.RecordBatch]:
    ssp, offsets, batch = piece
    key, key_failures = _decoded(source.key, batch.column("key"))
    value, value_failures = _decoded(source.value, batch.column("value"))
    failures = dict(value_failures) | dict(key_failures)
    bad = set(failures) | {i for i, o in enumerate(offsets.tolist()) if known and (ssp, o) in known}
    for index, error in sorted(failures.items()):
        rejects.append(Reject.of(ssp, int(offsets[index]), source.name, error))
    count = batch.num_rows
    columns = {
        "ssp": np.full(count, ssp, np.int32),
        "partition": np.full(count, plan.ssps[ssp][2], np.int32),
        "offset": offsets,
        "timestamp_us": batch.column("timestamp_us"),
        "headers": batch.column("headers"),
        "raw_key": batch.column("key"),
        "raw_value": batch.column("value"),
        "low": _lows(batch, offsets) if is_elastic else pa.nulls(count, pa.int32()),
        "key": key,
        "value": value,
    }
    typed = pa.RecordBatch.from_pydict(columns)
    if bad:
        typed = typed.take(pa.array(np.setdiff1d(np.arange(count), list(bad))))
    if typed.num_rows:
        yield typed


def _lows(batch: pa.RecordBatch, offsets: Any) -> Any:
    """The low bits of the keys' hashes, which Spark has made where it reads."""
    return batch.column("low") if "low" in batch.schema.names else key_lows(flat(batch.column("key")), offsets)


def _decoded(serde: Any, data: Any) -> tuple[Any, list[tuple[int, Exception]]]:
    if serde is None:
        return data, []
    if serde.spark_type is not None:
        typed, failures = serde.decode_arrow(data)
        return typed, failures
    _, failures = serde.decode_many(data)
    if failures:
        failed = np.isin(np.arange(len(data)), [i for i, _ in failures])
        data = pc.if_else(pa.array(failed), pa.scalar(None, pa.binary()), data)
    return (data.cast(pa.string()) if type_in_spark(serde) == "string" else data), failures


def run_prepared(
    payloads: Sequence[bytes], program: Program, batches: Iterable[pa.RecordBatch], reports: Callable[[], list[bytes]]
) -> list[bytes]:
    """Run the containers of one Spark task over what comes out of the engine; a summary each. `reports`: of the rows'
    readers."""
    timeless: list[Reject] = []
    plans = [decoded_plan(payload) for payload in payloads]
    rows: Iterable[tuple[int, int, Any]] = _taken(plans, _prepared_rows(program, batches, timeless))
    if len(plans) > 1:
        rows = tuple(rows)  # for each of them, and each picks those of its tasks

    @cache
    def report() -> ReaderReport:
        """Of all readers that the rows came from: each container picks what is of its own SSPs. What is cut short has one
        reader."""
        found = [_REPORT.decode(report) for report in reports()]
        rejects = [reject for one in found for reject in one.rejects]
        cuts = {ssp: offset for one in found for ssp, offset in one.cuts.items()}
        return ReaderReport([*rejects, *timeless], cuts, any(one.stopped for one in found))

    return [run_planned(plan, program, rows, report, FetchedRanges([])) for plan in plans]


def _taken(plans: Sequence[ContainerPlan], rows: Iterable[tuple[int, int, Any]]) -> Iterator[tuple[int, int, Any]]:
    """The rows, of which each has to be for a container that is here: those that came to others by mistake would be passed, and
    be lost with the commit."""
    taken = {piece.ssp for plan in plans for piece in plan.ranges}
    for endpoint, ssp, batch in rows:
        if ssp not in taken:
            _, stream, partition = plans[0].ssps[ssp]
            raise TopologyError(
                f"round {plans[0].round_id}: rows of stream {stream!r} partition {partition} came to containers "
                f"{[plan.lane for plan in plans]}, which do not take them: Spark has not made one partition for each reader",
                "what other containers of the round have committed may lack these rows: rewind the application with its state "
                "to before the round, and report this",
            )
        yield endpoint, ssp, batch


def _prepared_rows(
    program: Program, batches: Iterable[pa.RecordBatch], timeless: list[Reject]
) -> Iterator[tuple[int, int, Any]]:
    """(endpoint, SSP number, rows) of what comes out of the engine, SSP by SSP in the order in which it comes; where the
    endpoint is `RAW`, a batch of records as they were read. Rows whose time expression gave null do not come: they are added to
    `timeless`, to be rejected."""
    chained = [i for i, endpoint in enumerate(program.endpoints) if endpoint.chain]
    plain = [i for i, endpoint in enumerate(program.endpoints) if not endpoint.chain]
    for batch in batches:
        if batch.column("timestamp_us").null_count:
            timeless.extend(_timeless(batch, program, chained))
            batch = batch.filter(batch.column("timestamp_us").is_valid())
        ssps = batch.column("ssp").to_numpy()
        names = frozenset(batch.schema.names)
        if "endpoint" not in names:  # all of them as they were read
            for start, stop in _runs(ssps, ssps):
                yield RAW, int(ssps[start]), _raw(batch.slice(start, stop - start), None)
            continue
        endpoints = batch.column("endpoint").to_numpy()
        single = "key_1" not in names  # one endpoint's columns: its number is not in them
        for start, stop in _runs(endpoints, ssps):
            column, piece = int(endpoints[start]), batch.slice(start, stop - start)
            if column == RAW:
                yield RAW, int(ssps[start]), _raw(piece, plain[0])
                continue
            if f"kept_{column}" not in names:
                endpoint = chained[0] if single else column
                yield endpoint, int(ssps[start]), _rows(piece, program, endpoint, column)
                continue
            for endpoint in chained:  # several that have one reader: a row is for some of them
                if f"kept_{endpoint}" in names and (kept := piece.filter(piece.column(f"kept_{endpoint}"))).num_rows:
                    yield endpoint, int(ssps[start]), _rows(kept, program, endpoint, endpoint)


def _timeless(batch: pa.RecordBatch, program: Program, chained: list[int]) -> Iterator[Reject]:
    """A reject for each row without a time."""
    rows = batch.filter(batch.column("timestamp_us").is_null())
    for endpoint, ssp, offset in zip(*(rows.column(c).to_pylist() for c in ("endpoint", "ssp", "offset")), strict=True):
        source = program.endpoints[chained[0] if len(chained) == 1 else endpoint].source
        yield Reject(ssp, offset, source, "ValueError", "the timestamp expression gave null for this record")


def _raw(batch: pa.RecordBatch, column: int | None) -> pa.RecordBatch:
    """Records as they were read, from the columns of endpoint `column`, or from `key` and `value`; a column that is not
    there is one that is not used."""
    suffix = "" if column is None else f"_{column}"
    names = batch.schema.names

    def found(name: str, kind: Any) -> Any:
        if name not in names:
            return pa.nulls(batch.num_rows, kind)
        array = batch.column(name)
        return array if array.type == kind else array.cast(kind)

    low = {"low": batch.column("low")} if "low" in names else {}
    columns = {
        **low,
        "offset": batch.column("offset"),
        "timestamp_us": batch.column("timestamp_us"),
        "headers": found("headers", HEADERS_TYPE),
        "key": found(f"key{suffix}", pa.binary()),
        "value": found(f"value{suffix}", pa.binary()),
    }
    return pa.RecordBatch.from_pydict(columns)


def _runs(endpoints: Any, ssps: Any) -> Iterator[tuple[int, int]]:
    if not len(ssps):
        return
    cuts = np.flatnonzero((np.diff(ssps) != 0) | (np.diff(endpoints) != 0)) + 1
    yield from zip([0, *cuts.tolist()], [*cuts.tolist(), len(ssps)], strict=True)


def _rows(batch: pa.RecordBatch, program: Program, endpoint: int, column: int) -> Rows:
    side = program.endpoint_sides[endpoint]
    key, value, headers = batch.column(f"key_{column}"), batch.column(f"value_{column}"), batch.column("headers")
    rows = Rows(
        batch.column("ssp").to_numpy().astype(np.int32),
        batch.column("offset").to_numpy(),
        batch.column("timestamp_us").to_numpy(),
        Field(side.key, typed=key) if side.key_changed else Field(side.key, raw=_binary(key)),
        Field(side.value, typed=value) if side.value_changed else Field(side.value, raw=_binary(value)),
        None if headers.null_count == len(headers) else headers.cast(HEADERS_TYPE),
    )
    if "own_us" in batch.schema.names and not batch.column("own_us").null_count:  # null in rows of endpoints without a time
        rows.own_us = batch.column("own_us").to_numpy()
    if program.is_elastic:
        rows.low = batch.column("low").to_numpy()
    return rows


def _binary(array: Any) -> Any:
    return array if array.type == pa.binary() else array.cast(pa.binary())
