"""How many entries of its state a task has read, put and deleted in a round, and how long that took.

A look at the clock costs as much as a look-up in memory. So of calls for single entries one in `TIMED_ONE_IN` is timed, and
counts for all of them; calls for many entries are timed always. Which call is timed differs from round to round, so that the
sums are right over many rounds even where each has only a few calls. Seed: SEP-32 "Metrics" (get-ns, put-ns, delete-ns)."""

from __future__ import annotations

from itertools import count
from time import perf_counter_ns
from typing import Protocol

TIMED_ONE_IN = 64
UNTIMED = TIMED_ONE_IN - 1  # a call is timed where its number has none of these bits
_STRIDE = 39  # odd: 64 rounds in a row begin at each of the 64 numbers once
_rounds = count()


class _Entries(Protocol):
    """Of `task_state.Database` what is timed."""

    def get(self, key: bytes) -> bytes | None: ...

    def put(self, key: bytes, value: bytes | None) -> None: ...


class StoreCalls:
    """The calls of one task in one round, in all its databases. Not thread-safe: a task is in one thread at a time. `reads` and
    `writes` number the calls for single entries, from a number that differs from round to round."""

    __slots__ = ("_first", "_put_many", "_read_many", "delete_ns", "deletes", "get_ns", "put_ns", "reads", "writes")

    def __init__(self) -> None:
        self._first = self.reads = self.writes = next(_rounds) * _STRIDE & UNTIMED
        self._read_many = self._put_many = self.deletes = 0
        self.get_ns = self.put_ns = self.delete_ns = 0

    @property
    def gets(self) -> int:
        """Entries that were read, whether they were there or not."""
        return self.reads - self._first + self._read_many

    @property
    def puts(self) -> int:
        return self.writes - self._first - self.deletes + self._put_many

    def timed_get(self, database: _Entries, key: bytes) -> bytes | None:
        """`database.get`, which is called again: the next number is not timed."""
        began_ns = perf_counter_ns()
        value = database.get(key)
        self.get_ns += (perf_counter_ns() - began_ns) * TIMED_ONE_IN
        self.reads -= 1
        return value

    def timed_put(self, database: _Entries, key: bytes, value: bytes | None) -> None:
        """`database.put`, as `timed_get`."""
        began_ns = perf_counter_ns()
        database.put(key, value)
        ns = (perf_counter_ns() - began_ns) * TIMED_ONE_IN
        if value is None:
            self.delete_ns += ns
        else:
            self.put_ns += ns
        self.writes -= 1

    def read_many(self, entries: int, began_ns: int) -> None:
        """A call that began at `began_ns` has read so many entries."""
        self._read_many += entries
        self.get_ns += perf_counter_ns() - began_ns

    def put_many(self, entries: int, began_ns: int) -> None:
        """A call that began at `began_ns` has put so many entries."""
        self._put_many += entries
        self.put_ns += perf_counter_ns() - began_ns
