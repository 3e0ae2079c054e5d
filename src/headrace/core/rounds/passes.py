"""Whether a job that runs until it has caught up reads its inputs once more: it may have written to them itself.

A pass reads every input up to where it ended when the pass began. What others write to the inputs meanwhile is for the next
run; what the job itself wrote is for the next pass. The fixed point is a pass that leaves nothing of its own to be read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.errors import WaitTimeoutError


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass that is done. `written`: how many records the job wrote in it, by stream. `is_exact`: whether these are all: of a
    round that failed what it has committed may not have been counted."""

    number: int = 1
    written: Mapping[str, int] = field(default_factory=Counter)
    is_exact: bool = True


def own_unread(done: Pass, unread: Mapping[str, int]) -> dict[str, int]:
    """Of its own inputs those in which the job has left something to be read, with how many records that are, as far as that is
    known. `unread`: the offsets behind the pass, of each stream that the job reads and may write.

    >>> own_unread(Pass(written={"edges": 3, "out": 5}), {"edges": 4})
    {'edges': 3}
    >>> own_unread(Pass(written={"out": 5}), {"edges": 4})  # others wrote them
    {}
    >>> own_unread(Pass(is_exact=False), {"edges": 4, "nodes": 0})
    {'edges': 4}
    """
    left = {stream: count for stream, count in sorted(unread.items()) if count > 0}
    mine = {stream: min(count, done.written.get(stream, 0)) for stream, count in left.items()}
    return {stream: mine[stream] or count for stream, count in left.items() if mine[stream] or not done.is_exact}


def pass_after(done: Pass, unread: Mapping[str, int], most: int) -> Pass | None:
    """The pass behind `done`, None at the fixed point; `WaitTimeoutError` where there were `most` already."""
    left = own_unread(done, unread)
    if not left:
        return None
    if done.number >= most:
        counts = ", ".join(f"{count:,} to {stream!r}" for stream, count in left.items())
        raise WaitTimeoutError(
            f"not caught up after {most:,} passes: the job reads what it writes, and the last pass wrote {counts}, which are "
            "still to be read",
            "run it once more, it resumes from there, or set caught_up_passes_max; if it never ends, write fewer records back",
        )
    return Pass(done.number + 1)
