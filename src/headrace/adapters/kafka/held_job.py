"""An application as the process has it that coordinates it: its epoch, the grants in force, the transactions under them.

protocol.md 6. A transaction whose outcome is not known is decided before anything is built on it.
"""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import TopicPartition

from headrace.adapters.common.lease_holder import fenced
from headrace.adapters.kafka import job_entries
from headrace.adapters.kafka.compacted import CompactedTopic
from headrace.adapters.kafka.coordinator import Coordinator, taken_over, tried
from headrace.adapters.kafka.deadline import Deadline
from headrace.adapters.kafka.job_entries import TRANSACTION, Entry, Held
from headrace.adapters.kafka.names import JOB, checkpoint_topic, coordinator_group, entries_of, metadata_topic, records_of
from headrace.adapters.kafka.positions import Position, committed_in_force, encode_grants, offsets_by_group, waited_for
from headrace.core.group.grants import Grants
from headrace.errors import FencedError


class HeldJob:
    """`system` is the `KafkaSystem` of the application's broker. `held` is None until `begin`. Threads may share it."""

    def __init__(self, system: Any, application: str) -> None:
        self.application = application
        self.deadline: Deadline = system.deadline
        self._client, self._own_topics = system.client, system.own_topics
        self.metadata = CompactedTopic(self._client, metadata_topic(application), self.deadline)
        self.coordinator = Coordinator(self._client, application, self.still_ours, self.deadline)
        self.writing = threading.RLock()
        self.held: Held | None = None
        self.epoch = self._number = 0  # the highest number of all that were given here
        self.grants: Grants | None = None  # in force, as they were written here; None: one driver

    # --- what is stored ---------------------------------------------------------------------------------------------

    def read(self, namespace: str) -> dict[str, bytes]:
        """A namespace as stored; empty where the application never ran. Who holds it reads what is decided."""
        if not self._own_topics.is_initialized(self.application):
            return {}
        if self.held is not None and not self.coordinator.has_id:  # else no read waits for a write
            self.settle()
        return entries_of(self.metadata.refresh(wait=self.held is not None), namespace)

    def written(self, namespace: str) -> dict[str, bytes]:
        """A namespace with what is not committed yet: a heartbeat in an open transaction, or behind one, is a heartbeat as
        well, and so is what a processor says behind that of a leader which was killed in it."""
        is_there = self._own_topics.is_initialized(self.application)
        return entries_of(self.metadata.written(), namespace) if is_there else {}

    @waited_for()
    def numbers_used(self) -> int:
        stored = entries_of(self.metadata.refresh(), JOB)
        known = [self._number, *(int(stored.get(name, b"0")) for name in ("epoch", "number"))]
        return max(*known, committed_in_force(self._client, self.application, self.deadline).epoch)

    # --- whose it is ------------------------------------------------------------------------------------------------

    def check_own(self, epoch: int) -> Held:
        if self.held is None or epoch != self.epoch:
            raise fenced(self.application, epoch, self.epoch if self.held is not None else "not held")
        return self.held

    def still_ours(self) -> dict[str, bytes]:
        """The entries of the job; `FencedError` where another driver has it. Its epoch may be in a transaction that comes
        to nothing: the end of that one is waited for."""
        stored = self.written(JOB)
        if self._is_anothers(stored) and self._is_anothers(entries_of(self.metadata.refresh(), JOB)):
            raise taken_over(self.application)
        return stored

    def _is_anothers(self, stored: Mapping[str, bytes]) -> bool:
        return self.held is not None and self.held.is_replaced(stored, self.epoch)

    @waited_for()
    def read_back(self) -> None:
        """Whether the epoch and the grants in force are those of this process: as the metadata has them, and as the position of
        the coordinator's group, which workers read."""
        stored = entries_of(self.metadata.refresh(), JOB)
        position = committed_in_force(self._client, self.application, self.deadline)
        if (int(stored.get("epoch", b"0")), position) != (self.epoch, job_entries.in_force(self.epoch, self.grants)):
            raise FencedError(
                f"application {self.application!r}: epoch {self.epoch} was written, but another one was read back",
                "another driver took over; look at `headrace status`",
            )

    # --- transactions -----------------------------------------------------------------------------------------------

    def begin(self, held: Held, *, for_group: bool) -> Grants | None:
        """From now on `held` holds the application, under a new epoch; `transact` is to put it in force. The grants that are in
        force, for the leader of a group."""
        self.epoch = self._number = 1 + self.numbers_used()
        # behind the numbers, which have waited for what is open: who does not hold it yet reads without that
        self.grants = (job_entries.stored_grants(self.read(JOB)) or {}) if for_group else None
        self.held = held
        return self.grants

    def grant_entries(self, grants: Grants | None) -> list[Entry]:
        self._number = max([self._number, *(one.number for one in (grants or {}).values())])
        return job_entries.grant_entries(grants, self._number)

    def settle(self) -> None:
        """Behind a transaction whose outcome is not known: take the coordinator's id again, which decides it, and read what is
        in force."""
        with self.writing:
            if not self.coordinator.has_id:
                self.check_own(self.epoch)
                self.coordinator.take_again()
                try:
                    self.grants = None if self.grants is None else job_entries.stored_grants(self.read(JOB)) or {}
                except BaseException:
                    self.coordinator.close()
                    raise

    def transact(
        self,
        entries: Sequence[Entry],
        checkpoints: Mapping[bytes, bytes | None] | None = None,
        positions: Iterable[Position] = (),
        grants: Grants | None = None,
    ) -> None:
        """One transaction of the coordinator; the epoch's position goes with each, so that it never expires, and with it the
        grants: `grants` if there are others from now on. `entries` are (namespace, name, value) of the metadata, `checkpoints`
        records by key; None deletes. Where it fails its outcome is not known: the grants in memory may be of before, and are
        read again (`settle`)."""
        with self.writing:  # or one thread would put grants in force again that another has just taken back
            self.settle()
            grants = self.grants if grants is None else dict(grants)
            topic = metadata_topic(self.application)
            there = self.metadata.refresh(wait=False) if any(space != JOB for space, *_ in entries) else {}
            records = [(topic, *record) for space, name, value in entries for record in records_of(space, name, value, there)]
            records += [(checkpoint_topic(self.application), key, value) for key, value in (checkpoints or {}).items()]
            place = TopicPartition(topic, 0, self.epoch, metadata=encode_grants(grants))
            epoch = {coordinator_group(self.application): [place]}
            try:
                self.coordinator.transact(records, epoch | offsets_by_group(positions))
            except BaseException:
                self.coordinator.close()
                raise
            self.grants = grants

    def once(self, write: Callable[[Entry], None]) -> None:
        """Call `write`, which makes a transaction with the entry that it is given, again where the outcome is not known. What
        has committed is not written again: processors may have begun under it, and their positions would be set back. So
        the transaction has an id in the metadata, which is looked for before each other try."""
        id_, before = uuid.uuid4().hex.encode(), itertools.count()

        def write_unless_committed() -> None:
            if not next(before) or self.read(JOB).get(TRANSACTION) != id_:
                write((JOB, TRANSACTION, id_))

        with self.writing:
            tried(write_unless_committed)

    def end(self) -> None:
        """This process holds it no more."""
        self.held = None
        self.coordinator.close()

    def close(self) -> None:
        self.metadata.close()
        self.coordinator.close()
