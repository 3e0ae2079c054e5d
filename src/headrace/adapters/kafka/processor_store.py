"""Kafka's `ProcessorStore`: the rounds of containers whose workers commit them (protocol.md 8 to 11).

There is no coordinator's producer here, and nothing that would make one: what it writes, it writes under its own lanes' ids.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec

from headrace.adapters.common.lease_holder import fenced
from headrace.adapters.kafka.compacted import CompactedTopic
from headrace.adapters.kafka.deadline import Deadline
from headrace.adapters.kafka.lane_fencing import LaneFencing
from headrace.adapters.kafka.names import PROCESSORS, STATUS, checkpoint_topic
from headrace.adapters.kafka.positions import (
    Position,
    by_group,
    committed_in_force,
    committed_positions,
    container_positions,
    shared_ssps,
    waited_for,
)
from headrace.adapters.kafka.stored_checkpoints import stored_checkpoints
from headrace.codec.documents import decode
from headrace.core.group.grants import portion_of
from headrace.core.group.statuses import published_name
from headrace.errors import FencedError, StorageError, UnavailableError
from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.commits import RoundCommit
from headrace.model.job_model import JobModel, SubTopologyModel
from headrace.model.tasks import TaskName
from headrace.ports.processor_store import ProcessorStore, SystemPayload

ROUNDS_PER_TIMEOUT = 3  # of a transaction's time a third is for the work, the rest to write what came of it
SEED_TRIES = 5  # an attempt that takes its lane while a lost position is set is one that will fail, or has committed


class KafkaProcessorStore(ProcessorStore):
    """A processor's rounds on Kafka. `system` is the `KafkaSystem` of the application's broker. `timeout_ms` bounds a
    container's transaction."""

    def __init__(self, system: Any, application: str, timeout_ms: int, exactly_once: bool) -> None:
        self.application = application
        self._system, self._client = system, system.client
        self._timeout_ms, self._exactly_once = timeout_ms, exactly_once
        self.round_ms_max: int | None = max(1, timeout_ms // ROUNDS_PER_TIMEOUT)
        self._deadline: Deadline = system.deadline
        self._checkpoints = system.checkpoint_reader(application)
        self._fencing = LaneFencing(self._client, application, timeout_ms, self._deadline)
        self._own: JobModel | None = None  # the job model, with the containers that run here
        self._processor_id: str | None = None
        self._others: frozenset[TaskName] = frozenset()  # the tasks of other processors
        self._tail = CompactedTopic(self._client, checkpoint_topic(application), self._deadline)
        self._tailed: dict[str | None, dict[bytes, bytes]] = {}  # what was heard, by sub-topology
        self._shared: dict[str | None, list[tuple[str, int]]] = {}  # what several containers read
        self._lock = threading.Lock()
        self._producer_of: dict[tuple[str, int], str] = {}  # the process that made a lane's last commit
        self._committed_us: dict[tuple[str, int], int] = {}
        self._renew_us: int | None = None

    def begin(self, epoch: int, model: JobModel, processor_id: str | None = None) -> None:
        self._processor_id = processor_id
        self._own = model if processor_id is None else portion_of(model, processor_id)
        self._others = frozenset(task.name for task in model.tasks) - {task.name for task in self._own.tasks}
        self._tailed = {sub.name: {} for sub in model.sub_topologies}
        self._shared = {sub.name: sorted(shared_ssps(model, sub.name)) for sub in model.sub_topologies}
        # who has committed the plan has done so; in a group that may be another process
        self._system.pin(model.stream_ids, model.partition_counts)
        with self._lock:
            self._producer_of = {}  # they were fenced

    @property
    def _own_model(self) -> JobModel:
        assert self._own is not None, "no plan has begun"
        return self._own

    @waited_for()
    def check_epoch(self, epoch: int) -> None:
        found = committed_in_force(self._client, self.application, self._deadline)
        if found.allows(epoch):
            return
        if not found.epoch or (found.grants is None and found.epoch < epoch):
            # positions expire, and are deleted: this one comes back with each write of the coordinator
            raise UnavailableError(
                f"application {self.application!r}: its epoch is {epoch}, but its position is {found.epoch or 'not there'}",
                "the coordinator writes it again with its next heartbeat",
            )
        if found.grants is not None:
            raise FencedError(
                f"application {self.application!r}: grant {epoch} of this processor is not in force any more",
                "the leader of the group has taken it back: it gives another one",
            )
        raise fenced(self.application, epoch, found.epoch)

    def heard(self, sub_topology: str | None) -> Sequence[Checkpoint]:
        if not self._others:
            return ()
        now, before = self._tail.refresh(wait=False), self._tailed[sub_topology]
        new = [key for key, value in now.items() if before.get(key) is not value]
        self._tailed[sub_topology] = now
        found = [decode(Checkpoint, now[key], f"checkpoint of task {key.decode()!r}") for key in new]
        return [one for one in found if one.task in self._others and one.task.sub_topology == sub_topology]

    def lanes_to_renew(self, sub_topology: str | None, now_us: int) -> Collection[int]:
        """Those that have not committed for a quarter of the broker's retention of positions (protocol.md 9)."""
        if self._renew_us is None:
            self._renew_us = self._system.offsets_retention_s() * 1_000_000 // 4
        sub = self._own_model.sub_topology(sub_topology)
        lanes = [container.lane for container in sub.containers]
        return [one for one in lanes if now_us - self._committed_us.setdefault((sub.title, one), now_us) >= self._renew_us]

    def container_terms(self, round_id: RoundId, lane: int) -> SystemPayload:
        return {
            "client": dict(self._client),
            "timeout_ms": self._timeout_ms,
            "exactly_once": self._exactly_once,
            "producer_of": self._producer_of.get((round_id.sub_topology or "source", lane)),
            "shared": self._shared[round_id.sub_topology],
        }

    def commit_round(self, commit: RoundCommit) -> None:
        title, now_us = commit.round_id.sub_topology or "source", time.time_ns() // 1000
        with self._lock:
            for container in commit.containers:
                self._committed_us[(title, container.lane)] = now_us
                if container.receipt is None:
                    self._producer_of.pop((title, container.lane), None)
                else:
                    self._producer_of[(title, container.lane)] = container.receipt

    @waited_for()
    def shut_out(self, epoch: int, sub_topology: str | None) -> None:
        self.check_epoch(epoch)
        sub = self._own_model.sub_topology(sub_topology)
        self._fencing.fence({sub.title: [container.lane for container in sub.containers]})
        with self._lock:
            self._producer_of = {key: token for key, token in self._producer_of.items() if key[0] != sub.title}

    @waited_for()
    def recover(self, epoch: int, sub_topology: str | None) -> dict[TaskName, Checkpoint]:
        self.shut_out(epoch, sub_topology)
        sub = self._own_model.sub_topology(sub_topology)
        for _ in range(SEED_TRIES):
            mine = self._read(epoch, sub)
            lost = self._lost(sub, mine)
            if not lost:
                return mine
            # Expired, or set by somebody else: the topic is the record. Read once more under the lanes: an attempt of this
            # epoch that takes one only now may commit before that, and ends what is begun here if it comes later.
            producers = {lane: self._fencing.take(sub.title, lane) for lane in lost}
            self.check_epoch(epoch)
            mine = self._read(epoch, sub)
            lost = self._lost(sub, mine)
            is_set = [lane in producers and self._fencing.set_positions(producers[lane], lost[lane]) for lane in lost]
            if all(is_set):
                return mine
        raise UnavailableError(
            f"application {self.application!r}: positions of sub-topology {sub.title} are lost, and attempts of earlier rounds "
            f"have taken its lanes {SEED_TRIES} times while they were set again",
            "it is tried again",
        )

    def _read(self, epoch: int, sub: SubTopologyModel) -> dict[TaskName, Checkpoint]:
        in_group = self._processor_id is not None
        try:
            found = stored_checkpoints(self._checkpoints, self._own_model, is_held=True, in_group=in_group)
        except StorageError:
            self.check_epoch(epoch)  # or they are of a job model that has come in between
            raise
        return {task: checkpoint for task, checkpoint in found.items() if task.sub_topology == sub.name}

    def _lost(self, sub: SubTopologyModel, checkpoints: Mapping[TaskName, Checkpoint]) -> dict[int, list[Position]]:
        """By lane the positions of `checkpoints` that the groups do not have."""
        shared = set(self._shared[sub.name])
        expected = {
            container.lane: container_positions(
                self.application, sub.title, container.lane, [checkpoints[task.name] for task in container.tasks], shared
            )
            for container in sub.containers
        }
        found: dict[str, Mapping[tuple[str, int], object]] = {}
        for group, positions in by_group(chain.from_iterable(expected.values())).items():
            places = [(one.topic, one.partition) for one in positions]
            found[group] = committed_positions(self._client, group, places, self._deadline)
        lost = {
            lane: [one for one in mine if found[one.group].get((one.topic, one.partition)) != (one.offset, one.note)]
            for lane, mine in expected.items()
        }
        return {lane: mine for lane, mine in lost.items() if mine}

    def publish_status(self, sub_topology: str | None, status: Mapping[str, Any]) -> None:
        """In no transaction, so that it holds back nothing of what others read there. One that only hears of others has nothing
        to publish."""
        if self._processor_id == "":
            return
        name = published_name(sub_topology or "source", self._processor_id)
        self._system.own_topics.write(self.application, STATUS, {name: msgspec.json.encode(dict(status))})

    def publish_processor(self, processor_id: str, status: Mapping[str, Any] | None) -> None:
        value = None if status is None else msgspec.json.encode(dict(status))
        self._system.own_topics.write(self.application, PROCESSORS, {processor_id: value})
