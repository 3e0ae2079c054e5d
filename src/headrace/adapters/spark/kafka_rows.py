"""Reading exact ranges of Kafka topics with Spark's own reader, as rows that a container or a prefix takes.

One load per Spark task of ours: its partitions (one per SSP) are put one after the other by `coalesce(1)`, so a
container gets its SSPs without a shuffle, each in the order of its offsets. The union of several loads keeps them
apart only while `spark.sql.unionOutputPartitioning` is off (see `required_settings.SESSION_SETTINGS`)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.adapters.spark.columns import HEADERS
from headrace.exchange.engine import InputSlice
from headrace.exchange.messages import RAW

ROW_COLUMNS = f"endpoint int, ssp int, offset bigint, timestamp_us bigint, headers {HEADERS}, key binary, value binary"
DEFAULTS: Mapping[str, str] = {
    "kafka.allow.auto.create.topics": "false",  # Java's consumer would have brokers create a topic again that was just deleted
    "kafka.isolation.level": "read_committed",
    # A reader that comes back to a partition's end waits for the answer to the fetch that it left open there.
    "kafka.fetch.max.wait.ms": "20",
    # A consumer here has one partition, and a round reads a long range of it: fewer and larger answers.
    "kafka.max.partition.fetch.bytes": str(4 * 1024 * 1024),
    "kafka.max.poll.records": "10000",
    "kafka.receive.buffer.bytes": str(1024 * 1024),
    "fetchOffset.numRetries": "3",
    "fetchOffset.retryIntervalMs": "100",
    "includeHeaders": "true",
    "failOnDataLoss": "true",
    "kafkaConsumer.pollTimeoutMs": "30000",  # of a broker that does not answer; each Spark task tries again
}


def rows_of(session: Any, options: Mapping[str, str], slices: Sequence[InputSlice]) -> Any:
    """A DataFrame with one partition: `ROW_COLUMNS` of `slices`, which are at least one and not empty, one by one."""
    assigned: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for piece in slices:
        assigned.setdefault(piece.stream, []).append(piece.partition)
        starts.setdefault(piece.stream, {})[str(piece.partition)] = piece.start
        ends.setdefault(piece.stream, {})[str(piece.partition)] = piece.end
    ranges = {"assign": assigned, "startingOffsets": starts, "endingOffsets": ends}
    read = session.read.format("kafka").options(**{**DEFAULTS, **options})
    read = read.options(**{name: json.dumps(value) for name, value in ranges.items()})
    # A cast renames the fields; a function of higher order would keep the whole projection out of Spark's generated code.
    headers = F.col("headers").cast(HEADERS)  # null where a record has none
    return (
        read.load()
        .coalesce(1)
        .select(
            F.lit(RAW).alias("endpoint"),
            _number(slices).alias("ssp"),
            "offset",
            F.unix_micros("timestamp").alias("timestamp_us"),
            headers.alias("headers"),
            "key",
            "value",
        )
    )


def grouped_rows(session: Any, options: Mapping[str, str], groups: Sequence[Sequence[InputSlice]]) -> Any:
    """Partition i of the DataFrame holds what group i reads; that of a group that reads nothing has no rows."""
    wanted = [[piece for piece in group if piece.end > piece.start] for group in groups]  # Spark's reader drops empty ranges
    nothing = None if all(wanted) else _no_rows(session)
    parts: list[Any] = [rows_of(session, options, mine) if mine else nothing for mine in wanted]
    return reduce(lambda united, part: united.union(part), parts)


def _no_rows(session: Any) -> Any:
    """One partition without rows, which Spark does not know to be empty: it plans no partition at all for what it knows so, and
    those behind it would be taken for those of other groups."""
    jvm = session._jvm
    nothing = session.sparkContext._jsc.parallelize(jvm.java.util.ArrayList(), 1)
    schema = jvm.org.apache.spark.sql.types.StructType.fromDDL(ROW_COLUMNS)
    return DataFrame(session._jsparkSession.createDataFrame(nothing, schema), session)


def _number(slices: Sequence[InputSlice]) -> Any:
    """The number of a row's SSP: per topic a constant that is added to the partition, where the numbers allow it."""
    bases: dict[str, set[int]] = {}
    for piece in slices:
        bases.setdefault(piece.stream, set()).add(piece.ssp - piece.partition)
    if all(len(found) == 1 for found in bases.values()):
        columns = [(stream, F.col("partition") + F.lit(min(found))) for stream, found in sorted(bases.items())]
        if len(columns) == 1:
            return columns[0][1].cast("int")
        start = F.when(F.col("topic") == columns[0][0], columns[0][1])
        return reduce(lambda case, one: case.when(F.col("topic") == one[0], one[1]), columns[1:], start).cast("int")
    cases = [((F.col("topic") == piece.stream) & (F.col("partition") == piece.partition), piece.ssp) for piece in slices]
    start = F.when(cases[0][0], F.lit(cases[0][1]))
    return reduce(lambda case, one: case.when(one[0], F.lit(one[1])), cases[1:], start).cast("int")
