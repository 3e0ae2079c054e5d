"""When a leader proposes a job model, how its barrier ends, and which processors work meanwhile.

A *portion* is all of a plan that one processor's work depends on. Where two plans give it equal portions the processor works
through the change from one to the other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from headrace.core.group.state import BarrierState, GroupState, ModelVersions, ReleaseBarrier

RELEASE_WAIT_S = 10.0
Portion = object


def changed_processors(before: Mapping[str, Portion], after: Mapping[str, Portion]) -> frozenset[str]:
    """The ids whose portions differ, of those in either.

    >>> sorted(changed_processors({"a": 1, "b": 2}, {"a": 1, "b": 3, "c": 4}))
    ['b', 'c']
    """
    missing = object()
    return frozenset(id_ for id_ in {*before, *after} if before.get(id_, missing) != after.get(id_, missing))


def next_version(state: GroupState, committed: int) -> int:
    """The number of a new proposal: no other has it or ever had it. `committed`: the version of the stored job model, which
    lasts where ZooKeeper has come back empty."""
    return 1 + max(state.highest_version, state.versions.proposed, state.versions.active, committed)


def is_left_over(state: GroupState, mine: int | None) -> bool:
    """Whether a proposal waits that is not the leader's own (`mine`): that of a leader before. Where its job model was
    committed it is to be published, else abandoned."""
    return state.versions.proposed > state.versions.active and state.versions.proposed != mine and not _is_final(state.barrier)


# --- the barrier --------------------------------------------------------------------------------------------------------------


class BarrierOutcome(Enum):
    WAITING = "waiting"
    RELEASED = "released"  # all have joined
    LATE = "late"  # the wait is over; who has not joined is fenced, and the plan is committed
    TIMED_OUT = "timed out"  # the proposal came to nothing; who has released resumes


@dataclass(frozen=True, slots=True)
class AwaitedRelease:
    """What a leader waits for after a proposal. `releasing`: the registrations of those whose portions change; `receiving`: of
    those that have a portion in it."""

    version: int
    releasing: frozenset[int]
    receiving: frozenset[int]
    since_s: float


def awaited_release(
    version: int, changed: Collection[str], receiving: Collection[str], present: Mapping[str, int], now_s: float
) -> AwaitedRelease:
    """What to wait for after the proposal of a plan that changes the processors `changed`, and in which those of `receiving`
    have tasks. `present`: id to registration of those that are there and may have some."""
    releases, receives = (frozenset(present[id_] for id_ in ids if id_ in present) for ids in (changed, receiving))
    return AwaitedRelease(version, releases, receives, now_s)


def barrier_outcome(
    awaited: AwaitedRelease,
    barrier: ReleaseBarrier | None,
    present: Collection[int],
    now_s: float,
    wait_s: float = RELEASE_WAIT_S,
) -> tuple[BarrierOutcome, frozenset[int]]:
    """How the barrier is at `now_s`, and who has not joined. `present`: the registrations that are there. One that is not
    there any more need not release: it is fenced. One that is to have tasks and left makes the proposal void, as does a
    barrier that is missing or final."""
    there = frozenset(present)
    if barrier is None or barrier.version != awaited.version or _is_final(barrier) or not awaited.receiving <= there:
        return BarrierOutcome.TIMED_OUT, frozenset()
    late = (awaited.releasing & there) - barrier.joined
    if not late:
        return BarrierOutcome.RELEASED, late
    return BarrierOutcome.LATE if now_s - awaited.since_s >= wait_s else BarrierOutcome.WAITING, late


# --- work ---------------------------------------------------------------------------------------------------------------------


def may_work(
    versions: ModelVersions,
    barrier: ReleaseBarrier | None,
    mine_active: Portion | None,
    mine_proposed: Portion | None,
    holds_lease: bool,
) -> bool:
    """Whether a processor may work on its portion of the active plan; it has none where that is None. While a proposal waits
    only if its portion is the same there; after one that was abandoned it resumes."""
    if not holds_lease or mine_active is None:
        return False
    if versions.proposed <= versions.active or mine_active == mine_proposed:
        return True
    return barrier is not None and barrier.version == versions.proposed and barrier.state is BarrierState.TIMED_OUT


def _is_final(barrier: ReleaseBarrier | None) -> bool:
    return barrier is not None and barrier.state is not BarrierState.NEW
