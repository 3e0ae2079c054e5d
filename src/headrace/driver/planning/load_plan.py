"""The plan in force, as it is stored: what a driver runs on once it has committed it, and any other process may load."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.codec.job_records import rewinds_of, scales_of, startpoints_of
from headrace.core.job_plan.draft import PlanTerms
from headrace.core.topology.program import Program
from headrace.driver.planning.job_plan import JobPlan, StartpointRecords
from headrace.driver.planning.stored_assignment import PartitionRecords, SystemStreamPartitionAssignmentManager
from headrace.errors import StorageError
from headrace.ports.coordinator_store import JobReader
from headrace.ports.metadata_store import MetadataStore


def load(
    store: JobReader, metadata: MetadataStore, terms: PlanTerms, programs: Mapping[str | None, Program], epoch: int
) -> JobPlan:
    """The plan that is stored, for rounds under `epoch`. `terms` and `programs` are what this process makes of its topology.

    Programs are not stored: they hold functions, and the partition counts and limits of the streams that are written to, as
    they were when the plan was made. What its maker alone knows (see `JobPlan`) is left empty.
    """
    model = store.job_model()
    if model is None:
        raise StorageError(
            f"application {terms.application!r}: no job model is stored", "start its driver, or wait until it has planned"
        )
    return JobPlan(
        terms.topology,
        model,
        terms.subs,
        programs,
        epoch,
        store.checkpoints(),
        PartitionRecords(SystemStreamPartitionAssignmentManager(metadata).read_partition_records()),
        StartpointRecords(startpoints_of(metadata).records),
        rewinds_of(metadata),
        terms.scale_terms,
        scales_of(metadata).stored,
    )
