"""A job that dies: runs until it has caught up, in a process of its own that tests kill and stop at numbered steps.

`python child.py serve` forks runs (`forking`). RUN is a `Run` as a mapping; its `report` is a file for what ended it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import headrace as hr
from chaos.closings import closings
from chaos.forking import serve, trap_steps
from headrace import wiring
from headrace.adapters.log import catalog, jobs
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine

RUN_S_MAX = 60.0


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the application `name` on the log in `log`; its outputs are `mapped-NAME`, `counts-NAME`, `windows-NAME`.

    `build` names one of `BUILDS`, which makes the application. `traps` is a `HEADRACE_TEST_STEPS`; `stale_us`, if given, is
    how long a driver that is silent counts as alive, and `lock_wait_s` how long to wait for the catalog's lock.
    """

    name: str
    log: str
    stores: str
    report: str
    traps: str = ""
    steps_log: str = ""
    stale_us: int | None = None
    lock_wait_s: float | None = None
    keys: Mapping[str, Any] | None = None
    build: str = "usual"


def doubled(record: Any) -> dict[str, Any]:
    return {"id": record.value["id"], "n": record.value["n"] * 2}


def is_wanted(record: Any) -> bool:
    return bool(record.value["n"] % 5)


def group_of(record: Any) -> str:
    return str(record.value["g"])


def application(run: Run, spark: Any = None) -> hr.App:
    """Stateless map, windows per key, and a keyed count behind a repartition stream; many small rounds."""
    keys = {"max_records_per_round": 40, "trigger_interval_ms": 5, "containers": 2, **(run.keys or {})}
    app = hr.App(run.name, f"log:{run.log}", spark, local_store_dir=run.stores, **keys)
    records = app.stream("in", key=hr.String(), value=hr.Json("id int, n int, g string"))
    records.map_values(doubled, value=hr.Json()).to(f"mapped-{run.name}")
    windows = records.group_by_key().windowed_by(hr.Tumbling("10 seconds"))
    totals = windows.aggregate(n=hr.count(), total=hr.sum("value.n"), store="windows")
    totals.to_stream().to(f"windows-{run.name}", value=hr.Json())
    groups = records.filter(is_wanted).select_key(group_of, key=hr.String())
    counts = groups.repartition(hr.Repartitioned(name="by-g", number_of_partitions=2)).group_by_key().count(store="counts")
    counts.to_stream().to(f"counts-{run.name}")
    return app


BUILDS: Mapping[str, Callable[[Run], hr.App]] = {"usual": application, "closings": closings}


def finish(run: Run) -> int:
    """Run the job; 0 once it has caught up, 1 if it ended with an error, which is then in the report."""
    if run.stale_us is not None:
        jobs.HEARTBEAT_STALE_US = run.stale_us
    if run.lock_wait_s is not None:
        assert catalog.open_catalog.__kwdefaults__ is not None
        catalog.open_catalog.__kwdefaults__["lock_wait_s"] = run.lock_wait_s
    try:
        job = wiring.start(BUILDS[run.build](run), "caught-up", engine=InlineEngine(run_container))
        job.wait(RUN_S_MAX)
    except BaseException as error:
        Path(run.report).write_text(json.dumps({"error": type(error).__name__, "message": str(error)}))
        return 1
    notes = [note for one in job.status()["sub_topologies"].values() for note in one["notes"]]
    Path(run.report).write_text(json.dumps({"error": None, "status": job.status(), "notes": notes}))
    return 0


if __name__ == "__main__":
    serve(Run, trap_steps, finish, RUN_S_MAX + 10)
