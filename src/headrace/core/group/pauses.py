"""Pauses of a group: the leader has sub-topologies rest between two rounds, all their tasks at once.

It asks for one to keep a version of the state that is consistent over all tasks, and to bring tasks together that are to be
merged. A pause decides nothing that is committed: where one comes to nothing, what it was for is tried again later.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from headrace.core.group.grants import Grants, processor_of
from headrace.core.group.membership import unique_members
from headrace.core.group.state import GroupMember, PauseRequest, incarnation_of
from headrace.model.job_model import JobModel

PAUSE_S_MAX = 20.0  # a processor rests no longer than this for one request, whatever becomes of the leader
REST_S = 10.0  # so long a leader waits for all to rest
CUT_EVERY_S = 5.0  # between two requests for cuts, and before the first of a plan: rounds rest for each
CUT_AGAIN_S = 60.0  # after one for which somebody did not come to rest: the others have rested for it in vain


def next_number(asked: PauseRequest | None, rests: Mapping[int, int], used: int) -> int:
    """The number of another request: above all that a processor may have seen, or rests for. One that has not looked in between
    would else rest for a request that it has not seen, and its rounds run. `asked`: the request that there is; `rests`: what
    processors report; `used`: by this leader.

    >>> next_number(None, {4: 7}, 2), next_number(PauseRequest(9, 1), {}, 2), next_number(None, {}, 2)
    (8, 10, 3)
    """
    return 1 + max([used, *rests.values(), *([] if asked is None else [asked.number])])


def pause_to_keep(request: PauseRequest | None, leader: int | None, seen_s: Mapping[int, float], now_s: float) -> bool:
    """Whether a processor rests for `request`: it is of the leader that there is, and was seen not long ago. `seen_s`: when
    this processor first saw the request of a number."""
    if request is None or request.leader != leader:
        return False
    return now_s - seen_s.get(request.number, now_s) < PAUSE_S_MAX


@dataclass(frozen=True, slots=True)
class PauseOf:
    """The sub-topologies that are to rest, by `titles`, and who runs them: `resting`, by registration."""

    titles: frozenset[str] = frozenset()
    resting: frozenset[int] = frozenset()


def pause_of(titles: Collection[str], model: JobModel, members: Collection[GroupMember], grants: Grants) -> PauseOf:
    """Who is to rest for a pause of these sub-topologies: those that are there, with a grant and with tasks of them."""
    found = frozenset(titles)
    holders = {processor_of(one) for sub in model.sub_topologies if sub.title in found for one in sub.containers}
    granted = {id_: grant.incarnation for id_, grant in grants.items() if id_ in holders}
    resting = frozenset(
        one.sequence
        for one in unique_members(members)
        if one.processor_id is not None and granted.get(one.processor_id) == incarnation_of(one)
    )
    return PauseOf(found, resting)


class PauseOutcome(Enum):
    WAITING = "waiting"
    RESTING = "resting"  # all rest
    LATE = "late"  # the wait is over, and some do not rest
    LOST = "lost"  # one that is to rest is not there any more


@dataclass(frozen=True, slots=True)
class AwaitedPause:
    """What a leader waits for. `resting`: the registrations of those that have tasks of the sub-topologies."""

    number: int
    resting: frozenset[int]
    since_s: float


def pause_outcome(
    awaited: AwaitedPause, rests: Mapping[int, int], present: Collection[int], now_s: float
) -> PauseOutcome:
    """How a pause is at `now_s`. `rests`: registration to the number of the pause that it rests for; `present`: the
    registrations that are there."""
    if not awaited.resting <= frozenset(present):
        return PauseOutcome.LOST
    if all(rests.get(one) == awaited.number for one in awaited.resting):
        return PauseOutcome.RESTING
    return PauseOutcome.LATE if now_s - awaited.since_s >= REST_S else PauseOutcome.WAITING
