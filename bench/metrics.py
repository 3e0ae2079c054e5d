"""What measuring costs: the same rounds with it and without, in alternating processes, in CPU time.

    python bench/metrics.py [pairs, 5 by default] [src folder of another tree]

Without measuring: store calls are not counted, clocks give 0, nothing is made of what was measured, and nothing is kept. With
another tree the ratio is to that one. Rounds run in one process without Spark, on the embedded log in memory: nothing else
takes time there, so that the share of measuring is as large as it can be.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.core.topology.sub_topologies import upstream_names_of
from headrace.driver.rounds.scheduling import RoundScheduler
from headrace.wiring import config_of
from headrace.wiring.launch import launched
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine

HERE = Path(__file__).parents[1] / "src"
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


# What is run, with how many records, in rounds of how many, with which elasticity factor.
CASES: dict[str, tuple[Callable[[hr.App], None], int, int, int]] = {
    "vectorised count": (counted, 1_000_000, 200_000, 4),
    "a get and a put per record": (processed, 60_000, 30_000, 4),
    "rounds of 100 records, 16 tasks": (counted, 10_000, 100, 16),
}


def cpu_s(case: str) -> float:
    declare, records, per_round, factor = CASES[case]
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as root:
        url = f"log:{root}/log"
        keys = {"state_uri": f"{root}/state", "local_store_dir": f"{root}/stores"}
        scale = {"max_records_per_round": per_round, "elasticity_factor": factor}
        app = hr.App("bench", config={"system": url, **keys, **scale})
        declare(app)
        with hr.open_system(url) as system:
            system.create_stream("in", 1)
            system.produce("in", [(f"k{n % 1_000}", n) for n in range(records)], key=hr.String(), value=hr.Long())
        job = launched(app, config_of(app), InlineEngine(run_container), lambda line: None)
        runners = {runner.sub.name: runner for runner in job.prepared.runners}
        scheduler = RoundScheduler(runners, upstream_names_of(job.prepared.plan.subs), 30.0)
        began_s = time.process_time()
        while (planned := scheduler.next(runners[None], time.monotonic(), 0)) is not None:
            runners[None].commit(planned, runners[None].run(planned))
        found_s = time.process_time() - began_s
        job.backend.store.release(job.prepared.plan.epoch)
        job.close()
        return found_s


def without_measuring() -> None:
    """Take out of this process what is there only to measure."""
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
        (RoundMeter, "committed", lambda *given: None),
        *((module, "perf_counter_ns", int) for module in (task_state, store_calls, measures, base)),
    ]
    for place, name, value in changed:
        setattr(place, name, value)


def child(source: Path, how: str) -> dict[str, float]:
    """All cases in a process of their own, each three times: the best counts, as others use the machine too."""
    environment = {**os.environ, "PYTHONPATH": str(source)}
    found = subprocess.run([sys.executable, __file__, how], env=environment, capture_output=True, text=True, check=True)
    times: dict[str, float] = json.loads(found.stdout.splitlines()[-1])
    return times


def main() -> None:
    if sys.argv[1:] in (["child"], ["unmeasured"]):
        if sys.argv[1] == "unmeasured":
            without_measuring()
        print(json.dumps({case: min(cpu_s(case) for _ in range(3)) for case in CASES}))
        return
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    other = (Path(sys.argv[2]), "child") if len(sys.argv) > 2 else (HERE, "unmeasured")
    sides, runs = ((HERE, "child"), other), []
    for pair in range(pairs):
        turn = sides[:: -1 if pair % 2 else 1]  # who is first changes from pair to pair
        found = {side: child(*side) for side in turn}
        runs.append([found[side] for side in sides])
    for case, (_, records, _, _) in CASES.items():
        mine, others = ([pair[side][case] for pair in runs] for side in (0, 1))
        each_us = statistics.median(mine) / records * 1e6
        print(f"{case}: {each_us:.2f} µs CPU per record ({', '.join(f'{seconds:.3f}' for seconds in mine)} s)")
        ratio = statistics.median(with_it / without for with_it, without in zip(mine, others, strict=True))
        what = "without measuring" if other[1] == "unmeasured" else "the other tree"
        print(f"    {what}: {', '.join(f'{seconds:.3f}' for seconds in others)} s; median of the ratios {ratio:.3f}")


if __name__ == "__main__":
    main()
