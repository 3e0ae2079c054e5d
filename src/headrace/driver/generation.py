"""The rounds of a job under one job model: a thread per sub-topology, until it is done or the model changes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from headrace.core.elasticity.recut import Recut
from headrace.core.topology.sub_topologies import upstream_names_of
from headrace.driver.change_requests import ChangeRequests
from headrace.driver.holding import or_taken_over
from headrace.driver.planning.job_plan import Backend, Pace
from headrace.driver.prepared_job import PreparedJob
from headrace.driver.rounds.pauses import Pause, Pauses
from headrace.driver.rounds.planned_round import PlannedRound
from headrace.driver.rounds.poison_records import are_poison_records_why
from headrace.driver.rounds.retries import Retries
from headrace.driver.rounds.scheduling import CaughtUp, RoundScheduler, WholeRounds
from headrace.driver.rounds.sub_topology_runner import SubTopologyRunner
from headrace.driver.shown_rounds import ShownRounds, described
from headrace.driver.system_wait import Answer, when_answered
from headrace.errors import (
    EndlessTimersError,
    FencedError,
    HeadraceError,
    RoundFailedError,
    StoreDamagedError,
    UnavailableError,
)
from headrace.exchange.engine import EngineFailure
from headrace.exchange.fault_injection import reached
from headrace.exchange.json_logs import logged_as, logged_of
from headrace.exchange.texts import in_a_line

DEAD_LETTERS = "dead_letters"  # the counter
PAUSED = "the other processors of the group, for a pause of all"
LOG = logging.getLogger("headrace.job")
TOGETHER_S = 10.0  # for so long tasks that are to be merged are brought together, before the change waits
ROUND_WAIT_S = 600.0  # a round that takes longer than this and 30 times `max_round_ms` is given up: a worker hangs
SHOWN_S = 5.0  # who works on a round for longer reports meanwhile: others take one that is silent for dead
LONG_SHARE = 0.1  # of that time: a round that takes longer is said to


class Generation(ShownRounds):
    """The rounds of one job model. Its threads end when the work is done, at `stop`, at an error, or at `yield_soon`.

    `fail` is called with the error that ends the job. `caught_up` is the job's, where it runs until it is. `watch` knows how
    streams have changed since the plan was made.
    """

    def __init__(
        self,
        prepared: PreparedJob,
        backend: Backend,
        pace: Pace,
        caught_up: CaughtUp | None,
        watch: ChangeRequests,
        fail: Callable[[BaseException], None],
    ) -> None:
        super().__init__(prepared.runners, backend, pace, watch)
        self.plan, self.maintenance = prepared.plan, prepared.maintenance
        self.caught_up, self._fail = caught_up, fail
        self._upstream = upstream_names_of(prepared.plan.subs)
        self._scheduler = RoundScheduler(self.runners, self._upstream, pace.idle_timeout_s, pace.max_lag)
        self._whole_rounds = WholeRounds(self._upstream)
        self._stopping = threading.Event()  # what runs is thrown away
        self._wakes = {name: threading.Event() for name in self.runners}  # one per thread: none takes another's away
        self._done: dict[str | None, threading.Event] = {name: threading.Event() for name in self.runners}
        self._current: dict[str | None, PlannedRound] = {}
        self._began_s: dict[str | None, float] = {}
        self._merging: Mapping[str, Recut] = {}
        self._joining: set[str | None] = set()  # sub-topologies whose rounds bring tasks together
        self._pauses = Pauses()
        self.first_began_s = 0.0  # when the first round that was committed began, and how long it took
        self.first_round_s: float | None = None
        self._threads: list[threading.Thread] = []

    # --- its life ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin, or read on once all are done; sub-topologies whose streams changed in a way that they cannot follow stay as
        they are."""
        for done in self._done.values():
            done.clear()
        for name, runner in self.runners.items():
            refused = [self.plan.refused[stream] for stream in runner.sub.reads if stream in self.plan.refused]
            if refused:
                self._stop_alone(name, refused[0])
        self._threads = [
            threading.Thread(target=self._loop, args=(runner,), name=f"headrace-{runner.sub.title}", daemon=True)
            for name, runner in self.runners.items()
            if name not in self.stopped_by
        ]
        for thread in self._threads:
            thread.start()

    def _stop_alone(self, name: str | None, error: HeadraceError) -> None:
        self.stopped_by[name] = error
        self._waiting_for[name] = f"stopped: {in_a_line(error.message)}"
        LOG.error("sub-topology %s has stopped, the others keep running: %s", self.runners[name].sub.title, error)
        self._done[name].set()
        self.publish(self.runners[name], force=True)

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait until all its threads have ended; False if some run on after `timeout_s`."""
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(None if until_s is None else max(0.0, until_s - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    @property
    def has_caught_up(self) -> bool:
        """Whether each sub-topology is done, and was not told to end."""
        return not self._ending.is_set() and all(done.is_set() for done in self._done.values())

    def stop(self) -> None:
        """End at once: rounds that run are dropped whole, what is committed stays."""
        self._stopping.set()
        self._ending.set()
        self.wake()
        running = list(self._current.items())
        for name, planned in running:
            self.runners[name].stop_round(planned)
        for _, planned in running:  # an engine that hangs takes long to answer
            self._engine.cancel(str(planned.id))

    def yield_soon(self, merging: Mapping[str, Recut] | None = None) -> None:
        """End behind the rounds that run; these commit what they have reached. `merging`: by title the sub-topologies whose
        tasks are to be merged; these end behind rounds that bring them to the same positions."""
        if self._ending.is_set():  # the rounds that bring tasks together are not cut in turn
            return
        self._merging = dict(merging or {})
        self._ending.set()
        self.wake()
        for name, planned in list(self._current.items()):
            self.runners[name].cut_round(planned)

    def pause(self, pauses: Mapping[str, Pause]) -> None:
        """By title the sub-topologies that are to rest from now on, behind the rounds that run; these commit what they have
        reached. All others keep running."""
        if not self._pauses.ask(pauses):
            return
        for name, planned in list(self._current.items()):
            if self.runners[name].sub.title in pauses:
                self.runners[name].cut_round(planned)
        self.wake()

    def rests(self, number: int) -> bool:
        """Whether all sub-topologies rest that the pause of this number is for: nothing of them is committed until another
        call of `pause`."""
        ended = [runner.sub.title for name, runner in self.runners.items() if self._done[name].is_set()]
        return not self._ending.is_set() and self._pauses.all_rest(number, ended)

    def wake(self) -> None:
        """Look for new records now, without waiting for the trigger interval."""
        for event in self._wakes.values():
            event.set()

    @property
    def sources(self) -> Iterable[SubTopologyRunner]:
        """Of the sub-topologies that read nothing that the job writes."""
        return [runner for runner in self.runners.values() if not self._upstream[runner.sub.name]]

    @property
    def current_text(self) -> str:
        return ", ".join(str(planned.id) for planned in self._current.values()) or "no round"

    def look_at_long_rounds(self) -> None:
        """Say of rounds that take long when they are given up. Cancel those whose worker does not answer (it may be stopped, or
        wait for ever): they are tried again."""
        for name, planned in list(self._current.items()):
            runner, now_s = self.runners[name], time.monotonic()
            lasts_s, bound_s = now_s - self._began_s[name], max(ROUND_WAIT_S, 30 * runner.terms.place.max_round_s)
            if lasts_s > bound_s:
                LOG.warning("round %s has not ended after %.0f s: giving it up", planned.id, bound_s)
                self._began_s[name] = now_s
                runner.stop_round(planned)
                self._engine.cancel(str(planned.id))
            elif lasts_s > LONG_SHARE * bound_s:
                told = f"which has run for {lasts_s:.0f} s, and is given up after {bound_s:.0f} s"
                self._waiting_for[name] = f"{described(runner, planned)}, {told}"
            if lasts_s > SHOWN_S:
                self.publish(runner)

    # --- one sub-topology -------------------------------------------------------------------------------------------

    def _loop(self, runner: SubTopologyRunner) -> None:
        name, retries, held_back = runner.sub.name, self._retries(runner), ""
        logged_of(runner.sub.title)
        try:
            while not self._ending.is_set():
                self._watch.between_rounds(runner)
                pause = self._pauses.of(runner.sub.title)
                if self._is_resting(runner, pause):
                    if self._waiting_for.get(name) == PAUSED:  # since the last look: most pauses are shorter
                        self.publish(runner)
                    self._wait(name, PAUSED, self._pace.trigger_s)
                    continue
                gathering_s = self._whole_rounds.waits_s(name, list(self._current), time.monotonic())
                if gathering_s:
                    self._wait(name, "the end of the round that writes what it reads", gathering_s)
                    continue
                planned = self._when_answered(runner, "to look for records", partial(self._planned, runner, pause))
                if self._pauses.of(runner.sub.title) != pause:
                    continue  # it was requested in between
                published = planned is None and self.publish(runner)
                if planned is not None:
                    with logged_as(planned.id):
                        self._try(runner, planned, retries)
                elif self._slowed_by.get(name):
                    self._wait(name, self._slowed_by[name], self._pace.trigger_s)
                elif self._ending.is_set() or (self.caught_up and self._has_caught_up(runner, self.caught_up)):
                    return
                else:
                    if published:
                        held_back = self._when_answered(runner, "to look for records", runner.task_positions.held_back_by) or ""
                    what = f"records held back by {held_back}" if held_back else "new records"
                    self._wait(name, runner.planner.waits_for or what, min(self._pace.trigger_s, runner.absent.due_in_s()))
            self._bring_together(runner)
        except BaseException as error:
            if self._stopping.is_set() and isinstance(error, (UnavailableError, RoundFailedError)):
                LOG.warning("while stopping: %s", error)  # the round is discarded, as the stop requests
            else:
                self._end_with(runner, or_taken_over(error, partial(self._store.check_epoch, self.plan.epoch)))
        finally:
            self._done[name].set()
            self.wake()

    def _bring_together(self, runner: SubTopologyRunner) -> None:
        """Read on with the tasks that are behind, to where those are with which they are to be merged. Where that takes too
        long, or cannot be, the next plan keeps the tasks, and says for which of them the change waits."""
        name, recut, began_s = runner.sub.name, self._merging.get(runner.sub.title), time.monotonic()
        while recut is not None and not self._stopping.is_set() and time.monotonic() - began_s < TOGETHER_S:
            limit = runner.limit_to_merge(recut)
            if limit is None:
                reached("scale", 4)
                return
            reached("scale", 3)
            self._joining.add(name)
            planned = self._scheduler.next(runner, time.monotonic(), self._pace.clock_us(), limit)
            if planned is None:  # on Kafka what is committed can be read a moment later
                self._wait(name, "tasks that are to be merged, to come together", min(0.1, self._pace.trigger_s))
                continue
            LOG.info("round %s brings the tasks of sub-topology %s together", planned.id, runner.sub.title)
            with logged_as(planned.id):
                if not self._try(runner, planned, self._retries(runner)):
                    return

    def _wait(self, name: str | None, what: str, seconds: float) -> None:
        self._waiting_for[name] = what
        self._wakes[name].wait(seconds)
        self._wakes[name].clear()  # before looking again, `_ending` included: nothing is slept through

    def _end_with(self, runner: SubTopologyRunner, error: BaseException) -> None:
        """End the job; or only this sub-topology, where it is a change of its streams that it cannot follow."""
        try:
            refused = {} if isinstance(error, FencedError) else self._watch.refused(runner.sub.reads)
            if refused and self._pauses.is_unsure(runner.sub.title):  # no positions are read: of a deleted stream they are lost
                self._settle(runner, runner.shut_out)
        except Exception:  # it cannot be found out; `error` is what there is to say
            refused = {}
        if refused:
            self._stop_alone(runner.sub.name, min(refused.items())[1])
        else:
            self._fail(error)

    def _is_resting(self, runner: SubTopologyRunner, pause: Pause | None) -> bool:
        if pause is not None and self._pauses.is_unsure(runner.sub.title):  # the round before has failed
            self._settle(runner, runner.reload_committed)
        return self._pauses.rests(runner, pause)

    def _has_caught_up(self, runner: SubTopologyRunner, caught_up: CaughtUp) -> bool:
        return not runner.planner.owes_timers and caught_up.reached(runner, time.monotonic())

    def _settle(self, runner: SubTopologyRunner, settle: Callable[[], None], ended: threading.Event | None = None) -> None:
        """Behind a round that failed, or that not all have taken part in: call `settle`, which shuts out its containers, and
        may read what they have committed."""

        def settled() -> None:
            settle()
            self._pauses.ended(runner.sub.title)

        self._when_answered(runner, "to read what is committed", settled, ended)

    def _planned(self, runner: SubTopologyRunner, pause: Pause | None) -> PlannedRound | None:
        if self.caught_up and all(self._done[writer].is_set() for writer in self._upstream[runner.sub.name]):
            self.caught_up.writers_done(runner, time.monotonic())
        until_caught_up = self.caught_up.limit_of(runner) if self.caught_up else None
        limit = until_caught_up if pause is None else runner.limit_at(pause.targets)
        self._slowed_by[runner.sub.name] = self._scheduler.held_back(runner)
        if self._slowed_by[runner.sub.name]:
            return None
        now_us = self._pace.clock_us()
        ended_us = self.caught_up.ended_us(runner, now_us) if self.caught_up else None
        planned = self._scheduler.next(runner, time.monotonic(), now_us, limit, ended_us)
        if self.caught_up and (planned is not None or runner.planner.waits_for):  # what sits out is behind, and not held back
            self.caught_up.progressed(runner)
        return planned

    def _retries(self, runner: SubTopologyRunner) -> Retries:
        def say(what: str) -> None:
            self._waiting_for[runner.sub.name] = what
            self.publish(runner, force=True)  # the next round may take long

        settle = partial(self._settle, runner, runner.reload_failed)
        return Retries(runner, self._ending, partial(self._when_answered, runner), settle, say)

    def _try(self, runner: SubTopologyRunner, planned: PlannedRound, retries: Retries) -> bool:
        """Run and commit a round; False if it failed in a way that another try may fix."""
        name = runner.sub.name
        self._began_s[name] = time.monotonic()
        self._current[name] = planned
        self._waiting_for[name] = described(runner, planned) + (f", after: {retries.trouble}" if retries.trouble else "")
        self.publish(runner)  # before it: it may take long
        try:
            # One that was planned before the end was seen is not begun: there is nothing of it to commit.
            if not self._ending.is_set() or (name in self._joining and not self._stopping.is_set()):
                self._run_known(runner, planned)
            retries.ended(planned.lanes - runner.absent.lanes, is_whole=not runner.absent.lanes)
            return True
        except EndlessTimersError:
            raise
        except (EngineFailure, RoundFailedError, StoreDamagedError, UnavailableError) as failure:
            runner.stop_round(planned)
            if self.caught_up:
                self.caught_up.failed()
            if self._stopping.is_set():
                return True
            is_stopping, say = self._ending.is_set, partial(self._say_meanwhile, name)
            if are_poison_records_why(failure, self._engine, runner, planned, say=say, is_stopping=is_stopping):
                self._settle(runner, runner.reload_failed)  # others of the round may have committed
                retries.committed()
                return True
            retries.again(planned, failure)
            return False
        finally:
            self._whole_rounds.ended(name)
            self._current.pop(name, None)
            self.wake()  # the readers of this output may look

    def _run_known(self, runner: SubTopologyRunner, planned: PlannedRound) -> None:
        """`_run`; where that fails the tasks of the round have it as their last error."""
        try:
            self._run(runner, planned)
        except Exception as error:
            if not (self._stopping.is_set() or isinstance(error, FencedError)):  # which is not about them
                runner.failed(planned, error)
            raise

    def _run(self, runner: SubTopologyRunner, planned: PlannedRound) -> None:
        self.maintenance.began(runner)
        self._pauses.begins(runner.sub.title)
        summaries = runner.run(planned)
        if self._stopping.is_set():
            return
        dead_letters = runner.progress.counters.get(DEAD_LETTERS, 0)
        if summaries:
            runner.commit(planned, summaries)
        if runner.absent.failure is not None:
            raise runner.absent.failure
        if runner.has_unknown:  # a version of the state beside what these have written would be of no one moment
            if self.caught_up:
                self.caught_up.failed()  # which is not counted
            self._settle(runner, runner.reload_committed, self._stopping)
        if not summaries or self._stopping.is_set():
            return
        if self.caught_up:
            self.caught_up.wrote(runner, summaries)
        self._pauses.ended(runner.sub.title)
        if self.first_round_s is None:
            self.first_began_s = self._began_s[runner.sub.name]
            self.first_round_s = time.monotonic() - self.first_began_s
        reached("log", 13)
        if runner.progress.counters.get(DEAD_LETTERS, 0) > dead_letters:
            self.publish(runner, force=True)  # at once: a run that is killed has counted them
        try:
            self.maintenance.committed(runner)
        except OSError as error:
            LOG.warning("could not delete unneeded files, the next start does: %s", error)

    def _say_meanwhile(self, name: str | None, line: str) -> None:
        LOG.warning("%s", line)
        self._waiting_for[name] = line

    def _when_answered(
        self, runner: SubTopologyRunner, what: str, ask: Callable[[], Answer], ended: threading.Event | None = None
    ) -> Answer | None:
        """What `ask` gives; a system that does not answer is waited for, up to `SYSTEM_WAIT_S`. None where `ended` is set, or
        this is to end."""

        def refused(error: UnavailableError) -> None:
            self._waiting_for[runner.sub.name] = f"the system: {in_a_line(error.message)}"

        return when_answered(what, ask, ended or self._ending, refused)
