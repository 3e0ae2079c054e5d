"""Kafka's `JobStore`: who drives an application, its plan, and the checkpoints that its containers commit.

protocol.md 6 to 12. The plan is in `<application>-metadata`, written by the coordinator alone; checkpoints are in
`<application>-checkpoints`, the record; the groups hold the same positions, for a worker's quick look and for lag tools.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
from confluent_kafka import KafkaException, TopicPartition

from headrace.adapters.common.lease_holder import fenced, held_since_us
from headrace.adapters.kafka.clients import new_producer, retried_in_pieces, take_id
from headrace.adapters.kafka.compacted import CompactedTopic
from headrace.adapters.kafka.coordinator import Coordinator, taken_over
from headrace.adapters.kafka.deadline import Deadline
from headrace.adapters.kafka.names import (
    checkpoint_key,
    checkpoint_topic,
    coordinator_group,
    entries_of,
    lane_id,
    metadata_topic,
    records_of,
)
from headrace.adapters.kafka.positions import (
    Position,
    by_group,
    committed_epoch,
    committed_positions,
    offsets_by_group,
    positions_of,
    shared_ssps,
)
from headrace.adapters.kafka.stored_checkpoints import stored_checkpoints
from headrace.codec.documents import decode, encode
from headrace.errors import FencedError, StorageError, UnavailableError
from headrace.exchange.fault_injection import reached
from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.job_model import JobModel
from headrace.model.tasks import TaskName
from headrace.ports import DriverLease, JobStore, Metadata, RoundCommit, SystemPayload

LOG = logging.getLogger("headrace.kafka")
FENCE_S = 30.0
START_TRIES = 3
ROUNDS_PER_TIMEOUT = 3  # of a transaction's time a third is for the work, the rest to write what came of it
STATUS_S = 1.0  # each status that is written is a transaction
JOB, MODELS, LANES, STATUS = "job", "job-models", "lanes", "status"


class _Held(msgspec.Struct, frozen=True):
    holder: DriverLease
    since_us: int


class KafkaJobStore(JobStore):
    """`headrace.ports.JobStore`. `system` is the `KafkaSystem` of the application's broker. `timeout_ms` bounds a
    container's transaction."""

    def __init__(self, system: Any, application: str, timeout_ms: int, exactly_once: bool) -> None:
        self.application = application
        self._system, self._client = system, system.client
        self._timeout_ms, self._exactly_once = timeout_ms, exactly_once
        self.round_ms_max: int | None = max(1, timeout_ms // ROUNDS_PER_TIMEOUT)
        self._deadline: Deadline = system.deadline
        self._metadata = CompactedTopic(self._client, metadata_topic(application), self._deadline)
        self._checkpoints = CompactedTopic(self._client, checkpoint_topic(application), self._deadline)
        self._coordinator = Coordinator(self._client, application, self._still_ours, self._deadline)
        self._epoch = 0
        self._held: _Held | None = None
        self._model: JobModel | None = None
        self._shared: tuple[JobModel | None, dict[str | None, list[tuple[str, int]]]] = (None, {})
        self._lock = threading.Lock()
        self._producer_of: dict[tuple[str, int], str] = {}  # the process that made a lane's last commit
        self._committed_us: dict[tuple[str, int], int] = {}
        self._renew_us: int | None = None
        self._status: dict[str, bytes] = {}  # not written yet
        self._status_s = 0.0

    # --- who drives -------------------------------------------------------------------------------------------------

    def check_not_leased(self, holder: DriverLease, now_us: int) -> None:
        if self._system.own_topics.is_initialized(self.application):
            self._checked_free(entries_of(self._metadata.refresh(wait=False), JOB), holder, now_us)

    def acquire(self, holder: DriverLease, now_us: int) -> int:
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
            return self._new_epoch(holder, since_us, now_us)
        except BaseException:  # the next driver need not wait until the heartbeat is old
            try:
                self.release(self._epoch)
            except StorageError as error:
                LOG.warning("could not release application %r: %s", self.application, error)
            finally:
                self._coordinator.close()
            raise

    def _new_epoch(self, holder: DriverLease, since_us: int, now_us: int) -> int:
        """The new epoch, from the coordinator's init on: no other driver writes now."""
        self._epoch = 1 + max(self._stored_epochs())
        self._held = _Held(dataclasses.replace(holder, heartbeat_us=now_us), since_us)
        self._model = None  # of the epoch before: another driver may have come in between
        reached("start", 3)
        entries = [(JOB, "epoch", b"%d" % self._epoch), (JOB, "holder", msgspec.json.encode(self._held))]
        self._transact(entries, tries=START_TRIES)
        reached("start", 4)
        if self._stored_epochs() != (self._epoch, self._epoch):
            raise FencedError(
                f"application {self.application!r}: epoch {self._epoch} was written, but another one was read back",
                "another driver took over; look at `headrace status`",
            )
        reached("start", 5)
        self._fence(self._lanes())
        return self._epoch

    def _stored_epochs(self) -> tuple[int, int]:
        """The epoch as the metadata has it, and as the position of the coordinator's group, which workers read."""
        stored = int(entries_of(self._metadata.refresh(), JOB).get("epoch", b"0"))
        return stored, committed_epoch(self._client, self.application, self._deadline)

    def _checked_free(self, stored: Mapping[str, bytes], holder: DriverLease, now_us: int) -> int:
        """Since when `holder` has the application; `JobHeldError` if another has it that lives."""
        if not stored.get("holder"):
            return now_us
        held = msgspec.json.decode(stored["holder"], type=_Held)
        return held_since_us(self.application, held.holder, held.since_us, holder, now_us)

    def _lanes(self) -> dict[str, int]:
        """Sub-topology to the number of lanes that it ever used."""
        return {name: int(count) for name, count in entries_of(self._metadata.refresh(), LANES).items()}

    def _fence(self, lanes: Mapping[str, int]) -> None:
        """End what any container of these lanes has open, and shut out the previous owner of the lane."""
        ids = [lane_id(self.application, name, lane) for name, count in lanes.items() for lane in range(count)]
        with ThreadPoolExecutor(max_workers=min(8, max(1, len(ids)))) as pool:
            list(pool.map(self._fence_one, ids))
        with self._lock:
            self._producer_of = {key: token for key, token in self._producer_of.items() if key[0] not in lanes}

    def _fence_one(self, id_: str) -> None:
        try:
            producer = new_producer(self._client, id_, self._timeout_ms)
            retried_in_pieces(lambda piece_s: take_id(producer, piece_s), FENCE_S, self._deadline)
        except KafkaException as error:
            raise UnavailableError(
                f"application {self.application!r}: transactional id {id_!r} could not be fenced: {error.args[0].str()}",
                "is the broker up, and may this user write under that transactional id?",
            ) from None

    def heartbeat(self, epoch: int, now_us: int) -> None:
        held = self._check_own(epoch)
        self._held = _Held(dataclasses.replace(held.holder, heartbeat_us=now_us), held.since_us)
        self._transact([(JOB, "holder", msgspec.json.encode(self._held)), *self._pending_status()])

    def check_epoch(self, epoch: int) -> None:
        self._transact([(JOB, "holder", msgspec.json.encode(self._check_own(epoch)))])

    def expedite(self) -> None:
        self._deadline.expedite()

    def release(self, epoch: int) -> None:
        if self._held is None or epoch != self._epoch:
            return
        try:
            self._transact([(JOB, "holder", None), *self._pending_status()])
        except FencedError:
            pass
        finally:
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
        tries: int = 1,
    ) -> None:
        """One transaction of the coordinator; the epoch's position goes with each, so that it never expires. `entries` are
        (namespace, name, value) of the metadata, `checkpoints` records by key; None deletes. `tries`: how often, where its
        outcome is not known. More than once only while no container of this epoch can have begun: its positions would be set
        back."""
        topic = metadata_topic(self.application)
        there = self._metadata.refresh(wait=False) if any(space not in (JOB, STATUS) for space, *_ in entries) else {}
        records = [(topic, *record) for space, name, value in entries for record in records_of(space, name, value, there)]
        records += [(checkpoint_topic(self.application), key, value) for key, value in (checkpoints or {}).items()]
        epoch = {coordinator_group(self.application): [TopicPartition(topic, 0, self._epoch)]}
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
        return None if found is None else decode(JobModel, found, f"job model of application {self.application!r}")

    def commit_job_model(
        self,
        epoch: int,
        model: JobModel,
        checkpoints: Sequence[Checkpoint],
        metadata: Metadata | None = None,
        stored: Mapping[TaskName, Checkpoint] | None = None,
    ) -> None:
        assert model.application == self.application, f"a model of {model.application!r}"
        self._check_own(epoch)
        reached("start", 9)
        before, encoded = self._read(MODELS).get("current"), encode(model)
        entries: list[tuple[str, str, bytes | None]] = [(MODELS, "current", encoded)]
        if before is not None and before != encoded:
            entries.append((MODELS, "previous", before))
        used = self._lanes()
        for sub in model.sub_topologies:
            count = max(container.lane + 1 for container in sub.containers)
            if count > used.get(sub.title, 0):  # before a lane is used, or a later driver would not fence it
                entries.append((LANES, sub.title, b"%d" % count))
        entries += [(space, key, value) for space, values in (metadata or {}).items() for key, value in values.items()]
        planned = {checkpoint_key(str(one.task), model.version, self._exactly_once): one for one in checkpoints}
        there, given = self._checkpoints.refresh().keys(), stored or {}
        records: dict[bytes, bytes | None] = dict.fromkeys(there - planned.keys())
        records |= {key: encode(one) for key, one in planned.items() if key not in there or given.get(one.task) is not one}
        self._transact(entries, records, positions_of(self.application, model, checkpoints), tries=START_TRIES)
        reached("start", 10)
        self._model = model
        self._system.pin(model.stream_ids)
        there = self._checkpoints.refresh().keys()  # where no transaction fences, also what an older attempt writes late
        is_ours = there == planned.keys() if self._exactly_once else there >= planned.keys()
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
        return stored_checkpoints(self._checkpoints, model, is_held=self._held is not None)

    # --- rounds: workers commit -------------------------------------------------------------------------------------

    def lanes_to_renew(self, sub_topology: str | None, now_us: int) -> Collection[int]:
        """Those that have not committed for a quarter of the broker's retention of positions (protocol.md 9)."""
        if self._renew_us is None:
            self._renew_us = self._system.offsets_retention_s() * 1_000_000 // 4
        assert self._model is not None
        title = sub_topology or "source"
        lanes = [container.lane for container in self._model.sub_topology(sub_topology).containers]
        return [lane for lane in lanes if now_us - self._committed_us.setdefault((title, lane), now_us) >= self._renew_us]

    def container_terms(self, round_id: RoundId, lane: int) -> SystemPayload:
        assert self._model is not None
        return {
            "client": dict(self._client),
            "timeout_ms": self._timeout_ms,
            "exactly_once": self._exactly_once,
            "producer_of": self._producer_of.get((round_id.sub_topology or "source", lane)),
            "shared": self._shared_ssps(round_id.sub_topology),
        }

    def _shared_ssps(self, sub_topology: str | None) -> list[tuple[str, int]]:
        """What several containers read; counted once per model."""
        model = self._model
        assert model is not None
        if self._shared[0] is not model:
            self._shared = model, {sub.name: sorted(shared_ssps(model, sub.name)) for sub in model.sub_topologies}
        return self._shared[1][sub_topology]

    def commit_round(self, commit: RoundCommit) -> None:
        title, now_us = commit.round_id.sub_topology or "source", time.time_ns() // 1000
        with self._lock:
            for container in commit.containers:
                self._committed_us[(title, container.lane)] = now_us
                if container.receipt is None:
                    self._producer_of.pop((title, container.lane), None)
                else:
                    self._producer_of[(title, container.lane)] = container.receipt

    def recover(self, epoch: int, sub_topology: str | None) -> dict[TaskName, Checkpoint]:
        self.check_epoch(epoch)
        assert self._model is not None
        mine, lost = self._fenced_and_read(sub_topology)
        if lost:  # expired, or set by somebody else: the topic is the record
            # A fence does not reach an attempt of this epoch that has not taken its lane yet: what seems lost may be what
            # it committed between the two reads. After the next fence none can that builds on what was missing before.
            missing = {(position.group, position.topic, position.partition) for position in lost}
            mine, lost = self._fenced_and_read(sub_topology)
            lost = [p for p in lost if (p.group, p.topic, p.partition) in missing]
        if lost:
            self._transact([], positions=lost)
        return {checkpoint.task: checkpoint for checkpoint in mine}

    def _fenced_and_read(self, sub_topology: str | None) -> tuple[list[Checkpoint], list[Position]]:
        """Fence the lanes, read the checkpoints, and see which of their positions the groups do not have."""
        assert self._model is not None
        title = sub_topology or "source"
        self._fence({title: self._lanes().get(title, 0)})
        mine = [checkpoint for checkpoint in self.checkpoints().values() if checkpoint.task.sub_topology == sub_topology]
        lost: list[Position] = []
        for group, positions in by_group(positions_of(self.application, self._model, mine)).items():
            places = [(p.topic, p.partition) for p in positions]
            found = committed_positions(self._client, group, places, self._deadline)
            lost += [p for p in positions if found.get((p.topic, p.partition)) != (p.offset, p.note)]
        return mine, lost

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

    def publish_status(self, sub_topology: str | None, status: Mapping[str, Any]) -> None:
        """Written with the next heartbeat, or at once where the last is a second old."""
        with self._lock:
            self._status[sub_topology or "source"] = msgspec.json.encode(dict(status))
        if self._held is not None and time.monotonic() - self._status_s >= STATUS_S:
            self._transact(self._pending_status())

    def _pending_status(self) -> list[tuple[str, str, bytes | None]]:
        with self._lock:
            pending, self._status = self._status, {}
            self._status_s = time.monotonic()
        return [(STATUS, name, value) for name, value in sorted(pending.items())]

    def status(self) -> dict[str, dict[str, Any]]:
        return {name: msgspec.json.decode(value) for name, value in sorted(self._read(STATUS).items())}

    def _read(self, namespace: str) -> dict[str, bytes]:
        """A namespace as stored; empty where the application never ran."""
        if not self._system.own_topics.is_initialized(self.application):
            return {}
        return entries_of(self._metadata.refresh(wait=self._held is not None), namespace)

    def close(self) -> None:
        for kept in (self._metadata, self._checkpoints, self._coordinator):
            kept.close()
