"""When changes of a group have come to rest, so that one plan is made for several processors that come or leave together."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from headrace.core.group.membership import unique_members
from headrace.core.group.state import GroupMember

QUIET_S, SETTLE_S_MAX, RETURN_WAIT_S = 1.0, 5.0, 30.0
LOOK_S, TURN_S, TURN_S_MIN = 2.0, 0.5, 0.05


def look_in_s(*, leads: bool, works: bool, due_in_s: float | None) -> float:
    """In how many seconds a processor looks again at its group, unless ZooKeeper reports a change before. One that does not
    work looks often: a grant that it waits for is in Kafka alone. `due_in_s`: until a leader decides, or a
    pause is to be reported; None: nothing is due.

    >>> look_in_s(leads=False, works=True, due_in_s=None), look_in_s(leads=False, works=False, due_in_s=None)
    (2.0, 0.5)
    >>> look_in_s(leads=True, works=True, due_in_s=0.2), look_in_s(leads=True, works=True, due_in_s=-1.0)
    (0.2, 0.05)
    """
    usual_s = TURN_S if leads or not works else LOOK_S
    return usual_s if due_in_s is None else max(TURN_S_MIN, min(usual_s, due_in_s))


@dataclass(frozen=True, slots=True)
class Settling:
    """What a leader has seen of its group's processors. Times are of a clock that only goes forward.

    `present`: id to registration of those that are there. `away`: id to since when, of those that are marked to be waited for,
    and hold tasks. `outdated`: those that are marked, and there. `counted`: the ids that a plan is made with: those that are
    there, and those that are away for less than `return_wait_s`. `first_s`, `last_s`: of the changes since the last decision;
    None where there were none. `quiet_s`: how long after the last one the decision waits; not at all where only such have come
    as were `counted` before: they wait for grants, and another plan is not made.
    """

    return_wait_s: float = RETURN_WAIT_S
    present: Mapping[str, int] = field(default_factory=dict)
    away: Mapping[str, float] = field(default_factory=dict)
    outdated: frozenset[str] = frozenset()
    counted: frozenset[str] = frozenset()
    first_s: float | None = None
    last_s: float | None = None
    quiet_s: float = QUIET_S

    def with_look(
        self, members: Collection[GroupMember], awaited: Collection[str], holders: Collection[str], now_s: float
    ) -> Settling:
        """The same with what was seen at `now_s`. `awaited`: the ids that are marked to be waited for (`core.group.returns`).
        `holders`: the ids that have tasks in the active plan: only these are waited for."""
        present = {one.processor_id: one.sequence for one in unique_members(members) if one.processor_id is not None}
        away = {id_: self.away.get(id_, now_s) for id_ in awaited if id_ in holders and id_ not in present}
        waited_for = {id_ for id_, since_s in away.items() if now_s - since_s < self.return_wait_s}
        counted, outdated = frozenset(present) | waited_for, frozenset(present).intersection(awaited)
        have_come = any(self.present.get(id_) != sequence for id_, sequence in present.items())
        if counted == self.counted and not have_come:  # at most some have left that are waited for: nothing is to be decided
            return replace(self, present=present, away=away, outdated=outdated)
        is_known = counted == self.counted and (self.first_s is None or self.quiet_s == 0)
        first_s, quiet_s = now_s if self.first_s is None else self.first_s, 0.0 if is_known else QUIET_S
        return Settling(self.return_wait_s, present, away, outdated, counted, first_s, now_s, quiet_s)

    @property
    def waited_for(self) -> frozenset[str]:
        """Those of `counted` that are not there."""
        return self.counted - self.present.keys()

    @property
    def due_s(self) -> float | None:
        """When to decide: some time after the last change, and not much later than the first; None without one."""
        if self.first_s is None or self.last_s is None:
            return None
        return min(self.last_s + self.quiet_s, self.first_s + SETTLE_S_MAX)

    def is_due(self, now_s: float) -> bool:
        return self.due_s is not None and now_s >= self.due_s

    def decided(self) -> Settling:
        """After a decision was made with what is `counted`."""
        return replace(self, first_s=None, last_s=None)

    def again(self, now_s: float) -> Settling:
        """To decide once more though nothing has changed: a proposal came to nothing."""
        return replace(self, first_s=now_s if self.first_s is None else self.first_s, last_s=now_s, quiet_s=QUIET_S)

    @property
    def given_up(self) -> frozenset[str]:
        """Those that have not come back in time, or are there: their marks are to be deleted."""
        return (frozenset(self.away) - self.counted) | self.outdated
