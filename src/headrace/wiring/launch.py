"""The launch of a job: system, session, engine, plan, rounds, threads."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from headrace.adapters.common import lease_holder as holders
from headrace.adapters.round_control.driver_socket import SocketControl
from headrace.adapters.round_control.files import FileControl
from headrace.config.loading import Config, refuse_reserved
from headrace.core.topology.patterns import has_patterns
from headrace.core.topology.resolution import SerdeMakers, has_open_types, resolved, through_spark
from headrace.core.topology.sub_topologies import has_state, sub_topologies_of
from headrace.driver.cluster_view import ClusterView
from headrace.driver.holding import kept, take_application
from headrace.driver.job import Job, LaunchedJob
from headrace.driver.job_preparer import JobPreparer
from headrace.driver.maintenance.state_notes import given_state_id
from headrace.driver.maintenance.store_retention import StoreRetention
from headrace.driver.planning.job_plan import Backend, Pace
from headrace.driver.planning.job_planner import JobPlanner, check_before_engine
from headrace.driver.prepared_job import PreparedJob
from headrace.driver.rounds.planned_round import WorkerPaths
from headrace.driver.start_times import CHECKS, PLAN, SPARK, StartTimes
from headrace.driver.store_restoration import StoreRestoration
from headrace.driver.system_wait import when_answered
from headrace.environment import checked_folder
from headrace.errors import NotSupportedError, UnavailableError
from headrace.exchange.engine import Engine, RoundControl
from headrace.model.commits import DriverLease
from headrace.model.topology import Node, Source, Topology
from headrace.ports.coordinator_store import JobReader
from headrace.ports.processor_store import ProcessorStore
from headrace.ports.system import Streams, System
from headrace.serdes.row_changes import Placements, RowChanges
from headrace.serdes.serdes import fits_spark_type, serde_of_spark_type
from headrace.serdes.windowed import Windowed
from headrace.state_files.files import StateFiles
from headrace.wiring import Application, open_configured
from headrace.wiring.cluster_terms import (
    check_cluster_settings,
    check_places_of_workers,
    check_state_folder,
    check_state_uri,
    return_wait_s_of,
    signed_check,
)
from headrace.wiring.exports import exports_of
from headrace.wiring.folders import local_store_dir_of, state_uri_of, work_folder
from headrace.wiring.local_stores import remove_unused, sealing
from headrace.wiring.matched_streams import as_matched
from headrace.wiring.request_store import requests_elsewhere
from headrace.wiring.spark_sessions import is_elsewhere, is_submitted, spark_engine
from headrace.wiring.store_process import StoreProcess

LOG = logging.getLogger("headrace")
FIRST = "to make the first job model"


def started(
    app: Application,
    config: Config,
    until: str | None,
    engine: Engine | None,
    log: Callable[[str], None] | None,
    times: StartTimes,
) -> Job:
    """Plan and start; on any error everything that was opened is closed again, and nothing was consumed."""
    trigger_s, idle_s = config.trigger_interval_ms / 1000, config.idle_timeout_s
    pace = Pace(trigger_s, idle_s, config.max_lag, config.partition_check_interval_s, config.settle_time_s)
    held = launched(app, config, engine, log or LOG.info, times=times)
    times.ended(PLAN, time.monotonic())
    return Job(held, pace, until, times).start()


def launched(
    app: Application,
    config: Config,
    engine: Engine | None,
    log: Callable[[str], None],
    clock_us: Callable[[], int] | None = None,
    times: StartTimes | None = None,
) -> LaunchedJob:
    """Take the application and plan it; `engine` None is Spark. On an error everything is closed and given back. `clock_us`
    times plans and versions of the state, not who holds the job; by default the machine's. `times` takes how long it takes."""
    declared = app.topology()
    refuse_reserved(config, is_whole=True)
    stateful = any(has_state(sub) for sub in sub_topologies_of(declared))
    _check_places(app, config, stateful, engine is None)
    system = open_configured(config)
    closers: list[Callable[[], None]] = [system.close]
    try:
        state_uri, run_id = state_uri_of(config), uuid.uuid4().hex
        is_exactly_once = config.processing_guarantee == "exactly_once"
        store, processor_store = system.job_store(app.name, is_exactly_once), system.processor_store(app.name, is_exactly_once)
        elsewhere = requests_elsewhere(config, app.name, closers)
        exports = exports_of(config, app.name, closers)
        if engine is None:
            # What can be refused before Spark takes its seconds; all of it is checked again once the application is held.
            store.check_not_leased(_lease(run_id), _now_us())
            engine = started_engine(app, config, system, store, closers, log, times or StartTimes(0.0))
            if stateful:
                check_places_of_workers(engine, config)
        resolve = partial(resolved_as_matched, declared, config, system, engine)
        topology, sides = resolve(None)
        lease = partial(_lease, run_id)
        epochs = [take_application(store, lease(), _now_us())]
        closers.append(lambda: store.release(epochs[-1]))
        if engine.driver_address is not None:
            with kept(store, epochs[-1], _now_us):
                state_id = given_state_id(store, epochs[-1], system.metadata_store(app.name)) if stateful else None
                engine.wait_for_workers(signed_check(app.name, config, run_id, state_id), log)
        # Signals to workers: by files where they run on this machine, else over TCP.
        address, control = engine.driver_address, _round_control(engine, config, app.name)
        closers.insert(0, control.close)
        paths = WorkerPaths(
            run_id,
            local_store_dir_of(config, address is not None),
            state_uri,
            control,
            max_round_ms(config, processor_store, log) / 1000,
            address is not None,
            config.location_id,
            app.name if config.log_format == "json" else None,
        )
        cluster = None if address is None else ClusterView(engine, return_wait_s_of(config))
        builder = None if address else partial(StoreProcess, app.name, paths)
        restoration = None if cluster is None else StoreRestoration(engine.restore, cluster.present, app.name, paths)
        removing = partial(remove_unused, engine, paths, config.local_store_retention_s)
        retention = StoreRetention(removing, in_background=cluster is not None) if stateful else None
        backend = Backend(
            system, store, processor_store, engine, elsewhere, builder, cluster, restoration, retention, exports=exports
        )
        planner = JobPlanner(topology, sides, config, backend, log, resolve if has_patterns(declared) else None)
        preparer = JobPreparer(planner, StateFiles(state_uri), paths, _now_us if clock_us is None else clock_us)
        prepared = _first_plan(preparer, epochs, lambda: take_application(store, lease(), _now_us()))
        closers.pop()  # from here on the runner of the rounds gives the application back
        if stateful:  # on other machines while there are workers to do it
            closers.insert(1 if address is None else len(closers), sealing(engine, paths, app.name))
        if restoration is not None:
            closers.append(restoration.close)
        return LaunchedJob(prepared, preparer, lease, lambda: close_all(closers))
    except BaseException:
        close_all(closers)
        raise


