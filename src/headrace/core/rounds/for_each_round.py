"""Which records the functions of `for_each_round` are given under which id, across failures and restarts.

An id stands for exact ranges of offsets. It is stored with them before any function is called, so that whatever happens
then, the same id always comes with the same records. Only when these are committed is the next id given out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.core.rounds.offset_ranges import OffsetRange
from headrace.model.checkpoint import RoundId
from headrace.model.streams import SSP


@dataclass(frozen=True, slots=True)
class Handover:
    """What was given under an id: the records of `ranges`, by the attempt `round_id`.

    `is_done`: the functions are known to have returned, and some of the round may not be committed yet.
    """

    id: int
    round_id: RoundId
    ranges: tuple[OffsetRange, ...]
    is_done: bool = False


@dataclass(frozen=True, slots=True)
class HandoverRound:
    """A round that hands records over: `handover` is stored before anything else of it happens, and its records are given
    to the functions unless it is done. `ranges` is what the containers process."""

    handover: Handover
    ranges: tuple[OffsetRange, ...]


def next_handover(
    stored: Handover | None,
    round_id: RoundId,
    planned: Sequence[OffsetRange],
    positions: Mapping[SSP, int],
    ends: Mapping[SSP, int],
    committed: Collection[RoundId],
) -> HandoverRound | None:
    """What the round `round_id` gives, None where it reads nothing.

    `planned` is what it would read if nothing were stored. `positions`: per SSP the lowest that is committed, or behind
    what is lost; `ends`: up to where it can be read. `committed`: the rounds that the checkpoints are of.

    A function is called before anything of its round is committed. So if the stored attempt has committed anything, all
    functions have returned: the rest is processed without them. If it has committed nothing, the same ranges are given
    again under the same id, whatever would be planned now. If they cannot be (records were deleted, an input was removed),
    the id is not given out again: what is left has the next one.

    >>> a, b = SSP("log", "in", 0), SSP("log", "in", 1)
    >>> first, second = RoundId(1, None, 7), RoundId(2, None, 1)
    >>> stored = Handover(4, first, (OffsetRange(a, 0, 5), OffsetRange(b, 2, 3)))
    >>> again = next_handover(stored, second, [OffsetRange(a, 0, 9)], {a: 0, b: 2}, {a: 9, b: 3}, {RoundId(1, None, 6)})
    >>> again.handover.id, again.ranges == stored.ranges, again.handover.is_done
    (4, True, False)
    >>> rest = next_handover(stored, second, [OffsetRange(b, 2, 3)], {a: 5, b: 2}, {a: 9, b: 3}, {first})
    >>> rest.handover.id, rest.ranges == (OffsetRange(b, 2, 3),), rest.handover.is_done
    (4, True, True)
    >>> next_handover(stored, second, [OffsetRange(a, 5, 9)], {a: 5, b: 3}, {a: 9, b: 3}, {first}).handover.id
    5
    """
    if stored is not None and (left := _left_of(stored, positions, ends)):
        if stored.is_done or stored.round_id in committed:
            return HandoverRound(replace(stored, is_done=True), left)
        if left == stored.ranges:
            return HandoverRound(replace(stored, round_id=round_id), stored.ranges)
    if not planned:
        return None
    ranges = tuple(planned)
    return HandoverRound(Handover(0 if stored is None else stored.id + 1, round_id, ranges), ranges)


def set_elsewhere(stored: Handover, moved: Collection[SSP], committed: Collection[RoundId]) -> Handover:
    """What replaces `stored` when the positions of `moved` have been set elsewhere, by a startpoint.

    `committed`: the rounds that the checkpoints are of. Replayed records are given to the functions again, under an id
    of its own. If these have returned, the rest is still processed without them; if they may not have, the
    id cannot come with the same records any more, and is not given out again.

    >>> a, b = SSP("log", "in", 0), SSP("log", "in", 1)
    >>> stored = Handover(4, RoundId(1, None, 7), (OffsetRange(a, 0, 5), OffsetRange(b, 2, 3)))
    >>> set_elsewhere(stored, {a}, {RoundId(1, None, 7)}).ranges == (OffsetRange(b, 2, 3),)
    True
    >>> set_elsewhere(stored, {a}, {RoundId(1, None, 6)}).ranges
    ()
    """
    left = tuple(piece for piece in stored.ranges if piece.ssp not in moved)
    if left == stored.ranges:
        return stored
    if stored.is_done or stored.round_id in committed:
        return replace(stored, ranges=left, is_done=True)
    return replace(stored, ranges=())


def _left_of(stored: Handover, positions: Mapping[SSP, int], ends: Mapping[SSP, int]) -> tuple[OffsetRange, ...]:
    """What of a handover is not committed and can be read; nothing where a position was set back before it."""
    left = []
    for piece in stored.ranges:
        position, end = positions.get(piece.ssp), min(piece.end, ends.get(piece.ssp, 0))
        if position is None or position >= end:
            continue
        if position < piece.start:
            return ()
        left.append(OffsetRange(piece.ssp, position, end))
    return tuple(left)
