"""This process's own node in a group, and the lease that it gives."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.codec.documents import encode
from headrace.coordination import Check, Clock, Create, Delete, Operation, Tree, TreeConflictError
from headrace.core.group.lease import Lease
from headrace.core.group.state import ModelVersions, Registration
from headrace.errors import FencedError, UnavailableError
from headrace.group.layout import GroupPaths, sequence_of

LOG = logging.getLogger("headrace.group")
TRIES_MAX = 5  # against others that change the same nodes


@dataclass(frozen=True, slots=True)
class _Own:
    registration: Registration
    sequence: int
    path: str
    session_id: int
    created: int


class OwnNode:
    """Registers this process, again where its session has ended. Thread-safe. `lease`: until when the processor may work."""

    def __init__(self, tree: Tree, paths: GroupPaths, clock: Clock) -> None:
        self._tree, self._paths, self._clock = tree, paths, clock
        self._own: _Own | None = None
        self._lease = Lease(tree.session_timeout_s)
        self._lock = threading.Lock()

    @property
    def sequence(self) -> int | None:
        """The number of the present registration; None without one, as far as is known."""
        own = self._own
        return None if own is None else own.sequence

    @property
    def lease(self) -> Lease:
        return self._lease

    @property
    def registration(self) -> Registration | None:
        own = self._own
        return None if own is None else own.registration

    def register(self, registration: Registration) -> int:
        """Take a number behind all others, in place of an own node that is there; the number. The lease holds from then on."""
        for _ in range(TRIES_MAX):
            self._make_fixed_nodes()
            session = self._tree.session_id
            if session is None:
                continue
            mark = self._paths.stopped(registration.processor_id)
            operations: list[Operation] = [Delete(path) for path in self._left_in(session)]
            if self._tree.read(mark) is not None:
                operations.append(Delete(mark))
            operations.append(Create(self._paths.new_processor, encode(registration), ephemeral=True, sequential=True))
            try:
                (path,) = self._tree.commit(operations, session)
            except TreeConflictError:
                continue  # another session by now, or another process has deleted the mark
            sequence, node = sequence_of(path.rpartition("/")[2]), self._tree.read(path)
            assert sequence is not None, path
            if node is not None and node.owner == session:
                with self._lock:
                    self._own = _Own(registration, sequence, path, session, node.created)
                    self._lease = self._lease.ended()
                if self.confirm():
                    return sequence
        raise UnavailableError(
            f"{self._tree.name}: processor {registration.processor_id!r} could not be registered in {TRIES_MAX} tries",
            "its sessions end at once: check the server's log, and that the session timeout is long enough for the network",
        )

    def confirm(self) -> bool:
        """Ask whether the own node is there, and extend the lease if it is; False ends it: register again. Where no answer
        comes (`UnavailableError`) the lease stays as it is, and ends at its time."""
        own, sent_s, timeout_s = self._own, self._clock(), self._tree.session_timeout_s
        if own is None:
            return False
        node = self._tree.read(own.path)
        is_there = node is not None and (node.owner, node.created) == (own.session_id, own.created)
        with self._lock:
            if self._own is not own:
                return self._own is not None
            if is_there:
                self._lease = self._lease.confirmed(sent_s, min(timeout_s, self._tree.session_timeout_s))
            else:
                self._own, self._lease = None, self._lease.ended()
        return is_there

    def leave(self) -> None:
        """Delete the own node, with a mark that this was in order: the others wait for this processor. Where it has been
        deleted already there is none."""
        with self._lock:
            own, self._own, self._lease = self._own, None, self._lease.ended()
        if own is None:
            return
        mark = self._paths.stopped(own.registration.processor_id)
        for _ in range(TRIES_MAX):
            removed: list[Operation] = [Delete(mark)] if self._tree.read(mark) is not None else []
            try:
                self._tree.commit([Delete(own.path), *removed, Create(mark, str(own.sequence).encode())], own.session_id)
            except TreeConflictError as conflict:
                if conflict.path == own.path:
                    return  # it is deleted already, without a mark
            else:
                return

    def commit(self, operations: Sequence[Operation], by: int | None = None) -> bool:
        """Do all of these while the own node is there. False if they do not fit what is there: read again. `FencedError` if the
        own node is not there any more, or not under the number `by`."""
        own = self._own
        if own is None or by not in (None, own.sequence):
            raise self._fenced(by)
        try:
            self._tree.commit([Check(own.path, 0), *operations], own.session_id)
        except TreeConflictError as conflict:
            if conflict.path == own.path:
                raise self._fenced(own.sequence) from None
            return False
        return True

    def _fenced(self, by: int | None) -> FencedError:
        return FencedError(
            f"{self._tree.name}, {self._paths.root}: registration {by} of this processor is not in force; nothing was changed",
            "its session has ended, or another processor has removed it: it registers again",
        )

    def _left_in(self, session_id: int) -> list[str]:
        """Nodes of this session: the one to be replaced, and one that was created by a commit whose answer was lost."""
        processors = self._paths.processors
        names = [f"{processors}/{name}" for name in self._tree.children(processors) if sequence_of(name) is not None]
        nodes = zip(names, self._tree.read_all(names), strict=True)
        return [path for path, node in nodes if node is not None and node.owner == session_id]

    def _make_fixed_nodes(self) -> None:
        paths, above = self._paths, list[Create]()
        place = paths.root
        while place and self._tree.read(place) is None:  # what is above one that is there this user may not be allowed to read
            above.insert(0, Create(place))
            place = place.rpartition("/")[0]
        versions = encode(ModelVersions())
        fixed = [Create(path, versions if path == paths.versions else b"") for path in paths.fixed]
        found = self._tree.read_all(paths.fixed)
        for one in [*above, *(one for one, node in zip(fixed, found, strict=True) if node is None)]:
            try:
                self._tree.commit([one])
            except TreeConflictError as conflict:
                if conflict.reason != "exists":
                    raise UnavailableError(
                        f"{self._tree.name}: {one.path} cannot be made: {conflict.reason}",
                        "it is tried again; may this user create nodes there?",
                    ) from None
