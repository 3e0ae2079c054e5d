"""Background maintenance of a plan: garbage collection of state files, state versions, reclaimed space."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from headrace.codec.rewind_records import cuts_of
from headrace.config.loading import Config
from headrace.core.rewind.rewinds import flows_of, going_by_cuts
from headrace.core.rewind.state_history import RetentionPolicy
from headrace.core.topology.sub_topologies import SubTopology, has_state
from headrace.driver.maintenance.maintenance import Tidying
from headrace.driver.maintenance.state_garbage import StateGarbage, files_before_repairs
from headrace.driver.maintenance.state_versions import KeptTasks, StateVersions, versions_of
from headrace.driver.planning.job_plan import JobPlan
from headrace.driver.rounds.sub_topology_rounds import SubTopologyRunner
from headrace.model.streams import SSP
from headrace.model.topology import Repartition
from headrace.ports import JobStore, System
from headrace.state.files import StateFiles


class Upkeep:
    """`began` and `committed` are called for every round; `tidy` is for a thread of its own. `keep` is the part of `tidy` that
    takes nothing away from streams. `clock_us` times the versions."""

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
        by_cuts = going_by_cuts(flows_of(plan.subs))
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
        internal = {node.stream for node in plan.topology.nodes if isinstance(node, Repartition)}
        reads = {sub.name: internal & set(sub.reads) for sub in plan.subs}
        self._tidying = Tidying(system, store, plan.epoch, reads, self._versions.checkpoints)
        for name, current in checkpoints.items():
            self._tidying.started(name, current)

    def clear_up(self) -> None:
        """At a start, when no round runs: remove what drivers before have left."""
        self._garbage.collect_orphans(lambda: self._store.check_epoch(self._plan.epoch))
        self._tidying.tidy()

    def began(self, rounds: SubTopologyRunner) -> None:
        """A round of these is about to run."""
        self._versions.began(rounds.sub.name)

    def committed(self, rounds: SubTopologyRunner) -> None:
        """A round of these was committed, and the next has not begun."""
        self._tidying.committed(rounds.sub.name, rounds.checkpoints.values())
        self._garbage.committed(rounds.sub.name, rounds.checkpoints.values())
        self._versions.committed(rounds.sub.name)

    def keep(self) -> None:
        """Keep versions of the state that are due, and drop those that are too many or too old."""
        self._versions.keep()

    def tidy(self) -> None:
        """Keep versions that are due, and reclaim what is not needed; versions first: they say what is needed."""
        self.keep()
        self._tidying.tidy()


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
