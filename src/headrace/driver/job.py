"""A running job: its life, from one job model to the next; a heartbeat; stopping; and what `status` shows."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from headrace.codec.documents import encode
from headrace.codec.job_records import HISTORY
from headrace.core.elasticity.scales import ScaleTerms
from headrace.core.metrics.observations import SubTopologyObservation
from headrace.driver.autosizing import ScaleController
from headrace.driver.change_requests import ChangeRequests
from headrace.driver.generation import Generation
from headrace.driver.holding import HEARTBEAT_S, take_application
from headrace.driver.job_preparer import JobPreparer
from headrace.driver.job_status import JobStatus
from headrace.driver.metrics.observing import shown_job_metrics
from headrace.driver.planning.job_plan import Backend, JobPlan, Pace
from headrace.driver.prepared_job import PreparedJob
from headrace.driver.rounds.scheduling import CaughtUp
from headrace.driver.running_job import RunningJob
from headrace.driver.start_times import StartTimes, start_metrics, start_text
from headrace.driver.system_wait import when_answered
from headrace.errors import FencedError, HeadraceError, UnavailableError
from headrace.exchange.fault_injection import reached
from headrace.model.change import LOCAL_STORES, Change, ChangeRequest, Outcome
from headrace.model.commits import DriverLease
from headrace.ports.coordinator_store import JobReader

LOG = logging.getLogger("headrace.job")
TIDY_S = 30.0
LOOK_S = 0.5  # from one look for requests of commands to the next


@dataclass(frozen=True, slots=True, eq=False)
class LaunchedJob:
    """A prepared job that this process holds: `Job` runs it in threads, the test driver step by step.

    `lease` is of this process, for each epoch that is taken; `preparer` makes each plan but the first. `close` closes what was
    opened; giving the application back (`store.release`) comes before it.
    """

    prepared: PreparedJob
    preparer: JobPreparer
    lease: Callable[[], DriverLease]
    close: Callable[[], None]

    @property
    def backend(self) -> Backend:
        return self.preparer.planner.backend

    def prepare_again(self, before: JobPlan, now_us: int, requests: Sequence[ChangeRequest]) -> PreparedJob:
        """Take a new epoch, and plan again for these requests. Earlier commits are unaffected, also if this fails."""
        began_s = time.monotonic()
        epoch = take_application(self.backend.store, self.lease(), now_us)
        held_s = time.monotonic()
        prepared = self.preparer.prepare(epoch, before, requests)
        return replace(prepared, phases_s={"fence": held_s - began_s, "plan": time.monotonic() - held_s})


class Job(RunningJob):
    """A job that runs. `status()` reports its progress, `wait()` waits for its end, `stop()` ends it.

    `until` None: until stopped; "caught-up": until the ends of the inputs, as they are at the start, are processed, and what
    the job itself has written to them.
    """

    def __init__(self, launched: LaunchedJob, pace: Pace, until: str | None, times: StartTimes | None = None) -> None:
        super().__init__(launched.preparer.planner, pace)
        self._launched, self._until = launched, until
        self._run_id = launched.lease().run_id
        self._store = launched.backend.store
        autosizing = ScaleController(launched.preparer.planner.config, pace.clock_us)
        self._requests = ChangeRequests(launched.backend, pace, autosizing)
        self._requests.begin(launched.prepared.plan, time.monotonic())
        self._caught_up: CaughtUp | None = None
        self._start_times = times  # until the first commit
        self._epoch = launched.prepared.plan.epoch
        self._generation = self._generation_of(launched.prepared)
        self._generation.remember(_published(self._store))
        self._changing: tuple[ChangeRequest, ...] = ()  # why a new plan is due
        self._seen_s = 0.0  # since when
        self._unrecorded: Mapping[str, Change] = {}  # entries of the history that lack how long the first round took
        self._lock = threading.Lock()
        self._holding = threading.Lock()  # while held, the epoch does not change: by the heartbeat, which waits for nothing
        self._looking = threading.Lock()  # the same, by what looks at requests: that may wait for what others have open
        self._tidying = threading.Lock()  # while held, no plan is made: it might go back to a version that is being dropped
        self._helpers: list[threading.Thread] = []

    def _generation_of(self, prepared: PreparedJob) -> Generation:
        backend, pace = self._launched.backend, self._pace
        return Generation(prepared, backend, pace, self._caught_up, self._requests, self._fail)

    @property
    def plan(self) -> JobPlan:
        """The plan that the job goes by now."""
        return self._generation.plan

    # --- the life of a job ------------------------------------------------------------------------------------------

    def start(self) -> Job:
        try:
            self._start()
        except BaseException:
            self._give_back()
            raise
        return self

    def _start(self) -> None:
        if self._until == "caught-up":
            self._caught_up = self._generation.caught_up = CaughtUp(self._generation.sources)
        self._helpers = [
            threading.Thread(target=self._beat, name="headrace-heartbeat", daemon=True),
            threading.Thread(target=self._keep_tidy, name="headrace-tidy", daemon=True),
            threading.Thread(target=self._keep_watch, name="headrace-watch", daemon=True),
        ]
        self._launched.backend.measured({"plan-changes": {"": 0}, "change-pause-ns": {"": 0}})  # an alert sees them rise from 0
        reached("start", 12)
        self._generation.start()
        for thread in self._helpers:
            thread.start()
        threading.Thread(target=self._run_plans, name="headrace-job", daemon=True).start()

    def _stop(self) -> None:
        self._stopping.set()
        self._store.expedite()
        self._generation.stop()

    @property
    def _is_in(self) -> str:
        return self._generation.current_text

    @property
    def _scale_terms(self) -> ScaleTerms:
        return self.plan.scale_terms

    def wake(self) -> None:
        """Look for new records now, without waiting for the trigger interval."""
        self._generation.wake()

    def _run_plans(self) -> None:
        """From one job model to the next; then give the application back and close everything."""
        self._generation.join()
        while not self._stopping.is_set():
            try:
                if not self._continues():
                    break
            except BaseException as error:
                self._fail(error)
                break
            self._generation.join()
        if self._error is None:
            self._error = next(iter(self._generation.stopped_by.values()), None)
        self._stopping.set()
        for thread in self._helpers:
            thread.join()
        self._requests.end_preparation()
        self._record_start()
        self._settle_startpoints()
        self._generation.maintenance.keep_locality()
        cause = self._error
        self._generation.publish_end("" if cause is None else getattr(cause, "message", "") or type(cause).__name__)
        self._give_back()

    def _continues(self) -> bool:
        """Whether rounds have begun again: by another job model, or as the job has written to its inputs."""
        if self._changing:
            self._change()
            return True
        generation, caught_up = self._generation, self._caught_up
        if caught_up is None or generation.stopped_by or not generation.has_caught_up:
            return False
        most = self._launched.preparer.planner.config.caught_up_passes_max
        ask = partial(caught_up.begins_pass, list(generation.runners.values()), generation.sources, most)
        if not when_answered("to look for records that the job has written to its inputs", ask, self._stopping):
            return False
        generation.start()
        return True

    def _settle_startpoints(self) -> None:
        """Say of the startpoints that the last rounds have spent that they are applied; the next start would as well."""
        try:
            self._requests.settle_startpoints(self._pace.clock_us())
        except Exception as error:
            LOG.info("the status of startpoints is stored at the next start: %s", getattr(error, "message", error))

    def _give_back(self) -> None:
        """Let the next driver start at once, then close everything. Changes nothing where another has taken over."""
        try:
            self._store.release(self._epoch)
        except HeadraceError as error:
            LOG.warning("could not release the application, the next start takes it over: %s", error.message)
        except Exception:
            LOG.exception("could not give the application back; the next start takes it over")
        finally:
            try:
                self._launched.close()
            finally:
                self._has_ended()

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            if self._error is None:
                self._error = error
        self._stop()

    # --- a new job model --------------------------------------------------------------------------------------------

    def _change(self) -> None:
        """Take a new epoch, plan again, and begin: no round runs. Earlier commits are unaffected, also if this fails."""
        began_s = time.monotonic()
        with self._tidying:
            self._generation.maintenance.keep()  # the next plan may go back to what rounds have come to just now
            self._generation.maintenance.keep_locality()  # and give tasks back to where they have just run
        prepared_s = self._requests.end_preparation()
        self._requests.look_at_cluster()
        with self._tidying, self._looking, self._holding:  # until it is done: an epoch that a failed try has taken is ours, too
            prepared = self._prepared_again()
            if prepared is None:
                return
        pause_s = time.monotonic() - began_s
        phases_s = {"end of the rounds": began_s - self._seen_s, **prepared.phases_s}
        if prepared_s:
            phases_s = {LOCAL_STORES: prepared_s, **phases_s}
        LOG.info("job model %d is in force after %.2f s", prepared.plan.model.version, pause_s)
        reached("start", 12)
        self._generation.start()
        if self._stopping.is_set():  # requested in between, of the generation before
            self._generation.stop()
        self._measured_change(pause_s, phases_s)
        phases_us, pause_us = {name: round(seconds * 1e6) for name, seconds in phases_s.items()}, round(pause_s * 1e6)
        changes = [(key, one) for key, one in prepared.plan.changes.items() if one.outcome is Outcome.APPLIED]
        with self._looking:
            self._unrecorded = {key: replace(one, pause_us=pause_us, phases_us=phases_us) for key, one in changes}
            self._record(self._unrecorded)
        self._launched.backend.changed(self._unrecorded.values())

    def _measured_change(self, pause_s: float, phases_s: Mapping[str, float]) -> None:
        backend = self._launched.backend
        before = backend.metrics.values("").get("change-phase-ns", {})
        phases = dict.fromkeys(before, 0) | {name: round(seconds * 1e9) for name, seconds in phases_s.items()}
        pause = {"": round(pause_s * 1e9)}
        backend.measured({"plan-changes": {"": 1}, "change-pause-ns": pause, "change-phase-ns": phases})

    def _prepared_again(self) -> PreparedJob | None:
        """The next plan, in force; a system that does not answer is waited for. None where a stop was requested meanwhile."""

        def ask() -> PreparedJob:
            # What is seen from here on is in the plan, or asks for another one.
            requests, self._changing = self._changing, ()
            try:
                return self._launched.prepare_again(self._generation.plan, self._pace.clock_us(), requests)
            except UnavailableError:
                self._changing = (*requests, *self._changing)
                raise

        prepared = when_answered("to make a new job model", ask, self._stopping)
        if prepared is None:
            return None
        self._epoch = prepared.plan.epoch
        self._requests.begin(prepared.plan, time.monotonic())
        if self._caught_up is not None:
            self._caught_up.restart(self._generation.sources)
        after = self._generation_of(prepared)
        after.inherit_from(self._generation)
        self._generation = after
        return prepared

    def _record_start(self) -> None:
        """How long the start took, once something is committed."""
        generation, times = self._generation, self._start_times
        if times is not None and generation.first_round_s is not None:
            self._start_times = None
            values = start_metrics(times.with_first_round(generation.first_began_s, generation.first_round_s))
            self._launched.backend.measured(values)
            LOG.info("%s", start_text(values["start-phase-ns"]))

    def _record_first_round(self, seconds: float) -> None:
        """Add it to what is on record of the change before it."""
        entries, self._unrecorded = self._unrecorded, {}
        phase = {"first round": round(seconds * 1e6)}
        if entries:
            self._launched.backend.measured({"change-phase-ns": {"first round": round(seconds * 1e9)}})
        self._record({key: replace(one, phases_us={**one.phases_us, **phase}) for key, one in entries.items()})

    def _record(self, entries: Mapping[str, Change]) -> None:
        """Put on record how long no round ran for what a plan has changed, and what took how long."""
        try:
            if entries:
                self._store.write_metadata(self._epoch, HISTORY, {key: encode(one) for key, one in entries.items()})
        except HeadraceError as error:
            LOG.warning("how long the pause was could not be stored: %s", error.message)

    def _keep_watch(self) -> None:
        """Look for changes of the streams' partitions, and at requests of commands; and let expansions settle."""
        while not self._stopping.wait(LOOK_S):
            try:
                self._requests.look_at_cluster()
                with self._looking:
                    if who := self._requests.stop_requested_by(self._run_id):
                        LOG.warning("%s has requested that the job stops", who)
                        self._is_told_to_stop()
                        return
                    self._requests.settle(self._pace.clock_us())
                    found = self._requests.found(time.monotonic(), with_streams=self._until is None)
                    self._requests.autosize(time.monotonic(), self._generation.looked_at)
                    runners = [] if self._changing else list(self._generation.runners.values())
                    scales, merging = self._requests.scales(time.monotonic(), runners) if runners else ((), {})
                    self._record_start()
                    if self._generation.first_round_s is not None:
                        self._record_first_round(self._generation.first_round_s)
                    if found or scales:
                        self._seen_s = self._seen_s if self._changing else time.monotonic()
                        self._changing = tuple(dict.fromkeys((*self._changing, *found, *scales)))
                        self._generation.yield_soon(merging)
            except FencedError as error:
                self._fail(error)
                return
            except Exception as error:  # a thread that ends in silence would never look again
                LOG.warning("could not check for requests, trying again: %s", getattr(error, "message", error))

    # --- in the background ------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        while not self._stopping.wait(HEARTBEAT_S):
            self._generation.look_at_long_rounds()  # first: it is what ends an engine that hangs
            try:
                with self._holding:
                    self._store.heartbeat(self._epoch, self._pace.clock_us())
            except FencedError as error:
                self._fail(error)
            except Exception as error:
                LOG.warning("heartbeat: %s", error)

    def _keep_tidy(self) -> None:
        """At once too: versions of the state that the plan began with are to be kept."""
        while True:
            with self._tidying:
                self._generation.maintenance.tidy()
            if self._launched.backend.retention is not None:
                self._launched.backend.retention.look(self.plan.model, time.monotonic())
            if self._stopping.wait(TIDY_S):
                return

    # --- what people see --------------------------------------------------------------------------------------------

    def status(self) -> JobStatus:
        """The status of the job: as a whole, and per sub-topology (`source` is the one that reads the inputs)."""
        generation = self._generation
        return {
            "application": generation.plan.topology.application,
            "running": self.is_running,
            "epoch": generation.plan.epoch,
            "job_model": generation.plan.model.version,
            "metrics": shown_job_metrics(self._launched.backend.metrics),
            "rejected_executors": dict(self._launched.backend.engine.rejections()),
            "sub_topologies": {runner.sub.title: generation.status_of(runner) for runner in generation.runners.values()},
        }

    def observations(self) -> tuple[SubTopologyObservation, ...]:
        """How busy each sub-topology and its tasks are, and how far behind, over the last 10 and 60 s."""
        generation, is_due = self._generation, bool(self._changing)
        found = map(generation.observation_of, generation.runners.values())
        return tuple(replace(one, is_changing=one.is_changing or is_due) for one in found)


def _published(store: JobReader) -> dict[str, dict[str, Any]]:
    """The status that earlier runs have published; it is for eyes, and no reason not to start."""
    try:
        return store.status()
    except HeadraceError as error:
        LOG.warning("the counters of earlier runs could not be read: %s", error.message)
        return {}
