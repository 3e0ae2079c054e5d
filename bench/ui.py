"""How soon the pages of `headrace ui`, and `/metrics`, answer for a job with many tasks.

    .venv/bin/python bench/ui.py [TASKS] [--kafka] [--profile]

A job with state that has run, with so many tasks (1,000), on an embedded log or on a Kafka of its own. Of each page the time
over HTTP in ms, and the CPU time of this process, which is server and browser in one: median and most of several answers.
--profile: where the time goes.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import headrace as hr
from headrace import wiring
from headrace.adapters.http.guard import Guard
from headrace.adapters.http.job_pages import job_pages
from headrace.adapters.http.server import HttpServer
from headrace.cli.operator_view import STALE_S, OperatorView
from headrace.cli.targets import Target
from headrace.cli.ui import pages
from headrace.core.metrics.series import series_of
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine

TIMES = 7
STARTPOINT = {"stream": "in", "position": "earliest"}


def timed(url: str, body: Any = None) -> tuple[float, float, int]:
    """Milliseconds, of CPU too, and bytes of one answer."""
    data = None if body is None else json.dumps(body).encode()
    began_s, cpu_s = time.perf_counter(), time.process_time()
    with urllib.request.urlopen(urllib.request.Request(url, data)) as found:
        size = len(found.read())
    return (time.perf_counter() - began_s) * 1e3, (time.process_time() - cpu_s) * 1e3, size


def said(what: str, url: str, body: Any = None, before: Callable[[], object] = lambda: None, times: int = TIMES) -> None:
    """Print the times of some answers; `before` each."""
    found = []
    for _ in range(times):
        before()
        found.append(timed(url, body))
    walls, cpus = [one[0] for one in found], [one[1] for one in found]
    print(
        f"{what:32} {median(walls):7.1f} ms (most {max(walls):7.1f}), CPU {median(cpus):6.1f} ms (most {max(cpus):6.1f}), "
        f"{found[0][2]:,} bytes",
        flush=True,
    )


@contextmanager
def system_url(folder: str, is_kafka: bool) -> Iterator[str]:
    if not is_kafka:
        yield f"log:{folder}/log"
        return
    from headrace.testing.kafka_server import KafkaServer

    with KafkaServer(folder=Path(folder, "broker"), heap_mb=512) as kafka:
        yield f"kafka://{kafka.bootstrap}"


def profiled(target: Target) -> None:
    """Where the time of each look goes, without a server."""
    view = OperatorView(target, allow_changes=True)
    looks: dict[str, Callable[[], object]] = {
        "overview": view._overview,
        "a range": lambda: view.range("counts", None, None, 1_000),
        "a key": lambda: view.state("counts", "5"),
        "a preview": lambda: view.change("startpoint", STARTPOINT, is_wanted=False),
    }
    for name, look in looks.items():
        look()
        profile = cProfile.Profile()
        profile.runcall(look)
        print(f"--- {name}")
        pstats.Stats(profile).sort_stats("cumulative").print_stats(45)


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("tasks", nargs="?", type=int, default=1_000)
    asked.add_argument("--kafka", action="store_true")
    asked.add_argument("--profile", action="store_true")
    given = asked.parse_args()
    with tempfile.TemporaryDirectory() as folder, system_url(folder, given.kafka) as url:
        app = hr.App("wide", system=url, local_store_dir=f"{folder}/s", state_uri=f"{folder}/state")
        app.stream("in", key=hr.Long(), value=hr.Long()).group_by_key().count(store="counts")
        with hr.open_system(url) as system:
            system.create_stream("in", given.tasks)
            system.produce("in", [(one, one) for one in range(10 * given.tasks)], key=hr.Long(), value=hr.Long())
        job = wiring.start(app, until="caught-up", engine=InlineEngine(run_container))
        job.wait(600)
        target = Target("wide", wiring.config_of(app), app)
        if given.profile:
            profiled(target)
            return

        def changed() -> None:
            """One more round, after which all tasks have committed."""
            with hr.open_system(url) as system:
                system.produce("in", [(one, one) for one in range(10 * given.tasks)], key=hr.Long(), value=hr.Long())
            wiring.start(app, until="caught-up", engine=InlineEngine(run_container)).wait(600)

        with pages(target, "127.0.0.1", 0, allow_changes=True) as page:
            said("the very first overview", f"{page}/api/overview", times=1)
            said("overview, again", f"{page}/api/overview")
            said("overview, after a silence", f"{page}/api/overview", None, lambda: time.sleep(STALE_S + 1))
            said("a range of 1,000 entries", f"{page}/state/counts?limit=1000")
            said("a key of the state", f"{page}/state/counts/5")
            said("preview of a startpoint", f"{page}/api/preview/startpoint", STARTPOINT)
            changed()
            said("overview, all has changed", f"{page}/api/overview", times=1)
            changed()
            said("a key, all has changed", f"{page}/state/counts/5", times=1)
            changed()
            said("a preview, all has changed", f"{page}/api/preview/startpoint", STARTPOINT, times=1)
        endpoint = Guard(job_pages(lambda: series_of("wide", job.measured), str, str), {"127.0.0.1"})
        server = HttpServer(endpoint, "127.0.0.1", 0, "bench").start()
        said("/metrics", f"{server.url}/metrics")
        server.close()


if __name__ == "__main__":
    main()
