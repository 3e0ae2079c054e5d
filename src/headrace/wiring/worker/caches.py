"""What a worker process keeps between rounds: the objects of users' Processor classes, one per task, and the
resources that they load, one per plan.
"""

from __future__ import annotations

import atexit
import logging
import threading
from typing import Any

LOG = logging.getLogger("headrace.processor")
TASKS_MAX = 256  # tasks move between worker processes: what was not used for longest goes


class WorkerCaches:
    """The caches of this process; rounds of several threads may share them. `plan` names application, model and run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tasks: dict[tuple[str, str], dict[str, Any]] = {}
        self._resources: dict[str, dict[Any, Any]] = {}

    def of(self, plan: str, task: str) -> dict[str, Any]:
        """`processors` of the task and `resources` of the plan, for as long as the process has room for them."""
        with self._lock:
            found = self._tasks.pop((plan, task), None)
            if found is None:
                found = {"processors": {}, "resources": self._resources.setdefault(plan, {})}
            self._tasks[plan, task] = found  # at the end: used last
            while len(self._tasks) > TASKS_MAX:
                self._drop(next(iter(self._tasks)))
            return found

    def clear(self, application: str | None = None) -> None:
        """Drop everything, or what belongs to one application."""
        with self._lock:
            for plan, task in list(self._tasks):
                if application is None or plan.startswith(f"{application}/"):
                    self._drop((plan, task))

    def _drop(self, entry: tuple[str, str]) -> None:
        for processor, _ in self._tasks.pop(entry)["processors"].values():
            try:
                processor.close()
            except Exception:  # the user's: whatever it is, the work is done and committed
                LOG.exception("%s.close() failed", type(processor).__qualname__)
        if all(plan != entry[0] for plan, _ in self._tasks):
            self._resources.pop(entry[0], None)


CACHES = WorkerCaches()
atexit.register(CACHES.clear)
