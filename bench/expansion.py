"""How long a running, stateful job pauses when its input grows: 500 to 1,000 partitions, under load, on Spark.

    .venv/bin/python bench/expansion.py [log|kafka|all] [--before N] [--after N] [--rate N] [--keys N] [--repeat N]

The pause is from the moment when the job has seen that the partitions are more to the first round that is committed under
the new job model. Each run prints where it goes: the rounds that were running (they are cut short), taking the application
anew with a new epoch and the fence, planning, the transaction of the new job model, and the first round. Producers write
all the time, by the partitions that there are. Last, the counts are compared with what they wrote.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import logging
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from common import system_of

import headrace as hr
from headrace.driver.job import Job
from headrace.wiring import config_of
from headrace.wiring.spark_sessions import session_of

ASKED_S = 3.0
WAIT_S = 300.0
WARM_S = 5.0
PIECE_S = 0.1
PARTS = ("rounds that run", "epoch and fence", "planning", "the commit of the model", "begin", "the first round")


# --- the load -----------------------------------------------------------------------------------------------------------


def produce(url: str, stream: str, rate: int, keys: int) -> None:
    """Write until SIGTERM, `rate` records per second over `keys` keys in turn; then print how many."""
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    names = [b"key-%08d" % number for number in range(keys)]
    size, written, began_s = max(1, int(rate * PIECE_S)), 0, time.monotonic()
    with hr.open_system(url) as system:
        while not stopped:
            system.produce(stream, [(names[(written + place) % keys], b"v" * 40) for place in range(size)])
            written += size
            time.sleep(max(0.0, began_s + written / rate - time.monotonic()))
    print(json.dumps({"written": written}), flush=True)


@contextmanager
def load(url: str, stream: str, rate: int, keys: int) -> Iterator[Callable[[], int]]:
    """A producer in a process of its own; what is yielded stops it, and gives the number of its records."""
    command = [sys.executable, __file__, "produce", "--url", url, "--stream", stream, f"--rate={rate}", f"--keys={keys}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def stop() -> int:
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=WAIT_S)
        return int(json.loads(said)["written"])

    try:
        yield stop
    finally:
        process.kill()
        process.wait()


# --- the clock ----------------------------------------------------------------------------------------------------------


class Moments:
    """When a job that runs passes from one part of a change to the next. It listens at the job's own calls."""

    def __init__(self, job: Job) -> None:
        self.at_s: dict[str, float] = {}
        self._version = job.plan.model.version
        store = job._store
        self._tell(job._requests, "found", after=lambda found, _: self._note("seen") if found else None)
        self._tell(store, "acquire", before=lambda: self._note("yielded"), after=lambda *_: self._note("acquired"))
        self._tell(
            store, "commit_job_model", before=lambda: self._note("planned"), after=lambda *_: self._note("committed")
        )
        self._tell(job, "_generation_of", after=lambda *_: self._note("ready"))
        self._tell(store, "commit_round", after=lambda _, arguments: self._round(arguments[0], store))

    def _tell(self, of: Any, name: str, before: Any = None, after: Any = None) -> None:
        call = getattr(of, name)

        def told(*arguments: Any, **named: Any) -> Any:
            if before is not None:
                before()
            answer = call(*arguments, **named)
            after(answer, arguments)
            return answer

        setattr(of, name, told)

    def _note(self, moment: str) -> None:
        self.at_s.setdefault(moment, time.monotonic())

    def _round(self, commit: Any, _: Any) -> None:
        if "ready" in self.at_s:
            self._note("first round")

    @property
    def pause_s(self) -> float:
        return self.at_s["first round"] - self.at_s["seen"]

    def parts_s(self) -> dict[str, float]:
        moments = [self.at_s[name] for name in ("seen", "yielded", "acquired", "planned", "committed", "ready", "first round")]
        return dict(zip(PARTS, (after - before for before, after in pairwise(moments)), strict=True))


# --- a run --------------------------------------------------------------------------------------------------------------


