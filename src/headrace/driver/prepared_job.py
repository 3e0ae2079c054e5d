"""A plan with the runners of its rounds: made at the start, and again whenever streams or requests have changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace.core.topology.sub_topologies import SubTopology
from headrace.driver.maintenance.maintenance import Maintenance
from headrace.driver.planning.job_plan import Backend, JobPlan
from headrace.driver.planning.plan_job import JobPlanner
from headrace.driver.rounds.planned_round import RoundTerms, WorkerPaths
from headrace.driver.rounds.sub_topology_runner import SubTopologyRunner
from headrace.exchange.fault_injection import reached
from headrace.model.change import ChangeRequest
from headrace.state.files import StateFiles


@dataclass(frozen=True, slots=True, eq=False)
class PreparedJob:
    """A plan that is committed, a runner for each of its sub-topologies, and what is done in the background."""

    plan: JobPlan
    runners: tuple[SubTopologyRunner, ...]
    maintenance: Maintenance


@dataclass(frozen=True, slots=True, eq=False)
class JobPreparer:
    """Makes plans of one application, and their runners. `clock_us` times plans and versions of the state."""

    planner: JobPlanner
    backend: Backend
    files: StateFiles
    paths: WorkerPaths
    clock_us: Callable[[], int]

    def prepare(self, epoch: int, before: JobPlan | None = None, requests: Sequence[ChangeRequest] = ()) -> PreparedJob:
        """Plan and commit under `epoch`. `before`: the plan of a job that runs, `requests`: why it needs another one."""
        planner, backend = self.planner, self.backend
        plan = planner.plan(epoch, backend.engine.slots, self.clock_us(), before, requests)
        maintenance = Maintenance(plan, backend.system, backend.store, self.files, planner.config, self.clock_us)
        if before is None:
            for note in plan.notes:
                planner.log(note)
            maintenance.clear_up()
        self.paths.control.begin(epoch)
        reached("start", 12)
        return PreparedJob(plan, tuple(self._runner_of(sub, plan) for sub in plan.subs), maintenance)

    def _runner_of(self, sub: SubTopology, plan: JobPlan) -> SubTopologyRunner:
        config = self.planner.config
        max_records, max_bytes = config.max_records_per_round_of(sub.name), config.max_bytes_per_round_of(sub.name)
        terms = RoundTerms(max_records, self.paths, config.on_lost_offsets, max_bytes)
        return SubTopologyRunner(sub, plan, terms, self.backend)
