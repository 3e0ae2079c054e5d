"""What a start costs: from `headrace run` to the first commit, and its parts.

    .venv/bin/python bench/start.py [log|kafka|both] [--trials N]

The job counts 1,000 records by key. Each trial is a process of its own with empty local stores; shown are the shortest time of
each part, the shortest whole, and the least CPU time of the process and of all below it (Spark's JVM, its Python workers),
which other work on the machine moves less. `python -m headrace class-archive` before it makes the archive of Java's classes,
`--without-archive` leaves it out.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

from common import system_of

import headrace as hr

_PR_SET_CHILD_SUBREAPER = 36  # processes whose parent has ended become our children
PROGRAM = """\
import headrace as hr

app = hr.App("{name}", system="{url}")
visits = app.stream("visits", key=hr.String(), value=hr.Json("shop string, n bigint"))
visits.group_by_key().count(store="n").to("counts")
"""


def children() -> set[int]:
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


def cpu_s_of_children(others: set[int]) -> float:
    """Of processes that have ended; Spark's JVM ends behind the one that has started it. All are waited for but `others`."""
    while left := children() - others:
        os.waitpid(left.pop(), 0)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def trial(url: str, root: Path, environment: dict[str, str]) -> tuple[dict[str, float], float]:
    """The parts of a start in s, and the CPU time of the whole run."""
    with tempfile.TemporaryDirectory(dir=root) as folder:
        (Path(folder) / "start.py").write_text(PROGRAM.format(name=f"start-{uuid.uuid4().hex[:6]}", url=url))
        with hr.open_system(url) as system:
            for stream in ("visits", "counts"):
                if stream not in {one.name for one in system.streams()}:
                    system.create_stream(stream, 2)
            records = [(f"k{n}", {"shop": "a", "n": n}) for n in range(1000)]
            system.produce("visits", records, hr.String(), hr.Json())
        others = children()  # a broker
        before_s = cpu_s_of_children(others)
        command = [sys.executable, "-m", "headrace", "run", "start.py", "--until", "caught-up", "--json", "--no-progress"]
        ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
        if ran.returncode:
            raise SystemExit(ran.stderr.decode())
        parts = json.loads(ran.stdout)["metrics"]["start-phase-ns"]
        return {part: ns / 1e9 for part, ns in parts.items()}, cpu_s_of_children(others) - before_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("system", nargs="?", default="log", choices=("log", "kafka", "both"))
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--without-archive", action="store_true")
    given = parser.parse_args()
    environment = dict(os.environ)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        if given.without_archive:
            environment["XDG_CACHE_HOME"] = str(root / "cache")
        for kind in ("log", "kafka") if given.system == "both" else (given.system,):
            with system_of(kind, root) as url:
                trials = [trial(url, root, environment) for _ in range(given.trials)]
            print(f"{kind}: {given.trials} starts of the same job", flush=True)
            for part in trials[0][0]:
                print(f"  {part:12} {min(parts[part] for parts, _ in trials):6.2f} s")
            print(f"  {'whole':12} {min(sum(parts.values()) for parts, _ in trials):6.2f} s to the first commit")
            print(f"  {'CPU time':12} {min(cpu_s for _, cpu_s in trials):6.2f} s of the whole run, Spark's among it")


if __name__ == "__main__":
    main()
