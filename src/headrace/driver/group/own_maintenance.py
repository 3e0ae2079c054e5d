"""What a processor of a group does behind its own rounds: it says where its tasks have run, and removes unused local stores."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection

from headrace.core.affinity.groupers import LocalityInfo
from headrace.core.affinity.locations import LocationId
from headrace.driver.maintenance.store_retention import INTERVAL_S, StoreRetention
from headrace.driver.rounds.sub_topology_runner import SubTopologyRunner
from headrace.errors import FencedError, HeadraceError
from headrace.group.processor_group import ProcessorGroup
from headrace.model.tasks import TaskName
from headrace.ports.coordinator_store import JobReader

LOG = logging.getLogger("headrace.group")


class OwnMaintenance:
    """What a processor's rounds are followed by: it remembers where its tasks have run, and removes the local stores of those
    that live elsewhere. Versions of the state, and files that all share, are the leader's: `GroupMaintenance`."""

    def __init__(self, group: ProcessorGroup, reader: JobReader, retention: StoreRetention | None) -> None:
        self._group, self._reader, self._retention = group, reader, retention
        self._began_s = time.monotonic()
        self._ran: dict[TaskName, LocationId] = {}
        self._adding = threading.Lock()  # rounds of several sub-topologies do, and who follows the group

    def began(self, runner: SubTopologyRunner) -> None:
        """A round of this one is to begin. `FencedError` unless the lease holds: it would be dropped a moment later."""
        if not self._group.lease.holds(self._group.now_s()):
            raise FencedError(f"no round of {runner.sub.title} is begun: ZooKeeper has not confirmed this processor lately")

    def committed(self, runner: SubTopologyRunner) -> None:
        """A round of this one was committed, and the next has not begun."""
        ran = runner.new_locations()
        with self._adding:
            self._ran.update(ran)

    def keep(self) -> None:
        """The leader does: a version may be of tasks of several processors."""

    def tidy(self) -> None:
        """The leader does."""

    def remove_unused_stores(self, *, has_tasks: bool) -> None:
        """Once this processor has its share, and from time to time: what it was to get back is assigned to it then. One that
        waits for tasks removes none in its first hour."""
        retention, now_s = self._retention, time.monotonic()
        is_time = has_tasks or now_s - self._began_s >= INTERVAL_S
        if retention is not None and is_time and retention.is_due(now_s) and (model := self._reader.job_model()) is not None:
            retention.look(model, now_s)

    def has_tasks(self, tasks: Collection[TaskName]) -> None:
        """Rounds of these begin: where others have run is for their processors to say."""
        with self._adding:
            self._ran = {task: location for task, location in self._ran.items() if task in tasks}

    @property
    def has_new_locations(self) -> bool:
        """Whether tasks have run where they are not known to have."""
        return bool(self._ran)

    def keep_locality(self) -> None:
        """Store where tasks have run. What could not be stored is tried again; the job model says nearly the same."""
        with self._adding:
            ran = dict(self._ran)
        try:
            if ran:
                self._group.locality.write_processor_locality(LocalityInfo(ran))
        except HeadraceError as error:
            LOG.info("where tasks have run could not be stored, it is tried again: %s", error.message)
            return
        with self._adding:
            self._ran = {task: location for task, location in self._ran.items() if ran.get(task) != location}
