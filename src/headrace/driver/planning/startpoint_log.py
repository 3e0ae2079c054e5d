"""The startpoints on record while a job runs: which of them plans carry, and storing what became of them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace

from headrace.codec.documents import encode
from headrace.codec.job_records import STARTPOINTS
from headrace.core.rewind.replays import Replay, counting_again, replays_of
from headrace.core.rewind.startpoints import TaskPartition, bootstraps_of, in_force
from headrace.model.checkpoint import Checkpoint
from headrace.model.startpoint import StartpointRecord, StartpointStatus
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName
from headrace.ports import JobStore


class StartpointRecords:
    """The records of one plan, by id. Rounds note what they have spent, one other thread stores it; any may look."""

    def __init__(self, records: Mapping[str, StartpointRecord] | None = None) -> None:
        self._records = dict(records or {})
        self._lock = threading.Lock()
        self._spent: set[str] = set()
        self.bootstraps: Mapping[TaskPartition, int] = bootstraps_of(self._records.values())
        """Up to where tasks read a stream before any other."""
        self.counting_again: Mapping[TaskPartition, Replay] = counting_again(self._records.values())
        self.replays: Mapping[TaskPartition, Replay] = replays_of(self._records.values())
        self._pending: dict[TaskName, dict[SSP, tuple[str, int]]] = {}
        self._find_pending()

    def pending_of(self, task: TaskName) -> Mapping[SSP, tuple[str, int]]:
        """Per SSP the id and the offset of a startpoint that is not known to be spent yet."""
        return self._pending.get(task, {})

    def committed(self, checkpoints: Iterable[Checkpoint]) -> None:
        """These were committed: note the startpoints that they have spent."""
        found = {id_ for checkpoint in checkpoints for id_ in checkpoint.spent_startpoints.values()}
        if found:
            with self._lock:
                self._spent |= found & self._records.keys()

    def settle(self, store: JobStore, epoch: int, now_us: int) -> tuple[str, ...]:
        """Store that those which were spent are applied; their ids, sorted. From then on no commit names them."""
        with self._lock:
            due = sorted(id_ for id_ in self._spent if self._records[id_].status is StartpointStatus.PENDING)
        if not due:
            return ()
        changed = {id_: replace(self._records[id_], status=StartpointStatus.APPLIED, changed_at_us=now_us) for id_ in due}
        store.write_metadata(epoch, STARTPOINTS, {id_: encode(one) for id_, one in changed.items()})
        with self._lock:
            self._records |= changed
            self._spent -= set(due)
        self._find_pending()
        return tuple(due)

    def _find_pending(self) -> None:
        found: dict[TaskName, dict[SSP, tuple[str, int]]] = {}
        for record, one in in_force(self._records.values()).values():
            if record.status is StartpointStatus.PENDING:
                found.setdefault(one.task, {})[one.ssp] = record.entry.id, one.offset
        self._pending = found
