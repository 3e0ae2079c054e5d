"""The pauses that the leader of a group requests: to keep cuts, and to bring tasks together that are to be merged.

A cut is of all tasks of a sub-topology between two rounds, and tasks that are merged must be at the same positions; but each
processor plans its own rounds. So the leader has all of them rest, and reads then what they have committed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from headrace.core.elasticity.recut import Recut, positions_to_reach
from headrace.core.group.pauses import (
    CUT_AGAIN_S,
    CUT_EVERY_S,
    PAUSE_S_MAX,
    AwaitedPause,
    PauseOf,
    PauseOutcome,
    next_number,
    pause_outcome,
)
from headrace.core.group.state import GroupState, PauseRequest
from headrace.exchange.fault_injection import reached
from headrace.group.leading import Leading
from headrace.group.processor_group import ProcessorGroup
from headrace.model.change import ChangeRequest
from headrace.model.checkpoint import Checkpoint
from headrace.model.tasks import TaskName

LOG = logging.getLogger("headrace.group")
Checkpoints = Mapping[TaskName, Checkpoint]


class GroupPauses:
    """One pause at a time. `read`: the checkpoints of all tasks, as they are committed now. One thread calls it."""

    def __init__(self, group: ProcessorGroup, leading: Leading, by: int, read: Callable[[], Checkpoints]) -> None:
        self._group, self._leading, self._by, self._read = group, leading, by, read
        self._awaited: AwaitedPause | None = None
        self._kept: AwaitedPause | None = None  # while what it is for is done: all were seen to rest before
        self._number = 0  # of the last one
        self._cut_from_s = 0.0  # no cut is requested before
        self._until_s = 0.0  # so long tasks may be brought together
        self._of = PauseOf()
        self._merging: Mapping[str, Recut] = {}
        self._scales: tuple[ChangeRequest, ...] = ()  # that are due once the tasks are together
        self._cutting: Callable[[], None] | None = None

    @property
    def is_active(self) -> bool:
        """Whether one was requested that is not over."""
        return self._awaited is not None

    @property
    def is_merging(self) -> bool:
        """Whether the one that was requested brings tasks together."""
        return self.is_active and bool(self._merging)

    def pause_of(self, sub_topology: str | None) -> int | None:
        """The number of the pause that a sub-topology is in: as long as it stays the same, nothing of it is committed. Only
        while `look` takes a cut: after checkpoints that were read before, others may have been committed until all rested."""
        kept = self._kept
        if kept is None or (sub_topology or "source") not in self._of.titles:
            return None
        rests = self._group.rests()
        return kept.number if all(rests.get(one) == kept.number for one in kept.resting) else None

    def may_cut(self, now_s: float) -> bool:
        """Whether it is time for another cut."""
        return now_s >= self._cut_from_s

    def planned(self, now_s: float) -> None:
        """Another plan is in force: at first rounds are to begin."""
        self._cut_from_s = max(self._cut_from_s, now_s + CUT_EVERY_S)

    # --- what it is for ---------------------------------------------------------------------------------------------

    def cut(self, state: GroupState, of: PauseOf, take: Callable[[], None], now_s: float) -> None:
        """Have sub-topologies rest, and call `take` then."""
        self._merging, self._scales, self._cutting = {}, (), take
        self._cut_from_s = now_s + CUT_EVERY_S
        self._ask(state, of, now_s)

    def bring_together(
        self, state: GroupState, of: PauseOf, merging: Mapping[str, Recut], scales: tuple[ChangeRequest, ...], now_s: float
    ) -> None:
        """Have sub-topologies rest where those of their tasks are together that are to be merged; `scales` are due then."""
        self._merging, self._scales, self._cutting = merging, scales, None
        self._until_s = now_s + PAUSE_S_MAX
        self._ask(state, of, now_s)

    def _ask(self, state: GroupState, of: PauseOf, now_s: float, positions: Mapping[str, int] | None = None) -> None:
        self._number = next_number(state.pause, self._group.rests(), self._number)
        self._of, self._awaited = of, AwaitedPause(self._number, of.resting, now_s)
        request = PauseRequest(self._number, self._by, tuple(sorted(of.titles)), positions or {})
        reached("group", 12)
        if not self._leading.ask_pause(request):
            self.end()

    # --- its steps ---------------------------------------------------------------------------------------------

    def look(self, state: GroupState, now_s: float) -> tuple[ChangeRequest, ...]:
        """Continue the pause that was requested; the changes of scale that are due now: it lasts until `end` then."""
        awaited = self._awaited
        assert awaited is not None, "no pause was requested"
        present = [one.sequence for one in state.members]
        outcome = pause_outcome(awaited, state.rests, present, now_s)
        if outcome is PauseOutcome.WAITING:
            return ()
        if outcome is not PauseOutcome.RESTING:
            if outcome is PauseOutcome.LOST:
                return self._come_to_nothing(f"registrations {sorted(awaited.resting - set(present))} are lost")
            if self._cutting is not None:
                self._cut_from_s = now_s + CUT_AGAIN_S
            late = sorted(one for one in awaited.resting if state.rests.get(one) != awaited.number)
            return self._come_to_nothing(f"registrations {late} do not rest")
        reached("group", 11)
        if self._cutting is not None:
            self._kept = awaited
            try:
                self._cutting()
            finally:
                self._kept = None
            self.end()
            return ()
        apart: dict[str, int] = {}
        checkpoints = self._read()
        for one in self._merging.values():
            for ssp, position in positions_to_reach(one, checkpoints).items():  # two may read one partition
                apart[str(ssp)] = max(position, apart.get(str(ssp), position))
        if apart and now_s >= self._until_s:
            return self._come_to_nothing("all rest, and tasks are not together")
        if apart:
            LOG.info("tasks of sub-topology %s are brought together", ", ".join(sorted(self._of.titles)))
            reached("scale", 3)
            self._ask(state, self._of, now_s, apart)
            return ()
        reached("scale", 4)
        scales, self._scales = self._scales, ()
        return scales

    def _come_to_nothing(self, why: str) -> tuple[ChangeRequest, ...]:
        """What else the scales ask for is done, and for the rest the plan says what it waits for; a cut is due again."""
        LOG.warning("a pause of sub-topologies %s came to nothing: %s", ", ".join(sorted(self._of.titles)), why)
        scales = self._scales
        self.end()
        return scales

    def withdraw_left_over(self, state: GroupState) -> None:
        """A request that a leader before has left, or whose end could not be written: no processor is to rest for it."""
        if state.pause is not None and (self._awaited is None or self._awaited.number != state.pause.number):
            self._leading.ask_pause(None)

    def end(self) -> None:
        """Everybody continues."""
        ended, self._awaited = self._awaited, None
        titles = ", ".join(sorted(self._of.titles))
        self._of, self._merging, self._scales, self._cutting = PauseOf(), {}, (), None
        if ended is not None:
            reached("group", 13)
            LOG.debug("sub-topologies %s continue after %.2f s", titles, time.monotonic() - ended.since_s)
            self._leading.ask_pause(None)
