"""The declaring half of `App`: an application's name and its topology as it is written. `headrace.application` runs it."""

from __future__ import annotations

import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, overload

from headrace.core.rounds.event_times import UNIT_NS
from headrace.core.topology.description import description_of
from headrace.core.topology.description_text import mermaid_of, text_of
from headrace.core.topology.patterns import check_outputs, text_of_patterns
from headrace.core.topology.picture import picture_of
from headrace.core.topology.sub_topologies import sub_topologies_of
from headrace.dsl import stream_cursor as flows
from headrace.dsl.builder import Builder, operator_text
from headrace.dsl.joinable import GlobalTable
from headrace.dsl.kstream import KStream
from headrace.dsl.ktable import KTable
from headrace.dsl.rekeying import with_repartition, with_table
from headrace.dsl.stream_cursor import SerdeSlot, StreamCursor, checked_function, checked_serde
from headrace.dsl.windows import Duration, length_us
from headrace.errors import HeadraceError, TopologyError
from headrace.model.durations import time_us
from headrace.model.names import checked_name, checked_own_name, is_name
from headrace.model.serde import Serde, of_stream
from headrace.model.startpoint import OFFSET_MAX, PositionType, Startpoint
from headrace.model.topology import Function, FunctionKind, Merge, Partitioning, Source, SourceKind, Topology
from headrace.serdes.scalars import Bytes

if TYPE_CHECKING:
    from headrace.core.topology.description_types import TopologyDescription
    from headrace.dsl.displayable import Displayable
    from headrace.dsl.preview import Preview

_TIMESTAMP_KINDS = flows.JVM | {FunctionKind.RECORD}


