"""The notes that say whose state files are in a folder, see `core.state_owners`; protocol.md 20."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection

from headrace.codec.job_records import STATE_ID, state_id_of
from headrace.core.state_owners import Ownership, missing_notes, ownership
from headrace.ports.coordinator_store import CoordinatorStore
from headrace.ports.metadata_store import MetadataStore
from headrace.state_files.files import StateFiles

LOG = logging.getLogger("headrace.job")


def given_state_id(store: CoordinatorStore, epoch: int, metadata: MetadataStore) -> str:
    """The id of an application's state, which is given now where it has none. `FencedError` where another driver holds the
    application."""
    found = state_id_of(metadata)
    if found is None:
        found = uuid.uuid4().hex
        store.write_metadata(epoch, STATE_ID, {STATE_ID: found.encode()})
    return found


class StateNotes:
    """Those of one application's name. `metadata`: of the application that looks. A note is a file whose name is the id of a
    state, in a folder of the notes alone: two that are left at once are both there."""

    def __init__(self, files: StateFiles, application: str, metadata: MetadataStore) -> None:
        self._files, self._application, self._metadata = files, application, metadata
        self._folder, self.uri = f".states-of-{application}", files.uri
        self._own: str | None = None

    def is_alone(self) -> bool:
        """Whether the application's own note is there and no other: to be asked after files were listed, since a note is left
        before files are written. `OSError` where that cannot be read."""
        own = self._id()
        return own is not None and self._ids() == {own}

    def ownership(self, named: Callable[[], Collection[str]]) -> Ownership:
        """What the files there are to the application; changes nothing. `named` gives the files that its checkpoints name."""
        notes = self._ids()
        found = () if notes else self._files.list(self._application)
        return ownership(self._id(), notes, found, named() if found else ())

    def leave(self, store: CoordinatorStore, epoch: int, named: Callable[[], Collection[str]]) -> None:
        """Leave the application's note, durably, before anything of it is written there; a warning is logged where others' are
        there, too. `FencedError` where another driver holds the application, `OSError` where the folder cannot be written."""
        notes, state = self._ids(), self.ownership(named)
        for one in missing_notes(given_state_id(store, epoch, self._metadata), notes, state):
            self._files.mark(f"{self._folder}/{one}", one)
        if not self.is_alone():
            LOG.warning("%s", self.warning())

    def withdraw(self) -> None:
        """Delete the application's note: from now on its files there are what others may delete."""
        if (own := self._id()) is not None:
            self._files.delete(f"{self._folder}/{own}")

    def warning(self) -> str:
        """That others have state there, and what to do."""
        uri, application = self.uri, self._application
        notes = [f"{uri}/{self._folder}/{one}" for one in sorted(self._ids() - {self._id()})]
        others = " and ".join(notes) or f"{uri}/{application}"  # without any note, and none of its files is this one's
        return (
            f"state_uri {uri} also has state files of another application {application!r}, one on another system: files that "
            f"no checkpoint names are not deleted there. Set `state_uri` to a folder of its own (to move state, stop the job "
            f"and copy {uri}/{application} there); or delete {others}, if that one does not need its files there any more: "
            f"the next start deletes them"
        )

    def _id(self) -> str | None:
        self._own = self._own or state_id_of(self._metadata)
        return self._own

    def _ids(self) -> frozenset[str]:
        names = (name.rpartition("/")[2] for name in self._files.list(self._folder))
        return frozenset(name for name in names if not name.startswith("."))
