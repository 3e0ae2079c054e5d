"""A job whose local stores are on a disk of their own; it changes its elasticity factor and back.

The disk has room for the stores twice, as a round that changes all of them needs, and not three times. `python
full_disk_job.py FOLDER` in a mount namespace; FOLDER/stores is such a disk."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import headrace as hr
from headrace.adapters.lmdb import close_idle
from headrace.core.elasticity import preparation
from support.world import caught_up, source_of, started, waited

KEYS = [b"%05d" % number for number in range(30_000)]


def main(root: Path) -> None:
    preparation.PREPARED_BYTES_MIN = 1
    url, stores = f"log:{root / 'log'}", root / "stores"
    app = hr.App("counting", url, state_uri=str(root / "state"), local_store_dir=str(stores), trigger_interval_ms=10)
    counts = app.stream("in", key=hr.Bytes(), value=hr.Bytes()).group_by_key().count(store="counts")
    counts.to_stream(emit="each").to("out", value=hr.Long())
    with hr.open_system(url) as system:
        system.create_stream("in", 2)
        turns = 0

        def write() -> None:
            nonlocal turns
            system.produce("in", [hr.Record(key, b"", 0) for key in KEYS])
            turns += 1

        def has_counted() -> bool:
            last = {record.key: record.value for record in system.consume("out", key=hr.Bytes(), value=hr.Long())}
            return last == dict.fromkeys(KEYS, turns)

        for _ in range(2):  # what the last round wrote is added when the next one begins
            write()
            caught_up(app)
        used = sum(file.stat().st_blocks * 512 for file in stores.rglob("*"))
        subprocess.run(["mount", "-o", f"remount,size={used * 5 // 2}", str(stores)], check=True)
        for factor in (4, 1):
            job = started(app)
            try:
                job.set_elasticity(factor)
                waited(lambda job=job, factor=factor: source_of(job)["elasticity_factor"] == factor, job)
                write()
                waited(has_counted, job)
            finally:
                job.stop()
        assert len(list(system.consume("out", key=hr.Bytes(), value=hr.Long()))) == turns * len(KEYS)
        # No room at all, and no former stores: other files have taken it.
        close_idle()  # else it has room in files that are removed
        shutil.rmtree(stores / "counting")
        with open(stores / "others", "wb") as others:
            there = os.statvfs(stores)
            others.write(bytes(there.f_bavail * there.f_frsize - 64 * 1024))
        write()
        try:
            caught_up(app)
        except hr.HeadraceError as error:
            print("FULL", error.message, error.hint)
        (stores / "others").unlink()
        caught_up(app)
        assert has_counted()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stdout)
    main(Path(sys.argv[1]))