def started_engine(
    app: Application,
    config: Config,
    system: System,
    reader: JobReader,
    closers: list[Callable[[], None]],
    log: Callable[[str], None],
    times: StartTimes,
) -> Engine:
    """Spark, once what can be refused without it was."""
    check_before_engine(topology_before_engine(as_matched(app.topology(), config, system)), config, system, reader, log)
    times.ended(CHECKS, time.monotonic())
    if not app.session.is_open:
        log("starting Spark")
    engine: Engine = spark_engine(app, config)
    closers.append(engine.close)
    times.ended(SPARK, time.monotonic())
    return engine


def _first_plan(preparer: JobPreparer, epochs: list[int], take: Callable[[], int]) -> PreparedJob:
    """The first plan, in force under the last one of `epochs`. A system that was there when the application was taken is waited
    for; what it may have done of a plan is read again under an epoch of its own, as for each later plan."""
    try:
        return preparer.prepare(epochs[-1])
    except UnavailableError as error:
        LOG.warning("waiting for the system, %s: %s", FIRST, error.message)

    def again() -> PreparedJob:
        epochs.append(take())
        return preparer.prepare(epochs[-1])

    prepared = when_answered(FIRST, again, threading.Event())
    assert prepared is not None, "nothing ends the wait"
    return prepared


def _check_places(app: Application, config: Config, stateful: bool, is_on_spark: bool) -> None:
    """Refuse what is known to be no place for the state, or for local stores, before anything is opened."""
    check_state_uri(config)
    if not stateful:
        return
    if is_on_spark and is_elsewhere(app, config):
        check_cluster_settings(config)
    elif is_on_spark and is_submitted():
        return  # where that runs is known once Spark has started
    else:
        checked_folder(local_store_dir_of(config), "the local stores (local_store_dir)")
    check_state_folder(config)


def _round_control(engine: Engine, config: Config, application: str) -> RoundControl:
    if engine.driver_address is not None:
        return SocketControl(engine.driver_address)
    return FileControl(work_folder(config) / "staging" / application)


def max_round_ms(config: Config, store: ProcessorStore, log: Callable[[str], None]) -> int:
    """How long a container may work: what is set, but no longer than leaves it time to commit."""
    most = store.round_ms_max
    if most is None or config.max_round_ms <= most:
        return config.max_round_ms
    log(f"max_round_ms is {config.max_round_ms}, rounds are cut short after {most}: a third of kafka.transaction.timeout.ms")
    return most


def topology_before_engine(topology: Topology) -> Topology:
    """What a plan can be made from without Spark: types that only its expressions tell are left open."""
    return through_spark(topology) if has_open_types(topology) else resolved_topology(topology, None)[0]


def close_all(closers: list[Callable[[], None]]) -> None:
    while closers:
        try:
            closers.pop()()
        except Exception as error:
            LOG.warning("while closing: %s", error)


def _now_us() -> int:
    return time.time_ns() // 1000


def _lease(run_id: str) -> DriverLease:
    return holders.this_process(run_id, _now_us())


def resolved_as_matched(
    topology: Topology, config: Config, system: Streams, engine: Any, only: Collection[str] | None
) -> tuple[Topology, Any]:
    """The topology with the streams that match its patterns now, resolved."""
    return resolved_topology(as_matched(topology, config, system, only), engine)


def resolved_topology(topology: Topology, engine: Any) -> tuple[Topology, Any]:
    """The topology with all serdes known; Spark is asked only where there are expressions."""

    def no_types(source: Source, chain: tuple[Node, ...]) -> tuple[str, str]:
        raise NotSupportedError(
            f"{chain[-1].name!r} is a Spark expression: it needs Spark", "run the job on Spark, or use a function"
        )

    types_of = getattr(engine, "types_of", no_types) if has_open_types(topology) else no_types
    makers = SerdeMakers(Windowed, RowChanges, Placements)
    return resolved(topology, types_of, serde_of_spark_type, makers, fits_spark_type)
