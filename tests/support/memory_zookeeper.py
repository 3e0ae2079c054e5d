"""ZooKeeper in memory, for tests: sessions of one process, a clock that the test moves, and faults at the test's word.

It is written after ZooKeeper's documentation and what the contract suite has seen of the real one.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace.coordination import ANY_VERSION, Create, Delete, Operation, Reason, TreeConflictError, TreeNode, Write
from headrace.errors import NotSupportedError, UnavailableError

_FORBIDDEN = re.compile("[\u0000-\u001f\u007f-\u009f\ud800-\uf8ff\ufff0-\uffff]")


@dataclass
class _Stored:
    data: bytes
    created: int
    owner: int = 0
    version: int = 0
    children_made: int = 0


@dataclass
class _Session:
    id: int
    timeout_s: float
    heard_s: float


class VirtualClock:
    """Seconds that pass when the test says."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds


@dataclass
class MemoryZooKeeper:
    """The server. Sessions end by `clock`, at the next call of anybody after their timeout, or at `expire`."""

    clock: VirtualClock = field(default_factory=VirtualClock)
    is_down: bool = False

    def __post_init__(self) -> None:
        self.nodes: dict[str, _Stored] = {"/": _Stored(b"", 0)}
        self.sessions: dict[int, _Session] = {}
        self.trees: list[MemoryTree] = []
        self.lock = threading.RLock()
        self._numbers = 0

    def tree(self, timeout_s: float = 10.0) -> MemoryTree:
        """A client, with a session of its own."""
        made = MemoryTree(self, timeout_s)
        self.trees.append(made)
        made.connect()
        return made

    def expire(self, session_id: int) -> None:
        """End this session now."""
        with self.lock:
            self.sessions.pop(session_id)
            for path in [path for path, node in self.nodes.items() if node.owner == session_id]:
                self._remove(path)

    def forget_all(self) -> None:
        """Come back empty: without nodes and sessions."""
        with self.lock:
            self.nodes = {"/": _Stored(b"", 0)}
            self.sessions.clear()

    def end_silent_sessions(self) -> None:
        """The sessions that were not heard of for their timeout."""
        if not self.is_down:
            for one in list(self.sessions.values()):
                if self.clock.now_s - one.heard_s >= one.timeout_s:
                    self.expire(one.id)

    def restart(self) -> None:
        """Be there again. As the real one does, it gives all sessions their whole timeout again."""
        self.is_down = False
        for one in self.sessions.values():
            one.heard_s = self.clock.now_s

    def number(self) -> int:
        self._numbers += 1
        return self._numbers

    # --- changes ----------------------------------------------------------------------------------------------------

    def apply(self, operations: Sequence[Operation], session_id: int) -> tuple[str, ...]:
        """All or nothing."""
        kept, kept_counts = dict(self.nodes), {path: vars(node).copy() for path, node in self.nodes.items()}
        created: list[str] = []
        changed: list[tuple[str, str]] = []
        try:
            for operation in operations:
                self._apply(operation, session_id, created, changed)
        except TreeConflictError:
            self.nodes = kept
            for path, values in kept_counts.items():
                vars(kept[path]).update(values)
            raise
        for path, kind in changed:
            self._notify(path, kind)
        return tuple(created)

    def _apply(self, operation: Operation, session_id: int, created: list[str], changed: list[tuple[str, str]]) -> None:
        path = operation.path
        if isinstance(operation, Create):
            above = _above(path)
            if above not in self.nodes:
                raise TreeConflictError(path, "missing")
            if operation.sequential:
                path = f"{path}{self.nodes[above].children_made:010d}"
            if path in self.nodes:
                raise TreeConflictError(path, "exists")
            self.nodes[above].children_made += 1
            self.nodes[path] = _Stored(operation.data, self.number(), session_id if operation.ephemeral else 0)
            created.append(path)
            changed += [(path, "data"), (above, "children")]
            return
        node = self.nodes.get(path)
        reason: Reason | None = None
        if node is None:
            reason = "missing"
        elif operation.version not in (ANY_VERSION, node.version):
            reason = "version"
        elif isinstance(operation, Delete) and any(_above(other) == path for other in self.nodes if other != "/"):
            reason = "children"
        if reason is not None or node is None:
            raise TreeConflictError(path, reason or "missing")
        if isinstance(operation, Write):
            node.data, node.version = operation.data, node.version + 1
            changed.append((path, "data"))
        elif isinstance(operation, Delete):
            del self.nodes[path]
            changed += [(path, "data"), (path, "children"), (_above(path), "children")]

    def _remove(self, path: str) -> None:
        del self.nodes[path]
        for place, kind in ((path, "data"), (_above(path), "children")):
            self._notify(place, kind)

    def _notify(self, path: str, kind: str) -> None:
        for tree in self.trees:
            tree.hear(path, kind)


