"""Runs a job in the foreground: its progress on standard error, until its end or a signal."""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import suppress
from typing import Any

from headrace.driver.job import Job
from headrace.driver.job_status import RunStatus
from headrace.driver.progress_display import shown


def wait_for(job: Job, progress: bool) -> RunStatus:
    """Wait for the end of a job; SIGINT and SIGTERM stop it. Gives its last status; raises what ended the job."""
    signals: list[int] = []
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():  # no other may set what signals do
        stops = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, lambda came, frame: signals.append(came)) for number in stops}
    try:
        with shown(job, sys.stderr, enabled=progress):
            while job.is_running and not signals:
                with suppress(TimeoutError):
                    job.wait(0.1)
    finally:
        try:
            if job.is_running:
                job.stop()  # once: what does not stop in its time is not asked again
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    job.wait(0)
    return {**job.status(), "stopped": job.was_stopped, "signal": signals[0] if signals else None}
