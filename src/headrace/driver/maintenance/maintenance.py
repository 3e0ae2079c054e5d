"""Reclaiming space while a job runs: records of repartition streams that were read, data that is no longer referenced.

None of it is on a round's way: a commit only says where it came to, and the rest is done from a thread of its own.
State files are `state_garbage`'s.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping

from headrace.core.rounds.purging import lowest_positions, purge_offsets
from headrace.model.checkpoint import Checkpoint
from headrace.model.streams import SSP
from headrace.ports import JobStore, System

LOG = logging.getLogger("headrace.job")


class Tidying:
    """`reads`: sub-topology to the repartition streams that it reads. `kept`: the checkpoints of all kept versions.

    A stream is left alone until every sub-topology that reads it has committed under this plan: until then a roll-back to
    the plan before would read it from its positions.
    """

    def __init__(
        self,
        system: System,
        store: JobStore,
        epoch: int,
        reads: Mapping[str | None, Collection[str]],
        kept: Callable[[], Iterable[Checkpoint]],
    ) -> None:
        self._system, self._store, self._epoch = system, store, epoch
        self._reads, self._kept = reads, kept
        self._current: dict[str | None, tuple[Checkpoint, ...]] = {}
        self._committed: set[str | None] = set()
        self._done: dict[SSP, int] = {}
        self._lock = threading.Lock()

    def started(self, sub_topology: str | None, checkpoints: Iterable[Checkpoint]) -> None:
        """A sub-topology begins at `checkpoints`, one per task."""
        self._current[sub_topology] = tuple(checkpoints)

    def committed(self, sub_topology: str | None, checkpoints: Iterable[Checkpoint]) -> None:
        """A round of a sub-topology was committed; `checkpoints` are all of its current ones."""
        with self._lock:
            self._current[sub_topology] = tuple(checkpoints)
            self._committed.add(sub_topology)

    def tidy(self) -> None:
        """Purge processed records, and delete unreferenced data. A failure is logged and no more: it is tried again."""
        try:
            for stream, offsets in purge_offsets(self._lowest(), self._done).items():
                self._store.purge(self._epoch, stream, offsets)
                self._done |= {SSP(self._system.name, stream, p): offset for p, offset in offsets.items()}
            self._system.collect_garbage()
        except Exception as error:
            LOG.warning("could not reclaim space that is no longer needed: %s", error)

    def _lowest(self) -> dict[SSP, int]:
        with self._lock:
            waiting = {stream for sub, streams in self._reads.items() if sub not in self._committed for stream in streams}
            streams = {stream for read in self._reads.values() for stream in read} - waiting
            needed = [checkpoint for current in self._current.values() for checkpoint in current]
        needed += self._kept()
        return {ssp: position for ssp, position in lowest_positions(needed).items() if ssp.stream in streams}
