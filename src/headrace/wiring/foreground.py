"""Runs a job in the foreground: its progress on standard error, until its end or a signal."""

from __future__ import annotations

import signal
import sys
import threading
from typing import Any

from headrace.driver.job import Job
from headrace.driver.job_status import RunStatus
from headrace.driver.progress_display import shown


def wait_for(job: Job, progress: bool) -> RunStatus:
    """Wait for the end of a job; SIGINT and SIGTERM stop it. Gives its last status; raises what ended the job."""
    signals: list[int] = []
    before = _on_signals(signals)
    try:
        with shown(job, sys.stderr, enabled=progress):
            while job.is_running and not signals:
                try:
                    job.wait(0.1)
                except TimeoutError:
                    continue
    finally:
        try:
            if job.is_running:
                job.stop()  # once: what does not stop in its time is not asked again
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    job.wait(0)
    return {**job.status(), "stopped": bool(signals), "signal": signals[0] if signals else None}


def _on_signals(came: list[int]) -> dict[int, Any]:
    """Ask for a clean stop at SIGINT and SIGTERM, by their numbers in `came`; only a program's main thread may."""
    if threading.current_thread() is not threading.main_thread():
        return {}

    def stop(number: int, frame: Any) -> None:
        came.append(number)

    return {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
