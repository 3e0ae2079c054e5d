"""Where the tasks of a job have run last, in its metadata. Seed: SEP-11 (LocalityManager)."""

from __future__ import annotations

import time
from collections.abc import Collection

from headrace.codec.job_records import LOCALITY
from headrace.core.affinity.groupers import LocalityInfo, locality_of
from headrace.core.affinity.lived import Lived, after_running, lived_of
from headrace.model.job_model import JobModel
from headrace.model.tasks import TaskName
from headrace.ports.coordinator_store import CoordinatorStore
from headrace.ports.metadata_store import MetadataStore


class StoredLocality:
    """See `core.affinity.groupers.LocalityManager`. Only who holds the job may write: then `store` and `epoch` are its own."""

    def __init__(self, metadata: MetadataStore, store: CoordinatorStore | None = None, epoch: int = 0) -> None:
        self._metadata, self._store, self._epoch = metadata, store, epoch
        self._written: dict[TaskName, Lived] | None = None

    def read_processor_locality(self) -> LocalityInfo:
        return locality_of(self._stored())

    def write_processor_locality(self, info: LocalityInfo) -> bool:
        """Keep these. `FencedError` where another driver holds the job."""
        assert self._store is not None, "it was opened for reading"
        if self._written is None:
            self._written = self._stored()
        written, now_us = self._written, time.time_ns() // 1000
        wanted = {task: after_running(written.get(task), place, now_us) for task, place in info.get_locality().items()}
        changed = {task: one for task, one in wanted.items() if written.get(task) != one}
        if changed:
            self._store.write_metadata(self._epoch, LOCALITY, {str(task): one.text.encode() for task, one in changed.items()})
            self._written = {**written, **changed}
        return bool(changed)

    def _stored(self) -> dict[TaskName, Lived]:
        found = {TaskName.parse(task): lived_of(text.decode()) for task, text in self._metadata.all(LOCALITY).items()}
        return {task: one for task, one in found.items() if one is not None}


def locality_changes(stored: LocalityInfo, model: JobModel, rewound: Collection[TaskName]) -> dict[str, bytes | None]:
    """What is to be changed with a plan: the entries of tasks that it has not are removed; those that go back forget where they
    came from, as the stores that they have left there are of no use."""
    there = {task.name for task in model.tasks}
    removed: dict[str, bytes | None] = {str(task): None for task in stored.get_locality() if task not in there}
    kept = {task: stored.get_locality()[task] for task in stored.former if task in there and task in rewound}
    return {**removed, **{str(task): Lived(last).text.encode() for task, last in kept.items()}}
