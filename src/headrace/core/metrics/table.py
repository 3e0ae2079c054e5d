"""The metrics of a job: name, kind, unit, label and meaning of each, in one table. `docs/metrics.md` is rendered from it.

Names are those of SEP-32 where it has one ("Monitoring and Operations"). No label is ever a key of a record, an offset or a
path.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, get_args

MetricName = Literal[
    "job-model-generation-ns",
    "checkpoint-compute-ns",
    "plan-changes",
    "change-pause-ns",
    "change-phase-ns",
    "start-ns",
    "start-phase-ns",
    "task-count",
    "container-count",
    "elasticity-factor",
    "input-offsets",
    "records-written",
    "tasks-run",
    "tasks-at-home",
    "declined",
    "restored-bytes",
    "restore-left-bytes",
    "dead-letters",
    "late-records",
    "rounds-failed",
    "watermark-delay-ns",
    "round-ns",
    "round-commit-ns",
    "round-phase-ns",
    "engine-records-fetched",
    "records-fetched",
    "total-input-consumption-ns",
    "keyhash-compute-ns",
    "commit-ns",
    "write-ns",
    "container-process-ns",
    "container-wait-ns",
    "threads",
    "records-processed",
    "process-ns",
    "decode-ns",
    "wait-ns",
    "store-identify-ns",
    "disk-usage",
    "gets",
    "get-ns",
    "puts",
    "put-ns",
    "deletes",
    "delete-ns",
    "lag",
    "lag-ns",
    "lead",
]


MetricValues = Mapping[MetricName, Mapping[str, float]]
"""By metric and then by the value of its own label: the task's name, the lane of the container, the phase; else `""`."""


class MetricKind(StrEnum):
    COUNTER = "counter"  # only rises while a plan is in force, from 0
    GAUGE = "gauge"  # the value of now


class MetricLabel(StrEnum):
    """What a metric has one value of; all but those of the job have the sub-topology as a label too."""

    JOB = "job"
    PHASE = "phase"
    SUB_TOPOLOGY = "sub-topology"
    ROUND_PHASE = "phase of the rounds"
    CONTAINER = "container"
    TASK = "task"


@dataclass(frozen=True, slots=True)
class Metric:
    """`unit`: ns, bytes, or what is counted. `is_summed`: whether the sum over tasks or containers means anything; the highest
    value always does."""

    name: MetricName
    kind: MetricKind
    unit: str
    label: MetricLabel
    meaning: str
    is_summed: bool = True


_C, _G = MetricKind.COUNTER, MetricKind.GAUGE
_JOB, _SUB, _CONTAINER, _TASK = MetricLabel.JOB, MetricLabel.SUB_TOPOLOGY, MetricLabel.CONTAINER, MetricLabel.TASK

