"""What is observed of a sub-topology that runs, made of its metrics: loads, shares and lag; and what the status shows of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from headrace.codec.observations import observation_document
from headrace.core.metrics.observations import (
    OBSERVED_TASKS_MAX,
    SubTopologyLoad,
    SubTopologyObservation,
    TaskLoad,
    TaskObservation,
)
from headrace.core.metrics.table import METRICS, MetricLabel, MetricName, sum_and_max
from headrace.driver.job_status import ShownMetrics
from headrace.driver.metrics.recent_metrics import RecentMetrics
from headrace.driver.rounds.sub_topology_runner import SubTopologyRunner

SPANS_S = (10.0, 60.0)
Amounts = Mapping[MetricName, Mapping[str, float]]


def observation_of(runner: SubTopologyRunner, metrics: RecentMetrics, slots: int, now_s: float) -> SubTopologyObservation:
    """One sub-topology as it is now, but for whether its scale is being changed. While a round runs, the spans end where it
    began: what it does is not known yet. `slots`: the engine's."""
    meter, model = runner.meter, runner.model
    until_s = now_s if meter.running_since_s is None else meter.running_since_s
    observed_s = max(0.0, until_s - meter.begun_s)
    values, of_job = metrics.values(meter.title), metrics.values("")
    has_changed = bool(of_job.get("plan-changes", {}).get(""))
    threads = values.get("threads", {})
    (short_s, short), (long_s, long) = (
        (min(span_s, observed_s), metrics.within(meter.title, until_s - span_s, until_s)) for span_s in SPANS_S
    )
    tasks = []
    if meter.task_count <= OBSERVED_TASKS_MAX:
        lags = runner.task_positions.lags_by_task(meter.ends)
        for container in model.containers:
            for task in container.tasks:
                name = str(task.name)
                loads = task_load(short, short_s, name), task_load(long, long_s, name)
                tasks.append(TaskObservation(task.name, container.lane, lags[task.name], *loads))
    return SubTopologyObservation(
        meter.title,
        model.elasticity_factor,
        meter.task_count,
        len(model.containers),
        slots,
        threads=round(max(threads.values(), default=1)),
        lag=runner.progress.lag,
        observed_s=observed_s,
        last_10_s=sub_topology_load(short, short_s, threads, meter.task_count),
        last_60_s=sub_topology_load(long, long_s, threads, meter.task_count),
        last_pause_s=of_job["change-pause-ns"][""] / 1e9 if has_changed else None,
        is_replaying=runner.is_replaying,
        tasks=tuple(tasks),
    )


def task_load(amounts: Amounts, span_s: float, task: str) -> TaskLoad:
    """What a task did in so many seconds."""
    if span_s <= 0:
        return TaskLoad()
    busy = min(1.0, amounts["process-ns"].get(task, 0.0) / 1e9 / span_s)
    wait = min(busy, amounts["wait-ns"].get(task, 0.0) / 1e9 / span_s)
    return TaskLoad(busy, wait, amounts["records-processed"].get(task, 0.0) / span_s)


def sub_topology_load(amounts: Amounts, span_s: float, threads: Mapping[str, float], tasks: int) -> SubTopologyLoad:
    """What a sub-topology of so many `tasks` did in so many seconds. `threads`: by lane, in how many its container works."""
    if span_s <= 0:
        return SubTopologyLoad()

    def share(ns: float) -> float:
        return min(1.0, ns / 1e9 / span_s)

    process, many = amounts["process-ns"], tasks > OBSERVED_TASKS_MAX
    whole = process.get("sum", 0.0) if many else sum(process.values())
    largest = process.get("max", 0.0) if many else max(process.values(), default=0.0)
    records = amounts["records-processed"]
    busiest = max(
        amounts["container-process-ns"].items(), key=lambda one: one[1] / threads.get(one[0], 1), default=("", 0.0)
    )
    waited = amounts["container-wait-ns"].get(busiest[0], 0.0)
    incoming = amounts["input-offsets"].get("")
    commit_ns = max(amounts["commit-ns"].values(), default=0.0) + amounts["round-commit-ns"].get("", 0.0)
    return SubTopologyLoad(
        records_per_s=(records.get("sum", 0.0) if many else sum(records.values())) / span_s,
        incoming_per_s=None if incoming is None else incoming / span_s,
        round_share=share(amounts["round-ns"].get("", 0.0)),
        commit_share=share(commit_ns),
        busy_share=share(busiest[1] / threads.get(busiest[0], 1)),
        wait_share=share(waited / threads.get(busiest[0], 1)),
        hot_share=largest * tasks / whole if whole else None,
        written_per_s=amounts["records-written"].get("", 0.0) / span_s,
    )


