"""Replays: up to where a task reads again what it has read before, and the number that what it writes then carries.

A position that a startpoint sets back begins a replay, over where the position was. Replays of one application are numbered
from 1 on, in the order in which they were applied. What a task writes during a replay has the header
`REPLAY_HEADER` with that number as text, so that readers can tell it from the first output.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace.core.rewind.startpoint_rules import TaskPartition, in_order
from headrace.model.checkpoint import Checkpoint
from headrace.model.startpoint import StartpointRecord, StatePolicy
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName

REPLAY_HEADER = "headrace.replay"
REPLAY_HEADERS = frozenset({REPLAY_HEADER, "headrace-replay"})  # the second is an older name, in what is stored


@dataclass(frozen=True, slots=True)
class Replay:
    """Of one task and SSP: offsets below `until` were read before, and are read again in the replay `number`."""

    number: int
    until: int


def replays_of(records: Iterable[StartpointRecord]) -> dict[TaskPartition, Replay]:
    """Of each task and SSP whose position went back, the replay that it is in, or was in last.

    One that begins within another takes its place, and covers all that was read before: at offset 100 back to 0, then
    at 50 back to 20, is replay 1 from 0 to 50, and replay 2 from 20 to 100.
    """
    found: dict[TaskPartition, Replay] = {}
    for record, one in in_order(records):
        if record.replay is not None and one.offset < one.before:
            found[one.task, one.ssp] = _covering(found.get((one.task, one.ssp)), record.replay, one.before)
    return found


def _covering(other: Replay | None, number: int, until: int) -> Replay:
    return Replay(number, until) if other is None else Replay(max(number, other.number), max(until, other.until))


def unfinished(
    replays: Mapping[TaskPartition, Replay], checkpoints: Mapping[TaskName, Checkpoint]
) -> dict[TaskPartition, Replay]:
    """Of these those that tasks at `checkpoints` are in; a task that is not among them is in none."""
    return {
        (task, ssp): replay
        for (task, ssp), replay in replays.items()
        if task in checkpoints and checkpoints[task].positions.get(ssp, replay.until) < replay.until
    }


def going_back(records: Iterable[StartpointRecord], checkpoints: Mapping[TaskName, Checkpoint]) -> dict[TaskPartition, Replay]:
    """Of tasks that went back with their states the replays that they are in: all that lies before the end of one is yet to
    come to their states, so that no task has to go back to it, or may go forward to it."""
    return unfinished(replays_of(one for one in records if one.entry.state is StatePolicy.REWIND), checkpoints)


def not_forward_within(replay: Replay | None, position: int, asked: int) -> int:
    """Where a startpoint that asks for `asked`, with the state, sets a `position` that may be in such a replay.

    >>> [not_forward_within(Replay(1, 90), 40, asked) for asked in (10, 55, 90, 95)]
    [10, 40, 90, 95]
    """
    return position if replay is not None and position < asked < replay.until else asked


def counting_again(records: Iterable[StartpointRecord]) -> dict[TaskPartition, Replay]:
    """Where tasks read again what their states hold already: until the end of one of these replays a task's state is not that
    of its position, and nothing that anybody could go back to. One that goes back with its state leaves that behind."""
    found: dict[TaskPartition, Replay] = {}
    for record, one in in_order(records):
        if one.offset < one.before and record.entry.state is StatePolicy.REWIND:
            found.pop((one.task, one.ssp), None)
        elif one.offset < one.before:
            found[one.task, one.ssp] = _covering(found.get((one.task, one.ssp)), record.replay or 0, one.before)
    return found


def within_replays(ends: Mapping[SSP, int], replays: Mapping[TaskPartition, Replay]) -> dict[SSP, int]:
    """Up to where each partition may be read, where these replays are unfinished: no round reads beyond the end of one, so
    that all which a task reads of an SSP in a round is either read again or new."""
    allowed = dict(ends)
    for (_, ssp), replay in replays.items():
        if ssp in allowed:
            allowed[ssp] = min(replay.until, allowed[ssp])
    return allowed


def numbers_of(replays: Mapping[TaskPartition, Replay]) -> dict[TaskName, int]:
    """Per task in any of these unfinished replays its number, of several the highest."""
    numbers: dict[TaskName, int] = {}
    for (task, _), replay in replays.items():
        numbers[task] = max(replay.number, numbers.get(task, 0))
    return numbers
