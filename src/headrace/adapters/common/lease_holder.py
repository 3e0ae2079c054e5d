"""Who holds an application: what the kernel says about processes, who this one is, whether another still lives.

A pid alone names nothing: it is used again. A process is its pid, its start time, and the pid namespace it counts in.
"""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

from headrace.core.group.statuses import FRESH_US, processors_at_work
from headrace.errors import FencedError, JobHeldError
from headrace.model.commits import DriverLease
from headrace.model.names import few
from headrace.ports.coordinator_store import CoordinatorStore

BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
HEARTBEAT_STALE_US = 10_000_000  # a holder that was silent for longer may be taken over; it beats every 2 s


def this_process(run_id: str, now_us: int) -> DriverLease:
    """This process as the holder of an application, from `now_us` (µs since the epoch)."""
    pid = os.getpid()
    return DriverLease(run_id, socket.gethostname(), pid, started_text(pid) or "", boot_id(), now_us)


def boot_id() -> str:
    """A text that is new each time the machine starts; empty where the kernel gives none."""
    try:
        return BOOT_ID_FILE.read_text().strip()
    except OSError:
        return ""


def started_text(pid: int) -> str | None:
    """When process `pid` started, in the kernel's ticks, with our pid namespace: `8023@4026531836`. None if it has ended.
    The namespace is ours because a pid means nothing in another one: seen from there, a live process looks dead."""
    fields = stat_fields(pid)
    # A zombie process has ended: it only waits for its parent to ask how.
    return None if fields is None or fields[0] in ("Z", "X") else f"{fields[19]}@{_pid_namespace()}"


def is_known_dead(holder: DriverLease) -> bool:
    """Whether `holder` ran on this host, in this boot and pid namespace, and has ended. False where that is unknown."""
    if holder.host != socket.gethostname() or not holder.boot_id or holder.boot_id != boot_id():
        return False
    _, at, namespace = holder.process_started.rpartition("@")
    if not at or namespace != _pid_namespace():
        return False
    return started_text(holder.pid) != holder.process_started


def is_alive(holder: DriverLease | None, now_us: int) -> bool:
    """Whether a process holds it that is not known to have ended, with a heartbeat within the takeover limit."""
    return holder is not None and not is_known_dead(holder) and now_us - holder.heartbeat_us <= HEARTBEAT_STALE_US


def held_since_us(application: str, current: DriverLease | None, since_us: int, holder: DriverLease, now_us: int) -> int:
    """Since when `holder` has the application, where `current` had it from `since_us` on: the same run may take it again.
    `JobHeldError` while another run lives."""
    if current is not None and current.run_id == holder.run_id:
        return since_us
    if current is None or not is_alive(current, now_us):
        return now_us
    silent_s = max(0, now_us - current.heartbeat_us) / 1_000_000
    since = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=since_us)
    raise JobHeldError(
        f"application {application!r} is run by process {current.pid} on host {current.host} "
        f"since {since:%Y-%m-%d %H:%M:%S} UTC; last heartbeat {silent_s:.1f} s ago",
        f"stop it first; if it is dead, this works once its last heartbeat is older than {HEARTBEAT_STALE_US // 1_000_000} s",
    )


def refuse_beside_group(application: str, store: CoordinatorStore, now_us: int) -> None:
    """`JobHeldError` while processors of a group work whose leader was lost: another one is about to lead them."""
    working = [] if store.grants() is None else processors_at_work(store.processors(), now_us)
    if working:
        wait_s = FRESH_US // 1_000_000
        raise JobHeldError(
            f"application {application!r} is run by a group, of which these processors work: {few(working)}",
            f"stop them first; if they are dead, this works once none has reported for {wait_s} s",
        )


def fenced(application: str, epoch: int, current: object) -> FencedError:
    """The error of a driver whose `epoch` is not the `current` one."""
    return FencedError(
        f"application {application!r}: this driver's epoch is {epoch}, the current one is {current}; nothing was changed",
        "another driver took over; look at `headrace status`",
    )


def stat_fields(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the third (the state) on; the second, a name, may hold blanks and brackets."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _pid_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid").removeprefix("pid:[").removesuffix("]")
    except OSError:
        return ""
