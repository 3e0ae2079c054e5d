"""A job in a process of its own that tests kill and stop at numbered steps: `python child.py serve` forks one for each run.

A run without an end (`until` None) says by a file that it is at work. `traps` count from the start of the process, `later`
from the second job model on, before its first round. Beside the steps of protocol.md there is a protocol `settle`: 1 before
it is stored that startpoints are applied which a commit has spent, 2 right after.
"""

from __future__ import annotations

import importlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import headrace as hr
import headrace.adapters.common.lease_holder as holders
from headrace import wiring
from headrace.adapters.kafka import container_transaction as lanes
from headrace.adapters.log import catalog
from headrace.driver import job
from headrace.driver.planning.job_plan import StartpointRecords
from headrace.exchange import fault_injection as steps
from headrace.exchange.fault_injection import reached
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine
from support.forking import report_end, serve, trap_steps

RUN_S_MAX = 100.0
AT_WORK_RECORDS = 30


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the application `name` on the system at `url`; its streams are `NAME-in` and so on.

    `build` is `module:function`, which makes the application of a run. `input`: another stream than `NAME-in` to read.
    `stale_us` is how long a driver that is silent counts as alive; with `silent` its heartbeat does not find out that
    another took over; `lock_wait_s` is how long to wait for the lock of the log's catalog; `tidy_s` how often state
    versions are kept; `pause_s` what the work on each record takes; `bug` names one of `kafka_faults.planted.BUGS`.
    """

    name: str
    url: str
    folder: str
    report: str
    steps_log: str
    build: str
    until: str | None = "caught-up"
    traps: str = ""
    later: str = ""
    input: str = ""
    stores: str = ""
    stale_us: int | None = None
    silent: bool = False
    lock_wait_s: float | None = None
    tidy_s: float | None = None
    pause_s: float = 0.0
    bug: str = ""
    run_s: float = RUN_S_MAX
    keys: Mapping[str, Any] | None = None

    @property
    def at_work(self) -> Path:
        """The file that is there once it has committed something."""
        return Path(f"{self.report}.at-work")

    @property
    def source(self) -> str:
        return self.input or f"{self.name}-in"

    def app(self, spark: Any = None, **keys: Any) -> hr.App:
        """Its application, without operators yet: many small rounds, unless `keys` or the run's own say otherwise."""
        places = {"local_store_dir": self.stores or f"{self.folder}/stores", "state_uri": f"{self.folder}/state"}
        often = {"max_records_per_round": 40, "trigger_interval_ms": 5, "containers": 2}
        return hr.App(self.name, self.url, spark, **{**places, **often, **keys, **(self.keys or {})})


def build_of(run: Run) -> Callable[[Run], hr.App]:
    module, _, name = run.build.partition(":")
    found: Callable[[Run], hr.App] = getattr(importlib.import_module(module), name)
    return found


def run_of(**fields: Any) -> Run:
    """The run of a request; what it needs is imported here, before the fork: a kill is to cost a fork."""
    run = Run(**fields)
    build_of(run)
    return run


def prepare(run: Run) -> None:
    """Set the traps and the settings of a run, in its own process."""
    trap_steps(run)
    if run.later:
        steps._traps = [*(steps._traps or []), _Arming(run.later)]
    logging.basicConfig(filename=f"{run.report}.log", level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    if run.stale_us is not None:
        holders.HEARTBEAT_STALE_US = run.stale_us
    if run.silent:
        job.HEARTBEAT_S = 3600.0
    if run.lock_wait_s is not None:
        assert catalog.open_catalog.__kwdefaults__ is not None
        catalog.open_catalog.__kwdefaults__["lock_wait_s"] = run.lock_wait_s
    if run.tidy_s is not None:
        job.LOOK_S, job.TIDY_S = 0.05, run.tidy_s
    _flush_before_commits()
    _settle_in_steps()
    if run.bug:
        from kafka_faults import planted

        planted.plant(run.bug)


def finish(run: Run) -> int:
    """Run the job to its end."""

    def work() -> dict[str, Any]:
        started = wiring.start(build_of(run)(run), run.until, engine=InlineEngine(run_container))
        if run.until is None:
            while started.is_running and not _is_at_work(started.status()):
                time.sleep(0.01)
            run.at_work.touch()
        started.wait(run.run_s)
        status = started.status()
        return {"status": status, "notes": [note for one in status["sub_topologies"].values() for note in one["notes"]]}

    return report_end(run, work)


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


def _flush_before_commits() -> None:
    """At step 8 all that is written is in the broker's hands: so a kill there leaves an open transaction, not by chance."""
    send = lanes.send_offsets

    def send_and_flush(producer: Any, *arguments: Any, **named: Any) -> None:
        send(producer, *arguments, **named)
        producer.flush(10)

    lanes.send_offsets = send_and_flush


def _settle_in_steps() -> None:
    settle = StartpointRecords.settle

    def stepwise(records: StartpointRecords, *arguments: Any) -> tuple[str, ...]:
        if records._spent:
            reached("settle", 1)
        stored = settle(records, *arguments)
        if stored:
            reached("settle", 2)
        return stored

    StartpointRecords.settle = stepwise  # type: ignore[method-assign]


if __name__ == "__main__":
    importlib.import_module("headrace.wiring.launch")
    serve(run_of, prepare, finish, 10)
