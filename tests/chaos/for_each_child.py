"""A job on Spark that hands its rounds to a Parquet sink and may be killed: `python for_each_child.py serve`.

It speaks as `child.py` does. The sink replaces what it wrote under an id before.
"""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import headrace as hr
import headrace.adapters.kafka.coordinator_store
import headrace.adapters.spark.engine
import headrace.wiring.launch  # a driver would import these anyway: before it is forked, each start is that much quicker
from headrace import wiring
from support.forking import print_to_file, report_end, serve, trap_steps


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the application `name`, which reads `NAME-in` until it has caught up, writes `NAME-out` and counts by key.

    `folder` has `out/round=ID` and `calls`, with a line of JSON for each call of the function. After the call `kill_at`,
    counted from 1 over all runs, the process kills itself: everything is written, nothing is committed. `traps` is a
    `HEADRACE_TEST_STEPS`, for the driver and for Spark's Python workers.
    """

    name: str
    url: str
    folder: str
    report: str
    steps_log: str
    traps: str = ""
    kill_at: int = 0
    round_records: int = 20
    run_s: float = 250.0


def application(run: Run) -> hr.App:
    folder = Path(run.folder)
    calls = folder / "calls"

    def write_parquet(df: Any, round_id: int) -> None:
        rows = df.selectExpr("value.id as id", "key", "partition", "offset")
        rows.write.mode("overwrite").parquet(str(folder / "out" / f"round={round_id}"))
        found = sorted((row.partition, row.offset, row.id) for row in rows.collect())
        with calls.open("a") as file:
            file.write(json.dumps({"round": round_id, "rows": found}) + "\n")
            file.flush()
            os.fsync(file.fileno())
        if len(calls.read_text().splitlines()) == run.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    app = hr.App(
        run.name,
        run.url,
        config={"spark.master": "local[2,4]"},
        local_store_dir=str(folder / "stores"),
        max_records_per_round=run.round_records,
        trigger_interval_ms=20,
        containers=2,
    )
    items = app.stream(f"{run.name}-in", key=hr.String(), value=hr.Json("id int")).filter("value.id >= 0")
    items.for_each_round(write_parquet)
    items.to(f"{run.name}-out")
    items.group_by_key().count(store="counts").to_stream().to(f"{run.name}-counts")
    return app


def finish(run: Run) -> int:
    """Run the job until it has caught up."""

    def work() -> dict[str, Any]:
        started = wiring.start(application(run), "caught-up")
        started.wait(run.run_s)
        return {"status": started.status()}

    return report_end(run, work)


def prepare(run: Run) -> None:
    trap_steps(run)
    print_to_file(run)


if __name__ == "__main__":
    serve(Run, prepare, finish, 30)
