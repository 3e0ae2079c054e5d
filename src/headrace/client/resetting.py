"""Forgetting all of a job that does not run: its plan and positions, its state, and the streams that it made for itself."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headrace import wiring
from headrace.adapters.common import lease_holder as holders
from headrace.client.application_client import ApplicationClient
from headrace.client.job_look import group_at_work
from headrace.core.state_owners import Ownership
from headrace.driver.holding import kept, take_application
from headrace.errors import ConfigError, JobHeldError
from headrace.model.checkpoint import Checkpoint
from headrace.wiring.folders import local_store_dir_of, state_uri_of

if TYPE_CHECKING:
    from headrace.driver.maintenance.state_notes import StateNotes
    from headrace.group.processor_group import ProcessorGroup
    from headrace.ports.coordinator_store import CoordinatorStore
    from headrace.state_files.files import StateFiles


@dataclass(frozen=True, slots=True)
class ResetPreview:
    """What would go. `streams`: those that the job made for itself, and how many offsets each holds; Inputs and
    outputs stay. `local_stores`: how many there are on this machine. `shared_state`: not empty where no state file goes, since
    another application has some there, too."""

    application: str
    tasks: int
    streams: Mapping[str, int]
    state_files: int
    state_bytes: int
    local_stores: int
    holder: str = ""  # who runs it, empty where no process does
    group: str = ""  # the node of its group, where one is configured and stored
    shared_state: str = ""


class Reset(ApplicationClient):
    """For use in a `with`."""

    _group: ProcessorGroup | None = None

    def _open_more(self, opening: ExitStack) -> None:
        if self._config.coordinator is not None:
            from headrace.wiring.group_terms import open_group_of

            self._group = open_group_of(self._config, self.application, wiring.LOOK_UP_WAIT_S)
            opening.callback(self._group.close)

    def preview(self) -> ResetPreview:
        """`ConfigError` where nothing is stored of the application."""
        store, system = self._system.job_store(self.application), self._system
        is_known = system.has_run(self.application)
        model = store.job_model() if is_known else None
        checkpoints = {} if model is None else store.checkpoints()
        internal = [one.name for one in system.streams(of=self.application) if one.internal_of == self.application]
        notes, named = self._notes(), _files_of(checkpoints.values())
        is_shared = notes.ownership(lambda: named) is Ownership.OTHERS
        files = () if is_shared else self._state_files()
        group = self._group if self._group is not None and self._group.is_there() else None
        is_stored = model is not None or internal or files or group is not None or (is_known and store.is_half_forgotten())
        if not is_stored:
            place = f"of application {self.application!r} on {self._config.system}"
            raise ConfigError(f"nothing is stored {place}", "its next start is a first start as it is")
        lease = store.holder()
        is_alive = lease is not None and holders.is_alive(lease, _now_us())
        working = group_at_work(store)
        by_report = f"processor{'s' if len(working) > 1 else ''} {', '.join(working)} of its group" if working else ""
        heads = [one.head for one in checkpoints.values() if one.head is not None]
        return ResetPreview(
            self.application,
            0 if model is None else len(list(model.tasks)),
            {name: sum(system.end_offsets(name).values()) - sum(system.beginning_offsets(name).values()) for name in internal},
            len(files),
            0 if is_shared else sum(file.counted_bytes for head in heads for file in head.files),
            len(self._local_stores()),
            f"process {lease.pid} on {lease.host}" if lease is not None and is_alive else _processors(group) or by_report,
            "" if group is None else group.paths.root,
            notes.warning() if is_shared else "",
        )

    def forget(self) -> None:
        """Do it; again where it was interrupted. `JobHeldError` where the job runs. Inputs and outputs stay."""
        if here := _processors(self._group):
            raise JobHeldError(f"application {self.application!r} is run by {here}; nothing was changed", "stop it first")
        store, lease = self._system.job_store(self.application), holders.this_process(uuid.uuid4().hex, _now_us())
        epoch = take_application(store, lease, _now_us())
        try:
            with kept(store, epoch, _now_us):
                self._forget(store, epoch)
                for folder in self._local_stores():
                    shutil.rmtree(folder, ignore_errors=True)
                if self._group is not None and not self._group.forget():
                    here = _processors(self._group)
                    raise JobHeldError(f"application {self.application!r}: {here} came meanwhile", "stop it, and do this again")
        finally:
            store.release(epoch)

    def _forget(self, store: CoordinatorStore, epoch: int) -> None:
        """The state files go last: where they are this application's alone, known by a note, also when it is done again."""
        notes, files = self._notes(), self._files

        def named() -> frozenset[str]:
            return _files_of(store.checkpoints().values())

        if self._state_files() and notes.ownership(named) is Ownership.CLAIM:
            notes.leave(store, epoch, named)
        store.forget(epoch)
        found = self._state_files()
        for name in found if notes.is_alone() else ():
            files.delete(name)
        notes.withdraw()

    def _notes(self) -> StateNotes:
        from headrace.driver.maintenance.state_notes import StateNotes

        return StateNotes(self._files, self.application, self._system.metadata_store(self.application))

    @property
    def _files(self) -> StateFiles:
        from headrace.state_files.files import StateFiles  # pyarrow is imported when it is used

        return StateFiles(state_uri_of(self._config))

    def _state_files(self) -> list[str]:
        return self._files.list(self.application)

    def _local_stores(self) -> list[Path]:
        root = Path(local_store_dir_of(self._config)) / self.application
        return sorted(one for one in root.iterdir() if one.is_dir() and not one.is_symlink()) if root.is_dir() else []


def _files_of(checkpoints: Iterable[Checkpoint]) -> frozenset[str]:
    from headrace.driver.maintenance.state_garbage import files_of

    return files_of(checkpoints)


def _processors(group: ProcessorGroup | None) -> str:
    count = 0 if group is None else group.processors()
    return f"{count} processor{'s' if count > 1 else ''} of its group" if count else ""


def _now_us() -> int:
    return time.time_ns() // 1000
