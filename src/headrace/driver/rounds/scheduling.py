"""When a round of a sub-topology is due, and what its plan needs to know of the others: how far event time has come above it,
and whether those below it come after.

All that run rounds ask here for the next one: a job from its threads, the test driver one after the other. Time is an
argument.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from headrace.core.rounds.passes import Pass, pass_after
from headrace.core.rounds.purging import held_back_by
from headrace.core.rounds.watermarks import joint_watermark
from headrace.core.topology.sub_topologies import output_streams
from headrace.driver.rounds.planned_round import PlannedRound, RoundInputs
from headrace.driver.rounds.sub_topology_runner import SubTopologyRunner
from headrace.errors import WaitTimeoutError
from headrace.exchange.messages import Summary
from headrace.model.streams import SSP

WAIT_S = 2.0  # what one container has written waits at most so long for the others of its round
HELD_BACK_S = 120.0  # how long records that are written may stay unreadable


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
        self,
        runner: SubTopologyRunner,
        now_s: float,
        now_us: int,
        limit: Mapping[SSP, int] | None = None,
        ended_us: int | None = None,
    ) -> PlannedRound | None:
        """The next round of `runner`, None where there is nothing to do. `limit`: where to end, for SSPs that have one. `now_s`
        is of a clock that only goes forward: by it an SSP is idle. `now_us` is what wall-clock timers go by, and `ended_us`
        since when the job would end here but for them."""
        here = runner.task_positions
        runner.hear()
        here.note_upstream(self._watermark_above(runner, now_s))  # before the ends: what comes after may only be later
        ends = here.ends()
        runner.progress.lag = here.lag(ends)
        here.note_idle(ends, now_s)
        idle = frozenset(here.idle(now_s, self._idle_timeout_s))
        return runner.plan(RoundInputs(ends, idle, now_us, limit, runner.sitting_out(), ended_us))

    def _watermark_above(self, runner: SubTopologyRunner, now_s: float) -> int | None:
        tasks: list[tuple[int | None, bool]] = []
        for writer in self._upstream[runner.sub.name]:
            above = self._runners[writer].task_positions
            idle = above.idle(now_s, self._idle_timeout_s)
            watermark_of = above.watermarks(idle)
            tasks.extend((watermark_of(one), all(ssp in idle for ssp in one.partitions)) for one in above.one_of_siblings)
        return joint_watermark(tasks)


class WholeRounds:
    """A sub-topology that reads what another writes begins behind a round of that other, not in its midst.

    On Kafka each container commits by itself, so that a round's records come container by container. A round costs nearly the
    same for few records as for many. `upstream`: each one's name to those that write what it reads.
    """

    def __init__(self, upstream: Mapping[str | None, Collection[str | None]]) -> None:
        self._upstream = upstream
        self._ended = dict.fromkeys(upstream, 0)  # rounds
        self._seen = dict.fromkeys(upstream, 0)  # of those above, rounds that had ended when it last did not wait
        self._since_s: dict[str | None, float] = {}

    def ended(self, name: str | None) -> None:
        """A round of `name` has ended, however it did."""
        self._ended[name] += 1

    def waits_s(self, name: str | None, running: Collection[str | None], now_s: float) -> float:
        """For how long `name` still waits for those above it that are among `running`; 0: it continues now."""
        above = self._upstream[name]
        ended = sum(self._ended[writer] for writer in above)
        left_s = self._since_s.setdefault(name, now_s) + WAIT_S - now_s
        if left_s > 0 and ended == self._seen[name] and any(writer in running for writer in above):
            return left_s
        del self._since_s[name]
        self._seen[name] = ended
        return 0.0


def unread_of_own(runners: Iterable[SubTopologyRunner]) -> dict[str, int]:
    """Of each stream that a job reads as an input and writes as an output how many offsets it has not read."""
    known = list(runners)
    own = {stream for runner in known for stream in output_streams(runner.sub, runner.program.dead_letter)}
    found = Counter[str]()
    for runner in known:
        if not (read := own.intersection(runner.sub.reads)):
            continue
        positions = runner.task_positions.positions()
        ends = runner.task_positions.targets()
        found.update(dict.fromkeys(read, 0))
        for ssp, position in positions.items():
            if ssp.stream in read:
                found[ssp.stream] += max(0, ends.get(ssp, position) - position)
    return dict(found)


class CaughtUp:
    """Where each sub-topology is done: the sources at the ends when the job started, any other at what its
    writers had written when they were done. Of a job that writes to its own inputs, see `core.rounds.passes`."""

    def __init__(self, sources: Iterable[SubTopologyRunner], ends: Mapping[SSP, int] | None = None) -> None:
        """`ends`: those of the sources, where they are known already."""
        self._targets: dict[str | None, Mapping[SSP, int]] = {}
        self._held_since_s: dict[str | None, float] = {}
        self._open_since_s: dict[str | None, float] = {}
        self._ended_us: dict[str | None, int] = {}
        self._pass = Pass()
        self._written: dict[str | None, Counter[str]] = {}  # one per thread
        self._begin(sources, ends)

    def _begin(self, sources: Iterable[SubTopologyRunner], ends: Mapping[SSP, int] | None = None) -> None:
        for runner in sources:
            read = runner.task_positions.targets() if ends is None else ends
            self._targets[runner.sub.name] = {ssp: end for ssp, end in read.items() if ssp.stream in runner.sub.reads}

    def wrote(self, runner: SubTopologyRunner, summaries: Sequence[Summary]) -> None:
        """A round has committed this."""
        written = self._written.setdefault(runner.sub.name, Counter())
        for summary in summaries:
            written.update(summary.written)

    def failed(self) -> None:
        """A round has failed, and may have committed records that are not counted."""
        self._pass = replace(self._pass, is_exact=False)

    def begins_pass(self, runners: Collection[SubTopologyRunner], sources: Iterable[SubTopologyRunner], most: int) -> bool:
        """Whether the job reads on once all are done, as it has written to its inputs; at most so many times. To be asked while
        no round runs. `WaitTimeoutError` beyond."""
        unread = unread_of_own(runners)
        if not unread:
            return False
        done = replace(self._pass, written=sum(self._written.values(), Counter()))
        following = pass_after(done, unread, most)
        if following is None:
            return False
        self.restart(())
        self._begin(sources)
        self._pass, self._written = following, {}
        return True

    def restart(self, sources: Iterable[SubTopologyRunner]) -> None:
        """Positions were set again: the sources end where they ended before, and what comes of it is waited for again."""
        names = {runner.sub.name for runner in sources}
        self._targets = {name: targets for name, targets in self._targets.items() if name in names}
        self._held_since_s.clear()
        self._open_since_s.clear()

    def limit_of(self, runner: SubTopologyRunner) -> Mapping[SSP, int] | None:
        """Where the rounds of a sub-topology end, None where that is not known yet."""
        return self._targets.get(runner.sub.name)

    def ended_us(self, runner: SubTopologyRunner, now_us: int) -> int | None:
        """Since when a sub-topology has read all that it is to read, None where it has not: what the wall clock makes due after
        that does not keep it at work. That is so too where it reads on, because the job writes to its own inputs."""
        behind = self._behind(runner)
        if behind is None or behind:
            return None
        return self._ended_us.setdefault(runner.sub.name, now_us)

    def writers_done(self, runner: SubTopologyRunner, now_s: float) -> None:
        """All that write what `runner` reads are done. What they wrote last may not be readable yet, and the marker that
        ends its transaction not be there: it is waited for, so that nothing is left that would look like a lag."""
        name = runner.sub.name
        if name in self._targets:
            return
        ends = runner.task_positions.ends()  # before the targets: where both are alike nothing was open
        targets = runner.task_positions.targets()
        since_s = self._open_since_s.setdefault(name, now_s)
        if all(ends.get(ssp) == target for ssp, target in targets.items()) or now_s - since_s > HELD_BACK_S:
            self._targets[name] = targets

    def progressed(self, runner: SubTopologyRunner) -> None:
        """A round was planned, or could have been: nothing is held back any more."""
        self._held_since_s.pop(runner.sub.name, None)

    def reached(self, runner: SubTopologyRunner, now_s: float) -> bool:
        """Whether all that is to be read was read; to be asked when no round can be planned. Records that cannot be read yet
        (Kafka: a transaction is open) are waited for, up to `HELD_BACK_S`."""
        behind, name = self._behind(runner), runner.sub.name
        if not behind:
            return behind is not None
        if now_s - self._held_since_s.setdefault(name, now_s) > HELD_BACK_S:
            ssp, (position, target) = min(behind.items())
            raise WaitTimeoutError(
                f"stream {ssp.stream!r} partition {ssp.partition}: offsets {position} to {target} were written, but "
                f"could not be read for {HELD_BACK_S:g} s; held back by {runner.task_positions.held_back_by() or 'unknown'}",
                "end that transaction (commit or abort it), and restart the job",
            )
        return False

    def _behind(self, runner: SubTopologyRunner) -> dict[SSP, tuple[int, int]] | None:
        """The SSPs that are to be read on, from where to where; None while it is not known up to where."""
        targets = self.limit_of(runner)
        if targets is None:
            return None
        positions = runner.task_positions.positions()
        reading = {ssp: (positions.get(ssp, target), target) for ssp, target in targets.items()}
        return {ssp: (position, target) for ssp, (position, target) in reading.items() if position < target}
