"""How long a thread has waited: for a network, a disk, a lock, or asleep, and not for a processor.

The time that it ran is not enough to tell: on a machine that is busy with other work, functions that compute would look like
functions that wait. Linux also counts for how long a thread was ready to run."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

_SCHEDULE = Path("/proc/thread-self/schedstat")  # ns that it ran, ns that it was ready to, and how often


def _scheduled_s() -> float:
    ran_ns, ready_ns, _ = _SCHEDULE.read_bytes().split()
    return (int(ran_ns) + int(ready_ns)) / 1e9


def _is_known() -> bool:
    try:
        return _scheduled_s() > 0
    except (OSError, ValueError):
        return False


thread_ready_s: Callable[[], float] = _scheduled_s if _is_known() else time.thread_time
"""For how many seconds the calling thread has run, or, where that is known, was ready to run."""
