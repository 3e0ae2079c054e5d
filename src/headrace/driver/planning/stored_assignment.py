"""The stored assignment of SSPs to tasks, and the records of streams' partition counts, of one application. Seed: SEP-5
(SystemStreamPartitionAssignmentManager, SetSSPTaskMapping).

Both are read when a job model is made, and written in its transaction: `assignment_changes` gives what is to be written.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headrace.codec.documents import decode, encode
from headrace.codec.job_records import PARTITION_COUNTS, SSP_ASSIGNMENT
from headrace.core.job_plan.assignment import Assignment
from headrace.core.rounds.partition_barrier import settled, to_settle
from headrace.model.expansion import Expansion, PartitionRecord, SetSSPTaskMapping
from headrace.model.streams import SystemStreamPartition
from headrace.ports.coordinator_store import CoordinatorStore
from headrace.ports.metadata_store import MetadataStore
from headrace.ports.system import System


class SystemStreamPartitionAssignmentManager:
    """Reads the assignment and the partition counts that the job model before was made with."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._stored: Mapping[str, Mapping[str, bytes]] = {
            namespace: metadata.all(namespace) for namespace in (SSP_ASSIGNMENT, PARTITION_COUNTS)
        }

    def read_assignment(self) -> dict[SystemStreamPartition, SetSSPTaskMapping]:
        """Every SSP that a task reads, or read before its stream was taken out; empty where the job never ran."""
        found = (decode(SetSSPTaskMapping, data, f"task of SSP {key!r}") for key, data in self._stored[SSP_ASSIGNMENT].items())
        return {mapping.ssp: mapping for mapping in found}

    def read_partition_records(self) -> dict[str, PartitionRecord]:
        """By stream; empty where the job never ran."""
        stored = self._stored[PARTITION_COUNTS].items()
        return {stream: decode(PartitionRecord, data, f"number of partitions of {stream!r}") for stream, data in stored}


def assignment_changes(before: Assignment, after: Assignment) -> dict[str, bytes | None]:
    """What is to be written in place of the assignment `before`: entries that differ, and None for those that are removed."""
    changed: dict[str, bytes | None] = {str(ssp): None for ssp in before if ssp not in after}
    for ssp, tasks in after.items():
        if before.get(ssp) != tasks:
            changed[str(ssp)] = encode(SetSSPTaskMapping(ssp, tasks))
    return changed


def record_changes(before: Mapping[str, PartitionRecord], after: Mapping[str, PartitionRecord]) -> dict[str, bytes | None]:
    """The same of the records of partition counts, by stream."""
    changed: dict[str, bytes | None] = {stream: None for stream in before if stream not in after}
    return changed | {stream: encode(record) for stream, record in after.items() if before.get(stream) != record}


class PartitionRecords:
    """The records of the streams that a job reads, by stream. One thread changes it, any may look."""

    def __init__(self, records: Mapping[str, PartitionRecord] | None = None) -> None:
        self._records = dict(records or {})
        self._expansions = _expansions(self._records)

    @property
    def expansions(self) -> Mapping[str, tuple[Expansion, ...]]:
        """By stream, of those that ever grew while a job read them; the same object for as long as nothing changes."""
        return self._expansions

    def settle(
        self, system: System, store: CoordinatorStore, epoch: int, streams: Collection[str], now_us: int, settle_us: int
    ) -> tuple[str, ...]:
        """Store the lasting barrier of expansions that every producer knows of by now; the streams, sorted."""
        due = to_settle(self._records, streams, now_us, settle_us)
        for stream in due:
            record = settled(self._records[stream], system.high_watermarks(stream), now_us, settle_us)
            store.write_metadata(epoch, PARTITION_COUNTS, {stream: encode(record)})
            self._records = self._records | {stream: record}
            self._expansions = _expansions(self._records)
        return due


def _expansions(records: Mapping[str, PartitionRecord]) -> dict[str, tuple[Expansion, ...]]:
    return {stream: record.expansions for stream, record in records.items() if record.expansions}