class MemoryTree:
    """A client. `is_cut`: it reaches no server, as if its network was down. `are_watches_held`: what it watches is reported
    when `give_watches` is called, not before. `unanswered_in`: so many commits later one is not answered, once: every other
    one of these is done all the same."""

    def __init__(self, server: MemoryZooKeeper, timeout_s: float) -> None:
        self.name, self._server, self._timeout_s = "ZooKeeper in memory", server, timeout_s
        self.is_cut = self.are_watches_held = self._is_closed = self._is_done = False
        self.unanswered_in: int | None = None
        self._session: int | None = None
        self._watched: set[tuple[str, str]] = set()
        self._changed = threading.Event()
        self._held = False

    def connect(self) -> None:
        """Take the session up again, or another one where it has ended. Any call does so first."""
        server = self._server
        if self._is_closed or self.is_cut or server.is_down:
            raise UnavailableError(f"{self.name} does not answer")
        server.end_silent_sessions()
        session = server.sessions.get(self._session or 0)
        if session is None:
            session = _Session(server.number() + (1 << 40), self._timeout_s, server.clock.now_s)
            server.sessions[session.id] = session
            self._session = session.id
            self._watched.clear()
            self._changed.set()
        session.heard_s = server.clock.now_s

    @property
    def session_id(self) -> int | None:
        return None if self._is_closed else self._session

    @property
    def session_timeout_s(self) -> float:
        return self._timeout_s

    def read(self, path: str, *, watch: bool = False) -> TreeNode | None:
        with self._server.lock:
            self._begin([path])
            node = self._server.nodes.get(path)
            if watch:
                self._watched.add((path, "data"))
            return None if node is None else TreeNode(node.data, node.version, node.owner, node.created)

    def read_all(self, paths: Sequence[str], *, watch: bool = False) -> tuple[TreeNode | None, ...]:
        return tuple(self.read(path, watch=watch) for path in paths)

    def children(self, path: str, *, watch: bool = False) -> tuple[str, ...]:
        with self._server.lock:
            self._begin([path])
            if watch and path in self._server.nodes:
                self._watched.add((path, "children"))
            below = [other for other in self._server.nodes if other != "/" and _above(other) == path]
            return tuple(sorted(other.rpartition("/")[2] for other in below))

    def commit(self, operations: Sequence[Operation], session_id: int | None = None) -> tuple[str, ...]:
        with self._server.lock:
            self._begin([operation.path for operation in operations])
            if session_id is not None and session_id != self._session:
                raise TreeConflictError(operations[0].path, "session")
            if sum(len(getattr(one, "data", b"")) for one in operations) > 1_000_000:
                raise NotSupportedError("more than ZooKeeper takes at once")
            assert self._session is not None
            self._lose(operations, self._session)
            return self._server.apply(operations, self._session)

    def wait_for_change(self, timeout_s: float) -> bool:
        """It passes no virtual time: `timeout_s` is real seconds, for threads; a simulation gives 0."""
        found = self._changed.wait(timeout_s)
        self._changed.clear()
        return found

    def close(self) -> None:
        with self._server.lock:
            if not self._is_closed and self._session in self._server.sessions and not (self.is_cut or self._server.is_down):
                self._server.expire(self._session)
            self._is_closed = True

    def _lose(self, operations: Sequence[Operation], session_id: int) -> None:
        if self.unanswered_in is None:
            return
        self.unanswered_in -= 1
        if self.unanswered_in < 0:
            self.unanswered_in, self._is_done = None, not self._is_done
            if self._is_done:
                self._server.apply(operations, session_id)
            raise UnavailableError(f"{self.name} does not answer")

    # --- faults -----------------------------------------------------------------------------------------------------

    def give_watches(self) -> None:
        """Report what was held."""
        self.are_watches_held = False
        if self._held:
            self._held = False
            self._changed.set()

    def hear(self, path: str, kind: str) -> None:
        """Something has changed there."""
        if (path, kind) in self._watched:
            self._watched.discard((path, kind))
            if self.are_watches_held:
                self._held = True
            elif not self.is_cut:
                self._changed.set()

    def _begin(self, paths: Sequence[str]) -> None:
        for path in paths:
            assert path == "/" or path.startswith("/") and not path.endswith("/") and "//" not in path, path
            assert not _FORBIDDEN.search(path) and not {".", ".."} & set(path.split("/")), path
        self.connect()


def _above(path: str) -> str:
    return path.rpartition("/")[0] or "/"
