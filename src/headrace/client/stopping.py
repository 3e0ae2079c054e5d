"""Stopping a job from any process that has its system: a request, as those for startpoints."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.client.application_client import ApplicationClient
from headrace.client.job_look import is_run
from headrace.codec.job_records import STOPS, stop_request
from headrace.environment import this_user
from headrace.errors import ConfigError
from headrace.model.commits import DriverLease


@dataclass(frozen=True, slots=True)
class StopPreview:
    """The process that runs the job, and the run that is to stop."""

    host: str
    pid: int
    run_id: str


class Stopping(ApplicationClient):
    """To be used in a `with`."""

    def preview(self) -> StopPreview:
        """What would be stopped. `ConfigError` where it does not run, or is run by a group: each processor stops alone."""
        store = self._system.job_store(self.application)
        holder: DriverLease | None = store.holder()
        if not is_run(store):
            raise ConfigError(
                f"application {self.application!r} does not run",
                "there is nothing to stop; `headrace status` says when it ran last",
            )
        if holder is None or store.grants() is not None:
            raise ConfigError(
                f"application {self.application!r} is run by a group of processors",
                "stop each processor where it runs, by SIGTERM: the others take its tasks over",
            )
        return StopPreview(holder.host, holder.pid, holder.run_id)

    def request(self, preview: StopPreview) -> str:
        """Request it, durably; the id. The driver stops within a second: a round that runs is dropped whole."""
        metadata = self._system.metadata_store(self.application)
        id_: str = metadata.request(STOPS, stop_request(preview.run_id, this_user()))
        return id_
