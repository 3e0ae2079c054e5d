"""Reading a job that another process drives: its plan and its checkpoints are two reads, and the plan may change in between."""

from __future__ import annotations

import time
from collections.abc import Mapping

from headrace.errors import StorageError, UnavailableError
from headrace.model.checkpoint import Checkpoint
from headrace.model.job_model import JobModel
from headrace.model.tasks import TaskName
from headrace.ports.coordinator_store import JobReader

CHANGE_S = 5.0  # a change of plan is not seen whole for so long at most
CHANGES_S = 30.0  # a job whose plan changes all the time is read again for so long


def plan_and_checkpoints(store: JobReader) -> tuple[JobModel | None, Mapping[TaskName, Checkpoint]]:
    """The job model, None before the first run, and the checkpoints of its tasks. `UnavailableError` where the plan changes
    again and again."""
    began_s = time.monotonic()
    model = store.job_model()
    while model is not None:
        try:
            checkpoints = store.checkpoints()
        except UnavailableError:
            raise
        except StorageError:  # a reader may see one topic as it was before a transaction, and another as it is after it
            if time.monotonic() - began_s > CHANGE_S:
                raise
            time.sleep(0.05)
            model = store.job_model()
            continue
        after = store.job_model()
        if after is not None and after.version == model.version:
            return model, checkpoints
        if time.monotonic() - began_s > CHANGES_S:
            raise UnavailableError(
                f"application {model.application!r}: its plan has changed from version {model.version} to "
                f"{'none' if after is None else after.version} while it was read, for {CHANGES_S:g} s",
                "try again when the job runs without changes",
            )
        model = after
    return None, {}