_ROWS = (
    Metric(
        "job-model-generation-ns", _G, "ns", _JOB,
        "How long the last plan took: reading what is stored, cutting tasks into virtual tasks, assigning these to "
        "containers, and storing the job model and all checkpoints",
    ),
    Metric(
        "checkpoint-compute-ns", _G, "ns", _JOB,
        "Of that, how long it took to decide about scales and to cut all that is stored of tasks (checkpoints, state, "
        "startpoints) to other elasticity factors; next to nothing where none has changed",
    ),
    Metric(
        "plan-changes", _C, "changes", _JOB,
        "Changes of the plan of the running job, since it was started",
    ),
    Metric(
        "change-pause-ns", _G, "ns", _JOB,
        "How long no round ran for the last of them",
    ),
    Metric(
        "change-phase-ns", _G, "ns", MetricLabel.PHASE,
        "How long each phase of the last of them took: `end of the rounds`, `fence`, `plan`, `first round` and others",
    ),
    Metric(
        "start-ns", _G, "ns", _JOB,
        "How long the job took from its start to its first commit",
    ),
    Metric(
        "start-phase-ns", _G, "ns", MetricLabel.PHASE,
        "How long each part of it took: `Python` (until the application was loaded, with `headrace run`), `checks`, `Spark`, "
        "`plan`, `wait` (for records, say), `first round`",
    ),
    Metric(
        "task-count", _G, "tasks", _SUB,
        "Tasks, virtual tasks each",
    ),
    Metric(
        "container-count", _G, "containers", _SUB,
        "Containers",
    ),
    Metric(
        "elasticity-factor", _G, "1", _SUB,
        "Virtual tasks per task",
    ),
    Metric(
        "input-offsets", _C, "offsets", _SUB,
        "Offsets by which the inputs have grown",
    ),
    Metric(
        "records-written", _C, "records", _SUB,
        "Records written to outputs and repartition streams",
    ),
    Metric(
        "tasks-run", _C, "tasks", _SUB,
        "Tasks that were run, once for each round in which Spark has run their container",
    ),
    Metric(
        "tasks-at-home", _C, "tasks", _SUB,
        "Of these, those whose container was run at its own location; on one machine all",
    ),
    Metric(
        "declined", _C, "containers", _SUB,
        "Containers that took no part in their round: their executor was lost, they were run elsewhere, or their local stores "
        "are restored first",
    ),
    Metric(
        "restored-bytes", _C, "bytes", _SUB,
        "Bytes of state files that were read to bring local stores to their state: at the start of a round, and in the "
        "background",
    ),
    Metric(
        "restore-left-bytes", _G, "bytes", _SUB,
        "Bytes of state files that are still to be read for the local stores that are restored in the background",
    ),
    Metric(
        "dead-letters", _C, "records", _SUB,
        "Records that could not be processed, and were written to the dead-letter stream",
    ),
    Metric(
        "late-records", _C, "records", _SUB,
        "Records that came after their window had closed",
    ),
    Metric(
        "rounds-failed", _C, "rounds", _SUB,
        "Rounds that failed, and were done again or have ended the sub-topology",
    ),
    Metric(
        "watermark-delay-ns", _G, "ns", _SUB,
        "How far the watermark of the slowest task is behind the clock; missing while none has one",
    ),
    Metric(
        "round-ns", _C, "ns", _SUB,
        "Time in rounds, from the start of the containers to the end of the commit",
    ),
    Metric(
        "round-commit-ns", _C, "ns", _SUB,
        "Time in which the driver committed or recorded rounds. On the embedded log this is the commit",
    ),
    Metric(
        "round-phase-ns", _C, "ns", MetricLabel.ROUND_PHASE,
        "Of `round-ns` the time of each phase, by the container that took longest: `read`, `decode`, `process`, `state` "
        "(looked up, put, made ready), `write` (of state files and outputs), `commit` (on Kafka that of the container too), "
        "and `other`, which is the rest: the engine's start of the containers and its answer, the handing out of rows",
    ),
    Metric(
        "engine-records-fetched", _C, "offsets", _SUB,
        "Offsets that Spark, or a reader in front of Spark expressions, was given to read for containers; each once, "
        "whatever the factor and the number of containers",
    ),
    Metric(
        "records-fetched", _C, "records", _CONTAINER,
        "Records that containers have read themselves, each counted by the container that has its task. With "
        "`engine-records-fetched`, what was fetched: a record that is fetched once and processed once counts once here and in "
        "`records-processed`. Where a round is cut short, what was fetched in vain is fetched again",
    ),
    Metric(
        "total-input-consumption-ns", _C, "ns", _CONTAINER,
        "Time in which a container waited for its input: its own reading, or rows of the engine",
    ),
    Metric(
        "keyhash-compute-ns", _C, "ns", _CONTAINER,
        "Time in which a container hashed keys to find the virtual tasks of records. 0 where Spark's JVM, or a reader "
        "in front of Spark expressions, computes the hashes: there it is part of the time of that stage and not known "
        "apart",
    ),
    Metric(
        "commit-ns", _C, "ns", _CONTAINER,
        "Time in which a container wrote state and outputs and, on Kafka, committed",
    ),
    Metric(
        "write-ns", _C, "ns", _CONTAINER,
        "Of that, the time in which it wrote state files and outputs; the rest is its commit",
    ),
    Metric(
        "container-process-ns", _C, "ns", _CONTAINER,
        "Time in which its threads processed tasks: the sum of `process-ns`",
    ),
    Metric(
        "container-wait-ns", _C, "ns", _CONTAINER,
        "Of that, the time in which they waited: the sum of `wait-ns`",
    ),
    Metric(
        "threads", _G, "threads", _CONTAINER,
        "Threads that process records",
        is_summed=False,
    ),
    Metric(
        "records-processed", _C, "records", _TASK,
        "Records that the task processed: those that came out of Spark expressions, where there are any, and once per "
        "stream of the topology that begins with them",
    ),
    Metric(
        "process-ns", _C, "ns", _TASK,
        "Time in which the task was processed: functions, operators and access to state, without opening its state",
    ),
    Metric(
        "decode-ns", _C, "ns", _TASK,
        "Of that, the time in which keys and values were decoded for operators; some decode as they go",
    ),
    Metric(
        "wait-ns", _C, "ns", _TASK,
        "Of `process-ns`, while it processed records, the time in which it waited for something else than a processor: a "
        "service, a disk, or another thread of its container",
    ),
    Metric(
        "store-identify-ns", _C, "ns", _TASK,
        "Time in which the task's local store was made ready: found, verified, brought to the state of the round; or "
        "rebuilt",
    ),
    Metric(
        "disk-usage", _G, "bytes", _TASK,
        "Local store and state files. Of files that several tasks share after a change of the elasticity factor, the "
        "task's part",
    ),
    Metric(
        "gets", _C, "entries", _TASK,
        "Entries of the state that were looked up",
    ),
    Metric(
        "get-ns", _C, "ns", _TASK,
        "Time of these look-ups. Of calls for single entries one in 64 is timed and counts for 64; calls for many are "
        "all timed",
    ),
    Metric(
        "puts", _C, "entries", _TASK,
        "Entries of the state that were put",
    ),
    Metric(
        "put-ns", _C, "ns", _TASK,
        "Time of that, measured like `get-ns`. It is written with the commit: see `commit-ns`",
    ),
    Metric(
        "deletes", _C, "entries", _TASK,
        "Entries of the state that were deleted",
    ),
    Metric(
        "delete-ns", _C, "ns", _TASK,
        "Time of that, measured like `get-ns`",
    ),
    Metric(
        "lag", _G, "offsets", _TASK,
        "Offsets of the task's partitions that can be read and that it is not past yet, those of its siblings' "
        "records too",
        is_summed=False,
    ),
    Metric(
        "lag-ns", _G, "ns", _TASK,
        "How far behind the clock the event time is up to which the task has read, while it has a lag; 0 while it has none",
        is_summed=False,
    ),
    Metric(
        "lead", _G, "offsets", _TASK,
        "Offsets that a virtual task is ahead of the slowest one of the same partition",
        is_summed=False,
    ),
)  # fmt: skip

