"""Owns the kept versions of the tasks' states while a job runs: taking them, storing them, and letting them go.

None of it is on a round's way: a thread of its own calls `keep` now and then. In this order, so that what is stored never
names a file that is not there, whenever the process ends: hold the files, store the version; later store that it is gone,
then delete the files. What falls between the two is an orphan, which the next start collects.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from headrace.core.state_versions import Keeping, KeptVersion, by_task, is_due, new_versions, thinned
from headrace.model.checkpoint import Checkpoint
from headrace.model.tasks import TaskName
from headrace.ports import JobStore, MetadataStore
from headrace.wire_versions import decode_version, encode_version

if TYPE_CHECKING:  # whoever only reads what is on record needs no Arrow
    from headrace.runtime.state_garbage import StateGarbage

LOG = logging.getLogger("headrace.job")
STATE_VERSIONS = "state-versions"  # namespace: a version's key to the version
WRITTEN_AT_ONCE = 200  # versions in one transaction: each holds the name of every file of its head

Versions = Mapping[TaskName, tuple[KeptVersion, ...]]


def versions_of(metadata: MetadataStore) -> Versions:
    """The kept versions on record, by task, oldest first; also of tasks that are gone, until the driver has dropped them."""
    return by_task(decode_version(data, f"version {key!r} of a task's state") for key, data in _stored(metadata))


def _stored(metadata: MetadataStore) -> list[tuple[str, bytes]]:
    return sorted(metadata.all(STATE_VERSIONS).items())


def to_store(versions: Iterable[KeptVersion]) -> dict[str, bytes]:
    """As values of the namespace `STATE_VERSIONS`, to be stored with something else."""
    return {version.key: encode_version(version) for version in versions}


class StateVersions:
    """The kept versions of one plan. One thread keeps them.

    `tasks`: of the sub-topologies with state, all of them; versions of other tasks are dropped. `stored`: what is on record.
    """

    def __init__(
        self,
        store: JobStore,
        epoch: int,
        garbage: StateGarbage,
        tasks: Mapping[str | None, Collection[TaskName]],
        stored: Versions,
        keeping: Keeping,
        clock_us: Callable[[], int],
    ) -> None:
        self._store, self._epoch, self._garbage = store, epoch, garbage
        self._keeping, self._clock_us = keeping, clock_us
        self._stored = {version.key: version for kept in stored.values() for version in kept}  # or may be
        self._unsure: set[str] = set()  # keys whose storing was begun, and not heard to be done
        garbage.hold(version.checkpoint for version in self._stored.values())
        known = {task for names in tasks.values() for task in names}
        self._wanted = {task: kept for task, kept in stored.items() if task in known}
        self._kept_us = {
            sub: max((version.kept_us for task in names for version in stored.get(task, ())), default=None)
            for sub, names in tasks.items()
        }

    def begin(self) -> None:
        """Take what is current when the plan is made; a job that runs for a minute a day has no other version of that day."""
        self._take(self._clock_us())

    def keep(self) -> None:
        """Take versions that are due, store them, and let others go. A failure is logged and no more: it is tried again."""
        try:
            now_us = self._clock_us()
            self._take(now_us)
            self._wanted = {task: thinned(kept, now_us, self._keeping) for task, kept in self._wanted.items()}
            self._write()
        except Exception as error:
            LOG.warning("could not keep versions of the state: %s", error)

    def checkpoints(self) -> list[Checkpoint]:
        """Those of all versions that are, or may be, on record: what they read on from is not to be purged."""
        found = dict(self._stored) | {version.key: version for kept in self._wanted.values() for version in kept}
        return [version.checkpoint for version in found.values()]

    def _take(self, now_us: int) -> None:
        for sub, kept_us in self._kept_us.items():
            if not is_due(kept_us, now_us, self._keeping):
                continue
            current = self._garbage.hold_current(sub)
            for version in new_versions(self._wanted, current, now_us):
                task = version.checkpoint.task
                self._wanted[task] = (*self._wanted.get(task, ()), version)
                self._kept_us[sub] = now_us

    def _write(self) -> None:
        wanted = {version.key: version for kept in self._wanted.values() for version in kept}
        new = {key: version for key, version in wanted.items() if key not in self._stored or key in self._unsure}
        gone = [key for key in self._stored if key not in wanted]
        if not new and not gone:
            return
        changes = {**to_store(new.values()), **dict.fromkeys(gone)}
        self._stored |= new
        self._unsure |= new.keys()
        left = iter(changes.items())
        while piece := dict(islice(left, WRITTEN_AT_ONCE)):
            self._store.write_metadata(self._epoch, STATE_VERSIONS, piece)
        self._stored = wanted
        self._unsure.clear()
        self._garbage.hold_only(version.checkpoint for version in wanted.values())
