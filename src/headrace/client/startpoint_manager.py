"""Startpoints as other processes see them: writing, reading and deleting them, whether the job runs or not. Seed: SEP-18
"StartpointManager", "Changes to OffsetManager".

Only the driver writes values (protocol.md 6): this module writes requests.
"""

from __future__ import annotations

import time
import uuid
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from headrace.codec.documents import decode, encode
from headrace.codec.job_records import SSP_ASSIGNMENT, STARTPOINTS, startpoints_of
from headrace.core.job_plan.startpoint_requests import StartpointRequests
from headrace.core.rewind.startpoint_rules import counting_for, newest_by_key
from headrace.environment import this_user
from headrace.errors import StartpointError
from headrace.model.expansion import SetSSPTaskMapping
from headrace.model.startpoint import (
    Startpoint,
    StartpointEntry,
    StartpointKey,
    StartpointRecord,
    StartpointRequest,
    StartpointStatus,
    StatePolicy,
    state_policy_of,
)
from headrace.model.streams import SystemStreamPartition
from headrace.model.tasks import TaskName
from headrace.ports.coordinator_store import JobReader
from headrace.ports.metadata_store import MetadataStore

Key = StartpointKey | SystemStreamPartition  # an SSP alone is for all tasks that read it
Entries = Iterable[StartpointEntry]
ENTRIES_PER_REQUEST_MAX = 1000  # of some 200 to 800 bytes each: one request fits into the largest record of a default broker


@dataclass(frozen=True, slots=True)
class KnownStartpoint:
    """What became of a startpoint. `status` None: no driver has applied it yet; `record`: what the one that has made of it.

    `deletion_requested`: its deletion was requested, and no driver has seen that yet. `is_read`: not known not to be of what
    the job reads. Where `record` is pending and `status` is applied, a commit has spent it that no driver has recorded.
    """

    entry: StartpointEntry
    status: StartpointStatus | None
    record: StartpointRecord | None = None
    deletion_requested: bool = False
    is_read: bool = True

    @property
    def changed_at_us(self) -> int | None:
        """When it became what it is; None where no driver has recorded that."""
        return None if self.record is None or self.record.status is not self.status else self.record.changed_at_us


