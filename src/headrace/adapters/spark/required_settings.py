"""The settings that Headrace needs of Spark whatever the machine: each with what goes wrong without it.

Those of `START_SETTINGS` count only if they are set before Spark starts; `SESSION_SETTINGS` can be set on any session,
a user's too, and Headrace does so itself. Nothing of PySpark is imported here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Needed:
    """One setting: `default` is Spark's own value; `at_start` if it must be set before Spark starts; `is_refused` if
    Headrace does not run at all with another value."""

    name: str
    value: str
    default: str
    without_it: str
    at_start: bool = True
    is_refused: bool = False


NEEDED: tuple[Needed, ...] = (
    Needed(
        "spark.python.unix.domain.socket.enabled", "true", "false",
        "each Python Spark task waits some 40 ms for a delayed acknowledgement: a small round takes twice as long",
    ),
    Needed("spark.scheduler.mode", "FAIR", "FIFO", "a small round of one sub-topology waits for a large one of another"),
    Needed(
        "spark.shuffle.reduceLocality.enabled", "false", "true",
        "Spark places a routed round by its shuffle, not where the tasks' state is",
    ),
    Needed("spark.locality.wait", "500ms", "3s", "a round waits up to 3 s for an executor that is busy or lost"),
    Needed(
        "spark.speculation", "false", "false",
        "Spark tasks run twice at the same time: such a session is refused", is_refused=True,
    ),
    Needed(
        "spark.python.worker.reuse", "true", "true",
        "each round starts new Python workers and reopens their stores and producers",
    ),
    Needed(
        "spark.sql.adaptive.enabled", "false", "true",
        "Spark joins or splits what must stay one Spark task per container: order rests on it", at_start=False,
    ),
    Needed(
        "spark.sql.execution.arrow.maxBytesPerBatch", "2147483647", "64MB",
        "the JVM measures every row: half the speed for bytes, an eighth for structs", at_start=False,
    ),
    Needed(
        "spark.sql.execution.arrow.maxRecordsPerBatch", "50000", "10000",
        "batches are smaller than is good: more work per record", at_start=False,
    ),
    Needed(
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled", "false", "true",
        "small rounds have Python workers of their own: each time stores and producers are opened again",
        at_start=False,
    ),
    Needed(
        "spark.sql.sources.useV1SourceList", "avro,csv,json,orc,parquet,text", "avro,csv,json,kafka,orc,parquet,text",
        "each record of Kafka becomes a row of Java objects and then once more one of Spark's: a third more to read it",
        at_start=False,
    ),
    Needed("spark.sql.session.timeZone", "UTC", "the machine's", "times depend on the machine", at_start=False),
    Needed(
        "spark.sql.unionOutputPartitioning", "false", "true",
        "a union of one-partition parts becomes one partition, so that inputs are not read side by side", at_start=False,
    ),
)

START_SETTINGS: Mapping[str, str] = MappingProxyType({one.name: one.value for one in NEEDED if one.at_start})
SESSION_SETTINGS: Mapping[str, str] = MappingProxyType({one.name: one.value for one in NEEDED if not one.at_start})
