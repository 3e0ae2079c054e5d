"""Kafka's `CoordinatorStore`: who drives an application, and its plan.

protocol.md 6, 7 and 12. The plan is in `<application>-metadata`, written by the coordinator alone; checkpoints are in
`<application>-checkpoints`, the record; the groups hold the same positions, for a worker's quick look and for lag tools.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from confluent_kafka import TopicPartition

from headrace.adapters.common.lease_holder import fenced, held_since_us, refuse_beside_group
from headrace.adapters.kafka import job_entries
from headrace.adapters.kafka.application_topics import INTERNAL
from headrace.adapters.kafka.clients import new_producer
from headrace.adapters.kafka.compacted import CompactedTopic
from headrace.adapters.kafka.coordinator import Coordinator, taken_over, tried
from headrace.adapters.kafka.deadline import Deadline
from headrace.adapters.kafka.job_entries import TRANSACTION, Entry, Held
from headrace.adapters.kafka.lane_fencing import LaneFencing
from headrace.adapters.kafka.names import (
    JOB,
    LANES,
    MODELS,
    PROCESSORS,
    STATUS,
    checkpoint_key,
    checkpoint_topic,
    coordinator_group,
    entries_of,
    lane_id,
    metadata_topic,
    name_of,
    records_of,
)
from headrace.adapters.kafka.positions import (
    Position,
    committable,
    committed_in_force,
    encode_grants,
    offsets_by_group,
    positions_of,
    waited_for,
)
from headrace.adapters.kafka.stored_checkpoints import CheckpointTopic, refreshed, stored_checkpoints
from headrace.codec.documents import decode_job_model, encode
from headrace.codec.job_records import STATE_ID
from headrace.core.group.grants import Grants, holders_of
from headrace.core.group.statuses import joined_statuses
from headrace.errors import FencedError, JobHeldError, StorageError, StreamNotFoundError
from headrace.exchange.fault_injection import reached
from headrace.model.checkpoint import Checkpoint
from headrace.model.commits import DriverLease
from headrace.model.job_model import JobModel
from headrace.model.tasks import TaskName
from headrace.ports import CoordinatorStore, Metadata

LOG = logging.getLogger("headrace.kafka")
RESET = "reset"  # namespace: whether the application is half forgotten
_KEPT = frozenset({JOB, LANES, INTERNAL, RESET, STATE_ID})  # of the metadata, where an application is forgotten


class KafkaCoordinatorStore(CoordinatorStore):
    """`headrace.ports.CoordinatorStore`. `system` is the `KafkaSystem` of the application's broker. `timeout_ms` bounds a
    container's transaction."""

    def __init__(self, system: Any, application: str, timeout_ms: int, exactly_once: bool) -> None:
        self.application = application
        self._system, self._client = system, system.client
        self._timeout_ms, self._exactly_once = timeout_ms, exactly_once
        self._deadline: Deadline = system.deadline
        self._metadata = CompactedTopic(self._client, metadata_topic(application), self._deadline)
        self._checkpoints: CheckpointTopic = system.checkpoint_reader(application)
        self._fencing = LaneFencing(self._client, application, timeout_ms, self._deadline)
        self._coordinator = Coordinator(self._client, application, self._still_ours, self._deadline)
        self._epoch = self._number = 0  # the highest number of all that this store has given
        self._grants: Grants | None = None  # in force, as this store has written them; None: one driver
        self._writing = threading.RLock()
        self._held: Held | None = None
        self._model: JobModel | None = None

    # --- who drives -------------------------------------------------------------------------------------------------

    def check_not_leased(self, holder: DriverLease, now_us: int) -> None:
        if self._system.own_topics.is_initialized(self.application):
            self._checked_free(self._written(JOB), holder, now_us, for_group=False)

    def acquire(self, holder: DriverLease, now_us: int, *, for_group: bool = False) -> int:
        reached("start", 1)
        # `ConfigError` for what a worker's producer would be refused for; one that is not used connects to no broker.
        new_producer(self._client, lane_id(self.application, "source", 0), self._timeout_ms)
        self._system.check_transaction_timeout(self._timeout_ms)
        self._system.own_topics.ensure(self.application)
        since_us = self._checked_free(self._still_ours(), holder, now_us, for_group)
        reached("start", 2)
        # A driver that started in between has lost the coordinator's id to us, and ends: so we must continue.
        self._coordinator.take()
        self._system.own_topics.driven.add(self.application)
        try:
            return self._new_epoch(holder, since_us, now_us, for_group)
        except BaseException as error:  # the next driver need not wait until the heartbeat is old
            try:
                (self.step_down if isinstance(error, JobHeldError) else self.release)(self._epoch)
            except StorageError as error:
                LOG.warning("could not release application %r: %s", self.application, error)
            finally:
                self._coordinator.close()
            raise

    def _new_epoch(self, holder: DriverLease, since_us: int, now_us: int, for_group: bool) -> int:
        """The new epoch, from the coordinator's init on: no other driver writes now. Where the outcome of its transaction is
        not known, another epoch is tried next, unless another driver has come in between."""

        def write() -> None:
            if self._epoch:  # asked before the id is taken again: one that lives is not fenced
                self._checked_free(self._written(JOB), holder, now_us, for_group=True)
            self._settle()
            self._epoch = self._number = 1 + self.numbers_used()
            self._grants = (self.grants() or {}) if for_group else None
            self._held = Held(dataclasses.replace(holder, heartbeat_us=now_us), since_us)
            self._model = None  # of the epoch before: another driver may have come in between
            reached("start", 3)
            entries = [(JOB, "epoch", b"%d" % self._epoch), (JOB, "holder", msgspec.json.encode(self._held))]
            self._transact([*entries, *self._grant_entries(self._grants)])

        tried(write)
        reached("start", 4)
        self._read_back()
        return self._epoch

    @waited_for()
    def _read_back(self) -> None:
        """Whether the epoch and the grants in force are those of this store: as the metadata has them, and as the position of
        the coordinator's group, which workers read."""
        stored = entries_of(self._metadata.refresh(), JOB)
        position = committed_in_force(self._client, self.application, self._deadline)
        if (int(stored.get("epoch", b"0")), position) != (self._epoch, job_entries.in_force(self._epoch, self._grants)):
            raise FencedError(
                f"application {self.application!r}: epoch {self._epoch} was written, but another one was read back",
                "another driver took over; look at `headrace status`",
            )

    @waited_for()
    def numbers_used(self) -> int:
        stored = entries_of(self._metadata.refresh(), JOB)
        known = [self._number, *(int(stored.get(name, b"0")) for name in ("epoch", "number"))]
        return max(*known, committed_in_force(self._client, self.application, self._deadline).epoch)

    def grants(self) -> Grants | None:
        return job_entries.stored_grants(self._read(JOB))

    def write_grants(self, epoch: int, grants: Grants, metadata: Metadata | None = None) -> None:
        self._check_own(epoch)
        with self._writing:
            entries = [*self._grant_entries(grants), *job_entries.metadata_entries(metadata)]
            self._once(lambda id_: self._transact([*entries, id_], grants=grants))
            self._read_back()

    def _grant_entries(self, grants: Grants | None) -> list[Entry]:
        self._number = max([self._number, *(one.number for one in (grants or {}).values())])
        return job_entries.grant_entries(grants, self._number)

    def _checked_free(self, stored: Mapping[str, bytes], holder: DriverLease, now_us: int, for_group: bool) -> int:
        """Since when `holder` has the application; `JobHeldError` if another has it that lives."""
        if not for_group:
            refuse_beside_group(self.application, self, now_us)
        held = Held.found(stored)
        return now_us if held is None else held_since_us(self.application, held.holder, held.since_us, holder, now_us)

    def lanes_used(self) -> Mapping[str, int]:
        return {name: int(count) for name, count in entries_of(self._metadata.refresh(), LANES).items()}

    def fence(self, epoch: int, lanes: Mapping[str, Collection[int]]) -> None:
        self._check_own(epoch)
        reached("start", 5)
        self._fencing.fence(lanes)

    def heartbeat(self, epoch: int, now_us: int) -> None:
        held = self._check_own(epoch)
        self._held = Held(dataclasses.replace(held.holder, heartbeat_us=now_us), held.since_us)
        self._transact([(JOB, "holder", msgspec.json.encode(self._held))])

    def check_epoch(self, epoch: int) -> None:
        self._transact([(JOB, "holder", msgspec.json.encode(self._check_own(epoch)))])

    def expedite(self) -> None:
        self._deadline.expedite()

    def release(self, epoch: int) -> None:
        if self._held is None or epoch != self._epoch:
            return
        try:
            self._transact([(JOB, "holder", None)])
        except FencedError:
            pass
        finally:
            self.step_down(epoch)

    def step_down(self, epoch: int) -> None:
        with self._writing:  # or a heartbeat that is on its way would take the id again
            if epoch == self._epoch:
                self._held = self._checkpoints.replaced = None
                self._system.own_topics.driven.discard(self.application)
                self._coordinator.close()

    def holder(self) -> DriverLease | None:
        held = Held.found(self._written(JOB))
        return None if held is None else held.holder

    def _check_own(self, epoch: int) -> Held:
        if self._held is None or epoch != self._epoch:
            raise fenced(self.application, epoch, self._epoch if self._held is not None else "not held")
        return self._held

    def _written(self, namespace: str) -> dict[str, bytes]:
        """A namespace with what is not committed yet: a heartbeat in an open transaction, or behind one, is a heartbeat as
        well, and so is what a processor says behind that of a leader which was killed in it."""
        is_there = self._system.own_topics.is_initialized(self.application)
        return entries_of(self._metadata.written(), namespace) if is_there else {}

    def _still_ours(self) -> dict[str, bytes]:
        """The entries of the job; `FencedError` where another driver has it. Its epoch may be in a transaction that comes
        to nothing: the end of that one is waited for."""
        stored = self._written(JOB)
        if self._is_anothers(stored) and self._is_anothers(entries_of(self._metadata.refresh(), JOB)):
            raise taken_over(self.application)
        return stored

    def _is_anothers(self, stored: Mapping[str, bytes]) -> bool:
        return self._held is not None and self._held.is_replaced(stored, self._epoch)

    def _settle(self) -> None:
        """Behind a transaction whose outcome is not known: take the coordinator's id again, which decides it, and read what is
        in force."""
        with self._writing:
            if not self._coordinator.has_id:
                self._check_own(self._epoch)
                self._coordinator.take_again()
                try:
                    self._grants = None if self._grants is None else self.grants() or {}
                except BaseException:
                    self._coordinator.close()
                    raise

    def _transact(
        self,
        entries: Sequence[Entry],
        checkpoints: Mapping[bytes, bytes | None] | None = None,
        positions: Iterable[Position] = (),
        grants: Grants | None = None,
    ) -> None:
        """One transaction of the coordinator; the epoch's position goes with each, so that it never expires, and with it the
        grants: `grants` if there are others from now on. `entries` are (namespace, name, value) of the metadata, `checkpoints`
        records by key; None deletes. Where it fails its outcome is not known: what this store has in memory may be of before,
        and is read again (`_settle`)."""
        with self._writing:  # or one thread would put grants in force again that another has just taken back
            self._settle()
            grants = self._grants if grants is None else dict(grants)
            topic = metadata_topic(self.application)
            there = self._metadata.refresh(wait=False) if any(space != JOB for space, *_ in entries) else {}
            records = [(topic, *record) for space, name, value in entries for record in records_of(space, name, value, there)]
            records += [(checkpoint_topic(self.application), key, value) for key, value in (checkpoints or {}).items()]
            place = TopicPartition(topic, 0, self._epoch, metadata=encode_grants(grants))
            epoch = {coordinator_group(self.application): [place]}
            try:
                self._coordinator.transact(records, epoch | offsets_by_group(positions))
            except BaseException:
                self._coordinator.close()
                self._model = None
                raise
            self._grants = grants

    def _once(self, write: Callable[[Entry], None]) -> None:
        """Call `write`, which makes a transaction with the entry that it is given, again where the outcome is not known. What
        has committed is not written again: processors may have begun under it, and their positions would be set back. So
        the transaction has an id in the metadata, which is looked for before each other try."""
        id_, before = uuid.uuid4().hex.encode(), itertools.count()

        def write_unless_committed() -> None:
            if not next(before) or self._read(JOB).get(TRANSACTION) != id_:
                write((JOB, TRANSACTION, id_))

        with self._writing:
            tried(write_unless_committed)

    # --- the plan ---------------------------------------------------------------------------------------------------

    def job_model(self) -> JobModel | None:
        found = self._read(MODELS).get("current")
        return None if found is None else decode_job_model(found, f"job model of application {self.application!r}")

    def commit_job_model(
        self,
        epoch: int,
        model: JobModel,
        checkpoints: Sequence[Checkpoint],
        metadata: Metadata | None = None,
        stored: Mapping[TaskName, Checkpoint] | None = None,
        grants: Grants | None = None,
    ) -> None:
        assert model.application == self.application, f"a model of {model.application!r}"
        self._check_own(epoch)
        reached("start", 9)
        before, encoded = self._read(MODELS).get("current"), encode(model)
        entries = job_entries.plan_entries(model, encoded, before, self.lanes_used())
        entries += [*([] if grants is None else self._grant_entries(grants)), *job_entries.metadata_entries(metadata)]
        keys = {task.name: checkpoint_key(str(task.name), model.version, self._exactly_once) for task in model.tasks}
        in_group, given = self._grants is not None, stored or {}
        there = refreshed(self._checkpoints, in_group=in_group).keys()
        written = [one for one in checkpoints if keys[one.task] not in there or given.get(one.task) is not one]
        records = dict.fromkeys(there - set(keys.values())) | {keys[one.task]: encode(one) for one in written}
        positions = committable(self._system, model, positions_of(self.application, model, checkpoints))
        self._once(lambda id_: self._transact([*entries, id_], records, positions, grants))
        reached("start", 10)
        self._model = model
        self._system.pin(model.stream_ids, model.partition_counts)
        there = refreshed(self._checkpoints, in_group=in_group).keys()  # without fencing also what an attempt writes late
        is_ours = there == set(keys.values()) if self._exactly_once else there >= set(keys.values())
        if self._read(MODELS).get("current") != encoded or not is_ours:
            self._still_ours()  # or it is the model of who took over in between
            raise StorageError(
                f"application {self.application!r}: the job model was committed, but another one was read back",
                "another process writes to the application's topics: check who has the rights, then restart the job",
            )

    def checkpoints(self) -> dict[TaskName, Checkpoint]:
        model = self._model or self.job_model()
        if model is None:
            return {}
        in_group = self._grants is not None if self._held is not None else bool(holders_of(model))
        try:
            return stored_checkpoints(self._checkpoints, model, is_held=self._held is not None, in_group=in_group)
        except StorageError:
            self._still_ours()  # or they are of the job model of who took over in between
            raise

    def replaced_files(self) -> frozenset[str]:
        return self._checkpoints.replaced_files()

    def forget(self, epoch: int) -> None:
        """Plan, checkpoints and named values go in one transaction; then the topics, which no transaction deletes."""
        self._check_own(epoch)
        stored = self._metadata.refresh()
        entries = [(space, name, None) for space, name in map(name_of, stored) if space not in _KEPT]
        reached("reset", 1)
        self._transact([*entries, (RESET, "begun", b"")], dict.fromkeys(self._checkpoints.refresh()))
        reached("reset", 2)
        own = entries_of(stored, INTERNAL)
        for topic in own:
            with suppress(StreamNotFoundError):
                self._system.delete_stream(topic)
            reached("reset", 3)
        self._transact([*((INTERNAL, topic, None) for topic in own), (RESET, "begun", None)])
        self._model = None

    def is_half_forgotten(self) -> bool:
        return bool(self._read(RESET))

    # --- what goes with it ------------------------------------------------------------------------------------------

    def write_metadata(
        self, epoch: int, namespace: str, values: Mapping[str, bytes | None], done: Collection[str] = ()
    ) -> None:
        self._check_own(epoch)
        for key, value in values.items():
            if value is not None and not isinstance(value, bytes):
                raise TypeError(f"{namespace} {key!r}: expected bytes or None, found {type(value).__name__}")
        requests = ((f"{namespace}/requests", id_, None) for id_ in done)
        self._transact([*job_entries.metadata_entries({namespace: values}), *requests])

    def purge(self, epoch: int, stream: str, offsets: Mapping[int, int]) -> None:
        self._check_own(epoch)
        self._system.purge(stream, offsets)

    def status(self) -> dict[str, dict[str, Any]]:
        return joined_statuses(job_entries.decoded(self._read(STATUS)))

    def processors(self) -> dict[str, dict[str, Any]]:
        return job_entries.decoded(self._written(PROCESSORS))

    def _read(self, namespace: str) -> dict[str, bytes]:
        """A namespace as stored; empty where the application never ran. Who holds it reads what is decided."""
        if not self._system.own_topics.is_initialized(self.application):
            return {}
        if self._held is not None and not self._coordinator.has_id:  # else no read waits for a write
            self._settle()
        return entries_of(self._metadata.refresh(wait=self._held is not None), namespace)

    def close(self) -> None:
        self._metadata.close()
        self._coordinator.close()
