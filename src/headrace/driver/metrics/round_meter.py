"""Measures the rounds of one sub-topology under one plan: from what containers report, and from what the driver sees itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headrace.core.metrics.observations import OBSERVED_TASKS_MAX
from headrace.core.metrics.phases import PHASES, ContainerTimes, phases_of
from headrace.core.metrics.sink import MetricsSink
from headrace.core.metrics.table import METRICS, MetricKind, MetricLabel, MetricName, MetricValues, sum_and_max
from headrace.driver.rounds.planned_round import PlannedRound, RoundInputs
from headrace.driver.rounds.task_positions import TaskPositions
from headrace.exchange.messages import Summary, TaskMeasures
from headrace.model.checkpoint import Checkpoint, Head
from headrace.model.job_model import SubTopologyModel
from headrace.model.streams import SSP

GAUGES_S = 0.5  # from one look at the tasks' positions to the next
GAUGES_OF_MANY_S = 10.0  # where there are more than `OBSERVED_TASKS_MAX`
_OF_TASKS: tuple[tuple[str, MetricName], ...] = tuple(
    (name.replace("-", "_"), name) for name in METRICS if name.replace("-", "_") in TaskMeasures.__struct_fields__
)
_COUNTED: dict[MetricName, str] = {
    "records-written": "records_written",
    "dead-letters": "dead_letters",
    "late-records": "late_records",
}
Values = dict[MetricName, dict[str, float]]
# What is there from the first scrape on, so that an alert sees it rise from 0; `input-offsets` needs two looks.
_ZEROS: MetricValues = {
    name: dict.fromkeys(PHASES if one.label is MetricLabel.ROUND_PHASE else ("",), 0.0)
    for name, one in METRICS.items()
    if one.label in (MetricLabel.SUB_TOPOLOGY, MetricLabel.ROUND_PHASE)
    and (one.kind is MetricKind.COUNTER or name == "restore-left-bytes")
    and name != "input-offsets"
}


class RoundMeter:
    """Only the sub-topology's own thread calls it. `chained`: the streams that begin with Spark expressions, which readers in
    front of these read. `running_since_s`: when the round began that runs, None between rounds; `ends`: up to where the
    inputs could be read at the last look. Both are replaced, never changed: any thread may look."""

    def __init__(self, model: SubTopologyModel, chained: frozenset[str], sinks: Sequence[MetricsSink], now_s: float) -> None:
        self.title, self._chained, self._sinks = model.title, chained, sinks
        self.begun_s = now_s
        self.running_since_s: float | None = None
        self._tasks_of = {container.lane: len(container.tasks) for container in model.containers}
        self.task_count = sum(self._tasks_of.values())
        self.ends: Mapping[SSP, int] = {}
        self._looked_s = now_s
        self._gauges_due_s = now_s
        self._left_bytes = 0
        self._local_bytes: dict[str, int] = {}
        self._disk_bytes: dict[str, float] = {}
        for sink in sinks:
            sink.begin(model.title)
        self._record(_ZEROS, now_s, now_s)
        scale: Values = {
            "task-count": {"": self.task_count},
            "container-count": {"": len(model.containers)},
            "elasticity-factor": {"": model.elasticity_factor},
        }
        self._record(scale, now_s, now_s)

    def looked(self, inputs: RoundInputs, positions: TaskPositions, now_s: float) -> None:
        """The inputs can be read so far now."""
        ends = inputs.ends
        if self.ends:
            grown = sum(max(0, end - self.ends[ssp]) for ssp, end in ends.items() if ssp in self.ends)
            self._record({"input-offsets": {"": grown}}, self._looked_s, now_s)
        self.ends, self._looked_s = dict(ends), now_s
        if now_s >= self._gauges_due_s:
            self._gauges_due_s = now_s + (GAUGES_OF_MANY_S if self.task_count > OBSERVED_TASKS_MAX else GAUGES_S)
            lags, leads = positions.lags_by_task(ends), positions.leads()
            gauges: Values = {
                "lag": {str(task): lag for task, lag in lags.items()},
                "lead": {str(task): lead for task, lead in leads.items()},
                "lag-ns": {str(task): lag_us * 1000 for task, lag_us in positions.time_lags_us(ends, inputs.now_us).items()},
            }
            if (slowest_us := positions.slowest_watermark_us(set(inputs.idle))) is not None:
                gauges["watermark-delay-ns"] = {"": max(0, inputs.now_us - slowest_us) * 1000}
            self._record(gauges, now_s, now_s)

    def began(self, now_s: float) -> None:
        """The containers of a round begin."""
        self.running_since_s = now_s

    def answered(self, summaries: Sequence[Summary], now_s: float) -> None:
        """Containers have been run, whether they have taken part, declined, or were lost."""
        home = [summary for summary in summaries if summary.declined is None and not summary.lost]
        counts: Values = {
            "tasks-run": {"": sum(self._tasks_of[summary.lane] for summary in summaries)},
            "tasks-at-home": {"": sum(self._tasks_of[summary.lane] for summary in home)},
        }
        if declined := sum(summary.has_declined for summary in summaries):
            counts["declined"] = {"": declined}
        self._record(counts, now_s, now_s)

    def restored(self, read_bytes: int, left_bytes: int, now_s: float) -> None:
        """So much of state files was read in the background since the last call, and so much is left to be read."""
        if read_bytes or left_bytes != self._left_bytes:
            self._left_bytes = left_bytes
            self._record({"restored-bytes": {"": read_bytes}, "restore-left-bytes": {"": left_bytes}}, now_s, now_s)

    def failed(self, now_s: float) -> None:
        """The round has failed: it does not count."""
        self.running_since_s = None
        self._record({"rounds-failed": {"": 1}}, now_s, now_s)

    def committed(
        self,
        planned: PlannedRound,
        summaries: Sequence[Summary],
        checkpoints: Iterable[Checkpoint],
        commit_s: float,
        now_s: float,
    ) -> dict[str, float]:
        """The round was committed, which took `commit_s` of the time since it began. Its time by phase, in ns."""
        began_s = now_s if self.running_since_s is None else self.running_since_s
        round_ns, commit_ns = round((now_s - began_s) * 1e9), round(commit_s * 1e9)
        phases: dict[str, float] = {**phases_of(round_ns, commit_ns, map(_times_of, summaries))}
        values: Values = {"round-ns": {"": round_ns}, "round-commit-ns": {"": commit_ns}, "round-phase-ns": phases}
        for metric, counter in _COUNTED.items():
            if count := sum(summary.counters.get(counter, 0) for summary in summaries):
                values[metric] = {"": count}
        if fetched := engine_fetched(planned, self._chained):
            values["engine-records-fetched"] = {"": fetched}
        if restored := sum(summary.measures.restored_bytes for summary in summaries):
            values["restored-bytes"] = {"": restored}
        values |= measured_values(summaries)
        opened = {task.task: task.local_bytes for summary in summaries for task in summary.measures.tasks}
        self._local_bytes |= {task: size for task, size in opened.items() if size is not None}
        mine = {str(one.task): one.head for one in checkpoints if opened.get(str(one.task)) is not None}
        disk = {task: float(self._local_bytes[task] + _state_bytes(head)) for task, head in mine.items()}
        self._disk_bytes |= disk
        values["disk-usage"] = self._disk_bytes if self.task_count > OBSERVED_TASKS_MAX else disk
        self._record(values, began_s, now_s)
        self.running_since_s = None
        return phases

    def _record(self, values: MetricValues, began_s: float, ended_s: float) -> None:
        if self.task_count > OBSERVED_TASKS_MAX:
            is_of_tasks = {name for name in values if METRICS[name].label is MetricLabel.TASK}
            values = {name: sum_and_max(name, mine) if name in is_of_tasks else mine for name, mine in values.items()}
        for sink in self._sinks:
            sink.record(self.title, values, began_s, ended_s)


def _times_of(summary: Summary) -> ContainerTimes:
    """What a container has measured of its round, by phase."""
    measures, tasks = summary.measures, summary.measures.tasks
    calls_ns = sum(one.get_ns + one.put_ns + one.delete_ns for one in tasks)
    decode_ns = sum(one.decode_ns for one in tasks)
    return ContainerTimes(
        measures.work_ns,
        measures.total_input_consumption_ns,
        decode_ns,
        max(0, sum(one.process_ns for one in tasks) - decode_ns - calls_ns),
        calls_ns + sum(one.store_identify_ns for one in tasks),
        measures.write_ns,
        measures.commit_ns - measures.write_ns,
        measures.apply_ns,
    )


def measured_values(summaries: Iterable[Summary]) -> Values:
    """What containers and their tasks have measured, by lane and by task."""
    values: Values = {name: {} for name in METRICS if METRICS[name].label in (MetricLabel.CONTAINER, MetricLabel.TASK)}
    for summary in summaries:
        measures, lane = summary.measures, str(summary.lane)
        for field in _OF_CONTAINERS:
            values[_NAMES[field]][lane] = getattr(measures, field)
        values["container-process-ns"][lane] = sum(task.process_ns for task in measures.tasks)
        values["container-wait-ns"][lane] = sum(task.wait_ns for task in measures.tasks)
        for task in measures.tasks:
            for field, name in _OF_TASKS:
                if amount := getattr(task, field):
                    values[name][task.task] = amount
    return {name: by_label for name, by_label in values.items() if by_label}


_OF_CONTAINERS = ("records_fetched", "total_input_consumption_ns", "keyhash_compute_ns", "commit_ns", "write_ns", "threads")
_NAMES: dict[str, MetricName] = {name.replace("-", "_"): name for name in METRICS}


def engine_fetched(planned: PlannedRound, chained: frozenset[str]) -> int:
    """How many offsets of a round are read for containers, each once; the containers count what they read themselves."""
    works = [work for group in planned.works for work in group]
    pieces = {
        (one.stream, one.partition, one.start, one.end)
        for work in works
        for one in work.inputs
        if work.by_engine or one.stream in chained
    }
    return sum(end - start for _, _, start, end in pieces)


def _state_bytes(head: Head | None) -> int:
    """Of the state files of a task, without the parts of shared ones that are not its own."""
    return 0 if head is None else sum(file.counted_bytes for file in head.files)
