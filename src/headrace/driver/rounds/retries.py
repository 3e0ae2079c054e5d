"""What becomes of a round that has failed: what is committed is read again, and it is tried again, up to a bound."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection

from headrace.driver import system_wait
from headrace.driver.rounds.planned_round import PlannedRound
from headrace.driver.rounds.sub_topology_runner import SubTopologyRunner
from headrace.errors import HeadraceError, RoundFailedError, StorageError, UnavailableError
from headrace.exchange.engine import ENGINE_LOST, EXECUTOR_LOST, WORKER_DIED, EngineFailure
from headrace.exchange.errors import engine_loss, worker_death
from headrace.exchange.texts import in_a_line

LOG = logging.getLogger("headrace.job")
FAILURES_MAX = 5  # consecutive failures of a round before the job gives up
DELAY_S_MAX = 3.0
WAIT_DELAY_S_MAX = 10.0  # while a system, or the place of the state, is waited for: each try does the work of a round
_DEATHS = {WORKER_DIED: "a worker process died", EXECUTOR_LOST: "an executor was lost"}


class Retries:
    """The tries of one sub-topology's rounds since its last commit: up to `FAILURES_MAX`. Those that fail with
    `UnavailableError` (a system does not answer, no state can be written) do not count: they have `SYSTEM_WAIT_S`.

    `ended`: set when no other try is wanted; `answered`: asks a system, and waits for it, to do what the text says; `settle`:
    reads what is committed; `say`: has the status show what is waited for.
    """

    def __init__(
        self,
        runner: SubTopologyRunner,
        ended: threading.Event,
        answered: Callable[[str, Callable[[], None]], None],
        settle: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self._runner, self._ended, self._answered, self._settle, self._say = runner, ended, answered, settle, say
        self.committed()

    def committed(self) -> None:
        """A round has not failed: the next failure is the first."""
        self._failures = self._waits = 0
        self._waits_since_s = 0.0
        self._lanes: frozenset[int] = frozenset()  # that have not taken part in a round since one has failed for them
        self._are_known = False  # whether it has failed for these alone; else for some of them
        self.trouble = ""  # why the last try has failed, in a line; empty where it has not

    def ended(self, took_part: Collection[int], *, is_whole: bool) -> None:
        """A round of these lanes has not failed; `is_whole`: no other was to take part. What has failed before may fail again
        where those have not taken part for which it did."""
        self._waits, self._lanes = 0, self._lanes.difference(took_part)
        if not self._lanes or (is_whole and not self._are_known):
            self.committed()

    def again(self, planned: PlannedRound, failure: Exception) -> None:
        """Wait until the next try is due, and read what is committed. Raises what ends the job: the last failure."""
        if isinstance(failure, UnavailableError):
            delay_s = self._delay_of_wait_s(planned, failure)
        else:
            delay_s = self._delay_s(planned, failure)
        self._ended.wait(delay_s)
        self._settle()

    def _delay_of_wait_s(self, planned: PlannedRound, failure: UnavailableError) -> float:
        now_s, most_s = time.monotonic(), system_wait.SYSTEM_WAIT_S
        if not self._waits:
            self._waits_since_s = now_s
        left_s, found, hint = self._waits_since_s + most_s - now_s, failure.message, failure.hint
        if left_s < 0:
            # No `UnavailableError` any more: a group would wait for it once more.
            raise StorageError(f"{found}; rounds were tried again for {most_s:.0f} s", hint) from failure
        delay_s = min(WAIT_DELAY_S_MAX, 0.1 * 2.0**self._waits)
        self._waits += 1
        self.trouble = in_a_line(failure.message)
        LOG.warning("round %s failed, trying again for %.0f s more, in %.1f s: %s", planned.id, left_s, delay_s, self.trouble)
        self._say(f"another try, for {left_s:.0f} s more, after: {self.trouble}")
        return delay_s

    def _delay_s(self, planned: PlannedRound, failure: Exception) -> float:
        reason = str(getattr(failure, "message", failure)).strip() or type(failure).__name__
        if isinstance(failure, EngineFailure) and failure.error_class == ENGINE_LOST:
            raise engine_loss(planned.id, reason)
        hint = "what is committed stays, and the rest is not lost: it is processed after a restart"
        if isinstance(failure, EngineFailure) and failure.error_class in _DEATHS:
            positions = self._runner.task_positions.positions()  # other containers of the round may have committed
            left = [piece for piece in planned.ranges if positions.get(piece.ssp, piece.start) < piece.end]
            reason, advice = worker_death(self._runner.sub.title, left, reason, _DEATHS[failure.error_class])
            hint = f"{hint}; {advice}"
        delay_s = min(DELAY_S_MAX, 0.1 * 2.0**self._failures)
        absent = self._runner.absent
        self._failures = max(self._failures, absent.times_lost) if absent.times_lost else self._failures + 1
        self._lanes, self._are_known = absent.failed or planned.lanes, bool(absent.failed)
        if self._failures >= FAILURES_MAX:
            raise RoundFailedError(
                f"round {planned.id} failed {self._failures} times, the last time: {reason}",
                hint,
                user_traceback=getattr(failure, "user_traceback", ""),
            ) from (failure if isinstance(failure, HeadraceError) else None)
        if isinstance(failure, RoundFailedError):
            self._answered("to look for what it writes to", self._runner.check_outputs)
        self.trouble = in_a_line(reason)
        LOG.warning("round %s failed, trying again in %.1f s: %s", planned.id, delay_s, self.trouble)
        self._say(f"another try after: {self.trouble}")
        return delay_s
