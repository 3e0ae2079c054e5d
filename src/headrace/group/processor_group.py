"""A group as one of its processors sees it: who is there, what was proposed, and what this one reports.

How it is used: `register`; then, every few seconds (`core.group.settling.look_in_s`) and whenever `wait_for_change` wakes,
`state` reads all there is, the functions of `core.group` decide, and an operation here, or of `leading`, acts. What gives a
bool gives False where what is there is not what it was decided by: read the state again. Any call raises `UnavailableError`
where ZooKeeper does not answer in time; a write may then have been done.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from headrace.codec.documents import decode
from headrace.coordination import (
    Check,
    Clock,
    Create,
    Delete,
    Tree,
    TreeConflictError,
    TreeNode,
    boot_time_s,
)
from headrace.core.group.lease import Lease
from headrace.core.group.membership import leader_of, predecessor_of
from headrace.core.group.state import (
    BarrierState,
    GroupMember,
    GroupRun,
    GroupState,
    ModelOrigin,
    ModelVersions,
    PauseRequest,
    Registration,
    ReleaseBarrier,
)
from headrace.errors import StorageError, UnavailableError
from headrace.group.job_models import read_job_model, read_meta
from headrace.group.layout import GroupName, GroupPaths, number_of, sequence_of, unescaped
from headrace.group.leading import Leading
from headrace.group.locality import GroupLocality
from headrace.group.registration import TRIES_MAX, OwnNode

LOG = logging.getLogger("headrace.group")


class ProcessorGroup:
    """See the module. Thread-safe, but for `state`, which one thread calls. `tree` is this group's from now on, and closed with
    it. `root`: the node below which groups are."""

    def __init__(self, tree: Tree, root: str, name: GroupName, clock: Clock = boot_time_s) -> None:
        self.paths = GroupPaths(f"{root}/{name.node}")
        self._tree, self._clock = tree, clock
        self._own = OwnNode(tree, self.paths, clock)
        self.locality = GroupLocality(tree, self.paths, self._own)
        self._known: dict[str, GroupMember] = {}
        self._known_of: tuple[int | None, int] | None = None  # the session, and which node the processors are below
        self._highest_version = 0  # that was seen: where ZooKeeper comes back empty its numbers are not used again

    # --- this processor ---------------------------------------------------------------------------------------------

    def register(self, registration: Registration) -> int:
        """Join, or register again after the session has ended, or behind all others; the number of the registration. The lease
        holds from then on."""
        return self._own.register(registration)

    @property
    def sequence(self) -> int | None:
        """The number of the present registration, as far as is known."""
        return self._own.sequence

    @property
    def lease(self) -> Lease:
        """Until when this processor may work."""
        return self._own.lease

    def now_s(self) -> float:
        """By the clock of the lease."""
        return self._clock()

    def confirm(self) -> bool:
        """Ask whether the own registration is there, which extends the lease; False if it is not: register again."""
        return self._own.confirm()

    def leading(self, by: int) -> Leading:
        """The writes of the leader, which this processor is under the registration `by`."""
        return Leading(self._tree, self.paths, self._own, by)

    def join_barrier(self, version: int) -> bool:
        """Report that this processor has released what it loses with that proposal; False if its barrier is final or
        missing."""
        sequence = self._own.sequence
        place = f"{self.paths.participants(version)}/{sequence}"
        if self._tree.read(place) is not None:
            return True
        is_new = Check(self.paths.barrier_state(version), 0)  # a final state is the second that is written
        return self._own.commit([is_new, Create(place, ephemeral=True)], sequence)

    def rest(self, number: int | None) -> bool:
        """Report that no round runs here of what the pause of this number is for; None: that this is over, before any does."""
        sequence = self._own.sequence
        path = self.paths.rest(sequence or 0)
        node, data = self._tree.read(path), str(number).encode()
        if number is None:
            return node is None or self._own.commit([Delete(path)], sequence)
        if node is not None and node.data == data:
            return True
        before = [] if node is None else [Delete(path)]
        return self._own.commit([*before, Create(path, data, ephemeral=True)], sequence)

    def rests(self) -> Mapping[int, int]:
        """Registration to the number of the pause that it rests for."""
        names = self._tree.children(self.paths.rests, watch=True)
        nodes = self._tree.read_all([f"{self.paths.rests}/{name}" for name in names])
        found: dict[int, int] = {}
        for name, node in zip(names, nodes, strict=True):
            registration = number_of(name)
            number = None if node is None else number_of(node.data.decode("ascii", "replace"))
            if registration is not None and number is not None:
                found[registration] = number
        return found

    def remove_duplicate(self, other: GroupMember) -> bool:
        """Delete the registration of a process of this processor's id that is known to be dead."""
        mine = self._own.registration
        assert mine is not None and other.processor_id == mine.processor_id, f"{other} has another id"
        return self._own.commit([Delete(self.paths.processor(other.sequence))])

    def leave(self) -> None:
        """Stop in order: the others wait for this processor for a while."""
        self._own.leave()

    def is_there(self) -> bool:
        """Whether anything of the group is stored."""
        return self._tree.read(self.paths.root) is not None

    def processors(self) -> int:
        """How many are registered; one that was killed is, until its session ends."""
        return len(self._tree.children(self.paths.processors))

    def forget(self) -> bool:
        """Delete all that it has stored; False where a processor is, or comes to be, registered: former job models are deleted
        by then, and what each processor finds is there. Again where it was interrupted."""
        paths = self.paths
        if self._tree.children(paths.processors):
            return False
        there = [f"{paths.root}/{name}" for name in self._tree.children(paths.root)]
        fixed = [path for path in there if path in paths.fixed]
        below = [f"{path}/{name}" for path in fixed if path != paths.processors for name in self._tree.children(path)]
        if not all(_is_deleted(self._tree, path) for path in [*below, *(path for path in there if path not in fixed)]):
            return False
        try:  # at once, as a node that has others below it is not deleted: one that registers meanwhile finds all of these
            self._tree.commit([*map(Delete, fixed), Delete(paths.root)])
        except TreeConflictError:
            return not self.is_there()
        return True

    def close(self) -> None:
        """End the session, and with it the registration."""
        self._tree.close()

    # --- what is there ----------------------------------------------------------------------------------------------

    def wait_for_change(self, timeout_s: float) -> bool:
        """Wait until the state has changed as far as this processor has to act on it, or for `timeout_s`; whether it has. It
        may miss a change: read the state from time to time all the same."""
        return self._tree.wait_for_change(timeout_s)

    def state(self) -> GroupState:
        """All there is, read whole. `StorageError` naming a document that cannot be read, but for registrations."""
        path = self.paths.versions
        for _ in range(TRIES_MAX):
            before = self._tree.read(path, watch=True)
            found = self._read_state(ModelVersions() if before is None else decode(ModelVersions, before.data, path))
            if self._tree.read(path) == before:
                return found
        raise UnavailableError(f"{self._tree.name}: {path} changed at each of {TRIES_MAX} reads", "it is tried again")

    def job_model(self, version: int) -> bytes:
        """The job model of this version; `StorageError` naming the chunk that is missing, torn or altered."""
        return read_job_model(self._tree, self.paths, version)

    def _read_state(self, versions: ModelVersions) -> GroupState:
        members = self._members()
        leader = leader_of(members)
        is_leader = leader is not None and leader.sequence == self._own.sequence
        if is_leader:
            members = self._members(watch=True)
        elif self._own.sequence is not None and (before := predecessor_of(members, self._own.sequence)) is not None:
            self._tree.read(self.paths.processor(before.sequence), watch=True)
        used = [*self._tree.children(self.paths.job_models), *self._tree.children(self.paths.barriers)]
        numbers = [number for name in used if (number := number_of(name)) is not None]
        self._highest_version = max(self._highest_version, versions.proposed, versions.active, *numbers)
        run = self._tree.read(self.paths.run, watch=True)
        pause, awaited = self._tree.read(self.paths.pause, watch=True), self._awaited()
        return GroupState(
            members,
            versions,
            self._highest_version,
            self._barrier(versions.proposed, is_leader) if versions.proposed else None,
            self._origin(versions.active) if versions.active else None,
            self._origin(versions.proposed) if versions.proposed > versions.active else None,
            None if run is None or not run.data else decode(GroupRun, run.data, self.paths.run),
            frozenset(awaited),
            frozenset(id_ for id_, is_marked in awaited.items() if is_marked),
            None if pause is None or not pause.data else decode(PauseRequest, pause.data, self.paths.pause),
            self.rests() if is_leader and pause is not None and pause.data else {},
        )

    def _members(self, *, watch: bool = False) -> tuple[GroupMember, ...]:
        """By registration. What a node says never changes, so it is read once."""
        names = [name for name in self._tree.children(self.paths.processors, watch=watch) if sequence_of(name) is not None]
        place = self._tree.read(self.paths.processors)
        of = self._tree.session_id, 0 if place is None else place.created
        if self._known_of != of:  # another tree may be there, or another node, and the same names in it
            self._known, self._known_of = {}, of
        new = [name for name in names if name not in self._known]
        for name, node in zip(new, self._read_members(new), strict=True):
            if node is not None and node.owner:  # others are no registrations: they would never end
                self._known[name] = self._member(name, node)
        self._known = {name: self._known[name] for name in names if name in self._known}
        return tuple(sorted(self._known.values(), key=lambda one: one.sequence))

    def _read_members(self, names: Sequence[str]) -> tuple[TreeNode | None, ...]:
        return self._tree.read_all([f"{self.paths.processors}/{name}" for name in names])

    def _member(self, name: str, node: TreeNode) -> GroupMember:
        sequence = sequence_of(name)
        assert sequence is not None, name
        try:
            return GroupMember(sequence, decode(Registration, node.data, f"{self.paths.processors}/{name}"))
        except StorageError as error:
            LOG.warning("%s", error.message)
            return GroupMember(sequence, None)

    def _barrier(self, version: int, is_leader: bool) -> ReleaseBarrier | None:
        path = self.paths.barrier_state(version)
        node = self._tree.read(path, watch=True)
        if node is None:
            return None
        try:
            state = BarrierState(node.data.decode())
        except ValueError:
            known = ", ".join(one.value for one in BarrierState)
            raise StorageError(
                f"{path} holds {node.data[:50]!r}: expected one of {known}", "another program has written it: delete the node"
            ) from None
        joined = self._tree.children(self.paths.participants(version), watch=is_leader)
        return ReleaseBarrier(version, state, frozenset(one for name in joined if (one := number_of(name)) is not None))

    def _origin(self, version: int) -> ModelOrigin | None:
        node = self._tree.read(self.paths.meta(version))
        if node is None:
            return None
        meta = read_meta(node, self.paths.meta(version))
        return ModelOrigin(meta.code, meta.run_id, meta.changed)

    def _awaited(self) -> dict[str, bool]:
        """The ids that are marked to be waited for, and whether by a leader: a processor has its number in its own mark."""
        names, found = self._tree.children(self.paths.stops), dict[str, bool]()
        for name, node in zip(names, self._tree.read_all([f"{self.paths.stops}/{name}" for name in names]), strict=True):
            try:
                found[unescaped(name)] = node is not None and not node.data
            except UnicodeDecodeError:
                LOG.warning("%s/%s is no processor's mark, and is skipped", self.paths.stops, name)
        return found


def _is_deleted(tree: Tree, path: str) -> bool:
    if tree.read(path) is None:
        return True
    if not all(_is_deleted(tree, f"{path}/{name}") for name in tree.children(path)):
        return False
    try:
        tree.commit([Delete(path)])
    except TreeConflictError as error:
        return error.reason == "missing"
    return True
