"""The port to what coordinates the processors of a group: a tree of small nodes, as ZooKeeper has it.

A `Tree` is one process's session with it. A session ends when the process closes it, or when nothing was heard of it for its
timeout; its ephemeral nodes are deleted then. A tree that lost its session automatically takes another: `session_id` is another
then, and none of the former's nodes are there. All implementations pass `tests/contracts/test_tree_contract.py`.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

COMMIT_BYTES_MAX = 1_000_000  # ZooKeeper cuts the connection at a request of 1 MB, without a word that says why
NODE_BYTES_MAX = 900_000  # leaves room for what a commit has besides
ANY_VERSION = -1

Clock = Callable[[], float]
"""Seconds of a clock that only goes forward, also while the machine is suspended."""


def boot_time_s() -> float:
    """Seconds since some moment, by a clock that counts the time for which the machine is suspended too."""
    return time.clock_gettime(_BOOT_CLOCK)


_BOOT_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # macOS: its monotonic clock counts it as well


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A node as it was read. `version`: how often it was written since it was created. `owner`: the session with which an
    ephemeral one is deleted, 0 for another. `created`: a number that no other node of this name has had."""

    data: bytes = field(repr=False)
    version: int
    owner: int
    created: int


@dataclass(frozen=True, slots=True)
class Create:
    """A node below one that is there. A `sequential` one gets ten digits behind its name, of a number that rises."""

    path: str
    data: bytes = field(default=b"", repr=False)
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class Write:
    path: str
    data: bytes = field(repr=False)
    version: int


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Changes nothing: the node must be there, in this version."""

    path: str
    version: int


Operation = Create | Write | Delete | Check
Reason = Literal["exists", "missing", "version", "children", "session"]


def commit_bytes(operations: Sequence[Operation]) -> int:
    """What counts towards `COMMIT_BYTES_MAX`."""
    return sum(len(one.path) + len(getattr(one, "data", b"")) for one in operations)


class TreeConflictError(Exception):
    """A commit did not fit what is there, and nothing of it was done. `path`: of the operation that did not; `reason`: its node
    exists already, is missing, is in another version, has children; or the session is another."""

    def __init__(self, path: str, reason: Reason) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = path, reason


class Tree(Protocol):
    """See the module. Paths are absolute, without a slash at the end. Any thread may call; every call is bounded.

    A read is never behind what any tree had committed before the call, whichever server answers.

    All raise `UnavailableError` where no answer comes in time: a commit may then have been done, or be done a little later.
    `ConfigError` where what is there may not be read or written with the credentials that were given.
    """

    name: str
    """What errors call it, with its addresses."""

    @property
    @abstractmethod
    def session_id(self) -> int | None:
        """The present session; None while there is none. Where the connection is lost, it is what it was: whether the session
        has ended is not known then."""

    @property
    @abstractmethod
    def session_timeout_s(self) -> float:
        """The session does not end before nothing was heard of it for so long, as it was granted last."""

    @abstractmethod
    def read(self, path: str, *, watch: bool = False) -> TreeNode | None:
        """None if it is not there. `watch`: see `wait_for_change`."""

    @abstractmethod
    def read_all(self, paths: Sequence[str], *, watch: bool = False) -> tuple[TreeNode | None, ...]:
        """Several, in one go but not at one moment."""

    @abstractmethod
    def children(self, path: str, *, watch: bool = False) -> tuple[str, ...]:
        """The names of the nodes below it, sorted; none too where it is not there."""

    @abstractmethod
    def commit(self, operations: Sequence[Operation], session_id: int | None = None) -> tuple[str, ...]:
        """Do all of them at once, in their order, or none: `TreeConflictError`. The paths of the nodes created. With a session,
        only under that one. `NotSupportedError` for more than `COMMIT_BYTES_MAX`."""

    @abstractmethod
    def wait_for_change(self, timeout_s: float) -> bool:
        """Wait until a node is changed or deleted that was read with `watch` (or children of one come or are deleted), or the
        connection was lost or made: whether anything was. Such a watch counts once, and may be lost: read again from time to
        time."""

    @abstractmethod
    def close(self) -> None:
        """End the session: its ephemeral nodes are deleted. Again, it does nothing. All other calls raise `UnavailableError`
        from then on."""
