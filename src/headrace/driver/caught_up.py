"""When a job that runs until it is caught up has come there (protocol.md 2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.driver.rounds.sub_topology_runner import SubTopologyRunner
from headrace.errors import WaitTimeoutError
from headrace.model.streams import SSP

HELD_BACK_S = 120.0  # how long records that are written may stay unreadable


class CaughtUp:
    """Where each sub-topology is done: the sources at the ends when the job started, any other at what its
    writers had written when they were done."""

    def __init__(self, sources: Iterable[SubTopologyRunner]) -> None:
        self._targets: dict[str | None, Mapping[SSP, int]] = {r.sub.name: r.targets() for r in sources}
        self._held_since_s: dict[str | None, float] = {}
        self._open_since_s: dict[str | None, float] = {}

    def restart(self, sources: Iterable[SubTopologyRunner]) -> None:
        """Positions were set again: the sources end where they ended before, and what comes of it is waited for again."""
        names = {runner.sub.name for runner in sources}
        self._targets = {name: targets for name, targets in self._targets.items() if name in names}
        self._held_since_s.clear()
        self._open_since_s.clear()

    def limit_of(self, runner: SubTopologyRunner) -> Mapping[SSP, int] | None:
        """Where the rounds of a sub-topology end, None where that is not known yet."""
        return self._targets.get(runner.sub.name)

    def writers_done(self, runner: SubTopologyRunner, now_s: float) -> None:
        """All that write what `runner` reads are done. What they wrote last may not be readable yet, and the marker that
        ends its transaction not be there: it is waited for, so that nothing is left that would look like a lag."""
        name = runner.sub.name
        if name in self._targets:
            return
        ends = runner.task_positions.ends()  # before the targets: where both are alike nothing was open
        targets = runner.targets()
        since_s = self._open_since_s.setdefault(name, now_s)
        if all(ends.get(ssp) == target for ssp, target in targets.items()) or now_s - since_s > HELD_BACK_S:
            self._targets[name] = targets

    def progressed(self, runner: SubTopologyRunner) -> None:
        """A round was planned, or could have been: nothing is held back any more."""
        self._held_since_s.pop(runner.sub.name, None)

    def reached(self, runner: SubTopologyRunner, now_s: float) -> bool:
        """Whether all that is to be read was read; to be asked when no round can be planned.

        Records that cannot be read yet (Kafka: a transaction is open) are waited for, up to `HELD_BACK_S`.
        """
        targets, name = self.limit_of(runner), runner.sub.name
        if targets is None:
            return False
        positions = runner.task_positions.positions()
        behind = {ssp: target for ssp, target in targets.items() if positions.get(ssp, target) < target}
        if not behind:
            return True
        if now_s - self._held_since_s.setdefault(name, now_s) > HELD_BACK_S:
            ssp, target = min(behind.items())
            raise WaitTimeoutError(
                f"stream {ssp.stream!r} partition {ssp.partition}: offsets {positions[ssp]} to {target} were written, but "
                f"could not be read for {HELD_BACK_S:g} s; held back by {runner.task_positions.held_back_by() or 'unknown'}",
                "end that transaction (commit or abort it), and restart the job",
            )
        return False
