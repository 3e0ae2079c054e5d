"""Kafka's `CoordinatorStore`: who drives an application, and its plan.

protocol.md 6, 7 and 12. The plan is in `<application>-metadata`, written by the coordinator alone; checkpoints are in
`<application>-checkpoints`, the record; the groups hold the same positions, for a worker's quick look and for lag tools.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from confluent_kafka import TopicPartition

from headrace.adapters.common.lease_holder import fenced, held_since_us
from headrace.adapters.kafka.application_topics import INTERNAL
from headrace.adapters.kafka.clients import new_producer
from headrace.adapters.kafka.compacted import CompactedTopic
from headrace.adapters.kafka.coordinator import Coordinator, taken_over
from headrace.adapters.kafka.deadline import Deadline
from headrace.adapters.kafka.lane_fencing import LaneFencing
from headrace.adapters.kafka.names import (
    JOB,
    LANES,
    MODELS,
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
    committed_in_force,
    encode_grants,
    offsets_by_group,
    positions_of,
)
from headrace.adapters.kafka.stored_checkpoints import refreshed, stored_checkpoints
from headrace.codec.documents import decode_job_model, encode
from headrace.core.group.grants import Grant, Grants, InForce, holders_of, numbers_in_force
from headrace.core.group.statuses import joined_statuses
from headrace.errors import FencedError, StorageError, StreamNotFoundError
from headrace.exchange.fault_injection import reached
from headrace.model.checkpoint import Checkpoint
from headrace.model.commits import DriverLease
from headrace.model.job_model import JobModel
from headrace.model.tasks import TaskName
from headrace.ports import CoordinatorStore, Metadata

LOG = logging.getLogger("headrace.kafka")
START_TRIES = 3
RESET = "reset"  # namespace: whether the application is half forgotten
_KEPT = frozenset({JOB, LANES, INTERNAL, RESET})  # of the metadata, where an application is forgotten


class _Held(msgspec.Struct, frozen=True):
    holder: DriverLease
    since_us: int


class KafkaCoordinatorStore(CoordinatorStore):
    """`headrace.ports.CoordinatorStore`. `system` is the `KafkaSystem` of the application's broker. `timeout_ms` bounds a
    container's transaction."""

    def __init__(self, system: Any, application: str, timeout_ms: int, exactly_once: bool) -> None:
        self.application = application
        self._system, self._client = system, system.client
        self._timeout_ms, self._exactly_once = timeout_ms, exactly_once
        self._deadline: Deadline = system.deadline
        self._metadata = CompactedTopic(self._client, metadata_topic(application), self._deadline)
        self._checkpoints: CompactedTopic = system.checkpoint_reader(application)
        self._fencing = LaneFencing(self._client, application, timeout_ms, self._deadline)
        self._coordinator = Coordinator(self._client, application, self._still_ours, self._deadline)
        self._epoch = 0
        self._grants: Grants | None = None  # in force, as this store has written them; None: one driver
        self._number = 0  # the highest of all that this store has given
        self._writing = threading.RLock()
        self._held: _Held | None = None
        self._model: JobModel | None = None

    # --- who drives -------------------------------------------------------------------------------------------------

    def check_not_leased(self, holder: DriverLease, now_us: int) -> None:
        if self._system.own_topics.is_initialized(self.application):
            self._checked_free(entries_of(self._metadata.refresh(wait=False), JOB), holder, now_us)

    def acquire(self, holder: DriverLease, now_us: int, *, for_group: bool = False) -> int:
        reached("start", 1)
        # `ConfigError` for what a worker's producer would be refused for; one that is not used connects to no broker.
        new_producer(self._client, lane_id(self.application, "source", 0), self._timeout_ms)
        self._system.check_transaction_timeout(self._timeout_ms)
        self._system.own_topics.ensure(self.application)
        since_us = self._checked_free(self._still_ours(), holder, now_us)
        reached("start", 2)
        # A driver that started in between has lost the coordinator's id to us, and ends: so we must continue.
        self._coordinator.take()
        self._system.own_topics.driven.add(self.application)
        try:
            return self._new_epoch(holder, since_us, now_us, for_group)
        except BaseException:  # the next driver need not wait until the heartbeat is old
            try:
                self.release(self._epoch)
            except StorageError as error:
                LOG.warning("could not release application %r: %s", self.application, error)
            finally:
                self._coordinator.close()
            raise

    def _new_epoch(self, holder: DriverLease, since_us: int, now_us: int, for_group: bool) -> int:
        """The new epoch, from the coordinator's init on: no other driver writes now."""
        self._epoch = self._number = 1 + self.numbers_used()
        self._grants = (self.grants() or {}) if for_group else None
        self._held = _Held(dataclasses.replace(holder, heartbeat_us=now_us), since_us)
        self._model = None  # of the epoch before: another driver may have come in between
        reached("start", 3)
        entries = [(JOB, "epoch", b"%d" % self._epoch), (JOB, "holder", msgspec.json.encode(self._held))]
        self._transact([*entries, *self._grant_entries(self._grants)], tries=START_TRIES)
        reached("start", 4)
        self._read_back()
        return self._epoch

    def _read_back(self) -> None:
        """Whether the epoch and the grants in force are those of this store: as the metadata has them, and as the position of
        the coordinator's group, which workers read."""
        stored = entries_of(self._metadata.refresh(), JOB)
        position = committed_in_force(self._client, self.application, self._deadline)
        if (int(stored.get("epoch", b"0")), position) != (self._epoch, _in_force(self._epoch, self._grants)):
            raise FencedError(
                f"application {self.application!r}: epoch {self._epoch} was written, but another one was read back",
                "another driver took over; look at `headrace status`",
            )

    def numbers_used(self) -> int:
        stored = entries_of(self._metadata.refresh(), JOB)
        known = [int(stored.get(name, b"0")) for name in ("epoch", "number")]
        return max(*known, committed_in_force(self._client, self.application, self._deadline).epoch)

    def grants(self) -> Grants | None:
        found = self._read(JOB).get("grants")
        return None if found is None else msgspec.json.decode(found, type=dict[str, Grant])

    def write_grants(self, epoch: int, grants: Grants) -> None:
        self._check_own(epoch)
        with self._writing:
            self._transact(self._grant_entries(grants), grants=grants, tries=START_TRIES)
            self._read_back()

    def _grant_entries(self, grants: Grants | None) -> list[tuple[str, str, bytes | None]]:
        """What is stored of them; and the highest number that ever was, which stays when they are taken back: a number that is
        given again would be that of other rounds."""
        if grants is None:
            return [(JOB, "grants", None)]
        self._number = max([self._number, *(one.number for one in grants.values())])
        return [(JOB, "grants", msgspec.json.encode(dict(grants))), (JOB, "number", b"%d" % self._number)]

    def _checked_free(self, stored: Mapping[str, bytes], holder: DriverLease, now_us: int) -> int:
        """Since when `holder` has the application; `JobHeldError` if another has it that lives."""
        if not stored.get("holder"):
            return now_us
        held = msgspec.json.decode(stored["holder"], type=_Held)
        return held_since_us(self.application, held.holder, held.since_us, holder, now_us)

    def lanes_used(self) -> Mapping[str, int]:
        return {name: int(count) for name, count in entries_of(self._metadata.refresh(), LANES).items()}

    def fence(self, epoch: int, lanes: Mapping[str, Collection[int]]) -> None:
        self._check_own(epoch)
        reached("start", 5)
        self._fencing.fence(lanes)

    def heartbeat(self, epoch: int, now_us: int) -> None:
        held = self._check_own(epoch)
        self._held = _Held(dataclasses.replace(held.holder, heartbeat_us=now_us), held.since_us)
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
        if epoch == self._epoch:
            self._held = None
            self._system.own_topics.driven.discard(self.application)
            self._coordinator.close()

    def holder(self) -> DriverLease | None:
        found = self._read(JOB).get("holder")
        return msgspec.json.decode(found, type=_Held).holder if found else None

    def _check_own(self, epoch: int) -> _Held:
        if self._held is None or epoch != self._epoch:
            raise fenced(self.application, epoch, self._epoch if self._held is not None else "not held")
        return self._held

    def _still_ours(self) -> dict[str, bytes]:
        """What is stored of the job; `FencedError` where the epoch in force is higher than ours. Asked before the
        coordinator's id is taken; nothing is waited for, as a dead coordinator's transaction may be open."""
        stored = entries_of(self._metadata.refresh(wait=False), JOB)
        if self._held is not None and int(stored.get("epoch", b"0")) > self._epoch:
            raise taken_over(self.application)
        return stored

    def _transact(
        self,
        entries: Sequence[tuple[str, str, bytes | None]],
        checkpoints: Mapping[bytes, bytes | None] | None = None,
        positions: Iterable[Position] = (),
        grants: Grants | None = None,
        tries: int = 1,
    ) -> None:
        """One transaction of the coordinator; the epoch's position goes with each, so that it never expires, and with it the
        grants: `grants` if there are others from now on. `entries` are
        (namespace, name, value) of the metadata, `checkpoints` records by key; None deletes. `tries`: how often, where its
        outcome is not known. More than once only while no container of this epoch can have begun: its positions would be set
        back."""
        with self._writing:  # or one thread would put grants in force again that another has just taken back
            self._transact_alone(entries, checkpoints or {}, positions, self._grants if grants is None else grants, tries)
            self._grants = self._grants if grants is None else dict(grants)

    def _transact_alone(
        self,
        entries: Sequence[tuple[str, str, bytes | None]],
        checkpoints: Mapping[bytes, bytes | None],
        positions: Iterable[Position],
        grants: Grants | None,
        tries: int,
    ) -> None:
        topic = metadata_topic(self.application)
        there = self._metadata.refresh(wait=False) if any(space != JOB for space, *_ in entries) else {}
        records = [(topic, *record) for space, name, value in entries for record in records_of(space, name, value, there)]
        records += [(checkpoint_topic(self.application), key, value) for key, value in checkpoints.items()]
        place = TopicPartition(topic, 0, self._epoch, metadata=encode_grants(grants))
        epoch = {coordinator_group(self.application): [place]}
        while True:
            tries -= 1
            try:
                return self._coordinator.transact(records, epoch | offsets_by_group(positions))
            except StorageError as error:
                if not tries:
                    raise
                LOG.warning("once more: %s", error.message)

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
        entries: list[tuple[str, str, bytes | None]] = [(MODELS, "current", encoded)]
        if before is not None and before != encoded:
            entries.append((MODELS, "previous", before))
        used = self.lanes_used()
        for sub in model.sub_topologies:
            count = max(container.lane + 1 for container in sub.containers)
            if count > used.get(sub.title, 0):  # before a lane is used, or a later driver would not fence it
                entries.append((LANES, sub.title, b"%d" % count))
        entries += [] if grants is None else self._grant_entries(grants)
        entries += [(space, key, value) for space, values in (metadata or {}).items() for key, value in values.items()]
        keys = {task.name: checkpoint_key(str(task.name), model.version, self._exactly_once) for task in model.tasks}
        in_group, given = self._grants is not None, stored or {}
        there = refreshed(self._checkpoints, in_group=in_group).keys()
        written = [one for one in checkpoints if keys[one.task] not in there or given.get(one.task) is not one]
        records: dict[bytes, bytes | None] = dict.fromkeys(there - set(keys.values()))
        records |= {keys[one.task]: encode(one) for one in written}
        positions = self._committable(model, positions_of(self.application, model, checkpoints))
        self._transact(entries, records, positions, grants, START_TRIES)
        reached("start", 10)
        self._model = model
        self._system.pin(model.stream_ids)
        # where no transaction fences, also what an older attempt writes late
        there = refreshed(self._checkpoints, in_group=in_group).keys()
        is_ours = there == set(keys.values()) if self._exactly_once else there >= set(keys.values())
        if self._read(MODELS).get("current") != encoded or not is_ours:
            self._still_ours()  # or it is the model of who took over in between
            raise StorageError(
                f"application {self.application!r}: the job model was committed, but another one was read back",
                "another process writes to the application's topics: check who has the rights, then restart the job",
            )

    def _committable(self, model: JobModel, positions: Sequence[Position]) -> list[Position]:
        """Without those of partitions that a stream has lost which was recreated while the job runs: no broker takes them. What
        reads that stream has stopped; the checkpoints keep what it had read."""
        topics = {one.topic for one in positions}
        counts = self._system.partition_counts(topics) if topics else {}
        short = {one.topic for one in positions if one.partition >= counts.get(one.topic, one.partition + 1)}
        recreated = {topic for topic in short if self._system.describe_stream(topic).id != model.stream_ids.get(topic)}
        return [one for one in positions if one.topic not in recreated or one.partition < counts[one.topic]]

    def checkpoints(self) -> dict[TaskName, Checkpoint]:
        model = self._model or self.job_model()
        if model is None:
            return {}
        is_held = self._held is not None
        in_group = self._grants is not None if is_held else bool(holders_of(model))
        try:
            return stored_checkpoints(self._checkpoints, model, is_held=is_held, in_group=in_group)
        except StorageError:
            self._still_ours()  # or they are of the job model of who took over in between
            raise

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
        entries = [(namespace, key, value) for key, value in values.items()]
        self._transact([*entries, *((f"{namespace}/requests", id_, None) for id_ in done)])

    def purge(self, epoch: int, stream: str, offsets: Mapping[int, int]) -> None:
        self._check_own(epoch)
        self._system.purge(stream, offsets)

    def status(self) -> dict[str, dict[str, Any]]:
        return joined_statuses({name: msgspec.json.decode(value) for name, value in self._read(STATUS).items()})

    def _read(self, namespace: str) -> dict[str, bytes]:
        """A namespace as stored; empty where the application never ran."""
        if not self._system.own_topics.is_initialized(self.application):
            return {}
        return entries_of(self._metadata.refresh(wait=self._held is not None), namespace)

    def close(self) -> None:
        self._metadata.close()
        self._coordinator.close()


def _in_force(epoch: int, grants: Grants | None) -> InForce:
    return InForce(epoch, None if grants is None else numbers_in_force(grants))
