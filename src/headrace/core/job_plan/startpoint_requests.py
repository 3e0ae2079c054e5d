"""The startpoints that are requested of a job, and those on record, as a plan finds them. Seed: SEP-18."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from headrace.core.rewind.startpoint_rules import spent_of
from headrace.model.checkpoint import Checkpoint
from headrace.model.startpoint import (
    PositionType,
    Startpoint,
    StartpointEntry,
    StartpointKey,
    StartpointRecord,
    StartpointRequest,
    StartpointStatus,
)
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName

SOURCE_START = "the stream's start"  # who has written a startpoint that no person has


@dataclass(frozen=True, slots=True)
class StartpointRequests:
    """What is requested, and what is on record. `requests` by their ids, oldest first. `unreadable`: requests that are none of
    this version's, by id, and what is wrong with them. `defaults`: what sources begin with that are read for the first time:
    any request that there is counts before these. `refused`: startpoints that cannot be resolved, by id, and why."""

    requests: Mapping[str, StartpointRequest] = field(default_factory=dict)
    records: Mapping[str, StartpointRecord] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    defaults: tuple[StartpointEntry, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def entries(self) -> list[StartpointEntry]:
        """Those that were not applied yet, in the order in which they came, without those that were deleted again."""
        deleted = {id_ for request in self.requests.values() for id_ in request.deleted}
        out = {*self.records, *deleted, *self.refused}
        requested = (entry for request in self.requests.values() for entry in request.entries)
        return [*self.defaults, *(one for one in requested if one.id not in out)]

    @property
    def refused_entries(self) -> list[StartpointEntry]:
        requested = (entry for request in self.requests.values() for entry in request.entries)
        return [one for one in requested if one.id in self.refused and one.id not in self.records]

    @property
    def deleted(self) -> list[StartpointEntry]:
        """Those whose deletion is requested, applied or not."""
        known = {entry.id: entry for request in self.requests.values() for entry in request.entries}
        known |= {id_: record.entry for id_, record in self.records.items()}
        ids = dict.fromkeys(id_ for request in self.requests.values() for id_ in request.deleted)
        return [known[id_] for id_ in ids if id_ in known]

    @property
    def ssps(self) -> frozenset[SSP]:
        """The SSPs whose positions are about to be set for all tasks that read them."""
        return frozenset(entry.key.ssp for entry in self.entries if entry.key.task is None)


def with_bootstraps(asked: StartpointRequests, ssps: Collection[SSP], now_us: int, seed: str = "") -> StartpointRequests:
    """`asked`, and for each of these SSPs, which are read for the first time, the BOOTSTRAP that its source begins with.

    `seed`: unlike that of any other plan; the startpoints' ids follow from it.
    """
    earliest_us = min((entry.written_at_us for entry in asked.entries), default=now_us + 1)
    written_at_us = min(now_us, earliest_us - 1)  # a startpoint that somebody has set is later, and counts
    return replace(
        asked,
        defaults=tuple(
            StartpointEntry(
                _id_of(seed, ssp), StartpointKey(ssp), Startpoint(PositionType.BOOTSTRAP), SOURCE_START, written_at_us
            )
            for ssp in sorted(ssps)
        ),
    )


def _id_of(seed: str, ssp: SSP) -> str:
    return hashlib.sha256(f"{seed} {ssp}".encode()).hexdigest()[:12]


def applied_by(
    records: Mapping[str, StartpointRecord], checkpoints: Mapping[TaskName, Checkpoint], now_us: int
) -> dict[str, StartpointRecord]:
    """Of the pending records those that a commit has spent without the driver's having stored it, as applied."""
    return {
        id_: replace(records[id_], status=StartpointStatus.APPLIED, changed_at_us=now_us)
        for id_ in sorted(spent_of(records.values(), checkpoints))
    }
