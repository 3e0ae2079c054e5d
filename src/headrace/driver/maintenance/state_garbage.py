"""Deleting state files that nothing reaches any more. Only the driver, or the leader of a group, that holds the
application does (protocol.md 20)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable

import msgspec

from headrace.codec.job_records import SPARED_FILES
from headrace.core.group.orphans import orphans
from headrace.model.checkpoint import Checkpoint
from headrace.ports.coordinator_store import CoordinatorStore
from headrace.ports.metadata_store import MetadataStore
from headrace.state_files.files import StateFiles


def files_of(checkpoints: Iterable[Checkpoint]) -> frozenset[str]:
    """The state files that the heads of `checkpoints` build on."""
    return frozenset(file.name for checkpoint in checkpoints if checkpoint.head is not None for file in checkpoint.head.files)


def files_before_repairs(
    store: CoordinatorStore, metadata: MetadataStore, files: StateFiles, application: str, epoch: int
) -> frozenset[str]:
    """The state files that were there at the first start after a repair of the system, for as long as the repair counts. The
    repair may have taken an older catalog that does not know them, and the newest one may be put back."""
    repairs, known = store.repairs(), metadata.all(SPARED_FILES)
    new = [repair for repair in repairs if repair not in known]
    found = msgspec.json.encode(files.list(application)) if new else b""
    changed = dict.fromkeys(new, found) | {repair: None for repair in known if repair not in repairs}
    if changed:
        store.write_metadata(epoch, SPARED_FILES, changed)
    lists = [value for value in (known | changed).values() if value is not None]
    return frozenset(name for value in lists for name in msgspec.json.decode(value, type=list[str]))


class StateGarbage:
    """Deletes what the current checkpoints and the held ones do not name any more. Threads may share it.

    A checkpoint is held before it is stored as a kept version, and until it is known to be dropped: so every stored version
    names files that are there, whenever this process ends. `spared` are files that are never deleted here. `is_alone`: whether
    all files that are listed are of this application; where another's are among them only what was named is deleted.
    """

    def __init__(
        self,
        files: StateFiles,
        application: str,
        spared: frozenset[str] = frozenset(),
        is_alone: Callable[[], bool] = lambda: True,
    ) -> None:
        self._files, self._application, self._spared, self._is_alone = files, application, spared, is_alone
        self._current: dict[str | None, tuple[Checkpoint, ...]] = {}  # by sub-topology
        self._live: dict[str | None, frozenset[str]] = {}  # the files of these
        self._held: frozenset[str] = frozenset()  # files of held checkpoints
        self._lock = threading.Lock()

    def collect_orphans(self, still_ours: Callable[[], None], in_force: Callable[[], Collection[int]] = tuple) -> int:
        """Delete what no current checkpoint names, and no held one. How many files. `in_force`: under which grants rounds may
        still commit, see `orphans`; of others the current checkpoints show all that was committed. None: no round runs.

        `still_ours` raises if another driver has taken the application. Asked after the files were listed: so nothing
        in the list is a successor's, whatever happens to us after that, and names are never used again. Else a driver
        that was stopped and wakes would delete what its successor wrote. Whose the files are is asked after the list, too:
        who writes there leaves a note before.
        """
        live = self.named()
        found = self._files.list(self._application)  # first: a grant that comes into force later has none of these
        unneeded = orphans(found, live | self._spared, in_force())
        if unneeded and not self._is_alone():
            return 0
        if unneeded:
            still_ours()
        self.delete(unneeded)
        return len(unneeded)

    def named(self) -> frozenset[str]:
        """All files that the current checkpoints name, and the held ones."""
        with self._lock:
            return self._held.union(*self._live.values())

    def committed(self, sub_topology: str | None, checkpoints: Iterable[Checkpoint]) -> None:
        """After a commit of a sub-topology: `checkpoints` are all of its current ones."""
        current = tuple(checkpoints)
        live = files_of(current)
        with self._lock:
            before = self._live.get(sub_topology, frozenset())
            self._current[sub_topology], self._live[sub_topology] = current, live
            unneeded = before - live - self._held
        self.delete(unneeded)

    def delete_replaced(self, names: Collection[str]) -> None:
        """Delete these, which newer checkpoints of their tasks do not name, but those that others do, or held ones."""
        with self._lock:
            unneeded = frozenset(names).difference(self._held, *self._live.values())
        self.delete(unneeded)

    def current(self) -> dict[str | None, tuple[Checkpoint, ...]]:
        """The current checkpoints of each sub-topology, the same objects from one commit of it to the next."""
        with self._lock:
            return dict(self._current)

    def hold(self, checkpoints: Iterable[Checkpoint]) -> None:
        """Hold these, with what is held already."""
        with self._lock:
            self._held |= files_of(checkpoints)

    def hold_current(self, sub_topology: str | None) -> tuple[Checkpoint, ...]:
        """Hold the current checkpoints of a sub-topology, and give them; no file of theirs goes in between."""
        with self._lock:
            self._held |= self._live[sub_topology]
            return self._current[sub_topology]

    def hold_only(self, checkpoints: Iterable[Checkpoint]) -> frozenset[str]:
        """Hold no others than these from now on, which are held already; the files that nothing names then, to be deleted."""
        held = files_of(checkpoints)
        with self._lock:
            unneeded = self._held.difference(held, *self._live.values())
            self._held = held
        return unneeded

    def delete(self, names: Iterable[str]) -> None:
        """Delete files that nothing names: nothing will again. The spared ones stay."""
        for name in sorted(set(names) - self._spared):
            self._files.delete(name)
