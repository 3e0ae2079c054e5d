"""How soon the pages of `headrace ui`, and `/metrics`, answer for a job with many tasks.

    .venv/bin/python bench/ui.py [TASKS]

A job with state on an embedded log that has run, with so many tasks (1,000). Times in ms over HTTP from this process: of the
overview as it is, where it is looked up behind the answer; where it is looked up before it; of `/metrics` with all tasks.
"""

from __future__ import annotations

import sys
import tempfile
import time
import urllib.request
from statistics import median

import headrace as hr
from headrace import wiring
from headrace.adapters.http.guard import Guard
from headrace.adapters.http.job_pages import job_pages
from headrace.adapters.http.server import HttpServer
from headrace.cli import operator_view
from headrace.cli.targets import Target
from headrace.cli.ui import pages
from headrace.core.metrics.series import series_of
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine

TIMES = 10


def timed(url: str) -> tuple[float, int]:
    """Milliseconds and bytes of one answer."""
    began_s = time.perf_counter()
    with urllib.request.urlopen(url) as found:
        size = len(found.read())
    return (time.perf_counter() - began_s) * 1e3, size


def told(what: str, url: str) -> None:
    """Print the median of some answers."""
    found = [timed(url) for _ in range(TIMES)]
    times = [ms for ms, _ in found]
    print(f"{what}: {median(times):.1f} ms (median), {max(times):.1f} ms (most), {found[0][1]:,} bytes")


def main() -> None:
    tasks = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    with tempfile.TemporaryDirectory() as folder:
        app = hr.App("wide", system=f"log:{folder}/log", local_store_dir=f"{folder}/s", state_uri=f"{folder}/state")
        app.stream("in", key=hr.Long(), value=hr.Long()).group_by_key().count(store="counts")
        with hr.open_system(f"log:{folder}/log") as log:
            log.create_stream("in", tasks)
            log.produce("in", [(number, number) for number in range(10 * tasks)], key=hr.Long(), value=hr.Long())
        job = wiring.start(app, until="caught-up", engine=InlineEngine(run_container))
        job.wait(600)
        with pages(Target("wide", wiring.config_of(app), app), "127.0.0.1", 0, allow_changes=False) as url:
            timed(f"{url}/api/overview")
            told("the overview", f"{url}/api/overview")
            operator_view.FRESH_S = operator_view.STALE_S = 0.0
            told("the overview, looked up before each answer", f"{url}/api/overview")
            told("a key of the state", f"{url}/state/counts/5")
        endpoint = Guard(job_pages(lambda: series_of("wide", job.measured), str, str), {"127.0.0.1"})
        server = HttpServer(endpoint, "127.0.0.1", 0, "bench").start()
        told("/metrics", f"{server.url}/metrics")
        server.close()


if __name__ == "__main__":
    main()
