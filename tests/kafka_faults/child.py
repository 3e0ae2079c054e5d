"""A job on Kafka that dies: runs until it has caught up, in a process of its own that tests kill and stop.

`python child.py serve` answers one JSON line with one JSON line, like the embedded log's (`chaos/child.py`): it imports
everything once and forks a process for each run.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import headrace as hr
from chaos.forking import serve, trap_steps
from headrace import wiring
from headrace.adapters.kafka import jobs, lanes
from headrace.driver import job
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine

RUN_S_MAX = 100.0


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the application `name`; its topics are `NAME-in`, `NAME-mapped`, `NAME-counts`, `NAME-windows`.

    `traps` is a `HEADRACE_TEST_STEPS`; `stale_us`, if given, is how long a driver that is silent counts as alive; `bug`
    names one of `planted.BUGS`; with `silent` the driver's heartbeat does not find out that another took over, so that it
    is for the containers to see; `pause_s` is what the work on each record takes,
    and `run_s` how long the run may take.
    """

    name: str
    servers: str
    stores: str
    report: str
    traps: str = ""
    steps_log: str = ""
    stale_us: int | None = None
    bug: str = ""
    silent: bool = False
    pause_s: float = 0.0
    run_s: float = RUN_S_MAX
    keys: Mapping[str, Any] | None = None


def doubled(record: Any) -> dict[str, Any]:
    return {"id": record.value["id"], "n": record.value["n"] * 2}


def is_wanted(record: Any) -> bool:
    return bool(record.value["n"] % 5)


def group_of(record: Any) -> str:
    return str(record.value["g"])


def application(run: Run, spark: Any = None) -> hr.App:
    """Stateless map, windows per key, and a keyed count behind a repartition topic; many small rounds."""
    keys = {"max_records_per_round": 40, "trigger_interval_ms": 5, "containers": 2, **(run.keys or {})}
    app = hr.App(run.name, f"kafka://{run.servers}", spark, local_store_dir=run.stores, **keys)
    records = app.stream(f"{run.name}-in", key=hr.String(), value=hr.Json("id int, n int, g string"))

    def slowly_doubled(record: Any) -> dict[str, Any]:
        time.sleep(run.pause_s)
        return doubled(record)

    records.map_values(slowly_doubled if run.pause_s else doubled, value=hr.Json()).to(f"{run.name}-mapped")
    windows = records.group_by_key().windowed_by(hr.Tumbling("10 seconds"))
    totals = windows.aggregate(n=hr.count(), total=hr.sum("value.n"), store="windows")
    totals.to_stream().to(f"{run.name}-windows", value=hr.Json())
    groups = records.filter(is_wanted).select_key(group_of, key=hr.String())
    counts = groups.repartition(hr.Repartitioned(name="by-g", number_of_partitions=2)).group_by_key().count(store="counts")
    counts.to_stream().to(f"{run.name}-counts")
    return app


def finish(run: Run) -> int:
    """Run the job; 0 once it has caught up, 1 if it ended with an error, which is then in the report."""
    if run.stale_us is not None:
        jobs.HEARTBEAT_STALE_US = run.stale_us
    if run.silent:
        job.HEARTBEAT_S = 3600.0
    _flush_before_commits()
    if run.bug:
        from kafka_faults import planted

        planted.plant(run.bug)
    try:
        started = wiring.start(application(run), "caught-up", engine=InlineEngine(run_container))
        started.wait(run.run_s)
    except BaseException as error:
        Path(run.report).write_text(json.dumps({"error": type(error).__name__, "message": str(error)}))
        return 1
    notes = [note for one in started.status()["sub_topologies"].values() for note in one["notes"]]
    Path(run.report).write_text(json.dumps({"error": None, "status": started.status(), "notes": notes}))
    return 0


def _flush_before_commits() -> None:
    """At step 8 all that is written is in the broker's hands: so a kill there leaves an open transaction, not by chance."""
    send = lanes.send_offsets

    def send_and_flush(producer: Any, *arguments: Any, **named: Any) -> None:
        send(producer, *arguments, **named)
        producer.flush(10)

    lanes.send_offsets = send_and_flush


def prepare(run: Run) -> None:
    trap_steps(run)
    logging.basicConfig(filename=f"{run.report}.log", level=logging.INFO, format="%(asctime)s %(name)s %(message)s")


if __name__ == "__main__":
    serve(Run, prepare, finish, 10)
