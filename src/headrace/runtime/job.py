"""Owns a running job: one thread per sub-topology that runs its rounds, a heartbeat, stopping, and what `status` shows."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from headrace.core.sub_topologies import upstream_names_of
from headrace.errors import FencedError, HeadraceError, RoundFailedError, StoreDamagedError, UnavailableError, WaitTimeoutError
from headrace.ports import ENGINE_LOST, WORKER_DIED, Engine, EngineFailure, JobStore
from headrace.runtime.caught_up import CaughtUp
from headrace.runtime.culprits import find_culprits
from headrace.runtime.next_round import NextRound
from headrace.runtime.reported_errors import engine_loss, worker_death
from headrace.runtime.round_plans import PlannedRound
from headrace.runtime.rounds import Rounds
from headrace.runtime.startup import JobPlan
from headrace.runtime.steps import reached

LOG = logging.getLogger("headrace.job")
Answer = TypeVar("Answer")
HEARTBEAT_S = 2.0
FAILURES_MAX = 5  # consecutive failures of a round before the job gives up
TIDY_S = 30.0
STATUS_S = 0.5
STOP_WAIT_S = 60.0  # a machine under load may take long to break a round off
SYSTEM_WAIT_S = 300.0  # how long the system may be gone before the job gives up
ROUND_WAIT_S = 600.0  # a round that takes longer than this and 30 times `max_round_ms` is given up: a worker hangs


class Job:
    """A job that runs. `status()` says where it stands, `wait()` waits for its end, `stop()` ends it.

    `until` None: until stopped; "caught-up": until the ends of the inputs, as they are at the start, have gone through.
    """

    def __init__(
        self,
        plan: JobPlan,
        all_rounds: list[Rounds],
        store: JobStore,
        engine: Engine,
        *,
        trigger_s: float,
        idle_timeout_s: float,
        max_lag: int,
        until: str | None,
        collect: Callable[[Rounds], None],
        tidy: Callable[[], None],
        close: Callable[[], None],
        clock_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        self.plan = plan
        self._rounds = {rounds.sub.name: rounds for rounds in all_rounds}
        self._store, self._engine = store, engine
        self._trigger_s, self._until = trigger_s, until
        self._collect, self._tidy, self._close, self._clock_us = collect, tidy, close, clock_us
        self._upstream = upstream_names_of(plan.subs)
        self._next_round = NextRound(self._rounds, self._upstream, idle_timeout_s, max_lag)
        self._stopping = threading.Event()
        self._wakes = {name: threading.Event() for name in self._rounds}  # one per thread: none takes another's away
        self._ended = threading.Event()
        self._done: dict[str | None, threading.Event] = {name: threading.Event() for name in self._rounds}
        self._current: dict[str | None, PlannedRound] = {}
        self._began_s: dict[str | None, float] = {}
        self._waiting_for: dict[str | None, str] = {}
        self._slowed_by: dict[str | None, str] = {}  # what a sub-topology waits for before it writes more
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._started_s = time.monotonic()
        self._published: dict[str | None, float] = {}
        self._threads: list[threading.Thread] = []  # one per sub-topology
        self._helpers: list[threading.Thread] = []
        self._caught_up: CaughtUp | None = None

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
            self._caught_up = CaughtUp(self._sources())
        self._threads = [
            threading.Thread(target=self._loop, args=(rounds,), name=f"headrace-{rounds.sub.title}", daemon=True)
            for rounds in self._rounds.values()
        ]
        self._helpers = [
            threading.Thread(target=self._beat, name="headrace-heartbeat", daemon=True),
            threading.Thread(target=self._keep_tidy, name="headrace-tidy", daemon=True),
        ]
        reached("start", 11)
        for thread in (*self._threads, *self._helpers):
            thread.start()
        threading.Thread(target=self._finish, name="headrace-finish", daemon=True).start()

    def _sources(self) -> list[Rounds]:
        return [rounds for rounds in self._rounds.values() if not self._upstream[rounds.sub.name]]

    def stop(self, timeout_s: float = STOP_WAIT_S) -> None:
        """End the job: a round that runs is dropped whole, what is committed stays. Returns when all is closed."""
        self._stop()
        if not self._ended.wait(timeout_s):
            raise WaitTimeoutError(f"the job did not stop within {timeout_s:g} s; it is in: {self._current_text()}")

    def _stop(self) -> None:
        self._stopping.set()
        self._store.hurry()
        self.wake()
        for name, planned in list(self._current.items()):
            self._rounds[name].stop_flag(planned)
            self._engine.cancel(str(planned.id))

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait for the end of the job; raises what ended it, `WaitTimeoutError` if it still runs after `timeout_s`."""
        if not self._ended.wait(timeout_s):
            raise WaitTimeoutError(f"the job still runs after {timeout_s:g} s; it is in: {self._current_text()}")
        if self._error is not None:
            raise self._error

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return not self._ended.is_set()

    def wake(self) -> None:
        """Look for new records now, without waiting for the trigger interval."""
        for event in self._wakes.values():
            event.set()

    def _current_text(self) -> str:
        return ", ".join(str(planned.id) for planned in self._current.values()) or "no round"

    def _finish(self) -> None:
        """Wait for the threads of all sub-topologies, then give the application back and close everything."""
        for thread in self._threads:
            thread.join()
        self._stopping.set()
        for thread in self._helpers:
            thread.join()
        for rounds in self._rounds.values():
            self._publish(rounds, force=True)
        self._give_back()

    def _give_back(self) -> None:
        """Let the next driver start at once, then close everything. Changes nothing where another has taken over."""
        try:
            self._store.release(self.plan.epoch)
        except HeadraceError as error:
            LOG.warning("could not give the application back, the next start takes it over: %s", error.message)
        except Exception:
            LOG.exception("could not give the application back; the next start takes it over")
        finally:
            try:
                self._close()
            finally:
                self._ended.set()

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            if self._error is None:
                self._error = error
        self._stop()

    def _beat(self) -> None:
        while not self._stopping.wait(HEARTBEAT_S):
            try:
                self._store.heartbeat(self.plan.epoch, self._clock_us())
            except FencedError as error:
                self._fail(error)
            except Exception as error:
                LOG.warning("heartbeat: %s", error)
            self._give_up_what_hangs()

    def _keep_tidy(self) -> None:
        while not self._stopping.wait(TIDY_S):
            self._tidy()

    def _give_up_what_hangs(self) -> None:
        """Cancel rounds whose worker does not answer (it may be stopped, or wait for ever); they are tried again."""
        now_s = time.monotonic()
        for name, planned in list(self._current.items()):
            bound_s = max(ROUND_WAIT_S, 30 * self._rounds[name].max_round_s)
            if now_s - self._began_s.get(name, now_s) > bound_s:
                LOG.warning("round %s has not ended after %.0f s: it is given up", planned.id, bound_s)
                self._began_s[name] = now_s
                self._rounds[name].stop_flag(planned)
                self._engine.cancel(str(planned.id))

    # --- one sub-topology -------------------------------------------------------------------------------------------

    def _loop(self, rounds: Rounds) -> None:
        name = rounds.sub.name
        failures, held_back = 0, ""
        try:
            while not self._stopping.is_set():
                planned = self._answered(rounds, "to look for records", lambda: self._planned(rounds))
                published = self._publish(rounds)
                if planned is None and self._slowed_by.get(name):
                    self._waiting_for[name] = self._slowed_by[name]
                    self._wakes[name].wait(self._trigger_s)
                    self._wakes[name].clear()
                    continue
                if planned is None:
                    if self._caught_up and self._caught_up.reached(rounds, time.monotonic()):
                        return
                    if published:
                        held_back = self._answered(rounds, "to look for records", rounds.standing.held_back_by) or ""
                    self._waiting_for[name] = f"records held back by {held_back}" if held_back else "new records"
                    self._wakes[name].wait(self._trigger_s)
                    self._wakes[name].clear()  # before looking again, `_stopping` included: nothing is slept through
                    continue
                failures = 0 if self._try(rounds, planned, failures) else failures + 1
        except BaseException as error:
            if self._stopping.is_set() and isinstance(error, (UnavailableError, RoundFailedError)):
                LOG.warning("while stopping: %s", error)  # what was asked for is dropped whole, as the round is
            else:
                self._fail(self._explained(error))
        finally:
            self._done[name].set()
            self.wake()

    def _explained(self, error: BaseException) -> BaseException:
        """`error`, or that another driver took over: that one may have removed what this one looks for."""
        try:
            self._store.check_epoch(self.plan.epoch)
            return error
        except FencedError as fenced:
            fenced.__cause__ = error
            return fenced
        except Exception:  # the store cannot be asked; what ended the job is what there is to say
            return error

    def _planned(self, rounds: Rounds) -> PlannedRound | None:
        if self._caught_up and all(self._done[writer].is_set() for writer in self._upstream[rounds.sub.name]):
            self._caught_up.writers_done(rounds)
        limit = self._caught_up.limit_of(rounds) if self._caught_up else None
        self._slowed_by[rounds.sub.name] = self._next_round.held_back(rounds)
        if self._slowed_by[rounds.sub.name]:
            return None
        planned = self._next_round.of(rounds, time.monotonic(), self._clock_us(), limit)
        if planned is not None and self._caught_up:
            self._caught_up.went_on(rounds)
        return planned

    def _try(self, rounds: Rounds, planned: PlannedRound, failures: int) -> bool:
        """Run and commit a round; False if it failed in a way that another try may mend."""
        name = rounds.sub.name
        self._current[name] = planned
        self._waiting_for[name] = f"round {planned.id}"
        try:
            if not self._stopping.is_set():
                self._run(rounds, planned)
            return True
        except (EngineFailure, RoundFailedError, StoreDamagedError) as failure:
            rounds.stop_flag(planned)
            if self._stopping.is_set() or self._finds_culprits(rounds, planned, failure):
                return True
            self._again_or_raise(rounds, planned, failures, failure)
            return False
        finally:
            self._current.pop(name, None)
            self.wake()  # whoever reads what was just written may look

    def _run(self, rounds: Rounds, planned: PlannedRound) -> None:
        self._began_s[rounds.sub.name] = time.monotonic()
        summaries = rounds.run(planned)
        if self._stopping.is_set():
            return
        rounds.commit(planned, summaries)
        reached("log", 13)
        try:
            self._collect(rounds)
        except OSError as error:
            LOG.warning("could not remove files that are not needed any more, the next start does: %s", error)

    def _finds_culprits(self, rounds: Rounds, planned: PlannedRound, failure: Exception) -> bool:
        """Whether records on which an expression raises were found: the next round goes on without them."""
        if not isinstance(failure, EngineFailure) or not failure.in_expression:
            return False
        try:
            return find_culprits(
                self._engine, rounds, planned, say=self._say_of(rounds), is_stopping=self._stopping.is_set
            )
        except EngineFailure as error:
            LOG.warning("the search for the record that fails in round %s ended: %s", planned.id, error.message)
            return False

    def _say_of(self, rounds: Rounds) -> Callable[[str], None]:
        """What tells whoever looks at the log or the status what a sub-topology is doing."""

        def say(line: str) -> None:
            LOG.warning("%s", line)
            self._waiting_for[rounds.sub.name] = line

        return say

    def _again_or_raise(self, rounds: Rounds, planned: PlannedRound, failures: int, failure: Exception) -> None:
        reason = str(getattr(failure, "message", failure)).strip() or type(failure).__name__
        if isinstance(failure, EngineFailure) and failure.error_class == ENGINE_LOST:
            raise engine_loss(planned.id, reason)
        hint = "nothing of it was committed; what was committed before stays"
        if isinstance(failure, EngineFailure) and failure.error_class == WORKER_DIED:
            reason, advice = worker_death(rounds.sub.title, planned.ranges, reason)
            hint = f"{hint}; {advice}"
        if failures + 1 >= FAILURES_MAX:
            raise RoundFailedError(
                f"round {planned.id} failed {failures + 1} times, the last time: {reason}", hint
            ) from (failure if isinstance(failure, HeadraceError) else None)
        if isinstance(failure, RoundFailedError):
            self._answered(rounds, "to look for what it writes to", rounds.check_outputs)
        delay_s = min(3.0, 0.1 * 2**failures)
        LOG.warning("round %s failed, trying again in %.1f s: %s", planned.id, delay_s, reason.splitlines()[-1])
        self._waiting_for[rounds.sub.name] = f"another try after: {reason.splitlines()[-1]}"
        self._stopping.wait(delay_s)
        self._read_again(rounds)

    def _read_again(self, rounds: Rounds) -> None:
        """Read what is committed; a system that does not answer is waited for."""
        self._answered(rounds, "to read what is committed", rounds.read_again)

    def _answered(self, rounds: Rounds, what: str, ask: Callable[[], Answer]) -> Answer | None:
        """What `ask` gives; a system that does not answer is waited for, up to `SYSTEM_WAIT_S`. None: the job ends."""
        began_s = time.monotonic()
        while not self._stopping.is_set():
            try:
                return ask()
            except UnavailableError as error:
                if time.monotonic() - began_s > SYSTEM_WAIT_S:
                    raise
                LOG.warning("waiting for the system, %s: %s", what, error.message)
                self._waiting_for[rounds.sub.name] = f"the system: {error.message}"
                self._stopping.wait(1.0)
        return None

    # --- what people see --------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Where the job stands: for the whole, and per sub-topology (`source` is the one that reads the inputs)."""
        return {
            "application": self.plan.topology.application,
            "running": self.is_running,
            "epoch": self.plan.epoch,
            "job_model": self.plan.model.version,
            "sub_topologies": {rounds.sub.title: self._status_of(rounds) for rounds in self._rounds.values()},
        }

    def _status_of(self, rounds: Rounds) -> dict[str, Any]:
        progress = rounds.progress
        seconds = max(time.monotonic() - self._started_s, 1e-3)
        return {
            "records": progress.records,
            "records_per_s": round(progress.records / seconds),
            "records_written": progress.records_written,
            "lag": progress.lag,
            "round": progress.rounds,
            "tasks": len(rounds.tasks),
            "containers": len(rounds.model.containers),
            "counters": dict(sorted(progress.counters.items())),
            "timings_ms": progress.timings_ms,
            "waiting_for": self._waiting_for.get(rounds.sub.name, ""),
            "notes": progress.notes[-3:],
            "known_failures": len(rounds.known_failures),
        }

    def _publish(self, rounds: Rounds, force: bool = False) -> bool:
        """Publish the status, unless that was done lately; whether it was time to."""
        now_s = time.monotonic()
        if not force and now_s - self._published.get(rounds.sub.name, 0.0) < STATUS_S:
            return False
        self._published[rounds.sub.name] = now_s
        status = self._status_of(rounds) | {"updated_us": self._clock_us()}
        try:
            self._store.publish_status(rounds.sub.name, status)
        except HeadraceError as error:
            LOG.warning("status could not be published: %s", error)
        return True
