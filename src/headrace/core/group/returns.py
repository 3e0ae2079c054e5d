"""Which processors that are not there have left, and which of them their tasks wait for.

Those are marked in ZooKeeper: a processor that is stopped in order marks itself, and one that registers deletes its mark. Where
the whole group was down, or ZooKeeper has come back empty, the leader that begins marks all that have tasks in the job model on
record: they come one after the other, and the first would get the tasks of the others. One that is lost while others work is
not waited for.

A leader of other code than the plan in force waits as well, where the sessions of all have ended together: those with the
code of the plan are about to register again, and then it is a spare as before.
"""

from __future__ import annotations

from collections.abc import Collection

from headrace.core.group.grants import Grants
from headrace.core.group.membership import unique_members
from headrace.core.group.state import GroupMember, GroupState, ModelOrigin, incarnation_of

FOLLOWED_TIMEOUTS = 2  # the session of one that was dead by then has ended within one


def left_behind(grants: Grants, members: Collection[GroupMember]) -> frozenset[str]:
    """The processors whose grants are of incarnations that are not there any more."""
    there = _incarnations(members)
    return frozenset(id_ for id_, grant in grants.items() if grant.incarnation != there.get(id_))


def to_await(
    state: GroupState, holders: Collection[str], grants: Grants, *, followed_s: float, timeout_s: float, forgets: bool
) -> frozenset[str]:
    """Which marks there are to be as a leader begins. `holders`: the processors that have tasks in the job model on record.
    `grants`: those in force, before any is taken back. `followed_s`: for how long it was registered while another led. Longer
    than any session outlives its process (`timeout_s`): then one was there when it came, and has been lost since, as for a
    spare. `forgets`: tasks need not stay where they were before this run: no one of before is waited for."""
    if forgets:
        return frozenset()
    there = _incarnations(state.members)
    is_at_work = any(there.get(id_) == grant.incarnation for id_, grant in grants.items())
    has_seen_one = followed_s > FOLLOWED_TIMEOUTS * timeout_s
    is_empty = state.versions.active == 0  # numbers of registrations begin again there, and incarnations may look the same
    was_down = is_empty or not (is_at_work or has_seen_one)
    return state.awaited | (frozenset(holders) - there.keys() if was_down else frozenset())


def are_to_return(origin: ModelOrigin | None, run_id: str, marked: Collection[str], waited_for: Collection[str]) -> bool:
    """Whether processors that run the plan of `origin` are about to register again. `run_id`: of the run that there is: before
    it the group was down, and they may come with any code. `marked`: whom a leader has marked as it began; one that marks
    itself was stopped in order, as for another code. `waited_for`: those that are not there, and tasks wait for them.

    >>> are_to_return(ModelOrigin("code", "run-1"), "run-1", {"a"}, {"a", "b"})
    True
    >>> are_to_return(ModelOrigin("code", "run-1"), "run-2", {"a"}, {"a", "b"})
    False
    """
    return origin is not None and origin.run_id == run_id and not frozenset(marked).isdisjoint(waited_for)


def _incarnations(members: Collection[GroupMember]) -> dict[str | None, str]:
    return {one.processor_id: incarnation_of(one) for one in unique_members(members)}
