"""A job that hands its rounds to a Parquet sink and may be killed: `python for_each_child.py FOLDER KILL_AT`.

The sink replaces what it wrote under an id before. After the call KILL_AT, counted from 1 over all runs, the process kills
itself: everything is written, nothing is committed. `FOLDER/calls` has a line of JSON for each call.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import headrace as hr

RUN_S_MAX = 250.0


def run(folder: Path, kill_at: int) -> None:
    calls = folder / "calls"

    def write_parquet(df: Any, round_id: int) -> None:
        df.selectExpr("value.id as id", "key").write.mode("overwrite").parquet(str(folder / "out" / f"round={round_id}"))
        ids = sorted(row.id for row in df.selectExpr("value.id as id").collect())
        with calls.open("a") as file:
            file.write(json.dumps({"round": round_id, "ids": ids}) + "\n")
            file.flush()
            os.fsync(file.fileno())
        if len(calls.read_text().splitlines()) == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    keys: dict[str, Any] = {"max_records_per_round": 10, "trigger_interval_ms": 20}
    app = hr.App("sink", f"log:{folder / 'data'}", local_store_dir=str(folder / "stores"), **keys)
    items = app.stream("in", key=hr.String(), value=hr.Json("id int"))
    items.filter("value.id >= 0").for_each_round(write_parquet)
    job = app.start(until="caught-up")
    job.wait(RUN_S_MAX)


if __name__ == "__main__":
    run(Path(sys.argv[1]), int(sys.argv[2]))
