"""The metrics of a job as Prometheus has them: names with base units, labels, and how many series there are at most.

Source: Prometheus' own rules for names (seconds and bytes as units, `_total` for what only rises, which its client adds).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from headrace.core.metrics.phases import PHASES
from headrace.core.metrics.table import METRICS, Metric, MetricKind, MetricLabel, MetricValues

PREFIX = "headrace_"
_OVER_TASKS = {"sum": "_sum_over_tasks", "max": "_max_over_tasks"}
_NS = 1e9
_OWN_LABEL = {
    MetricLabel.CONTAINER: "container",
    MetricLabel.TASK: "task",
    MetricLabel.PHASE: "phase",
    MetricLabel.ROUND_PHASE: "phase",
}


@dataclass(frozen=True, slots=True)
class Series:
    """All series of one name: `labels` names them, each sample has their values in this order."""

    name: str
    kind: MetricKind
    meaning: str
    labels: tuple[str, ...]
    samples: tuple[tuple[tuple[str, ...], float], ...]


def series_of(application: str, measured: Mapping[str, MetricValues]) -> list[Series]:
    """The series of a job. `measured`: by the titles of its sub-topologies, `""` for what is the job's own.

    >>> found = series_of("shop", {"source": {"round-ns": {"": 2_500_000_000}, "lag": {"Partition_0": 7}}})
    >>> [(one.name, one.labels, one.samples) for one in found]  # doctest: +NORMALIZE_WHITESPACE
    [('headrace_round_seconds', ('application', 'sub_topology'), ((('shop', 'source'), 2.5),)),
     ('headrace_lag', ('application', 'sub_topology', 'task'), ((('shop', 'source', 'Partition_0'), 7),))]
    """
    found: dict[str, tuple[Metric, tuple[str, ...], list[tuple[tuple[str, ...], float]]]] = {}
    for metric in METRICS.values():
        is_of_job = metric.label in (MetricLabel.JOB, MetricLabel.PHASE)
        common = ("application",) if is_of_job else ("application", "sub_topology")
        for title, values in sorted(measured.items()):
            given = (application,) if is_of_job else (application, title)
            for name, labels, own, value in _samples(metric, values.get(metric.name, {})):
                _, _, samples = found.setdefault(name, (metric, (*common, *labels), []))
                samples.append(((*given, *own), value / _NS if metric.unit == "ns" else value))
    return [
        Series(name, metric.kind, metric.meaning, labels, tuple(samples)) for name, (metric, labels, samples) in found.items()
    ]


def _samples(
    metric: Metric, by_label: Mapping[str, float]
) -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...], float]]:
    """Of each value the name, its own label and the value of that, and the value itself."""
    name, own = series_name(metric), _OWN_LABEL.get(metric.label)
    is_of_many = metric.label is MetricLabel.TASK and by_label.keys() <= _OVER_TASKS.keys()
    for label, value in by_label.items():
        if is_of_many:
            yield name + _OVER_TASKS[label], (), (), value
        elif own is None:
            yield name, (), (), value
        else:
            yield name, (own,), (label,), value


def series_name(metric: Metric) -> str:
    """What Prometheus has it under, but for the `_total` of counters."""
    name = PREFIX + metric.name.removesuffix("-ns").replace("-", "_")
    unit = {"ns": "_seconds", "bytes": "_bytes"}.get(metric.unit, "")
    return name if name.endswith(unit) else name + unit


def series_max(sub_topologies: int, containers: int, tasks: int, phases: int = 20) -> int:
    """So many series a job has at most; `tasks`: those of sub-topologies with no more than 1,000."""
    counts = {label: sum(metric.label is label for metric in METRICS.values()) for label in MetricLabel}
    per_sub = counts[MetricLabel.SUB_TOPOLOGY] + len(PHASES) * counts[MetricLabel.ROUND_PHASE]
    per_sub += len(_OVER_TASKS) * counts[MetricLabel.TASK]
    whole = counts[MetricLabel.JOB] + phases * counts[MetricLabel.PHASE]
    return whole + per_sub * sub_topologies + counts[MetricLabel.CONTAINER] * containers + counts[MetricLabel.TASK] * tasks
