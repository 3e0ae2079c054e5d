"""What pauses of a standalone group cost: how long tasks commit nothing while all rest, beside how long they usually do not.

    .venv/bin/python bench/groups.py pauses [--trials N] [--partitions N] [--rate N]

Four processors count keys, and behind a repartition stream their last digits, under a constant load.

- For half a minute no version is kept; then, in another group, one every 5 s, which is as often as they are.
- The elasticity factor goes from 1 to 2 and back, as often as there are trials: to 2 without a pause, to 1 with one, in which
  tasks are brought together. Printed is how long it takes from the request to the job model that is in force, and the longest
  time without a commit in each partition of the output, from the request on.

Kafka Streams has neither. All is measured from outside, as in bench/groups.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from commits_seen import Arrivals, Load
from group_contestants import IDS, Bench, Processors

import headrace as hr
from headrace.codec.job_records import cuts_of

SESSION_MS, SPAN_S, BEHIND_S, POLL_S, CHANGE_S_MAX = 10_000, 30.0, 8.0, 0.05, 120.0
NEVER_S, OFTEN_S = 86_400.0, 5.0


def pauses(bench: Bench, trials: int) -> None:
    with running(bench, NEVER_S) as (group, arrivals, system):
        print_span(group, arrivals, system)
        for factor in (2, 1) * trials:
            print_change(group, arrivals, system, factor)
    with running(bench, OFTEN_S) as (group, arrivals, system):
        print_span(group, arrivals, system)


@contextmanager
def running(bench: Bench, version_every_s: float) -> Iterator[tuple[Processors, Arrivals, Any]]:
    """Four processors that have settled, under the load."""
    settings = {"state_version_interval_s": version_every_s}
    group = Processors(bench, SESSION_MS, program="headrace_two_counts.py", settings=settings)
    with group.open() as arrivals, Load(bench.servers, group.input, bench.partitions, bench.rate):
        group.start(*IDS)
        group.settle(arrivals)
        with hr.open_system(f"kafka://{bench.servers}") as system:
            yield group, arrivals, system


def print_span(group: Processors, arrivals: Arrivals, system: Any) -> None:
    """For half a minute; with how many versions were kept that are of all tasks at once: some are dropped soon."""
    metadata, since_s = system.metadata_store(group.name), time.monotonic()
    before = seen = {one.key for one in cuts_of(metadata)}
    while time.monotonic() - since_s < SPAN_S:
        time.sleep(1.0)
        seen = seen | {one.key for one in cuts_of(metadata)}
    print_gaps(f"{SPAN_S:g} s, {len(seen - before)} versions kept of all tasks at once", gaps_since(since_s, arrivals))


def gaps_since(since_s: float, arrivals: Arrivals) -> list[list[float]]:
    until_s = time.monotonic()
    return [[length_s for length_s, _ in arrivals.gaps(task, since_s, until_s)] for task in arrivals.commits]


def print_gaps(what: str, gaps: Sequence[Sequence[float]]) -> None:
    every, longest = [one for mine in gaps for one in mine], [max(mine) for mine in gaps]
    p50, p99 = np.percentile(every, [50, 99])
    print(
        f"{what}: from one commit of a partition to the next {p50:.2f} s (median), {p99:.2f} s (p99); the longest of a "
        f"partition {np.median(longest):.2f} s (median of {len(longest)}), {max(longest):.2f} s (most)",
        flush=True,
    )


def print_change(group: Processors, arrivals: Arrivals, system: Any, factor: int) -> None:
    """Set the factor, and wait until it is in force."""
    store, tasks, since_s = system.job_store(group.name), 2 * group.bench.partitions * factor, time.monotonic()
    with hr.elasticity(group.name, f"kafka://{group.bench.servers}") as elasticity:
        elasticity.set(factor)
        requested_s = time.monotonic()

        def is_in_force() -> bool:
            time.sleep(POLL_S)
            model = store.job_model()
            return model is not None and sum(1 for _ in model.tasks) == tasks

        group.until(f"factor {factor} is in force", is_in_force, CHANGE_S_MAX)
    took_s = time.monotonic() - requested_s
    time.sleep(BEHIND_S)
    print_gaps(f"factor {factor}: in force {took_s:.2f} s after the request", gaps_since(since_s, arrivals))
