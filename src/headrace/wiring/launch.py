"""Owns the launch of a job: system, session, engine, plan, rounds, threads; and running it in the foreground."""

from __future__ import annotations

import logging
import shutil
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.adapters.log import processes
from headrace.config import Config
from headrace.core.resolution import has_open_types, resolved
from headrace.core.sub_topologies import SubTopology, has_state, sub_topologies_of
from headrace.dsl.serdes import serde_of_spark_type
from headrace.dsl.windowed import Windowed
from headrace.errors import NotSupportedError, StateError
from headrace.model.serde import Serde
from headrace.model.topology import Node, Source, Topology
from headrace.runtime.job import Job
from headrace.runtime.progress import shown
from headrace.runtime.rounds import Place, Rounds
from headrace.runtime.startup import JobPlan, planned
from headrace.runtime.state_files import StateFiles
from headrace.runtime.state_garbage import StateGarbage
from headrace.runtime.steps import reached
from headrace.setup_check import checked_folder
from headrace.wiring import open_system

LOG = logging.getLogger("headrace")
GARBAGE_INTERVAL_S = 60.0


@dataclass(frozen=True, slots=True, eq=False)
class Launched:
    """A planned job that this process holds, ready to run: `Job` does so in threads, the test driver step by step.

    `collect` removes files that are not needed any more after a commit. `close` closes what was opened; giving the
    application back (`store.release`) comes before it.
    """

    plan: JobPlan
    rounds: list[Rounds]
    store: Any
    engine: Any
    files: StateFiles
    collect: Callable[[Rounds], None]
    close: Callable[[], None]


def started(app: Any, config: Config, until: str | None, engine: Any, log: Callable[[str], None] | None) -> Job:
    """Plan and start; on any error everything that was opened is closed again, and nothing was consumed."""
    job = launched(app, config, engine, log or LOG.info)
    return Job(
        job.plan,
        job.rounds,
        job.store,
        job.engine,
        trigger_s=config.trigger_interval_ms / 1000,
        idle_timeout_s=config.idle_timeout_s,
        until=until,
        collect=job.collect,
        close=job.close,
    ).start()


def launched(app: Any, config: Config, engine: Any, say: Callable[[str], None]) -> Launched:
    """Take the application and plan it; `engine` None is Spark. On an error everything is closed and given back."""
    topology: Topology = app.topology()
    _refuse_what_is_not_there_yet(config)
    stateful = any(has_state(sub) for sub in sub_topologies_of(topology))
    system = open_system(config.system)
    closers: list[Callable[[], None]] = [system.close]
    try:
        root = system.root
        state_uri = config.state_uri or str(root.parent / ".headrace" / "state")
        if stateful:
            checked_folder(config.local_store_dir, "the local stores (local_store_dir)")
        if engine is None:
            say("starting Spark")
            engine = spark_engine(app, config)
            closers.append(engine.close)
        topology, sides = resolved_topology(topology, engine)
        run_id = uuid.uuid4().hex
        store = system.job_store(app.name, reached)
        epoch = store.acquire(processes.this_process(run_id, _now_us()), _now_us())
        closers.append(lambda: store.release(epoch))
        reached("start", 4)
        plan = planned(topology, sides, config, system, store, epoch, engine.slots, say)
        for note in plan.notes:
            say(note)
        files = StateFiles(state_uri)
        garbage = StateGarbage(files, app.name, config.keep_state_versions)
        garbage.collect_orphans(plan.checkpoints.values(), store.holding(epoch))
        for sub in plan.subs:  # what a first commit replaces are the files of these
            tasks = plan.model.sub_topology(sub.name).tasks
            garbage.committed(sub.name, [plan.checkpoints[task.name] for task in tasks])
        staging = root / "staging" / app.name
        _remove_staged_before(staging, epoch)
        log_garbage = LogGarbage(system)
        log_garbage.collect()
        reached("start", 12)
        place = Place(
            run_id,
            processes.boot_id(),
            str(Path(config.local_store_dir).absolute()),
            state_uri,
            str(root),
            staging,
            config.max_round_ms / 1000,
        )
        all_rounds = [_rounds_of(sub, plan, config, system, store, engine, place) for sub in plan.subs]
        closers.pop()  # from here on whoever runs the rounds gives the application back
        return Launched(
            plan,
            all_rounds,
            store,
            engine,
            files,
            collect=lambda rounds: _collected(rounds, garbage, log_garbage),
            close=lambda: _close(closers),
        )
    except BaseException:
        _close(closers)
        raise


def _remove_staged_before(staging: Path, epoch: int) -> None:
    """Remove what rounds of drivers before us left. Of later ones nothing: we may have been stopped, and replaced."""
    for folder in staging.glob("*-*"):
        number = folder.name.partition("-")[0]
        if number.isdigit() and int(number) < epoch:
            shutil.rmtree(folder, ignore_errors=True)


def _rounds_of(
    sub: SubTopology, plan: JobPlan, config: Config, system: Any, store: Any, engine: Any, place: Place
) -> Rounds:
    return Rounds(
        sub,
        plan.model.sub_topology(sub.name),
        plan.programs[sub.name],
        plan.checkpoints,
        plan.epoch,
        plan.model.version,
        system,
        store,
        engine,
        place,
        config.max_records_per_round_of(sub.name),
        engine.slots,
    )


