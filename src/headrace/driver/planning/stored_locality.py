"""Where the tasks of a job have run last, in its metadata. Seed: SEP-11 (LocalityManager)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.core.affinity.groupers import LocalityInfo
from headrace.core.affinity.locations import LocationId
from headrace.model.job_model import JobModel
from headrace.model.tasks import TaskName
from headrace.ports import CoordinatorStore, MetadataStore

LOCALITY = "locality"  # namespace: a task's name to the id of a location


class StoredLocality:
    """See `core.affinity.groupers.LocalityManager`. Only who holds the job may write: then `store` and `epoch` are its own."""

    def __init__(self, metadata: MetadataStore, store: CoordinatorStore | None = None, epoch: int = 0) -> None:
        self._metadata, self._store, self._epoch = metadata, store, epoch
        self._written: Mapping[TaskName, LocationId] | None = None

    def read_processor_locality(self) -> LocalityInfo:
        stored = self._metadata.all(LOCALITY)
        return LocalityInfo({TaskName.parse(task): LocationId(place.decode()) for task, place in stored.items()})

    def write_processor_locality(self, info: LocalityInfo) -> bool:
        """Keep these. `FencedError` where another driver holds the job."""
        assert self._store is not None, "it was opened for reading"
        if self._written is None:
            self._written = self.read_processor_locality().get_locality()
        changed = {task: place for task, place in info.get_locality().items() if self._written.get(task) != place}
        if changed:
            self._store.write_metadata(self._epoch, LOCALITY, {str(task): place.encode() for task, place in changed.items()})
            self._written = {**self._written, **changed}
        return bool(changed)


def locality_changes(stored: Iterable[TaskName], model: JobModel) -> dict[str, bytes | None]:
    """What is to be removed with a plan: the entries of tasks that it has not."""
    there = {task.name for task in model.tasks}
    return {str(task): None for task in stored if task not in there}
