"""The job of a storm: on Spark, with its JVM and Python workers, in a process that imports everything once and forks.

`python storm_child.py serve` speaks as `child.py` does. What a run prints, Spark's JVM included, goes to a file of its
own: how it ends is for the test to read.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import headrace as hr
import headrace.adapters.kafka.coordinator_store
import headrace.adapters.spark.engine
import headrace.wiring.launch  # a driver would import these anyway: before it is forked, each start is that much quicker
from headrace import wiring
from kafka_faults.storm_verdict import GROUPS
from support.forking import print_to_file, report_end, serve
from support.world import ARRIVALS_MAX

BEFORE_COMMIT = 8  # in protocol.md, "Steps"


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the application `name`, which reads `NAME-in` until it has caught up."""

    name: str
    servers: str
    stores: str
    report: str
    steps_log: str
    round_records: int
    armed: str  # a file: when it is filled, the next worker that is about to commit stops
    run_s: float = 600.0


def doubled(record: Any) -> dict[str, Any]:
    return {"id": record.value["id"], "n": record.value["n"] * 2}


def group_of(record: Any) -> str:
    return f"g{record.value['n'] % GROUPS}"


def application(run: Run) -> hr.App:
    """A stateless map, a count and a sum per key, and behind a repartition the records by group, and their count."""
    name = run.name
    app = hr.App(
        name,
        f"kafka://{run.servers}",
        config={"spark.master": "local[2,4]"},
        local_store_dir=run.stores,
        max_records_per_round=run.round_records,
        trigger_interval_ms=20,
    )
    records = app.stream(f"{name}-in", key=hr.String(), value=hr.Json("id int, n int"))
    records.map_values(doubled, value=hr.Json()).to(f"{name}-mapped")
    by_key = records.group_by_key()
    by_key.count(store="counts").to_stream().to(f"{name}-counts")
    by_key.aggregate(total=hr.sum("value.n"), store="totals").to_stream().to(f"{name}-totals", value=hr.Json())
    groups = records.select_key(group_of, key=hr.String()).repartition(hr.Repartitioned(name="by-group"))
    groups.to(f"{name}-regrouped")
    groups.group_by_key().count(store="groups").to_stream().to(f"{name}-groups")
    return app


def finish(run: Run) -> int:
    """Run the job until it has caught up."""

    def work() -> dict[str, Any]:
        started = wiring.start(application(run), "caught-up")
        started.wait(run.run_s)
        return {"status": started.status()}

    return report_end(run, work)


def prepare(run: Run) -> None:
    """Its prints go to a file, and its workers have a trap; it has none itself."""
    print_to_file(run)
    os.environ["HEADRACE_TEST_STEPS"] = f"stop:kafka:{BEFORE_COMMIT}:{ARRIVALS_MAX}@{run.armed}"


if __name__ == "__main__":
    serve(Run, prepare, finish, 30)
