"""Finds the processes of a driver on Spark, as the kernel knows them: its JVM, the daemons of Python workers, the workers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

WINDOW_S = 0.1  # a worker that used the processor within it is at work


@dataclass(frozen=True, slots=True)
class Family:
    """The processes below a driver; `jvm` is None where it does not run (yet). Spark may have several daemons."""

    driver: int
    jvm: int | None
    daemons: tuple[int, ...]
    workers: tuple[int, ...]

    @property
    def below(self) -> tuple[int, ...]:
        """All but the driver."""
        return (() if self.jvm is None else (self.jvm,)) + self.daemons + self.workers


def family_of(driver: int) -> Family:
    below = _children()
    jvms = _named("org.apache.spark.deploy.SparkSubmit", below.get(driver, ()))
    daemons = tuple(daemon for jvm in jvms for daemon in _named("pyspark.worker", below.get(jvm, ())))
    return Family(driver, next(iter(jvms), None), daemons, tuple(pid for one in daemons for pid in sorted(below.get(one, ()))))


def tree_of(pid: int) -> list[int]:
    """A process and all below it, each before its children."""
    below, found = _children(), [pid]
    for one in found:
        found += below.get(one, ())
    return found


def _children() -> dict[int, list[int]]:
    """Of each process those that it has started, and that have not ended."""
    known = {int(folder.name): fields for folder in Path("/proc").glob("[0-9]*") if (fields := _stat(int(folder.name)))}
    found: dict[int, list[int]] = {}
    for pid, fields in known.items():
        if fields[0] != "Z":
            found.setdefault(int(fields[1]), []).append(pid)
    return found


def busy_workers(driver: int) -> list[int]:
    """The Python workers that used the processor within a moment: an idle one would be killed for nothing."""
    before = {pid: _ticks(pid) for pid in family_of(driver).workers}
    time.sleep(WINDOW_S)
    return sorted(pid for pid, used in before.items() if used is not None and (_ticks(pid) or 0) > used)


def is_at_rest(pid: int, within_s: float = 1.0) -> bool:
    """Whether a process that is not stopped uses no processor for so long, or has ended."""
    fields, before = _stat(pid), _ticks(pid)
    if fields is not None and fields[0] in ("T", "t"):
        return False
    time.sleep(within_s)
    return _ticks(pid) in (before, None)


def is_alive(pid: int) -> bool:
    """Whether it still runs; one that ended and was not asked how does not."""
    fields = _stat(pid)
    return fields is not None and fields[0] not in ("Z", "X")


def ended(pids: Collection[int], within_s: float) -> list[int]:
    """Wait until all of `pids` have ended, at most so long; those that have not, which are killed now."""
    deadline_s = time.monotonic() + within_s
    left = [pid for pid in pids if is_alive(pid)]
    while left and time.monotonic() < deadline_s:
        time.sleep(0.1)
        left = [pid for pid in left if is_alive(pid)]
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return left


def _named(part: str, pids: Iterable[int]) -> tuple[int, ...]:
    """Those that have this in their command line."""
    return tuple(sorted(pid for pid in pids if part in _command(pid)))


def _stat(pid: int) -> list[str] | None:
    """From the state on: the name before it may hold blanks."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _ticks(pid: int) -> int | None:
    fields = _stat(pid)
    return None if fields is None else int(fields[11]) + int(fields[12])


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
