"""Makes the plans of an application, and what runs their rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace.core.affinity.arrivals import arrivals
from headrace.core.topology.sub_topologies import SubTopology
from headrace.driver.maintenance.maintenance import Maintenance
from headrace.driver.planning.job_plan import JobPlan
from headrace.driver.planning.job_planner import JobPlanner
from headrace.driver.prepared_job import PreparedJob
from headrace.driver.rounds.planned_round import RoundTerms, WorkerPaths
from headrace.driver.rounds.sub_topology_runner import SubTopologyRunner
from headrace.exchange.fault_injection import reached
from headrace.model.change import ChangeRequest
from headrace.state_files.files import StateFiles


@dataclass(frozen=True, slots=True, eq=False)
class JobPreparer:
    """Makes plans of one application, and their runners. `clock_us` times plans and versions of the state."""

    planner: JobPlanner
    files: StateFiles
    paths: WorkerPaths
    clock_us: Callable[[], int]

    def prepare(self, epoch: int, before: JobPlan | None = None, requests: Sequence[ChangeRequest] = ()) -> PreparedJob:
        """Plan and commit under `epoch`. `before`: the plan of a job that runs, `requests`: why it needs another one."""
        planner = self.planner
        plan = planner.plan(epoch, self.clock_us(), before, requests)
        maintenance = Maintenance(plan, planner.backend, self.files, planner.config, self.clock_us)
        reached("start", 11)
        if before is None:
            for note in plan.notes:
                planner.log(note)
            maintenance.clear_up()
        planner.backend.processor_store.begin(epoch, plan.model)
        self.paths.control.begin(epoch)
        if (restoration := planner.backend.restoration) is not None:
            most = planner.config.restore_inline_bytes
            restoration.begin(epoch, arrivals(before.model, plan.model, plan.checkpoints, most) if before else (), most)
        return PreparedJob(plan, tuple(self.runner_of(sub, plan) for sub in plan.subs), maintenance)

    def runner_of(self, sub: SubTopology, plan: JobPlan) -> SubTopologyRunner:
        """What runs the rounds of a sub-topology under `plan`."""
        config = self.planner.config
        max_records, max_bytes = config.max_records_per_round_of(sub.name), config.max_bytes_per_round_of(sub.name)
        threads, lead = config.task_threads_of(sub.name), config.max_bucket_lead_of(sub.name)
        restored = None if self.planner.backend.restoration is None else config.restore_inline_bytes
        terms = RoundTerms(max_records, self.paths, config.on_lost_offsets, max_bytes, threads, lead, restored)
        return SubTopologyRunner(sub, plan, terms, self.planner.backend)
