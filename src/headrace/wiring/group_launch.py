"""The launch of a processor of a standalone group: ZooKeeper first, which says at once what is wrong, then Kafka and Spark."""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from headrace.adapters.common import lease_holder as holders
from headrace.adapters.round_control.files import FileControl
from headrace.config.loading import Config, refuse_reserved
from headrace.core.group.membership import DuplicateAction, duplicate_action, duplicate_error, duplicate_of, duplicate_text
from headrace.core.group.runs import run_in_force
from headrace.core.group.state import GroupMember, Registration
from headrace.core.topology.sub_topologies import has_state, sub_topologies_of
from headrace.driver.group.coordinator import GroupSettings
from headrace.driver.group.group_job import GroupJob
from headrace.driver.group.group_planner import GroupPlanner
from headrace.driver.group.launched_processor import LaunchedProcessor, StatePlace
from headrace.driver.job_preparer import JobPreparer
from headrace.driver.maintenance.store_retention import StoreRetention
from headrace.driver.planning.job_plan import Backend, Pace
from headrace.driver.planning.job_planner import JobPlanner
from headrace.driver.rounds.planned_round import WorkerPaths
from headrace.driver.start_times import StartTimes
from headrace.driver.store_restoration import StoreRestoration
from headrace.exchange.engine import Engine, RestoreWork
from headrace.model.commits import DriverLease
from headrace.state_files.files import StateFiles
from headrace.wiring import Application, open_configured
from headrace.wiring.exports import exports_of
from headrace.wiring.folders import check_sign, local_store_dir_of, sign, state_uri_of, work_folder
from headrace.wiring.group_terms import GroupTerms, check_group, open_terms
from headrace.wiring.launch import close_all, max_round_ms, resolved_topology, started_engine
from headrace.wiring.local_stores import remove_unused, sealing
from headrace.wiring.request_store import requests_elsewhere
from headrace.wiring.worker.store_restoring import restore

LOG = logging.getLogger("headrace")
LOOK_S = 0.2


def started_in_group(
    app: Application, config: Config, until: str | None, engine: Engine | None, log: Callable[[str], None] | None
) -> GroupJob:
    """Take part in the group that `config` names; on any error everything that was opened is closed again. `engine` None is
    Spark, of this process alone."""
    check_group(app, config, engine)
    refuse_reserved(config, is_whole=True)
    trigger_s, idle_s = config.trigger_interval_ms / 1000, config.idle_timeout_s
    pace = Pace(trigger_s, idle_s, config.max_lag, config.partition_check_interval_s, config.settle_time_s)
    closers: list[Callable[[], None]] = []
    try:
        terms = open_terms(app, config, engine)
        closers.append(terms.group.close)
        run = run_in_force(terms.group.state())
        if run is not None:
            _state_place(app, config).check(run.id)  # before it may be given tasks; else when it joins a run
        _await_own_id(terms, log or LOG.info)
        launched = _launched(app, config, engine, terms, closers, log or LOG.info)
    except BaseException:
        close_all(closers)
        raise
    return GroupJob(launched, pace, until).start()


def _await_own_id(terms: GroupTerms, log: Callable[[str], None]) -> None:
    """Wait while another processor has this one's id: here Spark is not started yet. `JobHeldError` where it keeps it. One that
    is known to have ended is removed once this one is registered."""
    group, mine, began_s, told = terms.group, GroupMember(sys.maxsize, terms.registration), time.monotonic(), False
    while (other := duplicate_of(group.state().members, mine)) is not None and other.registration is not None:
        waited_s = time.monotonic() - began_s
        action = duplicate_action(_is_known_dead(other.registration), waited_s, group.lease.timeout_s)
        if action is DuplicateAction.REMOVE:
            return
        if action is DuplicateAction.REFUSE:
            raise duplicate_error(other)
        if not told:
            log(f"this processor waits for the end of the other one: {duplicate_text(other)}")
        told = True
        group.wait_for_change(LOOK_S)


