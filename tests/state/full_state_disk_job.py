"""A job whose state files are on a disk of their own, which becomes full: `python full_state_disk_job.py FOLDER` in a mount
namespace; FOLDER/state is such a disk. It prints what there is to see."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.driver import system_wait
from support.world import source_of, started, waited

KEYS = [b"%05d" % number for number in range(20_000)]


def main(root: Path) -> None:
    url, state = f"log:{root / 'log'}", root / "state"
    app = hr.App("counting", url, state_uri=str(state), local_store_dir=str(root / "stores"), trigger_interval_ms=10)
    counts = app.stream("in", key=hr.Bytes(), value=hr.Bytes()).group_by_key().count(store="counts")
    counts.to_stream(emit="each").to("out", value=hr.Long())
    with hr.open_system(url) as system:
        system.create_stream("in", 1)
        turns = 0

        def write() -> None:
            nonlocal turns
            system.produce("in", [hr.Record(key, os.urandom(8), 0) for key in KEYS])
            turns += 1

        def has_counted() -> bool:
            last = {record.key: record.value for record in system.consume("out", key=hr.Bytes(), value=hr.Long())}
            return last == dict.fromkeys(KEYS, turns)

        def published() -> Any:
            return system.job_store("counting").status()["source"]

        job = started(app)
        write()
        waited(has_counted, job)
        fill(state, 8192)
        write()
        waited(lambda: "another try, for " in published()["waiting_for"], job)
        waited(lambda: "in messages, after: " in source_of(job)["waiting_for"], job)
        print("WAITS", published()["waiting_for"])
        (state / "others").unlink()
        waited(has_counted, job)
        fill(state, 8192)
        system_wait.SYSTEM_WAIT_S = 0.5
        write()
        try:
            job.wait(60)
        except hr.HeadraceError as error:
            print("ENDS", type(error).__name__, repr(str(error)))
        print("ENDED_BY", published()["ended_by"])
        fill(state, 0)
        try:
            started(app)
        except hr.HeadraceError as error:
            print("START", type(error).__name__, repr(str(error)))
        (state / "others").unlink()
        job = started(app)
        waited(has_counted, job)
        job.stop()
        assert len(list(system.consume("out", key=hr.Bytes(), value=hr.Long()))) == turns * len(KEYS)


def fill(disk: Path, left_bytes: int) -> None:
    there = os.statvfs(disk)
    with open(disk / "others", "ab") as others:
        others.write(bytes(max(0, there.f_bavail * there.f_frsize - left_bytes)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