class AppDeclaration(ABC):
    """What an application reads and makes of it. Declaring connects to nothing, and needs neither Spark nor Arrow."""

    def __init__(self, name: str) -> None:
        self.name = checked_own_name("application", name)
        self.builder = Builder(name)

    def stream(
        self,
        stream: str | re.Pattern[str] | Sequence[str | re.Pattern[str]],
        /,
        key: Serde | None = None,
        value: Serde | None = None,
        timestamp: Any = None,
        start: Any = "earliest",
        partitioning: str = "hash",
        reset_offset: bool = False,
        name: str | None = None,
        timestamp_unit: str = "us",
    ) -> KStream:
        """Read `stream`; key and value are bytes where no serde is given. `name` names the operator.

        Of several, `app.stream(["clicks", "views"], ...)`, all is said of each, and they are merged: what comes behind is no
        place for Spark expressions. `r.stream` says of a record where it was read. So are all streams whose whole names match
        a pattern, `app.stream(re.compile("orders-.*"), name="orders")`, but no internal ones; those that are created while
        the job runs join within `partition_check_interval_s`. A list may have names and patterns; what several of them mean
        is read once.

        `start` is where to begin with neither checkpoint nor startpoint: "earliest", "latest", an offset, a time (an aware
        datetime, or text such as "2026-01-31T12:00Z"), "bootstrap" (at the first record, and up to the end as it is then
        before any other stream), or any `hr.Startpoint`. An offset that a partition does not hold is the nearest that it
        does, which is logged. `reset_offset=True` begins at `start` at every start of the job.

        `timestamp` says what a record's event time is, in place of its own timestamp: a Spark expression that gives a timestamp
        or a number, or a function over the record that gives an aware datetime or a whole number. Numbers are counted from
        1970-01-01T00:00Z in `timestamp_unit`, "us" (microseconds) where not said, "ms", "s" or "ns":
        `timestamp="value.ts", timestamp_unit="ms"`.

        `partitioning="other"` says that its producers choose partitions by something else than hash(key) mod their number:
        a repartition stream is then put in before what keeps state by key.
        """
        names, patterns = _names_and_patterns(stream)
        is_alone = len(names) == 1 and not patterns
        read: list[StreamCursor] = []
        with self.builder.all_or_nothing():
            for one in (*names, None) if patterns else names:
                if one is None:
                    source = self._pattern_source(patterns, key, value, partitioning, name)
                else:
                    source = self._source(one, SourceKind.STREAM, key, value, partitioning, name if is_alone else None)
                source = _begun_and_timed(source, timestamp, timestamp_unit, start, reset_offset)
                self.builder.add("stream", source)
                read.append(self._flow(source))
            return KStream(self, read[0] if is_alone else self._together(read, name, bool(patterns)))

    def _pattern_source(
        self,
        patterns: Sequence[re.Pattern[str]],
        key: Serde | None,
        value: Serde | None,
        partitioning: str,
        name: str | None,
    ) -> Source:
        for pattern in patterns:
            _check_pattern(pattern)
        texts = tuple(pattern.pattern for pattern in patterns)
        if name is None:
            raise TopologyError(
                f"stream({text_of_patterns(texts)!r:.60}): a pattern needs a name: what follows is named after it",
                'give it one, stream(..., name="orders")',
            )
        source = self._source(name, SourceKind.STREAM, key, value, partitioning, f"{checked_name('operator', name)}-streams")
        return replace(source, stream=text_of_patterns(texts), patterns=texts)

    def _together(self, read: Sequence[StreamCursor], name: str | None, is_open: bool) -> StreamCursor:
        """Several streams as one. `is_open`: others may join them; it may be one source then."""
        kind = "stream" if is_open else "merge"
        own = self.builder.checked(kind, str(name)) if is_open else read[0].name_of(kind, name)
        self.builder.add(kind, Merge(name=own, parents=tuple(flow.node for flow in read)))
        return flows.merged(read, own, operator_text(kind, own), name)

    def table(
        self,
        stream: str,
        /,
        key: Serde | None = None,
        value: Serde | None = None,
        store: str | None = None,
        partitioning: str = "hash",
        history: Duration | None = None,
    ) -> KTable:
        """Read `stream` as a table: the last value of each key, kept in `store` (named like the stream by default).

        With a `history` the table keeps versions, each of which holds from its time on: a stream that is joined with it finds
        the version of each record's own time, as far back as the history goes behind the watermark. What else comes of the
        table are updates of its newest versions. An update that is older than the history is late.

        `partitioning` as that of `stream`: with "other" its updates go through a repartition stream, named after the store.
        """
        source = self._source(stream, SourceKind.TABLE, key, value, partitioning)
        history_us = None if history is None else length_us("history", history, operator_text("table", stream))
        store_name = self.builder.checked_store("table", stream if store is None else store)
        own = self.builder.checked("table", f"{stream}-table")
        with self.builder.all_or_nothing():
            self.builder.add("table", source)
            flow = self._flow(source)
            if not flow.is_by_key:
                flow = with_repartition(flow, store_name, for_operator=own, of_table=True)
            return KTable(self, with_table(flow, own, store_name, flow.key, flow.value, history_us=history_us))

    def global_table(
        self, stream: str, /, key: Serde | None = None, value: Serde | None = None, store: str | None = None
    ) -> GlobalTable:
        """Read `stream` as a table of which every task has all: a stream is joined with it by any key, wherever it is."""
        source = replace(self._source(stream, SourceKind.TABLE, key, value), broadcast=True)
        store_name = self.builder.checked_store("global_table", stream if store is None else store)
        own = self.builder.checked("global_table", f"{stream}-table")
        self.builder.add("global_table", source)
        flow = self._flow(source)
        return GlobalTable(self, with_table(flow, own, store_name, flow.key, flow.value, "global"))

    def _source(
        self,
        stream: str,
        kind: SourceKind,
        key: Serde | None,
        value: Serde | None,
        partitioning: str = "hash",
        name: str | None = None,
    ) -> Source:
        text = operator_text(str(kind), checked_name("stream", stream))
        if partitioning not in list(Partitioning):
            raise TopologyError(
                f'{text}: partitioning={partitioning!r}: expected "hash" or "other"',
                '"hash": producers choose the partition by hash(key) mod the number of partitions; "other": by anything else',
            )
        return Source(
            name=self.builder.checked_source(stream, name),
            stream=stream,
            key=Bytes() if key is None else of_stream(checked_serde(f"{text}: key", key), stream, "key"),
            value=Bytes() if value is None else of_stream(checked_serde(f"{text}: value", value), stream, "value"),
            kind=kind,
            partitioning=Partitioning(partitioning),
        )

    def _flow(self, source: Source) -> StreamCursor:
        is_by_key = source.partitioning is Partitioning.HASH
        return StreamCursor(
            builder=self.builder,
            node=source.name,
            anchor=source.name,
            key=SerdeSlot(source.key),
            value=SerdeSlot(source.value),
            otherwise_at=None if is_by_key else operator_text(str(source.kind), source.stream),
        )

    def topology(self) -> Topology:
        """The topology as written so far, checked as a whole: `TopologyError` says what does not fit together."""
        topology = self.builder.topology()
        if not topology.nodes:
            raise TopologyError(
                f"application {self.name!r} reads nothing", 'begin with app.stream("name") or app.table("name")'
            )
        sub_topologies_of(topology)
        check_outputs(topology)
        return topology

    @overload
    def describe(self, format: Literal["text", "mermaid"] = "text") -> str: ...
    @overload
    def describe(self, format: Literal["dict"]) -> TopologyDescription: ...

    def describe(self, format: str = "text") -> str | TopologyDescription:
        """The topology as "text", as a JSON-able "dict", or as a "mermaid" diagram."""
        ways: dict[str, Callable[[Topology], str | TopologyDescription]]
        ways = {"text": text_of, "dict": description_of, "mermaid": mermaid_of}
        if format not in ways:
            raise TopologyError(f"describe({format!r}): expected one of {', '.join(ways)}")
        return ways[format](self.topology())

    def _repr_html_(self) -> str:
        return picture_of(self.builder.topology())

    def __repr__(self) -> str:
        return f"<App {self.name!r}>"

    @abstractmethod
    def preview_of(self, part: Displayable, n: int) -> Preview:
        """The first records of a stream or a table of this application, as a table."""


