"""Reads everything that a plan is made from, at one moment: what is stored of the application, and its system's streams."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, cached_property, partial

from headrace.codec.job_records import (
    HISTORY,
    PARTITION_CHECKS,
    cuts_of,
    expanders_of,
    history_of,
    rewinds_of,
    scales_of,
    startpoints_of,
    stored_flows,
    stored_operators,
)
from headrace.config.loading import Config
from headrace.core.job_plan.draft import PlanTerms
from headrace.core.job_plan.history import refused_changes
from headrace.core.job_plan.snapshot import Snapshot
from headrace.core.job_plan.streams import counts_before
from headrace.core.rounds.for_each_round import Handover
from headrace.core.topology.resolution import Sides
from headrace.core.topology.store_changes import requests_of
from headrace.core.topology.sub_topologies import sub_topologies_of
from headrace.driver.maintenance.state_versions import versions_of
from headrace.driver.planning.grouper_config import grouper_of, task_name_grouper_of
from headrace.driver.planning.stored_assignment import SystemStreamPartitionAssignmentManager
from headrace.driver.planning.stored_locality import StoredLocality
from headrace.driver.rounds.for_each_round import stored_handover
from headrace.errors import StreamNotFoundError
from headrace.model.change import ChangeKind, ChangeRequest
from headrace.model.expansion import PartitionRecord
from headrace.model.job_model import JobModel
from headrace.model.startpoint import Startpoint
from headrace.model.streams import SSP, StreamDescription
from headrace.model.topology import ForEachRound, Topology
from headrace.ports.coordinator_store import JobReader
from headrace.ports.metadata_store import MetadataStore
from headrace.ports.system import System, SystemConsumer

LAGGING_S = 5.0  # for this long a broker may not have heard of new partitions


def terms_of(
    topology: Topology,
    config: Config,
    system: str,
    slots: int = 1,
    locations: Mapping[str, int] | None = None,
    is_replan: bool = False,
    sides: Mapping[str, Sides] | None = None,
) -> PlanTerms:
    """What application and configuration say of a plan. `system`: its name in SSPs; `slots` and `locations`: of the
    engine."""
    subs = sub_topologies_of(topology)
    return PlanTerms(
        topology,
        subs,
        system,
        config.system,
        partial(grouper_of, config.ssp_grouper),
        slots,
        locations or {},
        config.containers_of,
        config.elasticity_factor_of,
        config.on_lost_offsets,
        config.dead_letter_stream,
        requests_of(config.drop_stores, config.rename_stores),
        is_replan,
        sides=sides,
        far_us=round(config.event_time_warning_s * 1_000_000),
        store_retention_us=round(config.local_store_retention_s * 1_000_000),
        task_name_grouper=task_name_grouper_of(config.task_name_grouper),
    )


class SystemOffsets:
    """The offsets of a system's streams. Each question is asked once; its answer stays."""

    def __init__(self, system: System) -> None:
        self._system = system
        self.beginnings = cache(system.beginning_offsets)
        self.ends = cache(system.end_offsets)
        self.high_watermarks = cache(system.high_watermarks)
        self.for_time = cache(system.offsets_for_time)
        self.register = cache(self._register)

    @cached_property
    def _consumer(self) -> SystemConsumer:
        return self._system.consumer()

    def _register(self, ssp: SSP, startpoint: Startpoint) -> int:
        return self._consumer.register(ssp, startpoint)


def observe(
    terms: PlanTerms,
    system: System,
    store: JobReader,
    *,
    epoch: int = 0,
    now_us: int = 0,
    elsewhere: Mapping[str, bytes] | None = None,
) -> Snapshot:
    """Read it all. Under an `epoch` that is held no other driver commits, so it is of one moment; without one it is for a look.
    `elsewhere`: requests for startpoints that were read from outside of `system`."""
    model, metadata = store.job_model(), system.metadata_store(terms.application)
    checkpoints = store.checkpoints()
    asked = startpoints_of(metadata, elsewhere)
    stored = SystemStreamPartitionAssignmentManager(metadata)
    records = stored.read_partition_records()
    cuts = cuts_of(metadata)  # before the versions: those of a cut are on record before it is
    streams = _streams(terms, system, model, records)
    expanders = expanders_of(metadata.requests(PARTITION_CHECKS).values())
    return Snapshot(
        SystemOffsets(system),
        streams,
        epoch,
        now_us,
        uuid.uuid4().hex,
        model,
        checkpoints,
        stored_operators(metadata),
        {ssp: mapping.tasks for ssp, mapping in stored.read_assignment().items()},
        records,
        asked,
        versions_of(metadata),
        cuts,
        rewinds_of(metadata),
        stored_flows(metadata),
        _handovers(terms, metadata),
        frozenset(metadata.all(HISTORY)),
        tuple(
            ChangeRequest(ChangeKind.EXPANSION, stream, by)
            for (stream, count), by in sorted(expanders.items())
            if stream in streams and streams[stream].partitions == count
        ),
        refused_before=refused_changes(history_of(metadata, lambda error: None).values()),
        scales=scales_of(metadata),
        locality=StoredLocality(metadata).read_processor_locality(),
    )


def _streams(
    terms: PlanTerms, system: System, model: JobModel | None, records: Mapping[str, PartitionRecord]
) -> dict[str, StreamDescription]:
    """The streams by name. No system takes partitions away: one that shows fewer has not heard of the new ones yet."""
    began_s = time.monotonic()
    while True:
        found = {stream.name: stream for stream in system.streams(of=terms.application)}
        before = counts_before(model, records, found, terms.reads)
        if time.monotonic() - began_s > LAGGING_S or all(found[name].partitions >= n for name, n in before.items()):
            break
        time.sleep(0.1)
    for node in terms.topology.repartitions:
        if node.stream in found and found[node.stream].internal_of != terms.application:
            found[node.stream] = _with_owner(system, found[node.stream])
    return found


def _with_owner(system: System, stream: StreamDescription) -> StreamDescription:
    """The same with the application whose it is: `streams` does not ask about others."""
    try:
        return replace(stream, internal_of=system.describe_stream(stream.name).internal_of)
    except StreamNotFoundError:  # deleted a moment ago
        return stream


def _handovers(terms: PlanTerms, metadata: MetadataStore) -> dict[str, Handover]:
    """What was handed to the functions of `for_each_round`, by the title of the sub-topology."""
    giving = [sub for sub in terms.subs if any(isinstance(node, ForEachRound) for node in sub.nodes)]
    found = {sub.title: stored_handover(metadata, sub) for sub in giving}
    return {title: handover for title, handover in found.items() if handover is not None}
