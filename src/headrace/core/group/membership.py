"""Who leads a group, who takes part in its work, and who does not, with why."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from headrace.core.group.state import GroupMember
from headrace.errors import JobHeldError
from headrace.model.names import few

DUPLICATE_TIMEOUTS = (
    2  # for so many session timeouts another of the same id is waited for: a dead one's session ends within one
)


def leader_of(members: Collection[GroupMember]) -> GroupMember | None:
    """The one that was there first."""
    return min(members, key=lambda one: one.sequence, default=None)


def predecessor_of(members: Collection[GroupMember], sequence: int) -> GroupMember | None:
    """Whom the one with this registration has to watch: only when that one leaves it may lead."""
    return max((one for one in members if one.sequence < sequence), key=lambda one: one.sequence, default=None)


def unique_members(members: Collection[GroupMember]) -> tuple[GroupMember, ...]:
    """By registration: of several with the same id the first, and those that can be read."""
    found: dict[str, GroupMember] = {}
    for one in sorted(members, key=lambda one: one.sequence):
        if one.processor_id is not None:
            found.setdefault(one.processor_id, one)
    return tuple(found.values())


# --- another processor of the same id -----------------------------------------------------------------------------------------


class DuplicateAction(Enum):
    REMOVE = "remove"  # it is dead: delete its node
    WAIT = "wait"
    REFUSE = "refuse"  # it lives: do not take part, and name it


def duplicate_of(members: Collection[GroupMember], mine: GroupMember) -> GroupMember | None:
    """The one that had this processor's id before it; None if there is none. The later of two gives way."""
    others = [one for one in members if one.processor_id == mine.processor_id and one.sequence < mine.sequence]
    return min(others, key=lambda one: one.sequence, default=None)


def duplicate_action(is_known_dead: bool, waited_s: float, session_timeout_s: float) -> DuplicateAction:
    """What the later one does about the other. `is_known_dead`: it ran on this machine, since it was started, and has ended.

    >>> duplicate_action(True, 0.0, 10.0).value, duplicate_action(False, 19.9, 10.0).value
    ('remove', 'wait')
    >>> duplicate_action(False, 20.0, 10.0).value
    'refuse'
    """
    if is_known_dead:
        return DuplicateAction.REMOVE
    return DuplicateAction.WAIT if waited_s < DUPLICATE_TIMEOUTS * session_timeout_s else DuplicateAction.REFUSE


def duplicate_text(other: GroupMember) -> str:
    """Who it is, for the error of the one that gives way."""
    found = other.registration
    assert found is not None, "one that cannot be read has no id"
    return (
        f"processor {found.processor_id!r} is run by process {found.pid} on host {found.host} (registration {other.sequence})"
    )


def duplicate_error(other: GroupMember) -> JobHeldError:
    """Of the one that gives way."""
    return JobHeldError(
        f"two processors of the group have one id: {duplicate_text(other)}",
        "give each its own --processor-id; a processor that has ended is forgotten after the session timeout",
    )


# --- spares -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Candidates:
    """`chosen`: those that tasks are given to, by registration. `spares`: registration to why it has none."""

    chosen: tuple[GroupMember, ...]
    spares: Mapping[int, str]


def candidates_of(members: Collection[GroupMember], active_code: str | None) -> Candidates:
    """Who takes part: those with the code of the active job model; where there is none of these (any more), with that of the
    first."""
    unique = unique_members(members)
    codes = [one.registration.code for one in unique if one.registration is not None]
    code = active_code if active_code in codes else codes[0] if codes else None
    spares = {one.sequence: _why_left_out(one, unique) for one in members if one not in unique}
    fitting: list[GroupMember] = []
    for one in unique:
        if one.registration is not None and one.registration.code == code:
            fitting.append(one)
        else:
            spares[one.sequence] = (
                "its application or settings differ from those that the group runs: it is a spare until the last processor "
                "with these has left"
            )
    return Candidates(tuple(fitting), spares)


def spare_text(members: Collection[GroupMember], sequence: int, active_code: str | None) -> str:
    """Why the one with this registration is given no tasks, for people; empty where it may have some."""
    return candidates_of(members, active_code).spares.get(sequence, "")


def without_tasks_text(tasks: int, holders: Collection[str]) -> str:
    """Why a processor that may have tasks has none, for people. `tasks`: how many there are; `holders`: who has them; none
    under a job model of a single driver.

    >>> without_tasks_text(2, ["b", "a"])
    'there are 2, and they are with a, b: it is a spare until a job model has some for it'
    >>> without_tasks_text(1, ["a"])
    'there is 1, and it is with a: it is a spare until a job model has some for it'
    >>> without_tasks_text(10, [])
    'none is assigned to a processor yet: the leader makes a job model of the group'
    """
    if not holders:
        return "none is assigned to a processor yet: the leader makes a job model of the group"
    there = "there is 1, and it is" if tasks == 1 else f"there are {tasks:,}, and they are"
    return f"{there} with {few(sorted(holders))}: it is a spare until a job model has some for it"


def must_step_back(members: Collection[GroupMember], sequence: int, active_code: str | None) -> bool:
    """Whether the one with this registration has to register again, behind all others: it would lead, and cannot make plans for
    the code that runs, while one is there that can. So the first one always leads."""
    leader = leader_of(members)
    if leader is None or leader.sequence != sequence or active_code is None:
        return False
    codes = {one.sequence: one.registration.code for one in members if one.registration is not None}
    return codes.get(sequence) != active_code and active_code in codes.values()


def _why_left_out(one: GroupMember, unique: Sequence[GroupMember]) -> str:
    if one.registration is None:
        return "its registration cannot be read: it may be of a newer version of Headrace"
    first = next(other for other in unique if other.processor_id == one.processor_id)
    return f"another processor has its id: {duplicate_text(first)}"
