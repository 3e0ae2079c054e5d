"""Kafka's `CoordinatorStore`: who drives an application, and its plan.

protocol.md 6, 7 and 12. The plan is in `<application>-metadata`, written by the coordinator alone; checkpoints are in
`<application>-checkpoints`, the record; the groups hold the same positions, for a worker's quick look and for lag tools.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from headrace.adapters.common.lease_holder import held_since_us, refuse_beside_group
from headrace.adapters.kafka import job_entries
from headrace.adapters.kafka.clients import new_producer
from headrace.adapters.kafka.coordinator import tried
from headrace.adapters.kafka.held_job import HeldJob
from headrace.adapters.kafka.job_entries import Held
from headrace.adapters.kafka.lane_fencing import LaneFencing
from headrace.adapters.kafka.names import (
    INTERNAL,
    JOB,
    LANES,
    MODELS,
    PROCESSORS,
    RESET,
    STATUS,
    checkpoint_key,
    entries_of,
    lane_id,
    name_of,
)
from headrace.adapters.kafka.positions import committable, positions_of
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
from headrace.ports.coordinator_store import CoordinatorStore
from headrace.ports.metadata_store import Metadata

LOG = logging.getLogger("headrace.kafka")
_KEPT = frozenset({JOB, LANES, INTERNAL, RESET, STATE_ID})  # of the metadata, where an application is forgotten


class KafkaCoordinatorStore(CoordinatorStore):
    """An application's plan on Kafka. `system` is the `KafkaSystem` of the application's broker. `timeout_ms` bounds a
    container's transaction."""

    def __init__(self, system: Any, application: str, timeout_ms: int, exactly_once: bool) -> None:
        self.application = application
        self._system, self._client = system, system.client
        self._timeout_ms, self._exactly_once = timeout_ms, exactly_once
        self._job = HeldJob(system, application)
        system.held_jobs.add(self._job)
        self._checkpoints: CheckpointTopic = system.checkpoint_reader(application)
        self._fencing = LaneFencing(self._client, application, timeout_ms, self._job.deadline)
        self._decoded: tuple[bytes, JobModel] | None = None  # the last job model that was read, and what it was read from

    # --- who drives -------------------------------------------------------------------------------------------------

    def check_not_leased(self, holder: DriverLease, now_us: int) -> None:
        if self._system.own_topics.is_initialized(self.application):
            self._checked_free(self._job.written(JOB), holder, now_us, for_group=False)

    def acquire(self, holder: DriverLease, now_us: int, *, for_group: bool = False) -> int:
        reached("start", 1)
        # `ConfigError` for what a worker's producer would be refused for; one that is not used connects to no broker.
        new_producer(self._client, lane_id(self.application, "source", 0), self._timeout_ms)
        self._system.check_transaction_timeout(self._timeout_ms)
        self._system.own_topics.begin(self.application)
        since_us = self._checked_free(self._job.still_ours(), holder, now_us, for_group)
        reached("start", 2)
        # A driver that started in between has lost the coordinator's id to us, and ends: so we must continue.
        self._job.coordinator.take()
        try:
            return self._new_epoch(holder, since_us, now_us, for_group)
        except BaseException as error:  # the next driver need not wait until the heartbeat is old
            try:
                (self.step_down if isinstance(error, JobHeldError) else self.release)(self._job.epoch)
            except StorageError as error:
                LOG.warning("could not release application %r: %s", self.application, error)
            finally:
                self._job.coordinator.close()
            raise

    def _new_epoch(self, holder: DriverLease, since_us: int, now_us: int, for_group: bool) -> int:
        """The new epoch, from the coordinator's init on: no other driver writes now. Where the outcome of its transaction is
        not known, another epoch is tried next, unless another driver has come in between."""

        def write() -> None:
            if self._job.epoch:  # asked before the id is taken again: one that lives is not fenced
                self._checked_free(self._job.written(JOB), holder, now_us, for_group=True)
            self._job.settle()
            held = Held(dataclasses.replace(holder, heartbeat_us=now_us), since_us)
            grants = self._job.begin(held, for_group=for_group)
            self._system.own_topics.driven.add(self.application)
            reached("start", 3)
            entries = [(JOB, "epoch", b"%d" % self._job.epoch), (JOB, "holder", msgspec.json.encode(held))]
            self._job.transact([*entries, *self._job.grant_entries(grants)])

        tried(write)
        reached("start", 4)
        self._job.read_back()
        return self._job.epoch

    def numbers_used(self) -> int:
        return self._job.numbers_used()

    def grants(self) -> Grants | None:
        return job_entries.stored_grants(self._job.read(JOB))

    def write_grants(self, epoch: int, grants: Grants, metadata: Metadata | None = None) -> None:
        self._job.check_own(epoch)
        with self._job.writing:
            entries = [*self._job.grant_entries(grants), *job_entries.metadata_entries(metadata)]
            self._job.once(lambda id_: self._job.transact([*entries, id_], grants=grants))
            self._job.read_back()

    def _checked_free(self, stored: Mapping[str, bytes], holder: DriverLease, now_us: int, for_group: bool) -> int:
        """Since when `holder` has the application; `JobHeldError` if another has it that lives."""
        if not for_group:
            refuse_beside_group(self.application, self, now_us)
        held = Held.found(stored)
        return now_us if held is None else held_since_us(self.application, held.holder, held.since_us, holder, now_us)

    def lanes_used(self) -> Mapping[str, int]:
        return {name: int(count) for name, count in entries_of(self._job.metadata.refresh(), LANES).items()}

    def fence(self, epoch: int, lanes: Mapping[str, Collection[int]]) -> None:
        self._job.check_own(epoch)
        reached("start", 5)
        self._fencing.fence(lanes)

    def heartbeat(self, epoch: int, now_us: int) -> None:
        with self._job.writing:  # or it would have the application again after another thread has stepped down
            held = self._job.check_own(epoch)
            self._job.held = Held(dataclasses.replace(held.holder, heartbeat_us=now_us), held.since_us)
            self._job.transact([(JOB, "holder", msgspec.json.encode(self._job.held))])

    def check_epoch(self, epoch: int) -> None:
        self._job.transact([(JOB, "holder", msgspec.json.encode(self._job.check_own(epoch)))])

    def expedite(self) -> None:
        self._job.deadline.expedite()

    def release(self, epoch: int) -> None:
        if self._job.held is None or epoch != self._job.epoch:
            return
        try:
            self._job.transact([(JOB, "holder", None)])
        except FencedError:
            pass
        finally:
            self.step_down(epoch)

    def step_down(self, epoch: int) -> None:
        with self._job.writing:  # or a heartbeat that is on its way would take the id again
            if epoch == self._job.epoch:
                self._checkpoints.replaced = None
                self._system.own_topics.driven.discard(self.application)
                self._job.end()

    def holder(self) -> DriverLease | None:
        held = Held.found(self._job.written(JOB))
        return None if held is None else held.holder

    # --- the plan ---------------------------------------------------------------------------------------------------

    def job_model(self) -> JobModel | None:
        found = self._job.read(MODELS).get("current")
        if found is None:
            return None
        last = self._decoded
        if last is None or last[0] != found:
            self._decoded = last = found, decode_job_model(found, f"job model of application {self.application!r}")
        return last[1]

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
        self._job.check_own(epoch)
        reached("start", 9)
        before, encoded = self._job.read(MODELS).get("current"), encode(model)
        entries = job_entries.plan_entries(model, encoded, before, self.lanes_used())
        entries += job_entries.id_entries(model, self._job.read(INTERNAL))
        entries += [*([] if grants is None else self._job.grant_entries(grants)), *job_entries.metadata_entries(metadata)]
        keys = {task.name: checkpoint_key(str(task.name), model.version, self._exactly_once) for task in model.tasks}
        in_group, given = self._job.grants is not None, stored or {}
        there = refreshed(self._checkpoints, in_group=in_group).keys()
        written = [one for one in checkpoints if keys[one.task] not in there or given.get(one.task) is not one]
        records = dict.fromkeys(there - set(keys.values())) | {keys[one.task]: encode(one) for one in written}
        positions = committable(self._system, model, positions_of(self.application, model, checkpoints))
        self._job.once(lambda id_: self._job.transact([*entries, id_], records, positions, grants))
        reached("start", 10)
        self._decoded = encoded, model
        self._system.pin(model.stream_ids, model.partition_counts)
        there = refreshed(self._checkpoints, in_group=in_group).keys()  # without fencing also what an attempt writes late
        is_ours = there == set(keys.values()) if self._exactly_once else there >= set(keys.values())
        if self._job.read(MODELS).get("current") != encoded or not is_ours:
            self._job.still_ours()  # or it is the model of who took over in between
            raise StorageError(
                f"application {self.application!r}: the job model was committed, but another one was read back",
                "another process writes to the application's topics: check who has the rights, then restart the job",
            )

    def checkpoints(self) -> dict[TaskName, Checkpoint]:
        known, model = self._decoded, self.job_model()
        if model is None:
            return {}
        is_held = self._job.held is not None
        in_group = self._job.grants is not None if is_held else bool(holders_of(model))
        if known is not self._decoded:
            self._job.still_ours()  # or it is the job model of who took over
        try:
            return stored_checkpoints(self._checkpoints, model, is_held=is_held, in_group=in_group)
        except StorageError:
            self._job.still_ours()  # or they are of the job model of who took over in between
            raise

    def replaced_files(self) -> frozenset[str]:
        return self._checkpoints.replaced_files()

    def forget(self, epoch: int) -> None:
        """Plan, checkpoints and named values go in one transaction; then the topics, which no transaction deletes."""
        self._job.check_own(epoch)
        stored = self._job.metadata.refresh()
        entries = [(space, name, None) for space, name in map(name_of, stored) if space not in _KEPT]
        reached("reset", 1)
        self._job.transact([*entries, (RESET, "begun", b"")], dict.fromkeys(self._checkpoints.refresh()))
        reached("reset", 2)
        own = entries_of(stored, INTERNAL)
        # one that is on record may be deleted since, and another application have one of its name
        there = {one.name for one in self._system.streams(of=self.application) if one.internal_of == self.application}
        for topic in own:
            with suppress(StreamNotFoundError):
                if topic in there:
                    self._system.delete_stream(topic)
            reached("reset", 3)
        self._job.transact([*((INTERNAL, topic, None) for topic in own), (RESET, "begun", None)])

    def is_half_forgotten(self) -> bool:
        return bool(self._job.read(RESET))

    # --- what goes with it ------------------------------------------------------------------------------------------

    def write_metadata(
        self, epoch: int, namespace: str, values: Mapping[str, bytes | None], done: Collection[str] = ()
    ) -> None:
        self._job.check_own(epoch)
        for key, value in values.items():
            if value is not None and not isinstance(value, bytes):
                raise TypeError(f"{namespace} {key!r}: expected bytes or None, found {type(value).__name__}")
        requests = ((f"{namespace}/requests", id_, None) for id_ in done)
        self._job.transact([*job_entries.metadata_entries({namespace: values}), *requests])

    def purge(self, epoch: int, stream: str, offsets: Mapping[int, int]) -> None:
        self._job.check_own(epoch)
        self._system.purge(stream, offsets)

    def status(self) -> dict[str, dict[str, Any]]:
        return joined_statuses(job_entries.decoded(self._job.read(STATUS)))

    def processors(self) -> dict[str, dict[str, Any]]:
        return job_entries.decoded(self._job.written(PROCESSORS))

    def close(self) -> None:
        self._job.close()
