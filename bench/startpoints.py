"""How long many startpoints take to be written, read back, and taken up by a driver that plans.

    .venv/bin/python bench/startpoints.py [log|kafka|plan|all] [--count N] [--repeat N]

log, kafka  write them one by one (each is durable when its call returns), in a batch, and as one call; after each, read all
            back with `read_all_startpoints`, and each by its key. A broker is started for Kafka. What a write one
            by one costs is, on the log, a transaction of SQLite with its fsync, and on Kafka a round trip to the broker.
plan        what a driver does with as many for 1,000 partitions that 10 tasks read: taking up as many new ones, and planning
            again with as many pending, requests and records decoded and encoded as they are stored; also where all partitions
            are of one task

Of `--repeat` runs the best counts.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from common import system_of

import headrace as hr
from headrace.client.startpoint_manager import ENTRIES_PER_REQUEST_MAX, StartpointManager
from headrace.codec.documents import decode, encode
from headrace.core.job_plan.apply_rewinds import StateHistory, StateRewinds
from headrace.core.job_plan.apply_startpoints import AppliedStartpoints, apply_startpoints
from headrace.core.job_plan.startpoint_requests import StartpointRequests
from headrace.core.rewind.startpoint_rules import offset_of
from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.startpoint import PositionType, Startpoint, StartpointKey, StartpointRecord, StartpointRequest
from headrace.model.streams import SSP
from headrace.model.tasks import EverySspGroup, TaskName

EARLIEST = Startpoint(PositionType.EARLIEST)
Write = Callable[[StartpointManager, list[SSP]], None]


@dataclass(frozen=True, slots=True, order=True)
class Took:
    """Seconds, and of this process's CPU: the machine may be shared."""

    wall_s: float
    cpu_s: float

    def __str__(self) -> str:
        return f"{self.wall_s:5.2f} s (CPU {self.cpu_s:.2f})"


def timed(call: Callable[[], object]) -> Took:
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    call()
    return Took(time.perf_counter() - began_s, time.process_time() - began_cpu_s)


# --- writing and reading ----------------------------------------------------------------------------------------------


def one_by_one(manager: StartpointManager, ssps: list[SSP]) -> None:
    for ssp in ssps:
        manager.write_startpoint(ssp, EARLIEST)


def in_a_batch(manager: StartpointManager, ssps: list[SSP]) -> None:
    with manager.batch():
        one_by_one(manager, ssps)


def at_once(manager: StartpointManager, ssps: list[SSP]) -> None:
    manager.write_startpoints(dict.fromkeys(ssps, EARLIEST))


WAYS = {"one by one": one_by_one, "in a batch": in_a_batch, "as one call": at_once}


def written_and_read(url: str, application: str, write: Write, ssps: list[SSP]) -> list[Took]:
    with hr.open_system(url) as system:
        manager = StartpointManager(system.metadata_store(application))
        written = timed(lambda: write(manager, ssps))
    with hr.open_system(url) as system:  # as another process would
        manager = StartpointManager(system.metadata_store(application))
        read = timed(manager.read_all_startpoints)
        found = manager.read_all_startpoints()
        assert [key.ssp for key in found] == ssps, f"{len(found)} of {len(ssps)} came back"
        by_key = timed(lambda: [manager.read_startpoint(ssp) for ssp in ssps])
    return [written, read, by_key]


def store(url: str, count: int, repeat: int) -> None:
    ssps = [SSP("system", "stream", partition) for partition in range(count)]
    for way, write in WAYS.items():
        runs = [written_and_read(url, f"{way.replace(' ', '-')}-{number}", write, ssps) for number in range(repeat)]
        written, read, by_key = min(runs)
        print(f"  {way:<12} written {written}, all read back {read}, each by its key {by_key}")


# --- planning ---------------------------------------------------------------------------------------------------------


class Partitions:
    """The offsets of partitions of 1,000 records."""

    def register(self, ssp: SSP, startpoint: Startpoint) -> int:
        return offset_of(startpoint, ssp, 0, 1000, lambda time_us: 0)

    def beginnings(self, stream: str) -> Mapping[int, int]:
        raise AssertionError("no state goes back here")

    ends = high_watermarks = beginnings

    def for_time(self, stream: str, time_us: int) -> Mapping[int, int]:
        raise AssertionError("no startpoint is a time here")


def rewinds(now_us: int) -> StateRewinds:
    return StateRewinds(StateHistory(), (), Partitions(), now_us)


def plan(tasks: int, partitions: int, profile: bool) -> None:
    """Each task has a startpoint of its own for each partition."""
    names = [TaskName(EverySspGroup(number)) for number in range(tasks)]
    ssps = [SSP("system", "stream", partition) for partition in range(partitions)]
    checkpoints = {name: Checkpoint(name, RoundId(1, None, 0), 1, dict.fromkeys(ssps, 500)) for name in names}
    manager = StartpointManager(None)  # type: ignore[arg-type]  # it makes entries here, and stores nothing
    entries = [manager.entry_of(StartpointKey(ssp, name), EARLIEST) for ssp in ssps for name in names]
    parts = [entries[at : at + ENTRIES_PER_REQUEST_MAX] for at in range(0, len(entries), ENTRIES_PER_REQUEST_MAX)]
    requests = {f"{number:05d}": encode(StartpointRequest(tuple(part))) for number, part in enumerate(parts)}

    stored: dict[str, bytes] = {}
    taken: list[AppliedStartpoints] = []

    def first() -> None:
        asked = StartpointRequests({id_: decode(StartpointRequest, data, id_) for id_, data in requests.items()})
        taken.append(apply_startpoints(asked, checkpoints, checkpoints, rewinds(1)))
        stored.update((id_, encode(record)) for id_, record in taken[0].written.items() if record is not None)

    def again() -> None:
        known = StartpointRequests({}, {id_: decode(StartpointRecord, data, id_) for id_, data in stored.items()})
        taken.append(apply_startpoints(known, taken[0].checkpoints, taken[0].checkpoints, rewinds(2)))

    figures = []
    for step in (first, again):
        profiler = cProfile.Profile()
        if profile:
            profiler.enable()
        figures.append(timed(step))
        profiler.disable()
        if profile:
            pstats.Stats(profiler, stream=sys.stdout).sort_stats("cumulative").print_stats(15)
    assert len(taken[0].written) == len(entries)
    assert not taken[1].written
    print(f"  {tasks:>2} tasks x {partitions:>6} partitions: taken up in {figures[0]}, planned again in {figures[1]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="all", choices=["log", "kafka", "plan", "all"])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--profile", action="store_true", help="where planning spends its time")
    options = parser.parse_args()
    for kind in ("log", "kafka"):
        if options.what not in (kind, "all"):
            continue
        root = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
        try:
            with system_of(kind, root, heap_mb=512) as url:
                print(f"{kind}: {options.count:,} startpoints")
                store(url, options.count, options.repeat)
        finally:
            shutil.rmtree(root, ignore_errors=True)
    if options.what in ("plan", "all"):
        print(f"planning: {options.count:,} startpoints")
        for tasks in (10, 1):
            plan(tasks, options.count // tasks, options.profile)


if __name__ == "__main__":
    main()