class StartpointManager:
    """Reads and writes the startpoints of one application by SSP and task, from any process, before it has run too.

    `metadata_store` is the application's own, in the job's system: `hr.open_system(url).metadata_store("tally")`. `elsewhere`:
    where requests are kept in its place, if `startpoint_metadata_store` is set; `hr.startpoints(app).manager` has both.
    `written_by`: by default the user and host of this process. It is not thread-safe. Seed: SEP-18 "StartpointManager".
    """

    def __init__(
        self,
        metadata_store: MetadataStore,
        elsewhere: MetadataStore | None = None,
        *,
        written_by: str | None = None,
        clock_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        self._own, self._elsewhere = metadata_store, elsewhere
        self._requests_in = metadata_store if elsewhere is None else elsewhere
        self._written_by = written_by or this_user()
        self._clock_us, self._last_us = clock_us, 0
        self._batch: list[StartpointEntry] | None = None
        self._read: _Stored | None = None

    # --- writing ----------------------------------------------------------------------------------------------------

    def write_startpoint(
        self, key: Key, startpoint: Startpoint | StartpointEntry, state: StatePolicy | str = StatePolicy.KEEP
    ) -> str:
        """Ask for a position, durably; the startpoint's id. A `StartpointEntry` is written as it is. `state`: "keep" or
        "rewind" (`hr.StatePolicy`). `StartpointError` for anything else, before anything is written.

        Each is a durable write of its own: for thousands, `write_startpoints` or a `batch` need a fraction of the time.
        """
        entry = startpoint if isinstance(startpoint, StartpointEntry) else self.entry_of(key, startpoint, state)
        if entry.key != key_of(key):
            raise StartpointError(
                f"startpoint {entry.id!r} is for {_key_text(entry.key)}, not for {_key_text(key_of(key))}",
                "give the entry's own key",
            )
        self._write([entry])
        return entry.id

    def write_startpoints(
        self,
        startpoints: Mapping[StartpointKey, Startpoint] | Mapping[SystemStreamPartition, Startpoint] | Entries,
        state: StatePolicy | str = StatePolicy.KEEP,
    ) -> tuple[str, ...]:
        """Ask for many positions, durably, as of one time; their ids. Entries are written as they are.

        Up to `ENTRIES_PER_REQUEST_MAX` are one request, which takes effect in one step; of more, the driver may apply the
        first part alone.
        """
        if isinstance(startpoints, Mapping):
            now_us = self._now_us()
            entries = [self._entry_at(now_us, key, startpoint, state) for key, startpoint in startpoints.items()]
        else:
            entries = list(startpoints)
            for entry in entries:
                if not isinstance(entry, StartpointEntry):
                    raise StartpointError(
                        f"write_startpoints: {entry!r:.80}: expected a StartpointEntry, found {type(entry).__name__}",
                        "give entries, or a mapping of keys to startpoints",
                    )
        self._write(entries)
        return tuple(entry.id for entry in entries)

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Requests all startpoints written inside as a whole when the block ends, and none of them if the block raises.

        Until then none of it can be read, and nothing is durable. Parts as for `write_startpoints`.
        """
        if self._batch is not None:
            raise StartpointError("a batch of startpoints is open already", "end that one first: they do not nest")
        collected: list[StartpointEntry] = []
        self._batch = collected
        try:
            yield
        finally:
            self._batch = None
        self._write(collected)

    def entry_of(self, key: Key, startpoint: Startpoint, state: StatePolicy | str = StatePolicy.KEEP) -> StartpointEntry:
        """What would be written for this: with a new id, our name and the time, which is later than of any before."""
        return self._entry_at(self._now_us(), key, startpoint, state)

    # --- reading ----------------------------------------------------------------------------------------------------

    def read_startpoint(self, key: Key, remove_upon_read: bool = False) -> StartpointEntry | None:
        """The startpoint that counts for this key now: requested or pending, not spent. None if there is none.

        For an SSP and a task the later of those for both and those for the SSP, at a tie the task's own. With
        `remove_upon_read` it is deleted as by `delete_startpoint`. All that is stored is read once, until it changes.
        """
        wanted, stored = key_of(key), self._stored()
        found = counting_for(wanted, stored.unspent.get(wanted.ssp, ()), stored.tasks_of(wanted.ssp))
        if found is not None and remove_upon_read:
            self._ask_deletion([found.id])
        return found

    def read_all_startpoints(self) -> dict[StartpointKey, StartpointEntry]:
        """By key the newest of all startpoints that are requested or pending, not spent."""
        return newest_by_key(entry for entries in self._stored().unspent.values() for entry in entries)

    def records(self) -> dict[str, KnownStartpoint]:
        """Every startpoint that is known, by id, oldest first, those of one command by partition. Of finished ones
        the newest thousand are kept."""
        asked = self._stored().asked
        to_delete = {id_ for request in asked.requests.values() for id_ in request.deleted}
        waiting = {entry.id: entry for request in asked.requests.values() for entry in request.entries}
        found = []
        for id_, entry in waiting.items():
            if id_ not in asked.records:
                is_deleted = id_ in to_delete
                found.append(KnownStartpoint(entry, StartpointStatus.DELETED if is_deleted else None, None, is_deleted))
        for id_, record in asked.records.items():
            is_pending = record.status is StartpointStatus.PENDING
            found.append(KnownStartpoint(record.entry, record.status, record, is_pending and id_ in to_delete))
        return {known.entry.id: known for known in sorted(found, key=_order_of)}

    def unreadable(self) -> Mapping[str, str]:
        """Requests that no driver can apply, by their ids, and why: they are of a newer version, or damaged."""
        return self._stored().asked.unreadable

    # --- deleting ---------------------------------------------------------------------------------------------------

    def delete_startpoint(self, startpoint: str | Key) -> tuple[str, ...]:
        """Ask to delete one by its id, or all of exactly this key that are not spent; the ids.

        One that was not applied yet never will be; for a pending one the previous position returns. `StartpointError` for an
        id that is not known, and for one that is done with: it says what became of it. By key there may be none.
        """
        if isinstance(startpoint, str):
            return self.delete_startpoints([startpoint])
        key = key_of(startpoint)
        ids = [entry.id for entry in self._stored().unspent.get(key.ssp, ()) if entry.key == key]
        self._ask_deletion(ids)
        return tuple(ids)

    def delete_startpoints(self, ids: Collection[str]) -> tuple[str, ...]:
        """Ask to delete all of these, in one request; errors as for `delete_startpoint`, before any is deleted.

        An id may also be that of a request in `unreadable`, which is withdrawn: no driver will do that.
        """
        unreadable = [id_ for id_ in ids if id_ in self.unreadable()]
        others = [id_ for id_ in ids if id_ not in unreadable]
        check_deletable(others, self.records())
        self._ask_deletion(others)
        for store in (self._own, self._elsewhere) if unreadable else ():
            if store is not None:
                store.withdraw(STARTPOINTS, unreadable)
        return tuple(ids)

    # --- in here ----------------------------------------------------------------------------------------------------

    def _stored(self) -> _Stored:
        """Requests in the job's own store count as well: programs that do not know of the other one write there."""
        stamps = self._own.stamp(), None if self._elsewhere is None else self._elsewhere.stamp()
        if self._read is None or self._read.stamps != stamps:
            elsewhere = None if self._elsewhere is None else self._elsewhere.requests(STARTPOINTS)
            self._read = _Stored(stamps, startpoints_of(self._own, elsewhere), self._own.all(SSP_ASSIGNMENT))
        return self._read

    def _write(self, entries: list[StartpointEntry]) -> None:
        if self._batch is not None:
            self._batch += entries
            return
        parts = [entries[at : at + ENTRIES_PER_REQUEST_MAX] for at in range(0, len(entries), ENTRIES_PER_REQUEST_MAX)]
        self._requests_in.request_all(STARTPOINTS, [encode(StartpointRequest(tuple(part))) for part in parts])

    def _ask_deletion(self, ids: Collection[str]) -> None:
        if ids:
            self._requests_in.request(STARTPOINTS, encode(StartpointRequest(deleted=tuple(ids))))

    def _entry_at(self, now_us: int, key: Key, startpoint: Startpoint, state: StatePolicy | str) -> StartpointEntry:
        policy = state_policy_of(state)
        return StartpointEntry(uuid.uuid4().hex[:12], key_of(key), startpoint, self._written_by, now_us, policy)

    def _now_us(self) -> int:
        """Later than at the call before, whatever the clock does: of two startpoints the later wins."""
        self._last_us = max(self._clock_us(), self._last_us + 1)
        return self._last_us


def _order_of(known: KnownStartpoint) -> tuple[Any, ...]:
    """Those of one command have one time: by partition then, one for all tasks first."""
    entry, task = known.entry, known.entry.key.task
    return entry.written_at_us, entry.key.ssp.sort_key, () if task is None else task.sort_key, entry.id


@dataclass(frozen=True)
class _Stored:
    """What is stored, as it was read when the stores had these `stamps`."""

    stamps: tuple[object, object]
    asked: StartpointRequests
    assignment: Mapping[str, bytes]

    @cached_property
    def unspent(self) -> dict[SystemStreamPartition, list[StartpointEntry]]:
        """Per SSP, in the driver's order."""
        found: dict[SystemStreamPartition, list[StartpointEntry]] = {}
        deleted = {entry.id for entry in self.asked.deleted}
        pending = [record.entry for record in self.asked.records.values() if record.status is StartpointStatus.PENDING]
        left = [entry for entry in pending if entry.id not in deleted]
        for entry in (*sorted(left, key=lambda entry: entry.written_at_us), *self.asked.entries):
            found.setdefault(entry.key.ssp, []).append(entry)
        return found

    def tasks_of(self, ssp: SystemStreamPartition) -> tuple[TaskName, ...]:
        """The tasks that read it by the last plan; none where it is not known."""
        stored = self.assignment.get(str(ssp))
        return () if stored is None else tuple(decode(SetSSPTaskMapping, stored, f"task of SSP {str(ssp)!r}").tasks)


class OffsetManager:
    """Where tasks begin to read: by a startpoint, or by their checkpoint. `hr.startpoints(app).offset_manager` is one.

    `store` is the application's `JobReader`. Seed: SEP-18 "Changes to OffsetManager".
    """

    def __init__(self, startpoints: StartpointManager, store: JobReader) -> None:
        self._startpoints, self._store = startpoints, store

    def get_startpoint(self, key: Key) -> Startpoint | None:
        """See `StartpointManager.read_startpoint`."""
        found = self._startpoints.read_startpoint(key)
        return None if found is None else found.startpoint

    def set_startpoint(self, key: Key, startpoint: Startpoint) -> str:
        """See `StartpointManager.write_startpoint`; its id."""
        return self._startpoints.write_startpoint(key, startpoint)

    def starting_offset_from_checkpoint(self, task: TaskName, ssp: SystemStreamPartition) -> int | None:
        """The task's position by its checkpoint; None where it has none for this SSP. A startpoint that a driver has applied
        is in the checkpoint; one that waits is not. `StartpointError` for what is no `TaskName`, such as its text."""
        if not isinstance(task, TaskName):
            raise StartpointError(
                f"task {task!r:.80}: expected a hr.TaskName, found {type(task).__name__}",
                'write hr.TaskName.parse("Partition_0")',
            )
        found = self._store.checkpoints().get(task)
        return None if found is None else found.positions.get(ssp)

    def starting_offset(self, task: TaskName, ssp: SystemStreamPartition) -> int | None:
        """The old name of `starting_offset_from_checkpoint`."""
        warnings.warn(
            "starting_offset is deprecated: it is called starting_offset_from_checkpoint", DeprecationWarning, stacklevel=2
        )
        return self.starting_offset_from_checkpoint(task, ssp)


def key_of(key: Key) -> StartpointKey:
    """A key, also of an SSP alone."""
    return key if isinstance(key, StartpointKey) else StartpointKey(key)


def _key_text(key: StartpointKey) -> str:
    return str(key.ssp) if key.task is None else f"{key.ssp} of task {key.task}"


def check_deletable(ids: Collection[str], known: Mapping[str, KnownStartpoint]) -> None:
    """`StartpointError` for an id that is not among those that are known, and for one that is done with."""
    for id_ in ids:
        if id_ not in known:
            near = ", ".join([one for one, what in known.items() if what.status in (None, StartpointStatus.PENDING)][-3:])
            raise StartpointError(
                f"there is no startpoint {id_!r}",
                f"the last that can be deleted: {near}" if near else "none is waiting or pending",
            )
        if known[id_].status not in (None, StartpointStatus.PENDING):
            raise _done_with(known[id_])


def _done_with(known: KnownStartpoint) -> StartpointError:
    at_us = known.changed_at_us
    when = "" if at_us is None else time.strftime(" at %Y-%m-%dT%H:%M:%SZ", time.gmtime(at_us // 1_000_000))
    hint = {
        StartpointStatus.APPLIED: "to read from another place, write a new startpoint",
        StartpointStatus.SUPERSEDED: "delete that one",
        StartpointStatus.REFUSED: "`headrace history` shows why",
    }.get(known.status or StartpointStatus.DELETED, "there is nothing left to do")
    by = " by a later one" if known.status is StartpointStatus.SUPERSEDED else ""
    said = f"startpoint {known.entry.id!r} of {known.entry.key.ssp} was {known.status}{when}{by}"
    return StartpointError(f"{said}: it cannot be deleted any more", hint)
