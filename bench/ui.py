"""How soon the pages of `headrace ui`, and `/metrics`, answer for a job with many tasks.

    .venv/bin/python bench/ui.py [TASKS] [--kafka] [--profile]

A job with state that has run, with so many tasks (1,000), on an embedded log or on a Kafka of its own, and a process
`headrace ui`. Of each page the time over HTTP in ms, and the CPU time of that process while it answered, in which it also looks
at the job in the background: median and most of several answers. --profile: where the time goes, in this process.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import json
import os
import pstats
import subprocess
import sys
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
from headrace.cli.kept_look import ASKED_S
from headrace.cli.operator_view import OperatorView
from headrace.cli.targets import Target
from headrace.core.metrics.series import series_of
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine

TIMES = 9
STARTPOINT = {"stream": "in", "position": "earliest"}


class Pages:
    """A process that answers."""

    def __init__(self, url: str, folder: str) -> None:
        state = f"state_uri={folder}/state"
        command = [sys.executable, "-m", "headrace", "ui", "--application", "wide", "--system", url, "--port", "0"]
        self._process = subprocess.Popen(
            [*command, "--allow-changes", "--set", state], stderr=subprocess.PIPE, text=True, env=os.environ, cwd=folder
        )
        assert self._process.stderr is not None
        self.url = self._process.stderr.readline().split()[-1]

    def cpu_ms(self) -> float:
        """Of all of its threads, those that have ended too."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        ticks = (int(fields[11]) + int(fields[12])) * 1e3 / os.sysconf("SC_CLK_TCK")
        tasks = Path(f"/proc/{self._process.pid}/task").glob("*/schedstat")
        return max(ticks, sum(int(one.read_text().split()[0]) for one in tasks) / 1e6)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(20)


def said(what: str, url: str, cpu_ms: Callable[[], float], body: Any = None, times: int = TIMES, pause_s: float = 0.3) -> None:
    """Print the times of some answers, with a pause between them."""
    found, size = [], 0
    data = None if body is None else json.dumps(body).encode()
    for _ in range(times):
        time.sleep(pause_s)
        began_s, began_cpu_ms = time.perf_counter(), cpu_ms()
        with urllib.request.urlopen(urllib.request.Request(url, data)) as answer:
            size = len(answer.read())
        found.append(((time.perf_counter() - began_s) * 1e3, cpu_ms() - began_cpu_ms))
    walls, cpus = [one[0] for one in found], [one[1] for one in found]
    print(
        f"{what:32} {median(walls):7.1f} ms (most {max(walls):7.1f}), CPU {median(cpus):6.1f} ms (most {max(cpus):6.1f}), "
        f"{size:,} bytes",
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
    gc.disable()
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
        if given.profile:
            profiled(Target("wide", wiring.config_of(app), app))
            return

        pages = Pages(url, folder)
        said("the very first overview", f"{pages.url}/api/overview", pages.cpu_ms, times=1, pause_s=0.0)
        said("overview", f"{pages.url}/api/overview", pages.cpu_ms)
        said("overview, after 8 s of silence", f"{pages.url}/api/overview", pages.cpu_ms, times=3, pause_s=8.0)
        said("a range of 1,000 entries", f"{pages.url}/state/counts?limit=1000", pages.cpu_ms)
        said("a key of the state", f"{pages.url}/state/counts/5", pages.cpu_ms)
        said("preview of a startpoint", f"{pages.url}/api/preview/startpoint", pages.cpu_ms, STARTPOINT)
        cpu_ms = pages.cpu_ms()
        time.sleep(10)
        print(f"CPU in the background: {(pages.cpu_ms() - cpu_ms) / 10:.0f} ms per second")
        said(f"overview, after {ASKED_S + 8:.0f} s", f"{pages.url}/api/overview", pages.cpu_ms, times=1, pause_s=ASKED_S + 8)
        pages.close()
        endpoint = Guard(job_pages(lambda: series_of("wide", job.measured), str, str), {"127.0.0.1"})
        server = HttpServer(endpoint, "127.0.0.1", 0, "bench").start()
        said("/metrics", f"{server.url}/metrics", lambda: time.process_time() * 1e3)
        server.close()


if __name__ == "__main__":
    main()