def _names_and_patterns(given: Any) -> tuple[list[str], list[re.Pattern[str]]]:
    """What one call of `stream` reads."""
    entries = [given] if isinstance(given, str | re.Pattern) else given
    if not isinstance(entries, list | tuple | set | frozenset) or not entries:
        raise TopologyError(
            f"stream({given!r:.60}): expected the name of a stream, a pattern, or a list of names and patterns",
            'write app.stream("clicks") or app.stream(["clicks", "views"])',
        )
    if isinstance(entries, set | frozenset):
        entries = sorted(entries, key=lambda one: str(getattr(one, "pattern", one)))
    patterns = [one for one in entries if isinstance(one, re.Pattern)]
    return [checked_name("stream", one) for one in entries if not isinstance(one, re.Pattern)], patterns


def _check_pattern(pattern: re.Pattern[str]) -> None:
    text = f"stream({pattern.pattern!r:.60})"
    if not isinstance(pattern.pattern, str) or re.compile(pattern.pattern) != pattern:
        raise TopologyError(
            f"{text}: expected a pattern of text, with its flags in it", 'write re.compile("(?i)orders-.*"), for instance'
        )
    if is_name(pattern.pattern):
        raise TopologyError(f"{text}: that is a name, and no pattern", f"write stream({pattern.pattern!r})")


def _begun_and_timed(source: Source, timestamp: Any, timestamp_unit: str, start: Any, reset_offset: bool) -> Source:
    """A source with where it begins, and what its records' event time is."""
    text = operator_text("stream", source.stream)
    if timestamp is not None:
        source = replace(source, timestamp=checked_function(f"{text}: timestamp", timestamp, _TIMESTAMP_KINDS, None))
    if timestamp is not None or timestamp_unit != "us":
        source = replace(source, timestamp_unit=_timestamp_unit(text, source.timestamp, timestamp_unit))
    return replace(source, start=_start(text, start), reset_offset=bool(reset_offset))


def _timestamp_unit(text: str, timestamp: Function | None, given: Any) -> str:
    if not isinstance(given, str) or given not in UNIT_NS:
        raise TopologyError(
            f"{text}: timestamp_unit={given!r}: expected 'us', 'ms', 's' or 'ns'",
            "the unit of the numbers that timestamp= gives: microseconds, milliseconds, seconds or nanoseconds since 1970",
        )
    if timestamp is None:
        raise TopologyError(
            f"{text}: timestamp_unit={given!r} without timestamp=",
            'say what the event time is, such as timestamp="value.ts"; without it, it is the record\'s own timestamp',
        )
    return given


def _start(text: str, given: Any) -> str | int | Startpoint:
    """As the model has it: 'earliest', 'latest', 'bootstrap', an offset, or a startpoint."""
    match given:
        case "earliest" | "latest" | "bootstrap" | Startpoint():
            return given
        case bool():
            pass
        case int() if 0 <= given <= OFFSET_MAX:
            return given
        case str() | datetime():
            with contextlib.suppress(HeadraceError):
                return Startpoint(PositionType.TIMESTAMP, time_us(given))
    raise TopologyError(
        f"{text}: start={given!r}: expected 'earliest', 'latest', an offset, or a time",
        'a time is an aware datetime, or text such as "2026-01-31T12:00Z"; "bootstrap" or a hr.Startpoint is taken too',
    )
