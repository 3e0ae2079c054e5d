"""Owns the launch of a job: system, session, engine, plan, rounds, threads; and running it in the foreground."""

from __future__ import annotations

import logging
import shutil
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.adapters.artifacts.connector import connector_jars, with_connector
from headrace.adapters.common import job_lease as holders
from headrace.config.loading import Config
from headrace.core.rewind.rewinds import gaps_of
from headrace.core.secrets import secret_values
from headrace.core.topology.resolution import has_open_types, resolved, through_spark
from headrace.core.topology.sub_topologies import SubTopology, has_state, sub_topologies_of
from headrace.driver.generation import Pace, Planned
from headrace.driver.job import Job, PlanAnew
from headrace.driver.planning.job_plan import JobPlan
from headrace.driver.planning.plan_job import JobPlanner, check_before_engine
from headrace.driver.progress_display import shown
from headrace.driver.request_copies import RequestsElsewhere
from headrace.driver.rounds.round_planner import Place, RoundTerms
from headrace.driver.rounds.sub_topology_rounds import Rounds
from headrace.dsl.reserved import refuse_reserved
from headrace.environment import checked_folder
from headrace.errors import NotSupportedError, StateError
from headrace.exchange.fault_injection import reached
from headrace.model.change import ChangeRequest
from headrace.model.serde import Serde
from headrace.model.topology import Node, Source, Topology
from headrace.ports import Holder
from headrace.serdes.serdes import fits_spark_type, serde_of_spark_type
from headrace.serdes.windowed import Windowed
from headrace.state.files import StateFiles
from headrace.wiring import open_configured
from headrace.wiring.folders import state_folder, work_folder
from headrace.wiring.local_stores import seal_stores
from headrace.wiring.maintenance import Upkeep
from headrace.wiring.request_store import requests_elsewhere

LOG = logging.getLogger("headrace")


@dataclass(frozen=True, slots=True, eq=False)
class Launched:
    """A planned job that this process holds, ready to run: `Job` does so in threads, the test driver step by step.

    `plan_anew` makes each plan but the first, under an epoch that was taken for `holder`. `close` closes what was opened;
    giving the application back (`store.release`) comes before it.
    """

    made: Planned
    store: Any
    engine: Any
    system: Any
    files: StateFiles
    holder: Callable[[], Holder]
    plan_anew: PlanAnew
    close: Callable[[], None]
    elsewhere: RequestsElsewhere | None


def started(app: Any, config: Config, until: str | None, engine: Any, log: Callable[[str], None] | None) -> Job:
    """Plan and start; on any error everything that was opened is closed again, and nothing was consumed."""
    job = launched(app, config, engine, log or LOG.info)
    return Job(
        job.made,
        job.store,
        job.engine,
        job.system,
        pace=Pace(config.trigger_interval_ms / 1000, config.idle_timeout_s, config.max_lag),
        partition_check_s=config.partition_check_interval_s,
        settle_s=config.settle_time_s,
        until=until,
        holder=job.holder,
        plan_anew=job.plan_anew,
        close=job.close,
        elsewhere=job.elsewhere,
    ).start()


