"""What processors load once per worker process: models, connections."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import Lock, RLock
from typing import Any


class _Resource:
    def __init__(self) -> None:
        self.lock = RLock()  # a loader that asks for itself must end with Python's error for that
        self.is_loaded = False
        self.value: Any = None


class Resources:
    """Resources by name. Thread-safe: of several that ask for one, the first loads it and the others wait."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._found: dict[Hashable, _Resource] = {}

    def of(self, name: Hashable, loader: Callable[[], Any]) -> Any:
        """What `loader` gave when it was first called for `name`; where it raised, it is called again."""
        with self._lock:
            resource = self._found.setdefault(name, _Resource())
        with resource.lock:
            if not resource.is_loaded:
                resource.value, resource.is_loaded = loader(), True
            return resource.value