def _launched(
    app: Application,
    config: Config,
    engine: Engine | None,
    terms: GroupTerms,
    closers: list[Callable[[], None]],
    log: Callable[[str], None],
) -> LaunchedProcessor:
    topology, stateful = app.topology(), any(map(has_state, sub_topologies_of(app.topology())))
    system = open_configured(config)
    closers.append(system.close)
    # One store takes the application where this processor leads; its own rounds read by another, which never waits.
    store, reader, rounds = system.job_store(app.name), system.job_store(app.name), system.processor_store(app.name)
    elsewhere = requests_elsewhere(config, app.name, closers)
    exports = exports_of(config, app.name, closers)
    if engine is None:
        engine = started_engine(app, config, system, reader, closers, log, StartTimes(time.monotonic()))
    topology, sides = resolved_topology(topology, engine)
    registration = terms.registration
    control = FileControl(work_folder(config) / "staging" / app.name / registration.processor_id)
    run_id, local, state_uri = uuid.uuid4().hex, local_store_dir_of(config), state_uri_of(config)
    max_round_s = max_round_ms(config, rounds, log) / 1000
    log_as = app.name if config.log_format == "json" else None
    paths = WorkerPaths(run_id, local, state_uri, control, max_round_s, location_id=config.location_id, log_as=log_as)
    restoration, retention, slots = None, None, {registration.location_id: engine.slots}
    if stateful:
        restoration = StoreRestoration(_restored_here, lambda: slots, app.name, paths)
        removing = partial(remove_unused, engine, paths, config.local_store_retention_s)
        retention = StoreRetention(removing, in_background=True)
    member_side = Backend(
        system, reader, rounds, engine, restoration=restoration, retention=retention, exports=exports, is_of_member=True
    )
    planner = JobPlanner(topology, sides, config, member_side, log)
    preparer = JobPreparer(planner, StateFiles(state_uri), paths, _now_us)
    leading = replace(planner, backend=replace(member_side, store=store, elsewhere=elsewhere, is_of_member=False))
    if restoration is not None:
        closers.insert(1, sealing(engine, paths, app.name))
        closers.append(restoration.close)
    return LaunchedProcessor(
        registration,
        GroupSettings(registration.code, terms.release_wait_s, terms.return_wait_s),
        terms.group,
        preparer,
        GroupPlanner(planner),
        reader,
        GroupPlanner(leading),
        _lease,
        _state_place(app, config),
        lambda: uuid.uuid4().hex,
        _is_known_dead,
        lambda: close_all(closers),
    )


def _restored_here(works: Sequence[RestoreWork]) -> list[bytes]:
    """What a worker would answer: this process is on the same machine."""
    return [restore(work.payload, os.getpid()) for work in works]


class NoStatePlace:
    """Of an application without state."""

    def sign(self, run_id: str, state_id: str) -> None:
        """Nothing is kept."""

    def check(self, run_id: str) -> None:
        """Nothing is kept."""


@dataclass(frozen=True, slots=True)
class StateFolder:
    """The folder at `state_uri`."""

    application: str
    uri: str

    def sign(self, run_id: str, state_id: str) -> None:
        sign(StateFiles(self.uri), self.application, run_id, state_id)

    def check(self, run_id: str) -> None:
        check_sign(StateFiles(self.uri), self.application, run_id, socket.gethostname(), in_group=True)


def _state_place(app: Application, config: Config) -> StatePlace:
    is_stateful = any(map(has_state, sub_topologies_of(app.topology())))
    return StateFolder(app.name, state_uri_of(config)) if is_stateful else NoStatePlace()


def _now_us() -> int:
    return time.time_ns() // 1000


def _lease(run_id: str) -> DriverLease:
    return holders.this_process(run_id, _now_us())


def _is_known_dead(other: Registration) -> bool:
    return holders.is_known_dead(DriverLease("", other.host, other.pid, other.process_started, other.boot_id, 0))