def launched(
    app: Any, config: Config, engine: Any, say: Callable[[str], None], clock_us: Callable[[], int] | None = None
) -> Launched:
    """Take the application and plan it; `engine` None is Spark. On an error everything is closed and given back.

    `clock_us` times plans and versions of the state, by default the machine's clock; who holds the job goes by that always.
    """
    topology: Topology = app.topology()
    _refuse_what_is_not_there_yet(config)
    stateful = any(has_state(sub) for sub in sub_topologies_of(topology))
    system = open_configured(config)
    left: list[tuple[Place, JobPlan]] = []  # of the run, once there is one
    closers: list[Callable[[], None]] = [system.close, lambda: seal_stores(*left[0]) if left else None]
    try:
        root = work_folder(config)
        state_uri = config.state_uri or str(state_folder(config))
        if stateful:
            checked_folder(config.local_store_dir, "the local stores (local_store_dir)")
        run_id = uuid.uuid4().hex
        store = system.job_store(app.name, reached, config.processing_guarantee == "exactly_once")
        elsewhere = requests_elsewhere(config, app.name, closers)
        if engine is None:
            _check_before_spark(topology, store, system, config, run_id, say)
            if app.spark_given is None and getattr(app, "_headrace_session", None) is None:
                say("starting Spark")
            engine = spark_engine(app, config)
            closers.append(engine.close)
        topology, sides = resolved_topology(topology, engine)
        def holder() -> Holder:
            return holders.this_process(run_id, _now_us())

        epoch = store.acquire(holder(), _now_us())
        closers.append(lambda: store.release(epoch))
        files = StateFiles(state_uri)
        staging = root / "staging" / app.name
        place = Place(
            run_id,
            holders.boot_id(),
            str(Path(config.local_store_dir).absolute()),
            state_uri,
            staging,
            _max_round_ms(config, store, say) / 1000,
        )
        clock_us = _now_us if clock_us is None else clock_us
        planner = JobPlanner(topology, sides, config, system, store, say, elsewhere)
        making = _Making(planner, engine, files, place, clock_us)
        made = making.made(epoch)
        left.append((place, made.plan))
        closers.pop()  # from here on whoever runs the rounds gives the application back
        return Launched(
            made,
            store,
            engine,
            system,
            files,
            holder,
            plan_anew=making.made,
            close=lambda: _close(closers),
            elsewhere=elsewhere,
        )
    except BaseException:
        _close(closers)
        raise


@dataclass(frozen=True, slots=True, eq=False)
class _Making:
    """Makes plans of one application, and their rounds: at the start, and whenever its streams have changed."""

    planner: JobPlanner
    engine: Any
    files: StateFiles
    place: Place
    clock_us: Callable[[], int]

    def made(self, epoch: int, before: JobPlan | None = None, requests: Sequence[ChangeRequest] = ()) -> Planned:
        planner = self.planner
        plan = planner.plan(epoch, self.engine.slots, self.clock_us(), before, requests)
        upkeep = Upkeep(plan, planner.system, planner.store, self.files, planner.config, self.clock_us)
        if before is None:
            for note in plan.notes:
                planner.log(note)
            upkeep.clear_up()
        _remove_staged_before(self.place.staging, epoch)
        reached("start", 12)
        rounds = [self._rounds_of(sub, plan) for sub in plan.subs]
        return Planned(plan, rounds, upkeep.began, upkeep.committed, upkeep.keep, upkeep.tidy)

    def _rounds_of(self, sub: SubTopology, plan: JobPlan) -> Rounds:
        config = self.planner.config
        terms = RoundTerms(
            plan.epoch,
            plan.model.version,
            config.max_records_per_round_of(sub.name),
            self.engine.slots,
            self.place,
            config.on_lost_offsets,
            config.max_bytes_per_round_of(sub.name),
            gaps_of(plan.rewinds),
        )
        return Rounds(
            sub,
            plan.model.sub_topology(sub.name),
            plan.programs[sub.name],
            plan.checkpoints,
            terms,
            self.planner.system,
            self.planner.store,
            self.engine,
            plan.records,
            plan.startpoints,
        )


def _max_round_ms(config: Config, store: Any, say: Callable[[str], None]) -> int:
    """How long a container may work: what is set, but no longer than leaves it time to commit."""
    most = store.round_ms_max
    if most is None or config.max_round_ms <= most:
        return config.max_round_ms
    say(f"max_round_ms is {config.max_round_ms}, rounds are cut short after {most}: a third of kafka.transaction.timeout.ms")
    return int(most)


def _check_before_spark(
    topology: Topology, store: Any, system: Any, config: Config, run_id: str, say: Callable[[str], None]
) -> None:
    """What can be refused before Spark takes its seconds; all of it is checked again once the application is held."""
    store.check_free(holders.this_process(run_id, _now_us()), _now_us())
    known = through_spark(topology) if has_open_types(topology) else resolved_topology(topology, None)[0]
    check_before_engine(known, config, system, store, say)