METRICS: dict[MetricName, Metric] = {row.name: row for row in _ROWS}
assert tuple(METRICS) == get_args(MetricName)


@dataclass(frozen=True, slots=True)
class MetricRate:
    """What is made of the metrics for the last 10 s and the last 60 s; of a younger plan for as long as it is in force. `name`:
    as in `core.metrics.observations`. A share is of that time: 1 is all of it."""

    name: str
    unit: str
    label: MetricLabel
    meaning: str


RATES: tuple[MetricRate, ...] = (
    MetricRate("busy-share", "1", _TASK, "`process-ns`, at most 1"),
    MetricRate("wait-share", "1", _TASK, "`wait-ns`, at most `busy-share`"),
    MetricRate("records-per-s", "records/s", _TASK, "`records-processed`"),
    MetricRate("records-per-s", "records/s", _SUB, "`records-processed` of all tasks"),
    MetricRate("incoming-per-s", "offsets/s", _SUB, "`input-offsets`; null where the inputs were looked at only once"),
    MetricRate("written-per-s", "records/s", _SUB, "`records-written`"),
    MetricRate("round-share", "1", _SUB, "`round-ns`. Near 1 the job does nothing but rounds"),
    MetricRate("commit-share", "1", _SUB, "`commit-ns` of the slowest container, and `round-commit-ns`"),
    MetricRate(
        "busy-share", "1", _SUB,
        "`container-process-ns` of the busiest container, per thread. Near `round-share` functions are the limit",
    ),
    MetricRate("wait-share", "1", _SUB, "`container-wait-ns` of the same container, per thread"),
    MetricRate(
        "hot-share", "1", _SUB,
        "`process-ns` of the largest task over that of the mean task: 1 where all are alike; null where nothing was processed",
    ),
)  # fmt: skip


def sum_and_max(name: MetricName, values: Mapping[str, float]) -> dict[str, float]:
    """What is left of a metric where its label has too many values: `sum`, where one means anything, and `max`.

    >>> sum_and_max("gets", {"Partition_0": 3, "Partition_1": 5}), sum_and_max("lag", {"Partition_0": 3, "Partition_1": 5})
    ({'sum': 8, 'max': 5}, {'max': 5})
    """
    found = {"max": max(values.values(), default=0)}
    return {"sum": sum(values.values())} | found if METRICS[name].is_summed else found
