"""What a round's plan needs to know of the other sub-topologies: how far event time has come above it, and whether
those below it come after.

All that run rounds ask here for the next one: a job from its threads, the test driver one after the other. Time is an
argument.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headrace.core.rounds.purging import held_back_by
from headrace.core.rounds.watermarks import joint_watermark
from headrace.driver.rounds.planned_round import PlannedRound, RoundInputs
from headrace.driver.rounds.sub_topology_runner import SubTopologyRunner
from headrace.model.streams import SSP


class RoundScheduler:
    """Plans the next round of any sub-topology of a job. `upstream`: sub-topology to those that write what it reads."""

    def __init__(
        self,
        runners: Mapping[str | None, SubTopologyRunner],
        upstream: Mapping[str | None, Collection[str | None]],
        idle_timeout_s: float,
        max_lag: int | None = None,
    ) -> None:
        self._runners, self._upstream, self._idle_timeout_s = runners, upstream, idle_timeout_s
        self._max_lag = max_lag

    def held_back(self, runner: SubTopologyRunner) -> str:
        """Why `runner` waits for a sub-topology that reads what it writes, for people; empty where it does not wait."""
        if self._max_lag is None:
            return ""
        readers = {stream: r for r in self._runners.values() for stream in r.sub.reads if stream in runner.sub.writes}
        unread = {stream: reader.task_positions.unread(stream) for stream, reader in readers.items()}
        stream = held_back_by(unread, self._max_lag)
        if stream is None:
            return ""
        return f"{readers[stream].sub.title}, which is {unread[stream]:,} records behind (max_lag {self._max_lag:,})"

    def next(
        self, runner: SubTopologyRunner, now_s: float, now_us: int, limit: Mapping[SSP, int] | None = None
    ) -> PlannedRound | None:
        """The next round of `runner`, None where there is nothing to do. `limit`: where to end, for SSPs that have one.

        `now_s` is of a clock that only goes forward: by it an SSP is idle. `now_us` is what wall-clock timers go by.
        """
        here = runner.task_positions
        here.note_upstream(self._watermark_above(runner, now_s))  # before the ends: what comes after may only be later
        ends = here.ends()
        runner.progress.lag = here.lag(ends)
        here.note_idle(ends, now_s)
        idle = frozenset(here.idle(now_s, self._idle_timeout_s))
        return runner.plan(RoundInputs(ends, idle, now_us, limit))

    def _watermark_above(self, runner: SubTopologyRunner, now_s: float) -> int | None:
        tasks: list[tuple[int | None, bool]] = []
        for writer in self._upstream[runner.sub.name]:
            above = self._runners[writer].task_positions
            idle = above.idle(now_s, self._idle_timeout_s)
            marks = above.watermarks(idle)
            tasks.extend((marks[task.name], all(ssp.whole in idle for ssp in task.ssps)) for task in above.tasks)
        return joint_watermark(tasks)
