"""What is on record of streams' numbers of partitions while a job runs, and the moment when an expansion has settled."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headrace.codec.documents import encode
from headrace.core.rounds.partition_barrier import settled, to_settle
from headrace.model.expansion import Expansion, PartitionRecord
from headrace.ports import JobStore, System

PARTITION_COUNTS = "partition-counts"  # namespace: stream to its record


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
        self, system: System, store: JobStore, epoch: int, streams: Collection[str], now_us: int, settle_us: int
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
