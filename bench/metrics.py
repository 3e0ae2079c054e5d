"""What measuring costs: rounds of one job with it and without, in turn, in CPU time.

    python bench/metrics.py [repeats, 3 by default]

Without measuring: store calls are not counted, clocks give 0, nothing is made of what was measured, and nothing is kept. Both
kinds of round run in one process, in the order with, without, without, with, so that they meet the same machine. No Spark, and
the embedded log in memory: nothing else takes time there, so that the share of measuring is as large as it can be.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.core.topology.sub_topologies import upstream_names_of
from headrace.driver.rounds.scheduling import RoundScheduler
from headrace.wiring import config_of
from headrace.wiring.launch import launched
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine

MEMORY = Path("/dev/shm")


def counted(app: hr.App) -> None:
    app.stream("in", key=hr.String(), value=hr.Long()).group_by_key().count(store="counts")


class Totals(hr.Processor):
    stores = (hr.KeyValueStore("totals", value=hr.Long()),)

    def init(self, context: Any) -> None:
        self.totals = context.store("totals")

    def process(self, record: Any) -> None:
        self.totals.put(self.totals.get(0) + record.value)


def processed(app: hr.App) -> None:
    app.stream("in", key=hr.String(), value=hr.Long()).process(Totals)


WARM_UP = 8
# What is run, in rounds of how many records, how many of them, with which elasticity factor.
CASES: dict[str, tuple[Callable[[hr.App], None], int, int, int]] = {
    "vectorised count, rounds of 20,000": (counted, 20_000, 120, 4),
    "vectorised count, rounds of 200,000": (counted, 200_000, 16, 4),
    "a get and a put per record, rounds of 3,000": (processed, 3_000, 120, 4),
    "rounds of 100 records, 16 tasks": (counted, 100, 120, 16),
}


def cpu_ms(case: str) -> tuple[list[float], list[float], list[float]]:
    """CPU time of each round: of those with measuring, and of those without; and what measuring took in the first."""
    declare, per_round, rounds, factor = CASES[case]
    found: tuple[list[float], list[float], list[float]] = [], [], []
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as root:
        url = f"log:{root}/log"
        keys = {"state_uri": f"{root}/state", "local_store_dir": f"{root}/stores"}
        scale = {"max_records_per_round": per_round, "elasticity_factor": factor}
        app = hr.App("bench", config={"system": url, **keys, **scale})
        declare(app)
        with hr.open_system(url) as system:
            system.create_stream("in", 1)
            records = [(f"k{n % 1_000}", n) for n in range(per_round * (WARM_UP + rounds))]
            system.produce("in", records, key=hr.String(), value=hr.Long())
        job = launched(app, config_of(app), InlineEngine(run_container), lambda line: None)
        runners = {runner.sub.name: runner for runner in job.prepared.runners}
        scheduler = RoundScheduler(runners, upstream_names_of(job.prepared.plan.subs), 30.0)
        for number in range(WARM_UP + rounds):
            is_measured = number % 4 in (0, 3)
            with timed_parts(found[2]) if is_measured else without_measuring():
                began_s = time.process_time()
                planned = scheduler.next(runners[None], time.monotonic(), 0)
                assert planned is not None, number
                runners[None].commit(planned, runners[None].run(planned))
                taken_ms = (time.process_time() - began_s) * 1e3
            if number >= WARM_UP:
                found[0 if is_measured else 1].append(taken_ms)
        job.backend.store.release(job.prepared.plan.epoch)
        job.close()
    return found


@contextmanager
def timed_parts(spent_ms: list[float]) -> Iterator[None]:
    """How long the calls take by which a round is measured. Counting and timing store calls is not in it."""
    from headrace.driver.metrics.round_meter import RoundMeter
    from headrace.worker.measures import Measures

    spent_ms.append(0.0)

    def timed(part: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            began_ns = time.perf_counter_ns()
            found = part(*given)
            spent_ms[-1] += (time.perf_counter_ns() - began_ns) / 1e6
            return found

        return call

    parts = [(RoundMeter, "looked"), (RoundMeter, "answered"), (RoundMeter, "committed"), (Measures, "of_round")]
    with replaced([(place, name, timed(getattr(place, name))) for place, name in parts]):
        yield


@contextmanager
def without_measuring() -> Iterator[None]:
    """What is there only to measure is not there."""
    from headrace.core.keys.long_keys import is_long
    from headrace.driver.metrics.round_meter import RoundMeter
    from headrace.exchange.messages import ContainerMeasures
    from headrace.worker import measures
    from headrace.worker.operators import base
    from headrace.worker.state import store_calls, task_state

    def get(self: Any, key: bytes) -> Any:
        if key in self._changes:
            return self._changes[key]
        return self._long.get(key) if is_long(key) else self._store.get(self.name, key)

    def put(self: Any, key: bytes, value: bytes | None) -> None:
        if is_long(key):
            if value is not None:
                self._long.claim(key)
            elif not self._long.owns(key):
                return
        if self._journal.active:
            self._record(key)
        if key not in self._changes:
            self._unsorted.append(key)
        self._changes[key] = value

    nothing = ContainerMeasures(1, 0, 0, 0, 0, [], 0)
    changed: list[tuple[Any, str, Any]] = [
        (task_state.Database, "get", get),
        (task_state.Database, "put", put),
        (store_calls.StoreCalls, "read_many", lambda *given: None),
        (store_calls.StoreCalls, "put_many", lambda *given: None),
        (measures.Measures, "of_round", lambda *given: nothing),
        (RoundMeter, "looked", lambda *given: None),
        (RoundMeter, "answered", lambda *given: None),
        (RoundMeter, "committed", lambda *given: {}),
        *((module, "perf_counter_ns", int) for module in (task_state, store_calls, measures, base)),
    ]
    with replaced(changed):
        yield


@contextmanager
def replaced(changed: list[tuple[Any, str, Any]]) -> Iterator[None]:
    was = [(place, name, getattr(place, name)) for place, name, _ in changed]
    for place, name, value in changed:
        setattr(place, name, value)
    try:
        yield
    finally:
        for place, name, value in was:
            setattr(place, name, value)


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    for case, (_, per_round, _, _) in CASES.items():
        low, spent = [], []
        for _ in range(repeats):
            measured, without, parts = cpu_ms(case)
            low.append((quartile(measured), quartile(without)))
            spent.append(quartile(parts))
        each_us = statistics.median(one for one, _ in low) / per_round * 1e3
        share = statistics.median(part / one for part, (one, _) in zip(spent, low, strict=True))
        ratios = sorted(one / other for one, other in low)
        print(f"{case}: {each_us:.2f} µs CPU per record, {each_us * per_round / 1e3:.1f} ms per round")
        print(f"    measuring a round takes {statistics.median(spent):.2f} ms, {share:.2%} of it")
        print(f"    with all measuring to without any: {', '.join(f'{ratio:.3f}' for ratio in ratios)}", flush=True)


def quartile(found: list[float]) -> float:
    """The lower one: others use the machine too."""
    return statistics.quantiles(found, n=4)[0]


if __name__ == "__main__":
    main()
