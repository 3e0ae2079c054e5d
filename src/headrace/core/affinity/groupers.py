"""Which containers tasks are in, as SEP-11 has it: the groupers of tasks, with the two older forms of calling them."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from headrace.core.affinity.lived import Left, Lived
from headrace.core.affinity.locations import LocationId
from headrace.core.affinity.members import Member, TaskHistory, assigned, lanes_by_processor
from headrace.core.job_plan.containers import not_sliced
from headrace.core.job_plan.grouper_calls import named_errors
from headrace.errors import ConfigError
from headrace.model.job_model import ContainerModel, TaskModel
from headrace.model.names import few
from headrace.model.tasks import TaskName

_WANTED = "return containers of which each of the given tasks is in exactly one"
_SLICES = "return containers that have all virtual tasks of a task, or every second: of 4 buckets 0 and 2, and 1 and 3"


@dataclass(frozen=True, slots=True)
class LocalityInfo:
    """Where tasks have run last. `former`: where they ran before that, with when they left."""

    locality: Mapping[TaskName, LocationId] = field(default_factory=dict)
    former: Mapping[TaskName, Mapping[LocationId, Left]] = field(default_factory=dict)

    def get_locality(self) -> Mapping[TaskName, LocationId]:
        return self.locality

    def with_newer(self, newer: LocalityInfo) -> LocalityInfo:
        """The same, but of the tasks that `newer` has."""
        former = {task: places for task, places in self.former.items() if task not in newer.locality}
        return LocalityInfo({**self.locality, **newer.locality}, {**former, **newer.former})


def locality_of(lived: Mapping[TaskName, Lived]) -> LocalityInfo:
    return LocalityInfo(
        {task: one.last for task, one in lived.items()}, {task: one.former for task, one in lived.items() if one.former}
    )


class LocalityManager(Protocol):
    """Keeps where tasks have run last, over restarts."""

    @abstractmethod
    def read_processor_locality(self) -> LocalityInfo:
        """All that is kept."""

    @abstractmethod
    def write_processor_locality(self, info: LocalityInfo) -> bool:
        """Keep where these have run last; where they ran before that is remembered then. What is kept of other tasks stays.
        Whether anything was another: only then something is written."""


class TaskNameGrouper(ABC):
    """Puts the tasks of a sub-topology into containers."""

    @abstractmethod
    def group(
        self,
        tasks: Collection[TaskModel],
        processor_ids: Collection[str] | None = None,
        previous_containers: Collection[ContainerModel] | None = None,
    ) -> Collection[ContainerModel]:
        """One container for each processor that is to have tasks, each task in one of them. `previous_containers`: those of the
        last job model. Without these, or without processors too, it is an older form, which is deprecated.

        What counts is which processor has which tasks: lanes and locations are those that the processors have."""


class BalancingTaskNameGrouper(TaskNameGrouper):
    """An older kind of grouper, which is given where tasks have run instead of the containers of before."""

    @abstractmethod
    def balance(self, tasks: Collection[TaskModel], locality_manager: LocalityManager) -> frozenset[ContainerModel]:
        """Deprecated: call `group` with the processors and the containers of before."""


class GroupByProcessor(BalancingTaskNameGrouper):
    """A task goes to the processor that had it, else to one at the same location, else to the least loaded; all have the same
    share, and no task moves without need. Of more processors than tasks only as many have a container: one without tasks would
    hold a lane for nothing.

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


def containers_by(
    grouper: TaskNameGrouper,
    tasks: Sequence[TaskModel],
    processors: Collection[Member],
    before: Collection[ContainerModel],
    sub_topology: str,
) -> tuple[ContainerModel, ...]:
    """The containers that a user's `grouper` makes, by lane; it is given copies. `ConfigError` for what it raises, and unless
    each of `tasks` is in one container, of one of the `processors`, its virtual tasks in slices (see
    `containers_of`); `sub_topology`: the title of the one whose tasks they are."""
    title = f"task_name_grouper {type(grouper).__qualname__}, sub-topology {sub_topology!r}"
    members = {one.id: one for one in processors}
    with named_errors(ConfigError, f"{title}: group()", ": it has to return containers for any tasks and any processors"):
        found = list(grouper.group(list(tasks), sorted(members), tuple(before)))
    owners: dict[TaskName, str] = {}
    for container in found:
        if not isinstance(container, ContainerModel) or container.processor_id not in members:
            expected = f"an hr.ContainerModel whose processor_id is one of {', '.join(sorted(members))}"
            raise ConfigError(f"{title}: group() returned {container!r:.200}", f"return {expected}")
        for task in container.tasks:
            if task.name in owners:
                raise ConfigError(f"{title}: task {task.name} is in two containers", _WANTED)
            owners[task.name] = container.processor_id
    wanted = {task.name for task in tasks}
    if wanted != owners.keys():
        name = min(wanted ^ owners.keys(), key=str)
        what = "is in no container" if name in wanted else "is none of those that it was given"
        raise ConfigError(f"{title}: task {name} {what}", _WANTED)
    shares = {id_: tuple(task for task in tasks if owners[task.name] == id_) for id_ in sorted(set(owners.values()))}
    for id_, share in shares.items():
        if odd := not_sliced(share):
            names, whole = few([str(task.name) for task in odd]), odd[0].name.whole
            expected = "expected all of them, or those of every second bucket, every fourth, and so on"
            raise ConfigError(f"{title}: of the virtual tasks of {whole} processor {id_!r} has {names}: {expected}", _SLICES)
    lanes = lanes_by_processor(list(shares), before)
    made = (ContainerModel(lanes[id_], share, id_, members[id_].location_id) for id_, share in shares.items())
    return tuple(sorted(made, key=lambda one: one.lane))


def _warn(text: str) -> None:
    warnings.warn(text, DeprecationWarning, stacklevel=3)
