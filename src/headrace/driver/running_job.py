"""What a job of one driver and a processor of a group have in common for who has started them: they end, and are asked."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from headrace.codec.documents import encode
from headrace.codec.job_records import SCALES
from headrace.core.elasticity.scales import ScaleTerms, refusal_of
from headrace.core.metrics.table import MetricValues
from headrace.driver.planning.job_plan import Pace
from headrace.driver.planning.job_planner import JobPlanner
from headrace.environment import this_user
from headrace.errors import ConfigError, WaitTimeoutError
from headrace.model.scale import ScaleRequest

LOG = logging.getLogger("headrace.job")
STOP_WAIT_S = 60.0  # a machine under load may take long to break a round off


class RunningJob(ABC):
    """A job that this process takes part in, planned by `planner`. `_ended` is set when all is closed; `_error` is what has
    ended it, None where it was stopped or is done."""

    def __init__(self, planner: JobPlanner, pace: Pace) -> None:
        self._planner, self._pace = planner, pace
        self._stopping, self._ended = threading.Event(), threading.Event()
        self._error: BaseException | None = None
        self._was_stopped = False
        self._closing = threading.Lock()
        self._at_end: list[Callable[[], None]] = []

    @abstractmethod
    def _stop(self) -> None:
        """Begin to end."""

    @property
    @abstractmethod
    def _is_in(self) -> str:
        """What it does now, for people."""

    @property
    @abstractmethod
    def _scale_terms(self) -> ScaleTerms | None:
        """By what another scale is judged now; None where only the leader of a group can tell."""

    def stop(self, timeout_s: float = STOP_WAIT_S) -> None:
        """End the job, or leave the group: a round that runs is dropped whole, what is committed stays. Returns when all is
        closed; `WaitTimeoutError` after `timeout_s`."""
        self._is_told_to_stop()
        if not self._ended.wait(timeout_s):
            hint = "what is committed stays: if it does not end soon, kill the process; the next run resumes from there"
            raise WaitTimeoutError(f"the job did not stop within {timeout_s:g} s; it is in: {self._is_in}", hint)

    def _is_told_to_stop(self) -> None:
        """Begin to end, unless it ends already."""
        self._was_stopped |= not self._stopping.is_set()
        self._stop()

    @property
    def was_stopped(self) -> bool:
        """Whether it ended, or is ending, as that was requested: by `stop`, or by a command."""
        return self._was_stopped

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait for the end of the job; raises what ended it, `WaitTimeoutError` if it still runs after `timeout_s`."""
        if not self._ended.wait(timeout_s):
            raise WaitTimeoutError(
                f"the job still runs after {timeout_s:g} s; it is in: {self._is_in}",
                "wait longer, or end it with stop()",
            )
        if self._error is not None:
            raise self._error

    def when_ended(self, close: Callable[[], None]) -> None:
        """Call this when the job has ended; at once where it has."""
        with self._closing:
            if not self._ended.is_set():
                self._at_end.append(close)
                return
        close()

    def _has_ended(self) -> None:
        """All of the job is closed."""
        with self._closing:
            for close in self._at_end:
                try:
                    close()
                except Exception as error:
                    LOG.warning("while closing: %s", error)
            self._ended.set()

    @abstractmethod
    def status(self) -> Mapping[str, object]:
        """How far it is, for people."""

    @property
    def measured(self) -> Mapping[str, MetricValues]:
        """The metrics of now, by the titles of sub-topologies; `""` for those of the job itself."""
        return self._planner.backend.metrics.all_values()

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return not self._ended.is_set()

    def set_elasticity(
        self, factor: int | None = None, *, containers: int | None = None, sub_topology: str | None = None, reason: str = ""
    ) -> str:
        """Ask for another scale, which the job has within a second; the id of the request. `factor`: virtual tasks per task, a
        power of two; `containers`: in how many of them the tasks run, 0 for as many as Spark has slots; in a group only that.
        None leaves each as it is. `sub_topology`: its name, None for all. `ConfigError` for what cannot be done,
        and once it ends. Seed: SEP-32."""
        request = ScaleRequest(this_user(), self._pace.clock_us(), sub_topology, factor, containers, reason)
        terms = self._scale_terms
        why = None if terms is None else refusal_of(request, terms)
        if why is not None:
            raise ConfigError(why)
        if self._stopping.is_set():
            raise ConfigError("the job has ended", "hr.elasticity(...) asks for the scale of its next start")
        metadata = self._planner.backend.system.metadata_store(self._planner.topology.application)
        return metadata.request(SCALES, encode(request))
