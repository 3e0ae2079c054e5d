"""A job whose input grows while it runs, in a process of its own that tests kill and stop: `python child.py serve`.

It speaks as `chaos/child.py` does. A run without an end (`until` None) says by a file that it is at work; then the test
expands its input. `traps` count from the start of the process, `later` from the new job model on, before its first round.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import headrace as hr
import headrace.adapters.kafka.jobs as kafka_jobs
import headrace.adapters.log.jobs as log_jobs
from chaos.forking import serve, trap_steps
from expansion.job import BUILDS
from headrace import wiring
from headrace.adapters.log import catalog
from headrace.driver import job
from headrace.exchange import fault_injection as steps
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine

RUN_S_MAX = 90.0
AT_WORK_RECORDS = 30


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the application `name` on the system at `url`; its streams are `NAME-in`, `NAME-passed` and so on.

    `stale_us` is how long a driver that is silent counts as alive; with `silent` its heartbeat does not find out that
    another took over; `lock_wait_s` is how long to wait for the lock of the log's catalog.
    """

    name: str
    url: str
    folder: str
    report: str
    steps_log: str
    build: str
    until: str | None = None
    traps: str = ""
    later: str = ""
    stale_us: int | None = None
    silent: bool = False
    lock_wait_s: float | None = None
    keys: Mapping[str, Any] | None = None

    @property
    def at_work(self) -> Path:
        """The file that is there once it has committed something."""
        return Path(f"{self.report}.at-work")


def keys_of(run: Run) -> dict[str, Any]:
    return {
        "local_store_dir": f"{run.folder}/stores",
        "state_uri": f"{run.folder}/state",
        "max_records_per_round": 60,
        "trigger_interval_ms": 5,
        "containers": 2,
        "partition_check_interval_s": 0.1,
        **(run.keys or {}),
    }


def application(run: Run) -> hr.App:
    return BUILDS[run.build](hr.App(run.name, run.url, **keys_of(run)), f"{run.name}-in")


def finish(run: Run, application: Callable[[Run], hr.App] = application) -> int:
    """Run the job; 0 once it has caught up, 1 if it ended with an error, which is then in the report."""
    if run.stale_us is not None:
        kafka_jobs.HEARTBEAT_STALE_US = log_jobs.HEARTBEAT_STALE_US = run.stale_us
    if run.silent:
        job.HEARTBEAT_S = 3600.0
    if run.lock_wait_s is not None:
        assert catalog.open_catalog.__kwdefaults__ is not None
        catalog.open_catalog.__kwdefaults__["lock_wait_s"] = run.lock_wait_s
    try:
        started = wiring.start(application(run), run.until, engine=InlineEngine(run_container))
        if run.until is None:
            while started.is_running and not _is_at_work(started.status()):
                time.sleep(0.01)
            run.at_work.touch()
        started.wait(RUN_S_MAX)
    except BaseException as error:
        Path(run.report).write_text(json.dumps({"error": type(error).__name__, "message": str(error)}))
        return 1
    Path(run.report).write_text(json.dumps({"error": None, "status": started.status()}))
    return 0


def _is_at_work(status: Mapping[str, Any]) -> bool:
    return bool(status["sub_topologies"]["source"]["records"] >= AT_WORK_RECORDS)


class _Arming(steps._Trap):
    """At the first round of the new job model, which is the second of the process, it sets the traps of `later`."""

    def __init__(self, later: str) -> None:
        super().__init__("kill", "start", 11, 2, None)
        self._later = later

    def springs(self) -> bool:
        if super().springs():
            assert steps._traps is not None
            steps._traps = [trap for trap in steps._traps if trap is not self] + (
                steps._traps_of({"HEADRACE_TEST_STEPS": self._later}) or []
            )
        return False


def prepare(run: Run) -> None:
    trap_steps(run)
    if run.later:
        steps._traps = [*(steps._traps or []), _Arming(run.later)]
    logging.basicConfig(filename=f"{run.report}.log", level=logging.INFO, format="%(asctime)s %(name)s %(message)s")


if __name__ == "__main__":
    serve(Run, prepare, finish, RUN_S_MAX + 10)
