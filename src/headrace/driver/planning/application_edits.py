"""What an edit of an application means for what it has stored: read at a start, before anything is planned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headrace.codec.run_operators import stored_operators
from headrace.config.loading import Config
from headrace.core.job_plan.assignment import Assignment, as_first_shared_out, assignment_of
from headrace.core.topology.compatibility import check_compatible, check_same_partitioning, notes, store_forms
from headrace.core.topology.operator_changes import RunOperator, changes_between, run_operators
from headrace.core.topology.store_changes import change_notes, databases_of, requested, requests_of
from headrace.core.topology.sub_topologies import SubTopology, has_state, sub_topologies_of
from headrace.driver.planning.snapshot import SeenStreams, partitioners_of, seen_streams
from headrace.driver.planning.start_offsets import check_nothing_stranded
from headrace.driver.planning.stored_assignment import SystemStreamPartitionAssignmentManager
from headrace.errors import IncompatibleChangeError
from headrace.model.expansion import PartitionRecord
from headrace.model.job_model import JobModel
from headrace.model.topology import Repartition, Topology
from headrace.ports import JobStore, System


@dataclass(frozen=True, slots=True)
class Edit:
    """`previous`: the job model as it is stored; `carried`: the same, with its stores named and given up as requested.
    `forms` and `databases`: of the stores that the application has now. `operators_before` None: not on record."""

    previous: JobModel | None
    carried: JobModel | None
    forms: Mapping[str, str]
    databases: Mapping[str, str]
    operators: tuple[RunOperator, ...]
    operators_before: tuple[RunOperator, ...] | None
    inputs: tuple[str, ...]
    drops: frozenset[str]

    def check(self, system: str) -> None:
        """Raise what the state of the stores cannot follow; `system` is its URL, for hints."""
        check_compatible(self.carried, self.forms, self.inputs, system, self.drops)

    def operator_notes(self) -> list[str]:
        return changes_between(self.operators_before, self.operators).notes()

    def notes(self) -> list[str]:
        """What continues, but should be said."""
        stores = [*change_notes(self.previous, self.carried), *notes(self.carried, self.forms)]
        return [*self.operator_notes(), *stores]


def edit_of(topology: Topology, config: Config, system: System, store: JobStore) -> Edit:
    """What was edited; serdes of `topology` may be open."""
    previous, subs = store.job_model(), sub_topologies_of(topology)
    forms = store_forms(topology)
    requests = requests_of(config.drop_stores, config.rename_stores)
    carried = requested(previous, forms, requests)
    internal = {node.stream for node in topology.nodes if isinstance(node, Repartition)}
    inputs = tuple(sorted({source.stream for source in topology.sources} - internal))
    before = None if previous is None else stored_operators(system.metadata_store(topology.application))
    databases = databases_of(carried, forms)
    return Edit(previous, carried, forms, databases, run_operators(subs, databases, before), before, inputs, requests.drops)


@dataclass(frozen=True, slots=True)
class Found:
    """The streams as they are, and what is on record of their partitions."""

    manager: SystemStreamPartitionAssignmentManager
    on_record: Mapping[str, PartitionRecord]
    assignment: Assignment
    seen: SeenStreams


def found_streams(
    topology: Topology,
    subs: tuple[SubTopology, ...],
    previous: JobModel | None,
    system: System,
    config: Config,
    going_on: bool,
) -> Found:
    """Look at the streams; raises what their readers cannot follow (`seen_streams`)."""
    manager = SystemStreamPartitionAssignmentManager(system.metadata_store(topology.application))
    on_record, assignment = manager.read_partition_records(), _previous_assignment(manager, previous)
    kept = {stream for sub in subs if has_state(sub) for stream in sub.reads}
    grown = {stream: record.counts[0] for stream, record in on_record.items() if stream in kept and record.expansions}
    assignment = as_first_shared_out(assignment, grown)
    seen = seen_streams(topology, subs, previous, assignment, on_record, system, config.system, going_on)
    check_same_partitioning(previous, partitioners_of(topology), kept)
    anew = {ssp: names for ssp, names in assignment.items() if ssp.stream not in seen.recreated}
    return Found(manager, on_record, anew, seen)


def check_edit(
    topology: Topology, config: Config, system: System, store: JobStore, say: Callable[[str], None]
) -> None:
    """Refuse what can be refused while nothing is held or opened; what was edited is said first then."""
    edit = edit_of(topology, config, system, store)
    try:
        edit.check(config.system)
    except IncompatibleChangeError:
        for note in edit.operator_notes():
            say(note)
        raise
    if edit.previous is not None:
        subs = sub_topologies_of(topology)
        seen = found_streams(topology, subs, edit.previous, system, config, going_on=False).seen
        check_nothing_stranded(topology.application, store.checkpoints(), seen.counts, seen.existing, system)


def _previous_assignment(
    manager: SystemStreamPartitionAssignmentManager, previous: JobModel | None
) -> Assignment:
    """The stored assignment; of a job model that was stored without one, its own."""
    stored = {ssp: mapping.tasks for ssp, mapping in manager.read_assignment().items()}
    return stored if stored or previous is None else assignment_of(previous)
