"""When local stores are removed whose tasks have lived elsewhere for long: at a start, and every hour."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.model.job_model import JobModel

LOG = logging.getLogger("headrace.job")
INTERVAL_S = 3_600.0


class StoreRetention:
    """`remove` removes those of all machines that have workers, but for those that a job model has there. `in_background`: it
    may have to wait for these."""

    def __init__(self, remove: Callable[[JobModel], None], in_background: bool) -> None:
        self._remove, self._in_background = remove, in_background
        self._due_s: float | None = None

    def is_due(self, now_s: float) -> bool:
        """Whether `look` would remove any at `now_s`, of a clock that only goes forward."""
        return self._due_s is None or now_s >= self._due_s

    def look(self, model: JobModel, now_s: float) -> None:
        """Remove them, if that is due. `model`: the job model in force."""
        if not self.is_due(now_s):
            return
        self._due_s = now_s + INTERVAL_S
        if self._in_background:
            threading.Thread(target=partial(self._try, model), name="headrace-old-stores", daemon=True).start()
        else:
            self._try(model)

    def _try(self, model: JobModel) -> None:
        try:
            self._remove(model)
        except Exception as error:  # it only takes room on a disk
            LOG.warning("local stores that are not used any more could not be removed: %s", getattr(error, "message", error))
