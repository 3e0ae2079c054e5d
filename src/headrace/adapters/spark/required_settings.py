"""The settings that Headrace needs of Spark whatever the machine: each with what goes wrong without it.

Those of `START_SETTINGS`, and on a cluster of `CLUSTER_SETTINGS`, count only if they are set before Spark starts;
`SESSION_SETTINGS` can be set on any session, a user's too, and Headrace does so itself. Nothing of PySpark is imported here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from headrace.errors import NotSupportedError


@dataclass(frozen=True, slots=True)
class Needed:
    """One setting: `default` is Spark's own value; `at_start` if it must be set before Spark starts; `is_refused` if
    Headrace does not run at all with another value; `on_cluster` if it matters only where executors are on other machines."""

    name: str
    value: str
    default: str
    without_it: str
    at_start: bool = True
    is_refused: bool = False
    on_cluster: bool = False


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
    Needed(
        "spark.locality.wait", "3s", "3s",
        "shorter, containers of a busy executor are sent to others, which decline them; longer, a round whose records go from "
        "one container to another waits for an executor that is lost", on_cluster=True,
    ),
    Needed(
        "spark.locality.wait.node", "0", "as spark.locality.wait",
        "a round waits twice as long for an executor that is lost", on_cluster=True,
    ),
    Needed(
        "spark.network.timeout", "30s", "120s",
        "an executor that hangs, or whose host is lost, holds its round for 2 minutes", on_cluster=True,
    ),
    Needed(
        "spark.network.timeoutInterval", "5s", "60s",
        "lost executors are looked for once a minute; Spark refuses a longer interval than spark.network.timeout",
        on_cluster=True,
    ),
    Needed(
        "spark.executor.heartbeatInterval", "3s", "10s",
        "with spark.network.timeout=30s an executor counts as lost after 3 missed heartbeats", on_cluster=True,
    ),
    Needed(
        "spark.dynamicAllocation.enabled", "false", "false",
        "idle executors are ended: their tasks move, and restore their state elsewhere; with "
        "spark.dynamicAllocation.minExecutors=0, Spark's default, such a session is refused", on_cluster=True,
    ),
    Needed(
        "spark.excludeOnFailure.taskAndStage.enabled", "true", "false",
        "a container that is sent to a rejected executor is tried again there, until its round has failed", on_cluster=True,
    ),
    Needed(
        "spark.excludeOnFailure.task.maxTaskAttemptsPerExecutor", "2", "1",
        "a container whose Python worker has died is not tried again where its state is", on_cluster=True,
    ),
    Needed(
        "spark.scheduler.excludeOnFailure.unschedulableTaskSetTimeout", "1s", "120s",
        "where there is one host, a round that has failed there waits 2 minutes for another one", on_cluster=True,
    ),
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

START_SETTINGS: Mapping[str, str] = MappingProxyType(
    {one.name: one.value for one in NEEDED if one.at_start and not one.on_cluster}
)
CLUSTER_SETTINGS: Mapping[str, str] = MappingProxyType({one.name: one.value for one in NEEDED if one.on_cluster})
SESSION_SETTINGS: Mapping[str, str] = MappingProxyType({one.name: one.value for one in NEEDED if not one.at_start})


def check(setting: Callable[[str], str | None], on_cluster: bool) -> None:
    """`NotSupportedError` where a job could come to hang on a Spark with these settings. `on_cluster`: its executors are on
    other machines."""
    if _is_on(setting("spark.speculation")):  # a container that is slow would never commit
        raise NotSupportedError(
            "spark.speculation is on: it runs Spark tasks twice at the same time", "start Spark with spark.speculation=false"
        )
    least = (setting("spark.dynamicAllocation.minExecutors") or "0").strip()
    if on_cluster and changes_executors(setting) and least == "0":
        raise NotSupportedError(
            "spark.dynamicAllocation.enabled is on, and spark.dynamicAllocation.minExecutors is 0: Spark ends all executors of "
            "a job that is idle, and starts none while no round runs, which waits for one",
            "start Spark with spark.dynamicAllocation.enabled=false, or spark.dynamicAllocation.minExecutors=1 or more",
        )


def changes_executors(setting: Callable[[str], str | None]) -> bool:
    """Whether Spark ends executors that are idle, and starts others."""
    return _is_on(setting("spark.dynamicAllocation.enabled"))


def _is_on(value: str | None) -> bool:
    return (value or "").strip().lower() == "true"  # as Spark reads it
