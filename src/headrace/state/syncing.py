"""Making files durable: each its bytes and its name, and many of them at the same time.

Syncing one file after the other waits for the disk each time. With several at once it takes hardly longer
than for one: a round of 500 tasks writes 500 small files.
"""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

_THREADS = 8
_PENDING_MAX = 32  # files that are held open until they are durable


def sync_folder(folder: Path | str) -> None:
    """Make the names in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Syncing:
    """Files that are durable when its context is left without an error, and not before. For one thread."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, "headrace-sync")  # of this context: threads do not survive a fork
        self._pending: deque[Future[None]] = deque()

    def add(self, descriptor: int, folder: str) -> None:
        """Have the file of `descriptor` made durable, and its name in `folder`; the descriptor may be closed at once."""
        while len(self._pending) >= _PENDING_MAX:
            self._pending.popleft().result()
        self._pending.append(self._pool.submit(_sync, os.dup(descriptor), folder))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown()
        if error is None:
            for pending in self._pending:
                pending.result()


def _sync(descriptor: int, folder: str) -> None:
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    sync_folder(folder)
