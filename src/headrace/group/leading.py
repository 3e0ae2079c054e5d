"""What the leader of a group writes: proposals, their outcome, the run. Each write is one commit with a check of its own
node, so one that has been deposed gets a `FencedError`, and writes nothing."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from headrace.codec.documents import decode, encode
from headrace.coordination import NODE_BYTES_MAX, Create, Delete, Operation, Tree, TreeNode, Write
from headrace.core.group.state import BarrierState, GroupRun, ModelOrigin, ModelVersions, PauseRequest
from headrace.errors import DEFECT, FencedError, NotSupportedError
from headrace.group.job_models import chunk_nodes, meta_node
from headrace.group.layout import GroupPaths, number_of, sequence_of
from headrace.group.registration import OwnNode

KEPT_VERSIONS = 10


class Leading:
    """See the module. What gives a bool gives False where what is there is not what it was decided by: read the state again.
    `FencedError` also for one that does not lead."""

    def __init__(self, tree: Tree, paths: GroupPaths, own: OwnNode, by: int) -> None:
        self._tree, self._paths, self._own, self._by = tree, paths, own, by
        self._leads = False

    def propose(self, version: int, model: bytes, origin: ModelOrigin) -> bool:
        """Write a job model, and propose it with a new barrier. False, perhaps with a part of it written, if the number was
        used before: take a higher one."""
        paths = self._paths
        stored, versions = self._versions()
        if stored is None or version <= max(versions.proposed, versions.active):
            return False
        if not self._commit([Create(paths.job_model(version))]):
            return False
        if not all(self._commit([chunk]) for chunk in chunk_nodes(paths, version, model)):
            return False
        proposed = encode(ModelVersions(version, versions.active))
        done = [meta_node(paths, version, model, origin), *self._new_barrier(version, BarrierState.NEW)]
        return self._commit([*done, Write(paths.versions, proposed, stored.version)])

    def publish(self, version: int) -> bool:
        """After the plan of the last proposal was committed: it is in force, and its barrier done. Again, it does nothing."""
        stored, versions = self._versions()
        if stored is None or versions.proposed != version:
            return False
        if versions.active == version:
            return True
        done = Write(self._paths.barrier_state(version), BarrierState.DONE.value.encode(), 0)
        active = Write(self._paths.versions, encode(ModelVersions(version, version)), stored.version)
        return self._commit([done, active])

    def abandon(self, version: int) -> bool:
        """The proposal came to nothing: who has released for it resumes. Again, it does nothing."""
        path = self._paths.barrier_state(version)
        node = self._tree.read(path)
        if node is None:
            return self._commit(self._missing_of(self._new_barrier(version, BarrierState.TIMED_OUT)))
        if node.data == BarrierState.TIMED_OUT.value.encode():
            return True
        return self._commit([Write(path, BarrierState.TIMED_OUT.value.encode(), 0)])

    def restore(self, version: int, model: bytes, origin: ModelOrigin) -> bool:
        """Put a job model in force that is committed and not here, or not whole: ZooKeeper has come back empty."""
        paths = self._paths
        stored, versions = self._versions()
        if stored is None:
            return False
        place = paths.job_model(version)
        for name in self._tree.children(place):
            if not self._commit([Delete(f"{place}/{name}")]):
                return False
        if self._tree.read(place) is None and not self._commit([Create(place)]):
            return False
        if not all(self._commit([chunk]) for chunk in chunk_nodes(paths, version, model)):
            return False
        done = [meta_node(paths, version, model, origin), *self._missing_of(self._new_barrier(version, BarrierState.DONE))]
        active = encode(ModelVersions(max(version, versions.proposed), version))
        return self._commit([*done, Write(paths.versions, active, stored.version)])

    def write_run(self, run: GroupRun) -> bool:
        """In place of the one that is there."""
        data = encode(run)
        if len(data) > NODE_BYTES_MAX:
            raise NotSupportedError(
                f"run {run.id!r} of a group: the ends of {len(run.targets):,} partitions are {len(data):,} bytes, expected "
                f"{NODE_BYTES_MAX:,} at most",
                "run it without --until, or without a group",
            )
        node = self._tree.read(self._paths.run)
        return node is not None and (node.data == data or self._commit([Write(self._paths.run, data, node.version)]))

    def ask_pause(self, request: PauseRequest | None) -> bool:
        """In place of the one that is there; None: everybody continues."""
        data = b"" if request is None else encode(request)
        if len(data) > NODE_BYTES_MAX:
            raise NotSupportedError(f"a pause of {len(data):,} bytes: expected {NODE_BYTES_MAX:,} at most", DEFECT)
        node = self._tree.read(self._paths.pause)
        return node is not None and (node.data == data or self._commit([Write(self._paths.pause, data, node.version)]))

    def await_return(self, processor_ids: Collection[str]) -> None:
        """Mark these to be waited for, as if they had been stopped in order."""
        for path in map(self._paths.stopped, sorted(processor_ids)):
            self._commit([Create(path)])

    def forget_awaited(self, processor_ids: Collection[str]) -> None:
        """Delete the marks of these: they have come, or have not come back in time."""
        for path in map(self._paths.stopped, sorted(processor_ids)):
            self._commit([Delete(path)])

    def delete_old(self) -> tuple[int, ...]:
        """Delete all job models and barriers but the newest ones, and what is in force or proposed; the versions."""
        versions, deleted = self._versions()[1], set()
        for place in (self._paths.job_models, self._paths.barriers):
            numbers = sorted(number for name in self._tree.children(place) if (number := number_of(name)) is not None)
            for number in numbers[:-KEPT_VERSIONS]:
                if number not in (versions.proposed, versions.active) and self._is_deleted(f"{place}/{number}"):
                    deleted.add(number)
        return tuple(sorted(deleted))

    def _is_deleted(self, path: str) -> bool:
        below = [self._is_deleted(f"{path}/{name}") for name in self._tree.children(path)]
        return all(below) and self._commit([Delete(path)])

    def _new_barrier(self, version: int, state: BarrierState) -> list[Create]:
        paths = self._paths
        nodes = [Create(paths.barrier(version)), Create(paths.participants(version))]
        return [*nodes, Create(paths.barrier_state(version), state.value.encode())]

    def _missing_of(self, nodes: list[Create]) -> list[Create]:
        found = self._tree.read_all([one.path for one in nodes])
        return [one for one, node in zip(nodes, found, strict=True) if node is None]

    def _versions(self) -> tuple[TreeNode | None, ModelVersions]:
        path = self._paths.versions
        node = self._tree.read(path)
        return node, ModelVersions() if node is None else decode(ModelVersions, node.data, path)

    def _commit(self, operations: Sequence[Operation]) -> bool:
        """Numbers rise, so the first one stays the first for as long as its node is there: that is checked by each commit."""
        if not self._leads:
            self._check_leads()
            self._leads = True
        return self._own.commit(operations, self._by)

    def _check_leads(self) -> None:
        place = self._paths.processors
        names = [name for name in self._tree.children(place) if (one := sequence_of(name)) is not None and one < self._by]
        first = [name for name, node in zip(names, self._tree.read_all([f"{place}/{name}" for name in names]), strict=True)
                 if node is not None and node.owner]  # fmt: skip
        if first:
            raise FencedError(
                f"{self._tree.name}, {self._paths.root}: registration {self._by} of this processor does not lead: {first[0]} "
                "is before it; nothing was changed",
                "the group has another leader, which does this",
            )
