"""Owns deleting state files that nothing reaches any more. Only the driver that holds the application does (protocol.md 20)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from headrace.model.checkpoint import Checkpoint
from headrace.runtime.state_files import StateFiles


def files_of(checkpoints: Iterable[Checkpoint]) -> frozenset[str]:
    """The state files that the heads of `checkpoints` build on."""
    return frozenset(
        file.name for checkpoint in checkpoints if checkpoint.head is not None for file in checkpoint.head.files
    )


class StateGarbage:
    """Keeps, per sub-topology, the files of the last `versions` commits; deletes what drops out."""

    def __init__(self, files: StateFiles, application: str, versions: int) -> None:
        self._files, self._application, self._versions = files, application, versions
        self._kept: dict[str | None, deque[frozenset[str]]] = {}

    def collect_orphans(self, checkpoints: Iterable[Checkpoint], still_ours: Callable[[], None]) -> int:
        """At the start, when no round runs: delete what no current checkpoint names. The number of files deleted.

        `still_ours` raises if another driver has taken the application. Asked after the files were listed: so nothing
        in the list is a successor's, whatever happens to us after that, and names are never used again. Else a driver
        that was stopped and wakes would delete what its successor wrote.
        """
        live = files_of(checkpoints)
        orphans = [name for name in self._files.list(self._application) if name not in live]
        if orphans:
            still_ours()
        for name in orphans:
            self._files.delete(name)
        return len(orphans)

    def committed(self, sub_topology: str | None, checkpoints: Iterable[Checkpoint]) -> None:
        """After a commit of a sub-topology: `checkpoints` are all of its current ones."""
        kept = self._kept.setdefault(sub_topology, deque())
        kept.append(files_of(checkpoints))
        if len(kept) <= self._versions:
            return
        gone = kept.popleft()
        live = frozenset().union(*kept)
        for name in sorted(gone - live):
            self._files.delete(name)
