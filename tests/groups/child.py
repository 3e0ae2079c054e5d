"""A processor of a standalone group, in a process that tests kill, stop and wake: `python child.py serve` forks them.

It numbers the words of each key, and behind a repartition stream those of each last digit of a key. What it works on, and when,
goes to a file: a line per round, by a clock that all processes share.
"""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import headrace as hr
from groups.attempts import VARIABLE, note_attempts
from headrace import wiring
from headrace.adapters.spark import dead_jvm
from headrace.adapters.spark.engine import SparkEngine
from headrace.driver import generation
from headrace.driver.group import group_job
from headrace.driver.rounds.sub_topology_runner import SubTopologyRunner
from headrace.exchange.messages import decoded_plan
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine
from support.forking import print_to_file, report_end, serve, trap_steps

BOUND_S = 20.0
ATTEMPTS = "attempts.jsonl"  # see `attempts`


@dataclass(frozen=True)
class Run:
    """One incarnation of a processor. `work`: the file of what it worked on; `run_s`: when it ends by itself; `is_deaf`:
    it hears nothing of what others commit; `held_s`: for so long it waits for another that has the application;
    `tidy_s`: how often a leader deletes what nothing needs, a tenth of what it is else; `collector`: where it sends its
    spans; `slow_s`: how long each record takes; `letters`, `seen`: what an edit of the application adds, and
    how it names a store; `settings`: others than those below."""

    processor_id: str
    coordinator: str
    system: str
    application: str
    folder: str
    report: str
    steps_log: str
    traps: str = ""
    location: str = ""
    on_own_host: bool = False  # in namespaces: its location is the host's name, and its stores are there
    slots: int = 1
    factor: int = 1
    run_s: float = 120.0
    held_s: float = group_job.HELD_S
    tidy_s: float = 1.0
    session_ms: int = 4000
    return_wait_s: float = 5.0
    until: str | None = None
    version_interval_s: float = 60.0
    inline_bytes: int = 4 << 20
    retention_s: float = 86_400.0
    is_deaf: bool = False
    slow_s: float = 0.0
    collector: str = ""
    to_the_last: bool = False  # by a grouper of its own
    on_spark: bool = False  # else rounds run in this very process
    round_wait_s: float = generation.ROUND_WAIT_S
    max_round_ms: int = 20_000
    transaction_ms: int = 60_000
    jvm_answer_s: float = dead_jvm.ANSWER_S_MAX
    reset: bool = False  # whether each run reads from the beginning
    letters: bool = False
    seen: str = "seen"
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def keys(self) -> dict[str, Any]:
        location = self.location or self.processor_id
        places = {"location_id": location, "local_store_dir": f"{self.folder}/stores/{location}"}
        if self.on_own_host:
            places = {"local_store_dir": f"{self.folder}/stores"}
        return {
            "system": self.system,
            "coordinator": self.coordinator,
            "processor_id": self.processor_id,
            **places,
            "state_uri": f"{self.folder}/state",
            "trigger_interval_ms": 20,
            "max_round_ms": self.max_round_ms,
            "idle_timeout_s": 0.2,
            "partition_check_interval_s": 0.2,
            "settle_time_s": 0.5,
            "elasticity_factor": self.factor,
            "processor_return_wait_s": self.return_wait_s,
            "state_version_interval_s": self.version_interval_s,
            "restore_inline_bytes": self.inline_bytes,
            "local_store_retention_s": self.retention_s,
            "zookeeper.session.timeout.ms": self.session_ms,
            "kafka.transaction.timeout.ms": self.transaction_ms,
            "traces": "otel" if self.collector else "off",
            **({"spark.master": "local[1]", "spark.python.daemon.module": "groups.noting_daemon"} if self.on_spark else {}),
            **({"task_name_grouper": ToTheLast} if self.to_the_last else {}),
            **self.settings,
        }


