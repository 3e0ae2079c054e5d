"""The system of an application for who looks at it again and again: it stays open from one look to the next, so that each reads
only what is new.

Kafka's clients, and the records of its topics, are worth keeping. The embedded log is opened for each look: that takes a
moment, and a folder that was removed and made again is seen as it is.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headrace import wiring
from headrace.config.loading import Config
from headrace.errors import HeadraceError, StorageError


class _Opened:
    def __init__(self, system: Any) -> None:
        self.system, self.users = system, 0


class KeptSystem:
    """Threads may share it. `close` it at the end."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._is_kept = not config.system.startswith("log:")
        self._lock = threading.Lock()
        self._current: _Opened | None = None

    @contextmanager
    def opened(self) -> Iterator[Any]:
        """The system, for one look. After an error of the system the next look opens it again."""
        if not self._is_kept:
            with _opened_of(self._config) as system:
                yield system
            return
        with self._lock:
            mine = self._current = self._current or _Opened(_opened_of(self._config))
            mine.users += 1
        try:
            yield mine.system
        except Exception as error:
            if isinstance(error, StorageError) or not isinstance(error, HeadraceError):
                self._leave(mine)
            raise
        finally:
            with self._lock:
                mine.users -= 1
            self._close_unused(mine)

    def close(self) -> None:
        """Close it, when the last look has ended."""
        mine = self._current
        if mine is not None:
            self._leave(mine)
            self._close_unused(mine)

    def _leave(self, mine: _Opened) -> None:
        with self._lock:
            if self._current is mine:
                self._current = None

    def _close_unused(self, mine: _Opened) -> None:
        with self._lock:
            is_unused = mine is not self._current and not mine.users
        if is_unused:
            mine.system.close()


@contextmanager
def closing_unless_kept(config: Config, kept: KeptSystem | None) -> Iterator[Any]:
    """The system for one look: the kept one, or one that is closed after it."""
    if kept is not None:
        with kept.opened() as system:
            yield system
        return
    with _opened_of(config) as system:
        yield system


def _opened_of(config: Config) -> Any:
    return wiring.open_configured(config, create=False, wait_s=wiring.LOOK_UP_WAIT_S)
