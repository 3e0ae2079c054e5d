"""How an async function is called for records: how many calls run at once, for how long, how often."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Calls:
    """`concurrency`: so many calls run at once in a worker process. `timeout_us`: of each try. `retries`: so many more tries
    after one that raised or took too long, the first about `backoff_us` later, each next one after twice the pause. `by_key`:
    the calls for one key run one after another, in the order of their records."""

    concurrency: int = 100
    timeout_us: int = 30_000_000
    retries: int = 0
    backoff_us: int = 100_000
    by_key: bool = True
