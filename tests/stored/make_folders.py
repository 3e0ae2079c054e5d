"""Make the stored folders that the tests here continue: run by hand, by the version whose stored forms are to be kept.

    PYTHONPATH=src:tests .venv/bin/python -m stored.make_folders 0.1.0-2026-11 [JOB ...]

Each job of `stored.jobs` is begun in a folder of its own, stopped in the middle of its input, and packed into
`data/VERSION/JOB.tar.xz`; next to it goes `JOB.json`, what it has to come to by `stored.plain`. Archives that are there stay
as they are: they are what an older version wrote. Make a new VERSION where a stored form is added or changed.
"""

from __future__ import annotations

import json
import socket
import sys
import tempfile
from pathlib import Path

from stored.archives import DATA, archive_of, packed
from stored.jobs import JOBS
from stored.plain import expected_of


def main(version: str, names: list[str]) -> None:
    socket.gethostname = lambda: "somewhere"  # who held an application stays in Kafka's topics: no archive names a machine
    for name in names or list(JOBS):
        archive, expected = archive_of(version, name), DATA / version / f"{name}.json"
        if archive.exists():
            print(f"{archive} is there: left as it is")
            continue
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made) / "job"
            folder.mkdir()
            with JOBS[name].system(folder) as url:
                JOBS[name].begin(JOBS[name], folder, url)
            packed(folder, archive, JOBS[name].with_stores)
        expected.write_text(json.dumps(expected_of(name), sort_keys=True, separators=(",", ":")) + "\n")
        print(f"{archive}: {archive.stat().st_size:,} bytes")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2:])
