"""Background maintenance of a plan: state versions, garbage collection of state files, reclaimed space.

None of it is on a round's way: a commit only says where it came to, and the rest is done from a thread of its own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from headrace.codec.job_records import cuts_of
from headrace.config.loading import Config
from headrace.core.rewind.consistent_cuts import edges_of, going_by_cuts
from headrace.core.rewind.state_history import RetentionPolicy
from headrace.core.rounds.purging import lowest_positions, purge_offsets
from headrace.core.topology.sub_topologies import SubTopology, has_state
from headrace.driver.maintenance.state_garbage import StateGarbage, files_before_repairs
from headrace.driver.maintenance.state_versions import KeptTasks, StateVersions, versions_of
from headrace.driver.planning.job_plan import JobPlan
from headrace.driver.rounds.sub_topology_runner import SubTopologyRunner
from headrace.model.checkpoint import Checkpoint
from headrace.model.streams import SSP
from headrace.ports import JobStore, System
from headrace.state.files import StateFiles

LOG = logging.getLogger("headrace.job")


class SpaceReclaimer:
    """Purges records of repartition streams that were read, and collects what the system does not need.

    `reads`: sub-topology to the repartition streams that it reads. `kept`: the checkpoints of all kept versions.

    A stream is left alone until every sub-topology that reads it has committed under this plan: until then a roll-back to
    the plan before would read it from its positions.
    """

    def __init__(
        self,
        system: System,
        store: JobStore,
        epoch: int,
        reads: Mapping[str | None, Collection[str]],
        kept: Callable[[], Iterable[Checkpoint]],
    ) -> None:
        self._system, self._store, self._epoch = system, store, epoch
        self._reads, self._kept = reads, kept
        self._current: dict[str | None, tuple[Checkpoint, ...]] = {}
        self._committed: set[str | None] = set()
        self._done: dict[SSP, int] = {}
        self._lock = threading.Lock()

    def started(self, sub_topology: str | None, checkpoints: Iterable[Checkpoint]) -> None:
        """A sub-topology begins at `checkpoints`, one per task."""
        self._current[sub_topology] = tuple(checkpoints)

    def committed(self, sub_topology: str | None, checkpoints: Iterable[Checkpoint]) -> None:
        """A round of a sub-topology was committed; `checkpoints` are all of its current ones."""
        with self._lock:
            self._current[sub_topology] = tuple(checkpoints)
            self._committed.add(sub_topology)

    def reclaim(self) -> None:
        """Purge processed records, and delete unreferenced data. A failure is logged and no more: it is tried again."""
        try:
            for stream, offsets in purge_offsets(self._lowest(), self._done).items():
                self._store.purge(self._epoch, stream, offsets)
                self._done |= {SSP(self._system.name, stream, p): offset for p, offset in offsets.items()}
            self._system.collect_garbage()
        except Exception as error:
            LOG.warning("could not reclaim space that is no longer needed: %s", error)

    def _lowest(self) -> dict[SSP, int]:
        with self._lock:
            waiting = {stream for sub, streams in self._reads.items() if sub not in self._committed for stream in streams}
            streams = {stream for read in self._reads.values() for stream in read} - waiting
            needed = [checkpoint for current in self._current.values() for checkpoint in current]
        needed += self._kept()
        return {ssp: position for ssp, position in lowest_positions(needed).items() if ssp.stream in streams}


class Maintenance:
    """`began` and `committed` are called for every round; `tidy` is for a thread of its own.

    `keep` is the part of `tidy` that takes nothing away from streams. `clock_us` times the versions.
    """

    def __init__(
        self, plan: JobPlan, system: System, store: JobStore, files: StateFiles, config: Config, clock_us: Callable[[], int]
    ) -> None:
        self._plan, self._store = plan, store
        metadata = system.metadata_store(plan.topology.application)
        spared = files_before_repairs(store, metadata, files, plan.topology.application, plan.epoch)
        self._garbage = StateGarbage(files, plan.topology.application, spared)
        checkpoints = {
            sub.name: [plan.checkpoints[task.name] for task in plan.model.sub_topology(sub.name).tasks] for sub in plan.subs
        }
        for name, current in checkpoints.items():  # what a first commit replaces are the files of these
            self._garbage.committed(name, current)
        by_cuts = going_by_cuts(edges_of(plan.subs))
        kept = {
            sub.name: KeptTasks(
                [one.task for one in checkpoints[sub.name]], partial(_ends, system, sub) if sub.name in by_cuts else None
            )
            for sub in plan.subs
            if has_state(sub) or sub.name in by_cuts
        }
        self._versions = StateVersions(
            store,
            plan.epoch,
            self._garbage,
            kept,
            versions_of(metadata),
            cuts_of(metadata),
            plan.rewinds,
            _keeping(config),
            clock_us,
            plan.startpoints.counting_again,
        )
        self._versions.begin()
        internal = {node.stream for node in plan.topology.repartitions}
        reads = {sub.name: internal & set(sub.reads) for sub in plan.subs}
        self._space = SpaceReclaimer(system, store, plan.epoch, reads, self._versions.checkpoints)
        for name, current in checkpoints.items():
            self._space.started(name, current)

    def clear_up(self) -> None:
        """At a start, when no round runs: remove what drivers before have left."""
        self._garbage.collect_orphans(lambda: self._store.check_epoch(self._plan.epoch))
        self._space.reclaim()

    def began(self, runner: SubTopologyRunner) -> None:
        """A round of this one is about to run."""
        self._versions.began(runner.sub.name)

    def committed(self, runner: SubTopologyRunner) -> None:
        """A round of this one was committed, and the next has not begun."""
        self._space.committed(runner.sub.name, runner.checkpoints.values())
        self._garbage.committed(runner.sub.name, runner.checkpoints.values())
        self._versions.committed(runner.sub.name)

    def keep(self) -> None:
        """Keep versions of the state that are due, and drop those that are too many or too old."""
        self._versions.keep()

    def tidy(self) -> None:
        """Keep versions that are due, and reclaim what is not needed; versions first: they say what is needed."""
        self.keep()
        self._space.reclaim()


def _keeping(config: Config) -> RetentionPolicy:
    span_us = int(config.keep_state_versions_s * 1e6) or None
    return RetentionPolicy(config.keep_state_versions - 1, span_us, int(config.state_version_interval_s * 1e6))


def _ends(system: System, sub: SubTopology) -> dict[SSP, int]:
    """Where each partition of the repartition streams that it writes ends, what is not readable yet included."""
    return {
        SSP(system.name, stream, partition): end
        for stream in sub.writes
        for partition, end in system.high_watermarks(stream).items()
    }
