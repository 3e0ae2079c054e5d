"""The Column prefix: rows as they are read, through a chain of Spark expressions, to rows for the worker. The reader gives
`_at` (where a row comes from, its time, headers and original bytes), `key`, `value`, `timestamp`, `partition`, `offset` and
`headers`. Rows that do not decode never enter: the reader rejects them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, IntegralType, NumericType, StringType, TimestampNTZType, TimestampType

from headrace.adapters.spark.refusals import VISIBLE, refused
from headrace.core.rewind.replays import REPLAY_HEADERS
from headrace.core.rounds.event_times import UNIT_NS
from headrace.core.rounds.watermarks import TIME_MAX_US, TIME_MIN_US
from headrace.core.topology.program import EndpointSide
from headrace.errors import TopologyError
from headrace.model.stream_operators import SetHeaders
from headrace.model.topology import Filter, Function, FunctionKind, MapValues, Node, SelectKey, Source, Transform
from headrace.serdes.serdes import type_in_spark

HEADERS = "array<struct<name:string,value:binary>>"
READER_COLUMNS = (
    f"ssp int, partition int, offset bigint, timestamp_us bigint, headers {HEADERS}, raw_key binary, raw_value binary, low int"
)
_REFUSED = {
    "Aggregate": "an aggregation",
    "Sort": "a sort",
    "Window": "a window",
    "Union": "a union",
    **dict.fromkeys(("GlobalLimit", "LocalLimit"), "a limit"),
    **dict.fromkeys(("Repartition", "RepartitionByExpression", "RebalancePartitions"), "an exchange"),
    **dict.fromkeys(("Deduplicate", "Distinct"), "a deduplication"),
}


_TIMES = (TimestampType, TimestampNTZType, DateType, StringType)
_whole_of: dict[str, Callable[[Any], Any]] = {
    "us": F.timestamp_micros,
    "ms": F.timestamp_millis,
    "s": F.timestamp_seconds,
    "ns": lambda number: F.timestamp_micros(F.call_function("div", number - F.pmod(number, F.lit(1_000)), F.lit(1_000))),
}


def reader_schema(source: Source) -> str:
    return f"{READER_COLUMNS}, key {type_in_spark(source.key)}, value {type_in_spark(source.value)}"


def opened(read: Any) -> Any:
    """The reader's rows as user expressions see them."""
    return read.select(
        F.struct("ssp", "partition", "offset", "timestamp_us", "headers", "raw_key", "raw_value", "low").alias("_at"),
        "key",
        "value",
        F.timestamp_micros("timestamp_us").alias("timestamp"),
        "partition",
        "offset",
        "headers",
    )


def chained(rows: Any, source: Source, chain: Sequence[Node]) -> Any:
    rows = _with_time(rows, source)
    for node in chain:
        rows = _applied(rows, node, source)
    return rows


def branched(rows: Any, source: Source, chains: Mapping[int, Sequence[Node]]) -> Any:
    """The rows that one of `chains` keeps, as they were, and for each chain number n whether it keeps the row (`kept_n`), and
    its key and value (`made_key_n`, `made_value_n`). An expression is evaluated for rows that its chain has kept."""
    rows = _with_time(rows, source)
    for number, chain in chains.items():
        rows = rows.withColumns({"_kept": F.lit(True), "_key": F.col("key"), "_value": F.col("value")})
        for node in chain:
            rows = _applied(rows, node, source)
        names = {"_kept": f"kept_{number}", "key": f"made_key_{number}", "value": f"made_value_{number}"}
        rows = rows.withColumnsRenamed(names).withColumnsRenamed({"_key": "key", "_value": "value"})
    return _where(rows, reduce(or_, (F.col(f"kept_{number}") for number in chains)))


def _where(rows: Any, holds: Any) -> Any:
    """The rows for which `holds`. Where Spark saw that it never does, it would plan no partition at all: no container would
    run, nor a reader say what it has rejected. That the number of an SSP is not negative Spark does not know."""
    try:
        return rows.where(holds | (F.col("_at.ssp") < 0))
    except PySparkException:
        rows.where(holds)  # what is wrong with it is said of it alone
        raise


def is_row_by_row(rows: Any) -> bool:
    """Whether nothing but columns and filters is between a reader and `rows`: no function in Python, no generated rows."""
    path = _path_to_reader(rows._jdf.queryExecution().optimizedPlan())
    return path is not None and set(path[:-1]) <= {"Project", "Filter"}


def _with_time(rows: Any, source: Source) -> Any:
    if source.timestamp is not None and source.timestamp.in_jvm:
        given, untimed = source.timestamp, rows
        text = f"timestamp of {source.stream!r}"
        rows = _analysed(rows, text, given, source, lambda: _timed(untimed, _column(given), source))
    return rows


