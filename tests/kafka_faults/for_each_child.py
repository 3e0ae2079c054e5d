"""A job on Kafka and Spark that hands its rounds to a Parquet sink and may be killed: `python for_each_child.py serve`.

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
import headrace.adapters.kafka.job_store
import headrace.adapters.spark.engine
import headrace.wiring.launch  # a driver would import these anyway: before it is forked, each start is that much quicker
from headrace import wiring
from support.forking import serve, trap_steps


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the application `name`, which reads `NAME-in` until it has caught up and writes `NAME-out` beside.

    `folder` has `out/round=ID` and `calls`, with a line of JSON for each call of the function. After the call `kill_at`,
    counted from 1 over all runs, the process kills itself: everything is written, nothing is committed. `traps` is a
    `HEADRACE_TEST_STEPS`, for the driver and for Spark's Python workers.
    """

    name: str
    servers: str
    folder: str
    report: str
    steps_log: str
    traps: str = ""
    kill_at: int = 0
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
        f"kafka://{run.servers}",
        config={"spark.master": "local[2,4]"},
        local_store_dir=str(folder / "stores"),
        max_records_per_round=20,
        trigger_interval_ms=20,
        containers=2,
    )
    items = app.stream(f"{run.name}-in", key=hr.String(), value=hr.Json("id int")).filter("value.id >= 0")
    items.for_each_round(write_parquet)
    items.to(f"{run.name}-out")
    return app


def finish(run: Run) -> int:
    """Run the job; 0 once it has caught up, 1 if it ended with an error, which is then in the report."""
    try:
        started = wiring.start(application(run), "caught-up")
        started.wait(run.run_s)
    except BaseException as error:
        Path(run.report).write_text(json.dumps({"error": type(error).__name__, "message": str(error)}))
        return 1
    Path(run.report).write_text(json.dumps({"error": None, "status": started.status()}))
    return 0


def prepare(run: Run) -> None:
    trap_steps(run)
    said = os.open(f"{run.report}.said", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(said, 1)
    os.dup2(said, 2)


if __name__ == "__main__":
    serve(Run, prepare, finish, 30)