def _remove_staged_before(staging: Path, epoch: int) -> None:
    """Remove what rounds of drivers before us left. Of later ones nothing: we may have been stopped, and replaced."""
    for folder in staging.glob("*-*"):
        number = folder.name.partition("-")[0]
        if number.isdigit() and int(number) < epoch:
            shutil.rmtree(folder, ignore_errors=True)


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
    refuse_reserved(config, is_whole=True)
    if config.state_uri and "://" in config.state_uri and not config.state_uri.startswith("file:"):
        raise StateError(
            f"state_uri {config.state_uri!r}: state is kept on this machine's file system so far",
            "give a folder",
        )


def is_kafka(system: str) -> bool:
    """Whether a system's URL is of Kafka."""
    return system.startswith("kafka:")


def session_of(app: Any, config: Config) -> tuple[Any, bool]:
    """The session to run in, and whether it is ours to stop."""
    from headrace.adapters.spark import session

    held = getattr(app, "_headrace_session", None)
    if held is not None:
        return held, False
    if app.spark_given is not None:
        made, ours = session.taken(app.spark_given), False
        if is_kafka(config.system):
            session.add_jars(made, connector_jars(session.settings_of(made), config.artifact_dir, LOG.info))
    else:
        folder = getattr(app, "folder", None)
        settings = {f"spark.{name}": value for name, value in config.spark.items()}
        jars: tuple[Path, ...] = ()
        if is_kafka(config.system):
            jars = connector_jars(settings, config.artifact_dir, LOG.info)
            settings = with_connector(settings, config.artifact_dir, LOG.info)
        made = session.started(
            settings,
            app.name,
            session.default_log_dir(config.local_store_dir),
            [str(folder)] if folder else [],
            secret_values(config.kafka),
        )
        ours = True
        if jars:  # a JVM that has run another Spark takes no more on its class path
            session.add_jars(made, jars)
    app._headrace_session = made
    return made, ours


def spark_engine(app: Any, config: Config) -> Any:
    from headrace.adapters.spark.engine import KafkaReading, SparkEngine
    from headrace.wiring.worker.engine_rows import prepared_rows, read_prefix
    from headrace.wiring.worker.entry import run_spark_container

    reading = None
    if is_kafka(config.system):
        from headrace.adapters.kafka.connection import connection_of
        from headrace.wiring.worker.engine_rows import decoded_prefix

        reading = KafkaReading(connection_of(config.system, config.kafka).spark_options, decoded_prefix)
    made, ours = session_of(app, config)

    def close_session() -> None:
        if ours:
            app._headrace_session = None

    return SparkEngine(made, run_spark_container, read_prefix, prepared_rows, ours, close_session, reading)


_shared_sessions: list[Any] = []


def shared_spark(app: Any, config: Config) -> Any:
    """The engine on a session that all test drivers of this process share, or on the application's own; never closed."""
    if app.spark_given is None and getattr(app, "_headrace_session", None) is None:
        _shared_sessions[:] = [one for one in _shared_sessions if one.sparkContext._jsc is not None]  # not one that ended
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
    return resolved(topology, types_of, serde_of_spark_type, windowed, fits_spark_type)



def run(app: Any, until: str | None = None, **options: Any) -> dict[str, Any]:
    """Run in the foreground with a progress display, until the end or a signal. Raises what ended the job."""
    from headrace import wiring

    progress = options.pop("progress", True)
    job = wiring.start(app, until, **options)
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
    return job.status() | {"stopped": bool(signals), "signal": signals[0] if signals else None}


def _on_signals(came: list[int]) -> dict[int, Any]:
    """Ask for a clean stop at SIGINT and SIGTERM, by their numbers in `came`; only a program's main thread may."""
    if threading.current_thread() is not threading.main_thread():
        return {}

    def stop(number: int, frame: Any) -> None:
        came.append(number)

    return {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}


