"""Writes the page of metrics from their table: `metrics_page.py docs/metrics.md`."""

from __future__ import annotations

import sys
from pathlib import Path

from headrace.core.metrics.observations import OBSERVED_TASKS_MAX
from headrace.core.metrics.table import METRICS, RATES, Metric, MetricLabel, MetricRate

_HEAD = f"""\
# Metrics

<!-- Made by `make docs` from headrace.core.metrics.table: edit the table there, not this page. -->

`headrace status --json` shows the metrics of a job and of each sub-topology, `headrace tasks --json` those of each task.
`job.observations()` gives what a controller goes by: loads, lags and scale. The names are those of SEP-32 where it has one.

- A counter begins at 0 with each plan of the job, a gauge is the value of now. Of what has a container or a task as label,
  `status` shows `sum` and `max`; `max` alone where a sum means nothing.
- With more than {OBSERVED_TASKS_MAX:,} tasks in a sub-topology only sums and maxima are kept. Of a counter the maximum is then the
  sum of the largest values of each round.
- No label is a key of a record, an offset or a path. All but the metrics of the job have the sub-topology as a label too.
- Workers look at a clock per batch and per piece of work, never per record: the cost is in [benchmarks](benchmarks.md#metrics).
- Spark's own metrics (of its tasks, shuffles and readers) are in Spark's UI, not here.
"""

_RATES = """
## Rates and shares

Each is given for the last 10 s and the last 60 s, as `NAME-10s` and `NAME-60s`; under a younger plan for as long as it is in force.
A round counts evenly over the time that it took. A share is of that time.

| rate | unit | of each | made of |
|---|---|---|---|
"""

_TITLES = {
    MetricLabel.JOB: "The job",
    MetricLabel.PHASE: "Phases of a change",
    MetricLabel.SUB_TOPOLOGY: "Sub-topologies",
    MetricLabel.CONTAINER: "Containers",
    MetricLabel.TASK: "Tasks",
}


def row_of(metric: Metric) -> str:
    return f"| `{metric.name}` | {metric.kind} | {metric.unit} | {metric.meaning}. |\n"


def rate_row_of(rate: MetricRate) -> str:
    return f"| `{rate.name}` | {rate.unit} | {rate.label} | {rate.meaning}. |\n"


def page() -> str:
    parts = [_HEAD]
    for label, title in _TITLES.items():
        parts.append(f"\n## {title}\n\n| metric | kind | unit | meaning |\n|---|---|---|---|\n")
        parts.extend(row_of(metric) for metric in METRICS.values() if metric.label is label)
    return "".join([*parts, _RATES, *map(rate_row_of, RATES)])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
