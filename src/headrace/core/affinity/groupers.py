"""Which containers tasks are in, as SEP-11 has it: the groupers of tasks, with the two older forms of calling them."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from headrace.core.affinity.locations import LocationId
from headrace.core.affinity.members import Member, TaskHistory, assigned
from headrace.model.job_model import ContainerModel, TaskModel
from headrace.model.tasks import TaskName


@dataclass(frozen=True, slots=True)
class LocalityInfo:
    """Where tasks have run last."""

    locality: Mapping[TaskName, LocationId] = field(default_factory=dict)

    def get_locality(self) -> Mapping[TaskName, LocationId]:
        return self.locality


class LocalityManager(Protocol):
    """Keeps where tasks have run last, over restarts."""

    @abstractmethod
    def read_processor_locality(self) -> LocalityInfo:
        """All that is kept."""

    @abstractmethod
    def write_processor_locality(self, info: LocalityInfo) -> bool:
        """Keep these; what is kept of other tasks stays. Whether anything was another: only then something is written."""


class TaskNameGrouper(ABC):
    """Puts the tasks of a sub-topology into containers."""

    @abstractmethod
    def group(
        self,
        tasks: Collection[TaskModel],
        processor_ids: Collection[str] | None = None,
        previous_containers: Collection[ContainerModel] | None = None,
    ) -> frozenset[ContainerModel]:
        """One container for each processor that has tasks. `previous_containers`: those of the last job model. Without these,
        or without processors too, it is an older form, which is deprecated."""


class BalancingTaskNameGrouper(TaskNameGrouper):
    """An older kind of grouper, which is given where tasks have run instead of the containers of before."""

    @abstractmethod
    def balance(self, tasks: Collection[TaskModel], locality_manager: LocalityManager) -> frozenset[ContainerModel]:
        """Deprecated: call `group` with the processors and the containers of before."""


class GroupByProcessor(BalancingTaskNameGrouper):
    """A task goes to the processor that had it, else to one at the same location, else to the least loaded; all have the same
    share, and no task moves without need.

    `locations`: where processors are; of others, where their containers were.
    """

    def __init__(self, locations: Mapping[str, str] | None = None) -> None:
        self._locations = dict(locations or {})

    def group(
        self,
        tasks: Collection[TaskModel],
        processor_ids: Collection[str] | None = None,
        previous_containers: Collection[ContainerModel] | None = None,
    ) -> frozenset[ContainerModel]:
        if previous_containers is None:
            form = "group(tasks)" if processor_ids is None else "group(tasks, processor_ids)"
            _warn(f"{form} is deprecated: call group(tasks, processor_ids, previous_containers), () at the first run")
        before = tuple(previous_containers or ())
        known = {one.processor_id: one.location_id for one in before if one.processor_id is not None}
        ids = ("0",) if processor_ids is None else sorted(set(processor_ids))
        members = [Member(id_, self._locations.get(id_, known.get(id_))) for id_ in ids]
        return frozenset(assigned(list(tasks), members, TaskHistory(before)))

    def balance(self, tasks: Collection[TaskModel], locality_manager: LocalityManager) -> frozenset[ContainerModel]:
        """One processor for each location where tasks have run, by its name."""
        _warn("balance(tasks, locality_manager) is deprecated: call group(tasks, processor_ids, previous_containers)")
        locality = locality_manager.read_processor_locality().get_locality()
        members = [Member(location, location) for location in sorted(set(locality.values()))] or [Member("0")]
        return frozenset(assigned(list(tasks), members, TaskHistory(last_locations=locality)))


def _warn(text: str) -> None:
    warnings.warn(text, DeprecationWarning, stacklevel=3)