def counting(url: str, root: Path, name: str, spark: Any = None) -> hr.App:
    stores, state = str(root / name / "stores"), str(root / name / "state")
    app = hr.App(name, system=url, spark=spark, partition_check_interval_s=0.5, local_store_dir=stores, state_uri=state)
    records = app.stream(f"{name}-in", key=hr.Bytes(), value=hr.Bytes())
    records.group_by_key().count().to_stream().to(f"{name}-out")
    return app


def expanded(app: hr.App, url: str, given: argparse.Namespace) -> Moments:
    """One expansion of the input of `app` while it runs; ends the benchmark if the counts are wrong."""
    source, output = f"{app.name}-in", f"{app.name}-out"
    with hr.open_system(url) as system:
        system.create_stream(source, given.before)
        system.create_stream(output, 4)
        with load(url, source, given.rate, given.keys) as stop:
            job = app.start()
            _wait(job, lambda: job.status()["sub_topologies"]["source"]["records"] > given.rate)
            time.sleep(WARM_S)
            tasks = job.status()["sub_topologies"]["source"]["tasks"]
            moments = Moments(job)
            began_s = time.monotonic()
            system.expand_stream(source, given.after)
            print(f"    the stream has grown after {time.monotonic() - began_s:.2f} s", flush=True)
            _wait(job, lambda: "first round" in moments.at_s)
            time.sleep(WARM_S)
            written = stop()
        _wait(job, lambda: job.status()["sub_topologies"]["source"]["lag"] == 0 and _total(system, output) == written)
        assert job.status()["sub_topologies"]["source"]["tasks"] == tasks
        job.stop()
    return moments


def _total(system: Any, output: str) -> int:
    last = {record.key: record.value for record in system.consume(output, key=hr.Bytes(), value=hr.Long())}
    return sum(last.values())


def _wait(job: Any, what: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not what():
        if not job.is_running:
            job.wait(0)
        if time.monotonic() > deadline_s:
            raise SystemExit(f"not within {WAIT_S:.0f} s: {job.status()}")
        time.sleep(0.05)


def measure(kind: str, root: Path, given: argparse.Namespace) -> None:
    with system_of(kind, root) as url:
        first = counting(url, root, "session")
        session_of(first, config_of(first))
        try:
            pauses_s = []
            for turn in range(given.repeat):
                moments = expanded(counting(url, root, f"grow-{turn}", first.spark), url, given)
                pauses_s.append(moments.pause_s)
                parts = ", ".join(f"{part} {seconds:.2f}" for part, seconds in moments.parts_s().items())
                print(f"  {kind}, run {turn + 1}: paused for {moments.pause_s:.2f} s: {parts}", flush=True)
        finally:
            first.spark.stop()
    ordered = sorted(pauses_s)
    print(
        f"{kind}: {given.before} to {given.after} partitions under {given.rate:,} records/s: from seeing it to the first "
        f"committed round {ordered[len(ordered) // 2]:.2f} s (median of {given.repeat}, least {ordered[0]:.2f}, most "
        f"{ordered[-1]:.2f}; asked for: under {ASKED_S:g})",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="all", choices=["log", "kafka", "all", "produce"])
    parser.add_argument("--before", type=int, default=500)
    parser.add_argument("--after", type=int, default=1_000)
    parser.add_argument("--rate", type=int, default=2_000)
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--stream", help=argparse.SUPPRESS)
    parser.add_argument("--log", action="store_true", help="show what the job logs")
    given = parser.parse_args()
    faulthandler.register(signal.SIGUSR1)
    if given.log:
        logging.basicConfig(format="%(asctime)s %(name)s %(message)s")
        logging.getLogger("headrace").setLevel(logging.INFO)
    if given.what == "produce":
        produce(given.url, given.stream, given.rate, given.keys)
        return
    for kind in ("log", "kafka"):
        if given.what in (kind, "all"):
            root = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
            try:
                measure(kind, root, given)
            finally:
                shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
