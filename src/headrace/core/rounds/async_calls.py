"""Which calls of an async function wait for each other, how long one pauses before it tries again, and how long it may take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.model.calls import Calls

CONCURRENCY_MAX = 10_000
LONGEST_US_MAX = 300_000_000  # of one record with all its tries: a round that takes 10 minutes is given up
PAUSE_US_MAX = 30_000_000
PIECE_S_MAX = 480.0  # of all calls for a piece of a round: the driver gives a round up after 10 minutes, and does not know why


def queues_of(keys: Sequence[Any]) -> list[list[int]]:
    """The places of the records of each key, whose calls run one after another. A record without a key waits for none. The
    longest come first: what begins last ends last.

    >>> queues_of(["a", "b", None, "b", None])
    [[1, 3], [0], [2], [4]]
    """
    queues: dict[Any, list[int]] = {}
    for place, key in enumerate(keys):
        queues.setdefault((place,) if key is None else _comparable(key), []).append(place)
    return sorted(queues.values(), key=len, reverse=True)


def _comparable(key: Any) -> Any:
    """What tells keys apart: a key may be a dict. Keys that only look different wait for each other, which does no harm."""
    try:
        hash(key)
    except TypeError:
        return repr(key)
    return key


def pause_us(calls: Calls, tries: int, chance: float = 1.0) -> int:
    """How long to wait after so many tries; `chance`, 0 to 1, spreads those that failed together over half of that time.

    >>> [pause_us(Calls(backoff_us=100), tries) for tries in (1, 2, 3)], pause_us(Calls(backoff_us=100), 3, 0.0)
    ([100, 200, 400], 200)
    """
    whole_us = min(calls.backoff_us << min(tries - 1, 32), PAUSE_US_MAX)
    return int(whole_us * (1 + chance) / 2)


def longest_us(calls: Calls) -> int:
    """How long the call for one record takes at most, with all of its tries.

    >>> longest_us(Calls(timeout_us=5_000, retries=2, backoff_us=100))
    15300
    """
    return calls.timeout_us * (calls.retries + 1) + sum(pause_us(calls, tries) for tries in range(1, calls.retries + 1))
