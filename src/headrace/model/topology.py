"""The topology: the operators of an application as a graph of frozen nodes, made by `dsl`, read by everyone else.

A node names its parents. Functions, classes and serdes inside nodes are carried, never called here. A `Repartition`
node ends one sub-topology; the `Source` of kind REPARTITION with the same stream begins the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from headrace.model.calls import Calls
from headrace.model.serde import Serde
from headrace.model.windows import AnyWindows, ClosingWindows


class FunctionKind(StrEnum):
    SQL = "sql"  # a Spark SQL expression as text: runs in the JVM
    COLUMN = "column"  # a pyspark Column: runs in the JVM
    BATCH = "batch"  # marked @hr.batch: RecordBatch -> RecordBatch | Array, runs in the worker
    RECORD = "record"  # a function over a Record, runs in the worker
    ASYNC = "async"  # such a function that is awaited, as its `calls` say; of an async generator the body gives a list


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """What a user gave to an operator. `label` names it in errors: the expression, or the callable with file and line.

    `given_at` is the user's file and line where an expression was given; a callable knows its own.
    """

    kind: FunctionKind
    body: Any
    label: str
    given_at: str = ""
    calls: Calls | None = None

    @property
    def in_jvm(self) -> bool:
        return self.kind in (FunctionKind.SQL, FunctionKind.COLUMN)


class StoreKind(StrEnum):
    KEY_VALUE = "key-value"
    WINDOW = "window"


@dataclass(frozen=True, slots=True, eq=False)
class StoreSpec:
    """A store: its name, kind, the serde of its values and how long entries live (µs; None: for ever).

    `form` names everything that its bytes depend on; a restart compares it with what was stored. `database`: under which
    name the tasks keep its entries, None: under its own. A store that is renamed keeps its database.
    """

    name: str
    kind: StoreKind
    form: str
    value: Serde | None = None
    ttl_us: int | None = None
    database: str | None = None

    @property
    def kept_in(self) -> str:
        """The name of the database that holds its entries."""
        return self.database or self.name


class SourceKind(StrEnum):
    STREAM = "stream"
    TABLE = "table"
    REPARTITION = "repartition"


class Partitioning(StrEnum):
    """How a stream's producers choose the partition of a record."""

    HASH = "hash"  # hash(key) mod the number of partitions, whatever the hash: all records of a key are in one
    OTHER = "other"  # anything else: a key's records may be in any partition


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Node:
    """One operator. Names are unique in a topology."""

    name: str
    parents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Source(Node):
    """Reads a stream. `start` is 'earliest', 'latest', 'bootstrap', an offset, or a `Startpoint`
    (`core.rewind.startpoint_rules.start_of`). Of one that is `broadcast` every task reads all partitions."""

    stream: str
    key: Serde | None
    value: Serde | None
    kind: SourceKind = SourceKind.STREAM
    timestamp: Function | None = None
    timestamp_unit: str = "us"  # of the numbers that `timestamp` gives: a key of `core.rounds.event_times.UNIT_NS`
    start: Any = "earliest"
    broadcast: bool = False
    partitioning: Partitioning = Partitioning.HASH
    reset_offset: bool = False
    of_table: bool = False  # a repartition stream of a table's updates
    patterns: tuple[str, ...] = ()  # which streams are read: `core.topology.patterns`


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Filter(Node):
    predicate: Function
    negate: bool = False


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MapValues(Node):
    """`of_table`: the values are a table's, and a null is the deletion of its key, which `function` is not given."""

    function: Function
    value: Serde | None = None
    of_table: bool = False


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FlatMapValues(Node):
    function: Function
    value: Serde | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Map(Node):
    """The function gives (key, value)."""

    function: Function
    key: Serde | None = None
    value: Serde | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FlatMap(Node):
    """The function gives any number of (key, value)."""

    function: Function
    key: Serde | None = None
    value: Serde | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SelectKey(Node):
    function: Function
    key: Serde | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Peek(Node):
    function: Function


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Merge(Node):
    """Several streams as one; the order between them is that in which the task takes its records."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Split(Node):
    """Sends each record to the first `SplitOutput` whose predicate holds, or to the last one, `index` = their number."""

    predicates: tuple[Function, ...]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SplitOutput(Node):
    index: int


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Transform(Node):
    """`function`: DataFrame -> DataFrame, narrow, over the stateless prefix; the column `_at` must come back."""

    function: Callable[[Any], Any]
    label: str
    given_at: str = ""
    key: Serde | None = None
    value: Serde | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Process(Node):
    """A user's `Processor` class; one object per task and worker process. `timers`: has an `on_timer`; `calls`: it is async."""

    processor: Any
    stores: tuple[StoreSpec, ...] = ()
    timers: bool = False
    calls: Calls | None = None
    rekeys: bool = False  # it may forward other keys than it is given
    key: Serde | None = None
    value: Serde | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DropDuplicates(Node):
    """Of the records with one key (and one value of `by`) less than `within_us` apart in time, the first."""

    store: StoreSpec
    within_us: int
    by: Function | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Group(Node):
    """Drops and counts records whose key is null; everything keyed comes after it."""


class AggregateKind(StrEnum):
    COUNT = "count"  # a long
    NAMED = "named"  # a struct of named aggregates
    REDUCE = "reduce"  # function(old value, new value)
    GENERAL = "general"  # function(state, record), from `initial`


