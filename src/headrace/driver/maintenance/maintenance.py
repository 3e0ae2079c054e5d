"""Background maintenance of a plan: state versions, garbage collection of state files, reclaimed space.

None of it is on a round's way: a commit only says where it came to, and the rest is done from a thread of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

from headrace.codec.job_records import cuts_of
from headrace.config.loading import Config
from headrace.core.affinity.groupers import LocalityInfo
from headrace.core.affinity.locations import LocationId
from headrace.core.rewind.consistent_cuts import edges_of, going_by_cuts
from headrace.core.rewind.state_history import RetentionPolicy
from headrace.core.rounds.purging import lowest_positions, purge_offsets
from headrace.core.topology.sub_topologies import SubTopology, has_state
from headrace.driver.maintenance.state_garbage import StateGarbage, files_before_repairs
from headrace.driver.maintenance.state_notes import StateNotes
from headrace.driver.maintenance.state_versions import KeptTasks, Past, StateVersions, versions_of
from headrace.driver.planning.job_plan import Backend, JobPlan
from headrace.driver.planning.stored_locality import StoredLocality
from headrace.driver.rounds.sub_topology_runner import SubTopologyRunner
from headrace.driver.rounds.task_positions import by_ssp
from headrace.environment import write_advice
from headrace.errors import StateError
from headrace.model.checkpoint import Checkpoint
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName
from headrace.state_files.files import StateFiles

LOG = logging.getLogger("headrace.job")


class Maintenance:
    """`began` and `committed` are called for every round; `tidy` is for a thread of its own. `keep` is the part of `tidy` that
    takes nothing away from streams. `clock_us` times the versions. `pause_of`: which pause a sub-topology
    is in, see `KeptTasks`; where others run the rounds `heard` is called instead of `began` and `committed`."""

    def __init__(
        self,
        plan: JobPlan,
        backend: Backend,
        files: StateFiles,
        config: Config,
        clock_us: Callable[[], int],
        pause_of: Callable[[str | None], int | None] | None = None,
    ) -> None:
        self._plan, self._system, self._store = plan, backend.system, backend.store
        application = plan.topology.application
        metadata = self._system.metadata_store(application)
        spared = files_before_repairs(self._store, metadata, files, application, plan.epoch)
        self._notes = StateNotes(files, application, metadata)
        self._garbage = StateGarbage(files, application, spared, self._notes.is_alone)
        for sub in plan.subs:  # what a first commit replaces are the files of these
            self._garbage.committed(sub.name, [plan.checkpoints[task] for task in _tasks(plan, sub)])
        by_cuts = going_by_cuts(edges_of(plan.subs))
        kept: dict[str | None, KeptTasks] = {}
        for sub in plan.subs:
            ends = partial(by_ssp, self._system, sub.writes, self._system.high_watermarks)
            if has_state(sub) or sub.name in by_cuts:
                pause = None if pause_of is None else partial(pause_of, sub.name)
                kept[sub.name] = KeptTasks(_tasks(plan, sub), ends if sub.name in by_cuts else None, pause)
        past = Past(versions_of(metadata), cuts_of(metadata), plan.rewinds, plan.startpoints.counting_again)
        self._versions = StateVersions(self._store, plan.epoch, self._garbage, kept, past, _keeping(config), clock_us)
        self._versions.begin()
        internal = {node.stream for node in plan.topology.repartitions}
        self._reads = {sub.name: internal & set(sub.reads) for sub in plan.subs}  # of repartition streams
        self._locality = StoredLocality(metadata, self._store, plan.epoch)
        self._ran: dict[TaskName, LocationId] = {}
        self._committed: set[str | None] = set()  # the sub-topologies that have committed under this plan
        self._purged: dict[SSP, int] = {}

    @property
    def subs(self) -> Sequence[SubTopology]:
        """All sub-topologies of the plan."""
        return self._plan.subs

    def clear_up(self) -> None:
        """At a start, when no round runs: say whose the state files are, and remove what drivers before have left; what cannot
        be removed is left to the next start. `StateError` where their folder cannot be written."""
        if any(map(has_state, self._plan.subs)):
            try:
                self._notes.leave(self._store, self._plan.epoch, self._garbage.named)
            except OSError as error:
                raise StateError(f"state_uri {self._notes.uri} cannot be written: {error}", write_advice(error)) from None
        try:
            self._garbage.collect_orphans(lambda: self._store.check_epoch(self._plan.epoch))
        except OSError as error:
            LOG.warning("state files that no round has committed could not be deleted, the next start tries again: %s", error)
        self.reclaim()

    def delete_orphans(self, in_force: Callable[[], Collection[int]]) -> int:
        """While others run rounds, under grants that are `in_force`: remove the state files of those that never committed, once
        `heard` was called; how many."""
        return self._garbage.collect_orphans(lambda: self._store.check_epoch(self._plan.epoch), in_force)

    def began(self, runner: SubTopologyRunner) -> None:
        """A round of this one is about to run."""
        self._versions.began(runner.sub.name)

    def committed(self, runner: SubTopologyRunner) -> None:
        """A round of this one was committed, and the next has not begun."""
        self.heard(runner.sub.name, runner.checkpoints.values())
        self._ran.update(runner.new_locations())

    def heard(self, sub_topology: str | None, checkpoints: Iterable[Checkpoint]) -> None:
        """These are known to be the last ones of all its tasks. `OSError` where files could not be deleted."""
        current, planned = tuple(checkpoints), self._plan.checkpoints
        if any(one.task not in planned or one.round_id != planned[one.task].round_id for one in current):
            self._committed.add(sub_topology)
        try:
            self._garbage.committed(sub_topology, current)
        finally:
            self._versions.committed(sub_topology)

    def delete_replaced(self, names: Collection[str]) -> None:
        """State files that newer checkpoints than theirs do not name: of commits that were followed before `heard` has seen
        them. `OSError` where they could not be deleted."""
        self._garbage.delete_replaced(names)

    def due_cuts(self) -> frozenset[str | None]:
        """The sub-topologies of which a cut is due: it is taken in a pause."""
        return self._versions.due_cuts()

    def keep(self) -> None:
        """Keep versions of the state that are due, and drop those that are too many or too old."""
        self._versions.keep()

    def tidy(self) -> None:
        """Keep versions that are due, and reclaim what is not needed; versions first: they say what is needed."""
        self.keep()
        self.keep_locality()
        self.reclaim()

    def keep_locality(self) -> None:
        """Store where tasks have run, for later plans. A failure is logged and no more: the job model says nearly the same."""
        try:
            self._locality.write_processor_locality(LocalityInfo(dict(self._ran)))
        except Exception as error:
            LOG.warning("where tasks have run could not be stored: %s", getattr(error, "message", error))

    def reclaim(self) -> None:
        """Purge processed records, and delete unreferenced data. A failure is logged and no more: it is tried again."""
        try:
            for stream, offsets in purge_offsets(self._lowest(), self._purged).items():
                self._store.purge(self._plan.epoch, stream, offsets)
                self._purged |= {SSP(self._system.name, stream, p): offset for p, offset in offsets.items()}
            self._system.collect_garbage()
        except Exception as error:
            LOG.warning("could not reclaim space that is no longer needed: %s", error)

    def _lowest(self) -> dict[SSP, int]:
        """Up to where repartition streams are needed. A stream is left alone until every sub-topology that reads it has
        committed under this plan: until then a roll-back to the plan before would read it from its positions."""
        committed = frozenset(self._committed)
        waiting = {stream for sub, streams in self._reads.items() if sub not in committed for stream in streams}
        streams = {stream for read in self._reads.values() for stream in read} - waiting
        needed = [checkpoint for current in self._garbage.current().values() for checkpoint in current]
        lowest = lowest_positions([*needed, *self._versions.checkpoints()])
        return {ssp: position for ssp, position in lowest.items() if ssp.stream in streams}


def _tasks(plan: JobPlan, sub: SubTopology) -> list[TaskName]:
    return [task.name for task in plan.model.sub_topology(sub.name).tasks]


def _keeping(config: Config) -> RetentionPolicy:
    span_us = int(config.keep_state_versions_s * 1e6) or None
    return RetentionPolicy(config.keep_state_versions - 1, span_us, int(config.state_version_interval_s * 1e6))