# --- for the status -------------------------------------------------------------------------------------------------------


def shown_metrics(metrics: RecentMetrics, observed: SubTopologyObservation) -> ShownMetrics:
    """The metrics of a sub-topology by name: a number, or for tasks and containers `sum` and `max`; and its loads."""
    found: ShownMetrics = {}
    many = observed.task_count > OBSERVED_TASKS_MAX
    for name, by_label in _values(metrics, observed).items():
        match METRICS[name].label:
            case MetricLabel.SUB_TOPOLOGY:
                found[name] = by_label[""]
            case MetricLabel.ROUND_PHASE:
                found[name] = dict(by_label)
            case MetricLabel.TASK if many:
                found[name] = dict(by_label)
            case _:
                found[name] = sum_and_max(name, by_label)
    rates = zip(SPANS_S, (observed.last_10_s, observed.last_60_s), strict=True)
    return found | {name: rate for span_s, load in rates for name, rate in _rates_of(load, span_s).items()}


def shown_job_metrics(metrics: RecentMetrics) -> ShownMetrics:
    """The metrics of the job itself by name: a number, or one for each phase."""
    values = metrics.values("")
    return {name: by_label if METRICS[name].label is MetricLabel.PHASE else by_label[""] for name, by_label in values.items()}


def published_metrics(metrics: RecentMetrics, observed: SubTopologyObservation) -> dict[str, Any]:
    """What is published of a sub-topology besides its status, for the commands of other processes."""
    return {
        "job_metrics": shown_job_metrics(metrics),
        "task_metrics": _shown_tasks(metrics, observed),
        "observed": observation_document(observed),
    }


def _values(metrics: RecentMetrics, observed: SubTopologyObservation) -> dict[MetricName, dict[str, float]]:
    """All metrics, with the lags of now."""
    values = metrics.values(observed.sub_topology)
    return values | {"lag": {str(one.task): one.lag for one in observed.tasks}} if observed.tasks else values


def _shown_tasks(metrics: RecentMetrics, observed: SubTopologyObservation) -> dict[str, Any]:
    """The metrics of each task, as a table that stays small: `columns`, and by task its `rows` of numbers."""
    values = _values(metrics, observed)
    names = [name for name in METRICS if METRICS[name].label is MetricLabel.TASK and name in values]
    rows = {}
    for one in observed.tasks:
        task = str(one.task)
        rates = _rates_of(one.last_10_s, SPANS_S[0]) | _rates_of(one.last_60_s, SPANS_S[1])
        rows[task] = [*(round(values[name].get(task, 0)) for name in names), *rates.values()]
    columns = [name for span_s in SPANS_S for name in _rates_of(TaskLoad(), span_s)]
    return {"columns": [*names, *columns], "rows": rows}


def _rates_of(load: TaskLoad | SubTopologyLoad, span_s: float) -> dict[str, float | None]:
    """As published: `busy-share-10s` and the like, with 4 digits."""
    rates = asdict(load).items()
    return {
        f"{name.replace('_', '-')}-{span_s:.0f}s": None if value is None else round(value, 4) for name, value in rates
    }