def _timed(rows: Any, time: Any, source: Source) -> Any:
    timed = rows.withColumn("timestamp", time)
    given = timed.schema["timestamp"].dataType
    column, unit = F.col("timestamp"), source.timestamp_unit
    if isinstance(given, IntegralType):
        return timed.withColumn("timestamp", _whole_of[unit](column.cast("bigint")))
    if isinstance(given, NumericType):
        return timed.withColumn("timestamp", F.timestamp_micros(F.round(column * (UNIT_NS[unit] / 1_000)).cast("bigint")))
    if unit != "us" or not isinstance(given, _TIMES):
        expected = "a number" if unit != "us" else "a timestamp or a number"
        hint = "give a Spark timestamp, such as timestamp_millis(value.ts), or a number and timestamp_unit="
        raise TopologyError(
            f"timestamp of {source.stream!r}: the expression gives {given.simpleString()}, expected {expected}",
            f"timestamp_unit={unit!r} is for numbers: leave it out" if isinstance(given, _TIMES) else hint,
        )
    return timed.withColumn("timestamp", column.cast("timestamp"))


def _applied(rows: Any, node: Node, source: Source) -> Any:
    is_branch = "_kept" in rows.columns  # `branched`: no row is dropped, and one that is not kept is not looked at

    def tried(kind: str, function: Function, make: Callable[[Any], Any]) -> Any:
        return _analysed(rows, f"{kind} {node.name!r}", function, source, lambda: make(_column(function)))

    def only(holds: Any) -> Any:
        return rows.withColumn("_kept", F.when(F.col("_kept"), holds).otherwise(False)) if is_branch else _where(rows, holds)

    def changed(name: str, made: Any) -> Any:
        return rows.withColumn(name, F.when(F.col("_kept"), made) if is_branch else made)

    match node:
        case Filter(predicate=predicate, negate=False):
            return tried("filter", predicate, lambda holds: only(F.coalesce(holds, F.lit(False)) if is_branch else holds))
        case Filter(predicate=predicate):
            return tried("filter_not", predicate, lambda holds: only(~F.coalesce(holds, F.lit(False))))
        case SelectKey(function=function):
            return tried("select_key", function, lambda made: changed("key", made))
        case MapValues(function=function):
            return tried("map_values", function, lambda made: changed("value", made))
        case SetHeaders(function=function):
            return tried("with_headers", function, lambda made: changed("headers", made.cast(HEADERS)))
        case Transform():
            return _transformed(rows, node, source)
        case _:
            raise AssertionError(node)


def _column(function: Function) -> Any:
    return F.expr(function.body) if function.kind is FunctionKind.SQL else function.body


def _analysed(rows: Any, operator: str, function: Function, source: Source, make: Callable[[], Any]) -> Any:
    """Run Spark's analysis of one operator over `rows`; what it refuses becomes an error of the topology."""
    try:
        made = make()
        made.schema  # noqa: B018  (asks Spark to analyse the plan)
        return made
    except PySparkException as error:
        sides = {name: serde for name, serde in (("key", source.key), ("value", source.value)) if serde is not None}
        raise refused(operator, function.label, function.given_at, error, rows, sides) from None


def _transformed(rows: Any, node: Transform, source: Source) -> Any:
    given = f"transform {node.name!r}"
    function = Function(FunctionKind.RECORD, node.function, node.label, node.given_at)
    made = _analysed(rows, given, function, source, lambda: _data_frame(given, node, rows))
    missing = [name for name in ("_at", "key", "value") if name not in made.columns]
    if missing:
        raise TopologyError(
            f"{given}: the DataFrame that {node.label} gives lacks the column {', '.join(missing)}",
            "keep `_at` (where a row comes from), and give `key` and `value`, e.g. df.select('_at', 'key', ...)",
        )
    _refuse_wide(made, node)
    if _is_known_to_be_empty(made):
        given_types = {one.name: one.dataType for one in made.schema}
        nothing = {name: F.lit(None).cast(kind) for name, kind in given_types.items() if name != "_at"}
        made = _where(rows, F.lit(False)).select("_at", *(column.alias(name) for name, column in nothing.items()))
    if "timestamp" not in made.columns:
        made = made.withColumn("timestamp", F.timestamp_micros("_at.timestamp_us"))
    for name in ("partition", "offset", "headers"):
        if name not in made.columns:
            made = made.withColumn(name, F.col(f"_at.{name}"))
    return made.select("_at", *VISIBLE)


def _is_known_to_be_empty(made: Any) -> bool:
    """Whether Spark sees that there are no rows: by a join with a table that has none, say."""
    most = made._jdf.queryExecution().optimizedPlan().maxRows()
    return most.isDefined() and int(most.get()) == 0


def _data_frame(operator: str, node: Transform, rows: Any) -> Any:
    hint = "transform is given a DataFrame, and must return one; for a function of one record use map_values or map"
    try:
        made = node.function(rows)
    except PySparkException:
        raise
    except Exception as error:  # the user's function: anything may come
        raise TopologyError(f"{operator}: {node.label} raised {type(error).__name__}: {error}", hint) from error
    if not isinstance(made, DataFrame):
        raise TopologyError(f"{operator}: {node.label} gave {type(made).__name__}, expected a DataFrame", hint)
    return made


