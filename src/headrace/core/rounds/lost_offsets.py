"""What becomes of records that retention, or a purge, deleted from a stream before they were read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

from headrace.core.rounds.offset_ranges import OffsetRange, check_positions
from headrace.model.streams import SSP

OnLostOffsets = Literal["fail", "earliest", "latest"]


def lost_offsets(
    positions: Mapping[SSP, int],
    beginnings: Mapping[SSP, int],
    ends: Mapping[SSP, int],
    policy: OnLostOffsets,
    internal: Collection[SSP] = frozenset(),
    furthest: Mapping[SSP, int] | None = None,
) -> tuple[OffsetRange, ...]:
    """The skipped ranges, by SSP: from each position that lies before its stream's beginning to where reading resumes.

    By `policy` that is the beginning ("earliest") or the end ("latest"); with "fail" such a position raises
    `OffsetOutOfRangeError`. So does one of an `internal` SSP, whatever the policy: what the job wrote to itself is not
    lost by retention. An SSP that `beginnings` does not have is as good as whole. `furthest`: where the furthest of those is
    that read it; where that has lost nothing, reading resumes at the beginning whatever the policy, or it would skip records.

    >>> a, b = SSP("kafka", "in", 0), SSP("kafka", "in", 1)
    >>> [(piece.start, piece.end) for piece in lost_offsets({a: 3, b: 8}, {a: 5, b: 2}, {a: 9, b: 9}, "earliest")]
    [(3, 5)]
    >>> [(piece.start, piece.end) for piece in lost_offsets({a: 3}, {a: 5}, {a: 9}, "latest", (), {a: 7})]
    [(3, 5)]
    """
    lost = []
    for ssp in sorted(ssp for ssp, position in positions.items() if position < beginnings.get(ssp, position)):
        position, beginning = positions[ssp], beginnings[ssp]
        if policy == "fail" or ssp in internal:
            check_positions({ssp: position}, beginnings, {ssp: max(beginning, ends.get(ssp, beginning))})
        is_read = furthest is not None and furthest.get(ssp, position) >= beginning
        resume_at = beginning if policy == "earliest" or is_read else max(beginning, ends.get(ssp, beginning))
        lost.append(OffsetRange(ssp, position, resume_at))
    return tuple(lost)


def described(lost: OffsetRange, policy: str) -> str:
    """One line for people about a skipped range.

    >>> described(OffsetRange(SSP("kafka", "in", 0), 3, 5), "earliest")
    "stream 'in' partition 0: offsets 3 to 4 were skipped, deleted before they were read (on_lost_offsets = earliest)"
    """
    return (
        f"stream {lost.ssp.stream!r} partition {lost.ssp.partition}: offsets {lost.start} to {lost.end - 1} were skipped, "
        f"deleted before they were read (on_lost_offsets = {policy})"
    )