@dataclass(frozen=True, slots=True, eq=False)
class NamedAggregate:
    """One of count, sum, mean, min, max, first, last, count_distinct over `field` (a path such as `value.delay`)."""

    kind: str
    field: str | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Aggregate(Node):
    kind: AggregateKind
    store: StoreSpec
    named: Mapping[str, NamedAggregate] | None = None
    function: Callable[..., Any] | None = None
    of_changes: bool = False  # it is given `row_changes.RowChange`s: `function` puts a row in, `subtractor` takes one out
    subtractor: Callable[..., Any] | None = None
    initial: Any = None
    merger: Callable[[Any, Any], Any] | None = None  # of a general aggregate's states, where sessions merge
    windows: AnyWindows | None = None
    key: Serde | None = None  # of the result: `Windowed(...)` of the grouping key where there are windows
    value: Serde | None = None
    label: str = ""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Table(Node):
    """Keeps the last value of each key in a store; a null value deletes the key."""

    store: StoreSpec
    value: Serde | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TableFilter(Node):
    """Of a table: a value that the predicate refuses becomes a deletion."""

    predicate: Function
    negate: bool = False


class Emit(StrEnum):
    ROUND = "round"  # the last value of each changed key, once per round
    EACH = "each"  # every update, in order


class JoinKind(StrEnum):
    INNER = "inner"
    LEFT = "left"
    OUTER = "outer"


class JoinSides(StrEnum):
    STREAM_TABLE = "stream-table"
    STREAM_GLOBAL = "stream-global"
    TABLE_TABLE = "table-table"
    FOREIGN_KEY = "foreign-key"  # two tables, the left one read by its foreign key (`table_operators.JoinByForeignKey`)
    STREAM_STREAM = "stream-stream"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Join(Node):
    """Parents: left, right. A side that is a table is a `Table` node. `joiner` is given (left, right), or the key before.

    Two streams: a left record is joined with the right ones that are at most `before_us` before it, or `after_us` after it,
    both included. They are kept in `stores` (left, right) until `kept_us` after their window, which ends `after_us` after a
    left record, `before_us` after a right one. A global table is joined by `key_of` the record, a key of `table_key`.
    """

    kind: JoinKind
    sides: JoinSides
    joiner: Function
    with_key: bool = False
    value: Serde | None = None
    stores: tuple[StoreSpec, ...] = ()
    before_us: int = 0
    after_us: int = 0
    kept_us: int = 0
    key_of: Function | None = None
    table_key: Serde | None = None

    @property
    def open_us(self) -> tuple[int, int]:
        """How long after the time of a left and of a right record, of two streams, others may come that are joined with it.

        The window of a left record at 0 closes at that watermark, not before: 10 after it and kept 0, a right one at 10 is
        joined with it, and is in time while the watermark is 10. So it is 11 there.
        """
        return self.after_us + self.kept_us + 1, self.before_us + self.kept_us + 1


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ToStream(Node):
    """The updates of a table as a stream."""

    emit: Emit = Emit.ROUND


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Suppress(Node):
    """Of a windowed table: each window's last value, once, when the window closes. `key`, `value`: serdes of both sides."""

    store: StoreSpec
    windows: ClosingWindows
    key: Serde | None = None
    value: Serde | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Repartition(Node):
    """Writes an internal stream keyed by the current key. `partitions` None: inherited from the source.

    `partitions_is_hint`: they are for a stream that does not exist yet. `partitioner` None: by the key's hash; else a
    function of (record, number of partitions) that gives one, None or several.
    """

    stream: str
    key: Serde | None = None
    value: Serde | None = None
    partitions: int | None = None
    partitions_is_hint: bool = False
    partitioner: Function | None = None
    generated: bool = False  # added by a grouping or a join, not by the user


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Sink(Node):
    """Writes to the output `stream`: its name, or a record function that gives it. `partitioner`: as of a `Repartition`."""

    stream: str | Function
    key: Serde | None = None
    value: Serde | None = None
    partitioner: Function | None = None
    headers: Function | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ForEachRound(Node):
    """`function(df, id)` is given the rows of each round as a DataFrame, in the driver, before the round is committed."""

    function: Callable[[Any, int], object]
    label: str
    given_at: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Topology:
    """All nodes of an application, parents before children."""

    application: str
    nodes: tuple[Node, ...]

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for node in self.nodes:
            if node.name in seen:
                raise ValueError(f"two operators are named {node.name!r}")
            if missing := [parent for parent in node.parents if parent not in seen]:
                raise ValueError(f"operator {node.name!r} comes before its parents {missing}")
            seen.add(node.name)

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    def children(self, name: str) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if name in node.parents)

    @property
    def sources(self) -> Iterator[Source]:
        return (node for node in self.nodes if isinstance(node, Source))

    @property
    def repartitions(self) -> tuple[Repartition, ...]:
        return tuple(node for node in self.nodes if isinstance(node, Repartition))

    @property
    def inputs(self) -> tuple[str, ...]:
        """The streams that it reads and does not write itself, sorted."""
        return tuple(sorted({source.stream for source in self.sources} - {node.stream for node in self.repartitions}))