class LogGarbage:
    """Deletes the log's data files that nobody refers to, every `GARBAGE_INTERVAL_S`; threads may share it.

    A failure is logged and no more: what was left is found the next time.
    """

    def __init__(self, system: Any) -> None:
        self._system = system
        self._lock = threading.Lock()
        self._next_s = 0.0

    def collect(self) -> None:
        """Look for such files, unless that was done lately or is being done."""
        if time.monotonic() < self._next_s or not self._lock.acquire(blocking=False):
            return
        try:
            self._system.collect_garbage()
        except Exception as error:
            LOG.warning("could not collect data files that are not needed any more: %s", error)
        finally:
            self._next_s = time.monotonic() + GARBAGE_INTERVAL_S
            self._lock.release()


def _collected(rounds: Rounds, garbage: StateGarbage, log_garbage: LogGarbage) -> None:
    garbage.committed(rounds.sub.name, rounds.checkpoints.values())
    log_garbage.collect()


def _close(closers: list[Callable[[], None]]) -> None:
    while closers:
        try:
            closers.pop()()
        except Exception as error:
            LOG.warning("while closing: %s", error)


def _now_us() -> int:
    return time.time_ns() // 1000


def _refuse_what_is_not_there_yet(config: Config) -> None:
    if config.elasticity_factor != 1:
        raise NotSupportedError(
            f"elasticity_factor = {config.elasticity_factor}: virtual tasks are not there yet", "leave it at 1"
        )
    if config.coordinator is not None:
        raise NotSupportedError(
            f"coordinator = {config.coordinator!r}: groups of processes are not there yet", "leave it unset"
        )
    if config.state_uri and "://" in config.state_uri and not config.state_uri.startswith("file:"):
        raise StateError(
            f"state_uri {config.state_uri!r}: the embedded log keeps state on this machine's file system",
            "give a folder",
        )


def session_of(app: Any, config: Config) -> tuple[Any, bool]:
    """The session to run in, and whether it is ours to stop."""
    from headrace.adapters.spark import session

    held = getattr(app, "_headrace_session", None)
    if held is not None:
        return held, False
    if app.spark_given is not None:
        made, ours = session.taken(app.spark_given), False
    else:
        folder = getattr(app, "folder", None)
        made = session.started(
            {f"spark.{name}": value for name, value in config.spark.items()},
            app.name,
            session.default_log_dir(config.local_store_dir),
            [str(folder)] if folder else [],
        )
        ours = True
    app._headrace_session = made
    return made, ours


def spark_engine(app: Any, config: Config) -> Any:
    from headrace.adapters.spark.engine import SparkEngine
    from headrace.wiring.prefix import prepared_rows, read_prefix
    from headrace.wiring.worker import run_spark_container

    made, ours = session_of(app, config)

    def close_session() -> None:
        if ours:
            app._headrace_session = None

    return SparkEngine(made, run_spark_container, read_prefix, prepared_rows, ours, close_session)


_shared_sessions: list[Any] = []


def shared_spark(app: Any, config: Config) -> Any:
    """The engine on a session that all test drivers of this process share, or on the application's own; never closed."""
    if app.spark_given is None and getattr(app, "_headrace_session", None) is None:
        if _shared_sessions:
            app._headrace_session = _shared_sessions[0]
        else:
            _shared_sessions.append(session_of(app, config)[0])
    return spark_engine(app, config)


def resolved_topology(topology: Topology, engine: Any) -> tuple[Topology, Any]:
    """The topology with all serdes known; Spark is asked only where there are expressions."""

    def windowed(serde: Serde) -> Serde:
        return Windowed(serde)

    def no_types(source: Source, chain: tuple[Node, ...]) -> tuple[str, str]:
        raise NotSupportedError(
            f"{chain[-1].name!r} is a Spark expression: it needs Spark", "run the job on Spark, or use a function"
        )

    types_of = getattr(engine, "types_of", no_types) if has_open_types(topology) else no_types
    return resolved(topology, types_of, serde_of_spark_type, windowed)



def run(app: Any, until: str | None = None, **options: Any) -> dict[str, Any]:
    """Run in the foreground with a progress display, until the end or a signal. Raises what ended the job."""
    from headrace import wiring

    progress = options.pop("progress", True)
    job = wiring.start(app, until, **options)
    stopped = threading.Event()
    before = _on_signals(stopped)
    try:
        with shown(job, sys.stderr, enabled=progress):
            while job.is_running and not stopped.is_set():
                try:
                    job.wait(0.1)
                except TimeoutError:
                    continue
        if stopped.is_set():
            job.stop()
        job.wait(30)
    finally:
        if job.is_running:
            job.stop()
        for number, handler in before.items():
            signal.signal(number, handler)
    return job.status() | {"stopped": stopped.is_set()}


def _on_signals(stopped: threading.Event) -> dict[int, Any]:
    """Ask for a clean stop at SIGINT and SIGTERM; only a program's main thread may."""
    if threading.current_thread() is not threading.main_thread():
        return {}

    def stop(number: int, frame: Any) -> None:
        stopped.set()

    return {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}


