"""Startpoints as users ask for them, from any process, whether the job runs or not: what they would do, setting them,
what became of each, deleting them; and positions as a whole, for another day. How a preview is made is `startpoint_previews`.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from typing import Any

from headrace import wiring
from headrace.client.application_client import ApplicationClient, named
from headrace.client.job_view import StoredJob, stored_job
from headrace.client.positions_file import Exported, positions_of, wanted_of
from headrace.client.startpoint_manager import KnownStartpoint, OffsetManager, StartpointManager, check_deletable
from headrace.client.startpoint_previews import check_partition, entries_for, entries_of, preview_of, stamped, startpoint_of
from headrace.core.rewind.previews import StartpointPreview
from headrace.errors import ConfigError
from headrace.model.startpoint import state_policy_of
from headrace.model.tasks import TaskName
from headrace.ports.metadata_store import MetadataStore
from headrace.wiring.request_store import metadata_elsewhere


def startpoints(application: Any, system: str | None = None) -> Startpoints:
    """The startpoints of an application, by its `App` or by its name: where its tasks resume, whatever they have committed.

    `system` is the URL of where it runs, as configured if None. Use it in a `with`.
    """
    return Startpoints(*named(application, system))


class Startpoints(ApplicationClient):
    """The startpoints of one application: where its tasks resume reading, whatever they have committed.

    Use it in a `with`. A running job applies what is set within a second, any other at its next start. Errors
    are raised before anything is written.
    """

    _elsewhere: MetadataStore | None = None

    def _open_more(self, opening: ExitStack) -> None:
        elsewhere = metadata_elsewhere(self._config, self.application, wiring.LOOK_UP_WAIT_S)
        self._elsewhere = opening.enter_context(elsewhere)
        opening.callback(setattr, self, "_elsewhere", None)

    # --- setting ----------------------------------------------------------------------------------------------------

    def preview(
        self,
        stream: str,
        startpoint: Any,
        *,
        partition: int | None = None,
        task: str | TaskName | None = None,
        state: str = "keep",
    ) -> StartpointPreview:
        """What `set` would do now: per task and partition the position before and after, and what happens to state.

        `startpoint`: "earliest", "latest", "bootstrap", an offset, a time, a timedelta before now, or an `hr.Startpoint`.
        `partition` None: all; `task`: of several that read it only this one. `state`: "keep" it as it is, so that aggregates
        count replayed records again; or "rewind" it too, and all that is behind repartition streams with it: then more may be
        read again than was requested.
        """
        job = self._job()
        chosen = startpoint_of(startpoint, time.time_ns() // 1000)
        return preview_of(job, entries_for(job, stream, chosen, partition, task, state_policy_of(state)))

    def set(
        self,
        stream: str,
        startpoint: Any,
        *,
        partition: int | None = None,
        task: str | TaskName | None = None,
        state: str = "keep",
    ) -> tuple[str, ...]:
        """Ask for a position; the ids of the startpoints, one for each partition. Arguments as for `preview`."""
        return self.write(self.preview(stream, startpoint, partition=partition, task=task, state=state))

    def write(self, preview: StartpointPreview) -> tuple[str, ...]:
        """Set what a preview has shown; the ids."""
        if preview.application != self.application:
            raise ConfigError(
                f"this is a preview of application {preview.application!r}, not of {self.application!r}",
                "write it with the client that made it",
            )
        return self.manager.write_startpoints(stamped(self._job(), preview.entries))

    # --- what became of them ----------------------------------------------------------------------------------------

    def list(self) -> tuple[KnownStartpoint, ...]:
        """Every known startpoint and its status, oldest first; of finished ones the newest 1,000."""
        return tuple(self._job().known.values())

    def unreadable(self) -> Mapping[str, str]:
        """Requests for startpoints that no driver can apply, by their ids, and why: of a newer version, or damaged."""
        return self._job().unreadable

    def delete(self, *ids: str) -> tuple[str, ...]:
        """Delete startpoints that have moved nothing yet; the ids. `StartpointError` for one that is not known, or is done
        with. An id may also be that of an unreadable request."""
        self.deletable_of(ids)
        return self.manager.delete_startpoints(ids)

    def deletable_of(self, ids: Collection[str]) -> tuple[KnownStartpoint, ...]:
        """These startpoints, all of which can be deleted; errors as for `delete`. Unreadable requests are left out."""
        job = self._job()
        ids = [id_ for id_ in ids if id_ not in job.unreadable]
        check_deletable(ids, job.known)
        return tuple(job.known[id_] for id_ in ids)

    def deletable_in(self, stream: str, partition: int | None = None) -> tuple[KnownStartpoint, ...]:
        """Those for a stream, or a partition of it, that have moved nothing yet."""
        check_partition(partition)
        job = self._job()
        stream = job.stream(stream)
        found = [one for one in job.unspent if one.entry.key.ssp.stream == stream]
        return tuple(one for one in found if partition is None or one.entry.key.ssp.partition == partition)

    @property
    def is_running(self) -> bool:
        """Whether a driver runs that applies what is set."""
        return self._job().is_running

    # --- the managers of SEP-18 --------------------------------------------------------------------------------------

    @property
    def manager(self) -> StartpointManager:
        """What writes and reads startpoints by SSP and task, without looking at the job or showing anything first."""
        return StartpointManager(self._system.metadata_store(self.application), self._elsewhere)

    @property
    def offset_manager(self) -> OffsetManager:
        """Where tasks begin to read: by a startpoint, or by their checkpoint."""
        return OffsetManager(self.manager, self._system.job_store(self.application))

    # --- positions as a whole ---------------------------------------------------------------------------------------

    def export_positions(self) -> Exported:
        """Where every task is, as committed."""
        return positions_of(self._job(), time.time_ns() // 1000)

    def preview_import(
        self, exported: Exported, *, state: str = "keep", force: bool = False, repartitions: bool = False
    ) -> StartpointPreview:
        """What it would do to go back to (or on to) exported positions; only what is elsewhere moves.

        `repartitions`: those in the application's own repartition streams too; `state="rewind"` takes these back anyway, as far
        as it has to. `ConfigError` for another application's positions, unless `force`, and for what the job does not read.
        """
        job = self._job()
        wanted = wanted_of(job, exported, force, repartitions)
        return preview_of(job, entries_of(job, wanted, state_policy_of(state)))

    # --- in here ----------------------------------------------------------------------------------------------------

    def _job(self) -> StoredJob:
        return stored_job(self.application, self._config.system, self._system, self._topology, self._elsewhere)