def note_work(engine: type[InlineEngine | SparkEngine], run: Run) -> None:
    """Note of each round of an engine when it worked, and on which tasks."""
    work = os.open(f"{run.folder}/work.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    who, run_round = f"{run.processor_id}/{os.getpid()}", engine.run

    def noted(self: Any, sub_topology: str, round_id: str, works: Any, program: Any) -> list[bytes]:
        plans = [decoded_plan(work.payload) for group in works for work in group]
        tasks = ",".join(task.name for plan in plans for task in plan.tasks)
        began_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        try:
            return run_round(self, sub_topology, round_id, works, program)
        finally:
            ended_s = time.clock_gettime(time.CLOCK_BOOTTIME)
            os.write(work, f"{who} {tasks} {began_s} {ended_s} {round_id}\n".encode())

    engine.run = noted  # type: ignore[method-assign]


def engine_of(run: Run) -> InlineEngine | None:
    """The one that runs containers in this process, several at once where it has slots; None for Spark."""
    who, file = f"{run.processor_id}/{os.getpid()}", f"{run.folder}/{ATTEMPTS}"
    if run.on_spark:
        note_work(SparkEngine, run)
        os.environ[VARIABLE] = f"{who} {file}"
        return None
    note_work(InlineEngine, run)
    note_attempts(who, file)
    engine = InlineEngine(run_container)
    engine.slots = run.slots
    return engine


class OwnTasks(hr.SystemStreamPartitionGrouper):
    """A task for each partition, also for those that a stream has grown by: these would take keys from their state."""

    def group(self, previous_assignment: Any, ssps: Any) -> Any:
        return {hr.TaskName.parse(f"own{ssp.partition}"): frozenset({ssp}) for ssp in ssps}


class Numbering(hr.Processor[Any, Any, Any, Any]):
    """Forwards the records of a key with their numbers: each is written once, in order, or it shows."""

    slow_s: ClassVar[float] = 0.0
    store: ClassVar[str] = "seen"
    stores: ClassVar = [hr.KeyValueStore("seen", value=hr.Long())]

    def process(self, record: Any) -> None:
        store = self.context.store(self.store)
        store.put((store.get() or 0) + 1)
        time.sleep(self.slow_s)
        self.context.forward(value=[store.get(), record.value])


class NumberingDigits(Numbering):
    """The same, with a store of its own."""

    store: ClassVar[str] = "digits"
    stores: ClassVar = [hr.KeyValueStore("digits", value=hr.Long())]


class NumberingLetters(Numbering):
    """The same, of the records whose keys begin with one letter."""

    store: ClassVar[str] = "letters"
    stores: ClassVar = [hr.KeyValueStore("letters", value=hr.Long())]


class NumberingUnderAnotherName(Numbering):
    """As `Numbering`, with its store under the name that an edit gives it."""

    store: ClassVar[str] = "counted"
    stores: ClassVar = [hr.KeyValueStore("counted", value=hr.Long())]


class ToTheLast(hr.TaskNameGrouper):
    """All tasks are with the last processor by name."""

    def group(self, tasks: Any, processor_ids: Any = None, previous_containers: Any = None) -> Any:
        return [hr.ContainerModel(0, tuple(tasks), max(processor_ids))]


def application(run: Run) -> hr.App:
    app, name = hr.App(run.application, config=run.keys), run.application
    words = app.stream(f"{name}-words", key=hr.String(), value=hr.Long(), reset_offset=run.reset)
    numbering = Numbering if run.seen == Numbering.store else NumberingUnderAnotherName
    words.process(numbering, value=hr.Json(), name="numbering").to(f"{name}-numbered")
    by_digit = words.select_key(lambda record: record.key[-1], key=hr.String())
    by_digit.repartition(hr.Repartitioned(name="by-digit")).process(NumberingDigits, value=hr.Json()).to(f"{name}-by-digit")
    if run.letters:
        by_letter = words.select_key(lambda record: record.key[0], key=hr.String())
        repartitioned = by_letter.repartition(hr.Repartitioned(name="by-letter"))
        repartitioned.process(NumberingLetters, value=hr.Json()).to(f"{name}-by-letter")
    return app


def work(run: Run) -> dict[str, Any]:
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
    group_job.TIDY_S = run.tidy_s
    group_job.HELD_S = run.held_s
    generation.ROUND_WAIT_S, dead_jvm.ANSWER_S_MAX = run.round_wait_s, run.jvm_answer_s
    os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = run.collector
    Numbering.slow_s = run.slow_s
    if run.is_deaf:
        SubTopologyRunner.hear = lambda self: None  # type: ignore[method-assign]
    job = wiring.start(application(run), run.until, engine=engine_of(run))
    until_s = time.monotonic() + run.run_s
    while job.is_running and not stopped and time.monotonic() < until_s:
        try:
            job.wait(0.1)
        except TimeoutError:
            written = Path(f"{run.report}.status-written")
            written.write_text(json.dumps(job.status(), default=str))
            written.rename(f"{run.report}.status")  # a reader sees it whole
    if job.is_running:
        job.stop()
    job.wait(0)
    return {"stopped": bool(stopped)}


def prepare(run: Run) -> None:
    trap_steps(run)
    print_to_file(run)


if __name__ == "__main__":
    serve(Run, prepare, lambda run: report_end(run, lambda: work(run)), BOUND_S)
