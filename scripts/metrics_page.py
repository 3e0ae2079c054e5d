"""Writes the page of metrics from their table: `metrics_page.py docs/metrics.md`."""

from __future__ import annotations

import sys
from pathlib import Path

from headrace.core.metrics.observations import OBSERVED_TASKS_MAX
from headrace.core.metrics.series import series_max
from headrace.core.metrics.table import METRICS, RATES, Metric, MetricLabel, MetricRate

_OF_JOB = series_max(0, 0, 0)
_OF_SUB, _OF_CONTAINER, _OF_TASK = (series_max(*one) - _OF_JOB for one in ((1, 0, 0), (0, 1, 0), (0, 0, 1)))

_HEAD = f"""\
# Metrics

<!-- Made by `make docs` from headrace.core.metrics.table: edit the table there, not this page. -->

`headrace status --json` shows the metrics of a job and of each sub-topology, `headrace tasks --json` those of each task.
`job.observations()` gives what a controller goes by: loads, lags and scale. The names are those of SEP-32 where it has one.

- A counter begins at 0 with each plan of the job, a gauge is the value of now. Of what has a container or a task as label,
  `status` shows `sum` and `max`; `max` alone where a sum means nothing.
- A container whose answer is lost after its commit is run once more, finds that it has committed, and counts nothing: after a lost
  worker a counter may lack what that round has done. Positions, and so lags, are right.
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

_PROMETHEUS = f"""
## Prometheus

With `metrics_address` set (`metrics_address = "9404"` in `headrace.toml`: a port of this machine's loopback address; or
`"0.0.0.0:9404"` where Prometheus is on another host) the process of a job answers `/metrics`. It needs `pip install 'headrace[http]'`.
In a group each processor answers for its own tasks.

- The name is `headrace_` with the metric's name and `_` for `-`. Times are in seconds (`round-ns` is `headrace_round_seconds_total`),
  counters end with `_total`, and begin at 0 with each plan, as after a restart.
- Labels are `application`, `sub_topology`, and `task`, `container` or `phase`. Of a sub-topology with more than {OBSERVED_TASKS_MAX:,} tasks
  there is no series for each: `headrace_lag_max_over_tasks` takes its place, and `_sum_over_tasks` where a sum means something.
- A job has at most {_OF_JOB} series for itself, {_OF_SUB} for each sub-topology, {_OF_CONTAINER} for each container and {_OF_TASK} for each task.
- Nothing is kept for Prometheus: what the job has measured anyway is read when it is requested.

- What seldom occurs is there from the first scrape on, as 0: the counters of the job and of sub-topologies (`input-offsets` from the
  second look at the inputs on), `change-pause-ns` and `restore-left-bytes`. Those of tasks and containers come with their first round.
- Rates are left to Prometheus, such as `rate(headrace_rounds_failed_total[5m])`: the rates above are not exported.

Where the time of a round goes: `headrace_round_phase_seconds_total` with the label `phase`, whose phases together are
`headrace_round_seconds_total`. More closely, of each container and task:

| phase | metrics |
|---|---|
| read | `headrace_total_input_consumption_seconds_total` |
| decode | `headrace_decode_seconds_total` |
| process | `headrace_process_seconds_total`, which includes decoding and access to state |
| state | `headrace_get_seconds_total`, `headrace_put_seconds_total`, `headrace_delete_seconds_total`; made ready: `headrace_store_identify_seconds_total` |
| write | `headrace_write_seconds_total` |
| commit | on Kafka `headrace_commit_seconds_total` without `headrace_write_seconds_total`; on the embedded log `headrace_round_commit_seconds_total` |

`/live` answers 200 while the job runs, and 503 after it has failed; `/ready` answers 503 until the job has started (in a group: until
the processor has tasks), and when a sub-topology has stopped. Both say why.
"""

_TITLES = {
    MetricLabel.JOB: "The job",
    MetricLabel.PHASE: "Phases of a change",
    MetricLabel.SUB_TOPOLOGY: "Sub-topologies",
    MetricLabel.ROUND_PHASE: "Phases of rounds",
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
    return "".join([*parts, _RATES, *map(rate_row_of, RATES), _PROMETHEUS])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