def _refuse_wide(made: Any, node: Transform) -> None:
    """Refuse plans that would mix or drop rows of different offsets: on the way from the reader to the top."""
    execution = made._jdf.queryExecution()
    for name in _path_to_reader(execution.optimizedPlan()) or ():
        if name in _REFUSED:
            raise TopologyError(
                f"{node.name}: {node.label} has {_REFUSED[name]}, and a transform must work row by row",
                "use group_by_key() and aggregations for that, or do it in a table that is joined by broadcast",
            )
    physical = execution.sparkPlan().toString()
    for join in ("SortMergeJoin", "ShuffledHashJoin", "CartesianProduct"):
        if join in physical:
            raise TopologyError(f"{node.name}: {node.label} joins with a shuffle", "wrap the static table in F.broadcast(...)")


def _path_to_reader(plan: Any) -> list[str] | None:
    """The names of the operators from the top of a plan down to our reader, None if it is not below."""
    name = str(plan.nodeName())
    if name == "MapInArrow":
        return [name]
    children = plan.children()
    for index in range(children.size()):
        below = _path_to_reader(children.apply(index))
        if below is not None:
            return [name, *below]
    return None


def handed_rows(rows: Any) -> Any:
    """The rows of a prefix as the function is given them, without those that the container rejects for their time."""
    return rows.where(F.unix_micros("timestamp").between(TIME_MIN_US, TIME_MAX_US)).select(*VISIBLE)


def selected(
    rows: Any,
    numbers: Sequence[int],
    count: int,
    sides: Sequence[EndpointSide],
    types: Sequence[Any],
    own_times: bool | None = None,
    is_elastic: bool = False,
) -> Any:
    """Rows of endpoints `numbers` of `count` as the worker takes them: key and value in columns of their endpoint; of several
    endpoints, which have one reader, with the columns of `branched` that say for which of them a row is. `own_times`: with a
    column of the records' own times, where another endpoint has it with nulls in it (None: without). `is_elastic`: with the low
    bits of the keys' hashes. A key or value that no expression touched stays its original bytes. `types`: per endpoint the
    Spark types of its columns, so that several endpoints fit into one DataFrame."""
    common = [
        F.lit(numbers[0]).alias("endpoint"),
        F.col("_at.ssp").alias("ssp"),
        F.col("_at.offset").alias("offset"),
        F.unix_micros("timestamp").alias("timestamp_us"),
        (_made_headers() if any(side.headers_changed for side in sides) else F.col("_at.headers")).alias("headers"),
    ]
    own_us = F.col("_at.timestamp_us") if own_times else None if own_times is None else F.lit(None)
    if is_elastic:
        common.append(F.col("_at.low"))
    taken = {}
    for number, side in zip(numbers, sides, strict=True):
        key, value = (f"made_key_{number}", f"made_value_{number}") if len(numbers) > 1 else ("key", "value")
        taken[number] = (
            F.col(key if side.key_changed else "_at.raw_key"),
            F.col(value if side.value_changed else "_at.raw_value"),
        )
        if len(numbers) > 1:
            common.append(F.col(f"kept_{number}"))
    return _placed(rows, common, own_us, taken, count, types)


def _made_headers() -> Any:
    """Those that the chain gives; the mark of a replay stays with its record."""
    marks = F.filter("_at.headers", lambda header: header["name"].isin(*REPLAY_HEADERS))
    made, none = F.col("headers").cast(HEADERS), F.array().cast(HEADERS)
    others = F.filter(F.coalesce(made, none), lambda header: ~header["name"].isin(*REPLAY_HEADERS))
    return F.when(F.size(F.coalesce(marks, none)) > 0, F.concat(others, marks)).otherwise(made)


def untouched(read: Any, number: int, count: int, types: Sequence[Any], is_any_timed: bool, is_elastic: bool) -> Any:
    """Records as they were read, in the columns of endpoint `number` of `count`: the shape of `selected`."""
    low = ["low"] if is_elastic else []
    common = [F.col(name) for name in ("endpoint", "ssp", "offset", "timestamp_us", "headers", *low)]
    own_us = F.lit(None) if is_any_timed else None
    return _placed(read, common, own_us, {number: (F.col("key"), F.col("value"))}, count, types)


def _placed(
    rows: Any, common: list[Any], own_us: Any, taken: Mapping[int, tuple[Any, Any]], count: int, types: Sequence[Any]
) -> Any:
    columns = common if own_us is None else [*common, own_us.cast("bigint").alias("own_us")]
    for number in range(count):
        for at, side in enumerate(("key", "value")):
            column = taken[number][at] if number in taken else F.lit(None).cast(types[number][at])
            columns.append(column.alias(f"{side}_{number}"))
    return rows.select(*columns)
