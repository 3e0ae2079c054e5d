"""Holds the new partitions of one sub-topology back until their parents are read; see `core.rounds.partition_barrier`."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.core.rounds.partition_barrier import Parents, ReadBarrier, allowed_ends, born_in, held, needs_barrier, steps_of
from headrace.driver.planning.partition_history import PartitionRecords
from headrace.model.expansion import Expansion
from headrace.model.streams import SSP
from headrace.ports import System


class Barrier:
    """What of a sub-topology's streams may be read, round by round. Not thread-safe."""

    def __init__(self, system: System, records: PartitionRecords) -> None:
        self._system, self._records = system, records
        self._barriers: dict[SSP, ReadBarrier] = {}
        self._expansions: Mapping[str, tuple[Expansion, ...]] = {}
        self._born: dict[SSP, Parents] = {}

    def allowed_ends(
        self, positions: Mapping[SSP, int], ends: Mapping[SSP, int], limit: Mapping[SSP, int] | None = None
    ) -> Mapping[SSP, int]:
        """Up to where each partition may be read; `ends` were taken before this is called. `limit`: beyond which nothing is
        read anyway, so that no reader waits for it either."""
        expansions = self._records.expansions
        if not expansions:
            return ends
        if expansions is not self._expansions:
            self._expansions, self._born = expansions, born_in(positions, expansions)
        born = self._born
        wanting = needs_barrier(born, self._barriers, positions, ends)
        if wanting:
            highs = {
                SSP(self._system.name, stream, partition): high
                for stream in sorted({ssp.stream for ssp in wanting})
                for partition, high in self._system.high_watermarks(stream).items()
            }
            self._barriers |= held(born, wanting, ends, highs, limit)
        return allowed_ends(born, self._barriers, positions, ends, limit)

    def targets(self, streams: tuple[str, ...]) -> dict[SSP, int]:
        """Per partition the end of all that was written so far. Of a stream that grew, the ends of the youngest partitions
        are taken first, and those of their parents after them: what comes before a record is then within them as well."""
        found: dict[SSP, int] = {}
        for stream in streams:
            grown = self._records.expansions.get(stream, ())
            ages = {count for expansion in grown if expansion.settled is None for count in steps_of(expansion)}
            for lowest in (*sorted(ages, reverse=True), 0):
                for partition, high in self._system.high_watermarks(stream).items():
                    if partition >= lowest:
                        found.setdefault(SSP(self._system.name, stream, partition), high)
        return found
