"""The status of a sub-topology: its tasks' checkpoints as committed, and what follows from them for the next round."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from headrace.core.job_plan.elasticity import siblings_of
from headrace.core.rewind.skipped_ranges import SkippedRanges, skipped_between
from headrace.core.rounds.due_times import is_task_due
from headrace.core.rounds.held_back import HeldBack
from headrace.core.rounds.offset_ranges import lags_of
from headrace.core.rounds.partition_barrier import Parents, ReadBarrier, allowed_ends, born_in, held, needs_barrier, steps_of
from headrace.core.rounds.purging import lowest_positions
from headrace.core.rounds.watermarks import joined_reports, task_watermark
from headrace.core.topology.sub_topologies import SubTopology
from headrace.driver.planning.stored_assignment import PartitionRecords
from headrace.model.checkpoint import Checkpoint
from headrace.model.expansion import Expansion
from headrace.model.job_model import SubTopologyModel, TaskModel
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName
from headrace.model.topology import SourceKind
from headrace.ports.system import System

Answer = TypeVar("Answer")

CLAIMS_MAX = 16
CLAIMS_RECENT = 6  # and the last ones, whatever lies between them: what cannot be read yet is soon


@dataclass(frozen=True, slots=True)
class _Claim:
    """Of what lies at `ends` of repartition streams, or behind, nothing is older than `watermark_us`."""

    watermark_us: int
    ends: Mapping[SSP, int]


def _kept_claims(claims: tuple[_Claim, ...], positions: Mapping[SSP, int]) -> tuple[_Claim, ...]:
    """Of claims in their order the last one that is reached everywhere, and those behind it. Where there are more than
    `CLAIMS_MAX` before the last few, of these the one goes without which the fewest records are read until another one counts:
    each is reached in turn, however long the backlog of a partition is, and soon by those that have none."""
    reached = [n for n, claim in enumerate(claims) if all(positions.get(ssp, -1) >= end for ssp, end in claim.ends.items())]
    kept = list(claims[reached[-1] :] if reached else claims)
    while len(kept) > CLAIMS_MAX + CLAIMS_RECENT:
        ends = [sum(claim.ends.values()) for claim in kept]
        del kept[min(range(1, len(kept) - CLAIMS_RECENT), key=lambda n: ends[n + 1] - ends[n - 1])]
    return tuple(kept)


def _has_timer(checkpoint: Checkpoint) -> bool:
    return any(time_us is not None for time_us in checkpoint.due_us)


def by_ssp(system: System, streams: Iterable[str], ask: Callable[[str], Mapping[int, Answer]]) -> dict[SSP, Answer]:
    """What `ask` says of each partition of some streams."""
    return {SSP(system.name, stream, number): answer for stream in streams for number, answer in ask(stream).items()}


class TaskPositions:
    """The checkpoints of a sub-topology's tasks. Only its own thread changes them; any may read."""

    def __init__(
        self,
        sub: SubTopology,
        model: SubTopologyModel,
        checkpoints: Mapping[TaskName, Checkpoint],
        system: System,
        skipped_ranges: SkippedRanges | None = None,
        records: PartitionRecords | None = None,
    ) -> None:
        self.tasks: tuple[TaskModel, ...] = tuple(model.tasks)
        self.checkpoints: dict[TaskName, Checkpoint] = {task.name: checkpoints[task.name] for task in self.tasks}
        self.one_of_siblings = tuple(siblings[0] for siblings in siblings_of(self.tasks))
        self._readers: dict[SSP, list[TaskName]] = {}
        for task, checkpoint in self.checkpoints.items():
            for ssp in checkpoint.positions:
                self._readers.setdefault(ssp, []).append(task)
        self._positions = lowest_positions(self.checkpoints.values())
        self._reported = joined_reports(self.checkpoints.values())
        self.with_timers = {task for task, checkpoint in self.checkpoints.items() if _has_timer(checkpoint)}
        """The tasks that have set a timer, or have punctuations."""
        self._reads = sub.reads
        self._kinds = {source.stream: source.kind for source in sub.sources}
        self._system, self._skipped = system, skipped_ranges or {}
        self._idle_since: dict[SSP, float] = {}
        self._claims: tuple[_Claim, ...] = ()
        self._records = records or PartitionRecords()
        self._barriers: dict[SSP, ReadBarrier] = {}
        self._expansions: Mapping[str, tuple[Expansion, ...]] = {}
        self._born: dict[SSP, Parents] = {}
        self._held_back = HeldBack()

    def inherit_from(self, before: TaskPositions, *, continues: bool) -> None:
        """Carry over the idle times of partitions whose position did not change; and what was learned of the event time above,
        where nothing of the job is set back (`continues`): records that are read again are older."""
        now, then = self.positions(), before.positions()
        self._idle_since = {ssp: since for ssp, since in before._idle_since.items() if now.get(ssp) == then.get(ssp)}
        self._claims = before._claims if continues else ()

    def continues(self, before: TaskPositions) -> bool:
        """Whether no partition is read from further back than `before`."""
        now, then = self.positions(), before.positions()
        return all(now[ssp] >= then[ssp] for ssp in now.keys() & then.keys())

    def move_to(self, checkpoints: Iterable[Checkpoint]) -> int:
        """Take the positions of these, which are committed; how many offsets were read, without skipped ranges. By positions:
        workers count what passed the Column prefix, and a record that several tasks read several times."""
        moved: set[SSP] = set()
        for checkpoint in checkpoints:
            self.checkpoints[checkpoint.task] = checkpoint
            moved.update(checkpoint.positions)
            if _has_timer(checkpoint):
                self.with_timers.add(checkpoint.task)
            else:
                self.with_timers.discard(checkpoint.task)
        # all readers of these partitions, and of no others: what a round costs does not grow with the tasks that are not in it
        readers = [self.checkpoints[task] for task in {task for ssp in moved for task in self._readers[ssp]}]
        lowest, reported = lowest_positions(readers), joined_reports(readers)
        before = {ssp: self._positions[ssp] for ssp in moved}
        after = {ssp: lowest[ssp] for ssp in moved}
        self._positions |= after
        for ssp in moved & reported.keys():
            self._reported[ssp] = max(reported[ssp], self._reported.get(ssp, reported[ssp]))
        return sum(position - before[ssp] for ssp, position in after.items()) - skipped_between(before, after, self._skipped)

    def positions(self) -> dict[SSP, int]:
        """Per whole partition the lowest position among the tasks that read it."""
        return dict(self._positions)

    def ends(self) -> dict[SSP, int]:
        """Per partition up to where it can be read now."""
        return by_ssp(self._system, self._reads, self._system.end_offsets)

    def beginnings(self) -> dict[SSP, int]:
        """Per partition the first offset that can be read now."""
        return by_ssp(self._system, self._reads, self._system.beginning_offsets)

    def held_back_by(self) -> str:
        """For messages: what has kept records from being readable since a look a while ago, empty for nothing."""
        now_s = time.monotonic()
        found = by_ssp(self._system, self._reads, self._system.held_back_by)
        self._held_back = self._held_back.seen({ssp: end for ssp, (end, _) in found.items()}, now_s)
        named = sorted(self._held_back.named(now_s))
        return "; ".join(f"{ssp.stream} partition {ssp.partition}: {found[ssp][1]}" for ssp in named)

    def lag(self, ends: Mapping[SSP, int]) -> int:
        """Offsets that can be read and were not, nor are skipped; `OffsetOutOfRangeError` for a position behind the end."""
        positions = self.positions()
        return sum(lags_of(positions, ends).values()) - skipped_between(positions, ends, self._skipped)

    def lags_by_task(self, ends: Mapping[SSP, int]) -> dict[TaskName, int]:
        """Of each task how many offsets of its partitions can be read and are still before it, those that are skipped left out;
        a virtual task has those of its siblings' records among them."""
        found = {}
        for task in self.tasks:
            positions = self.checkpoints[task.name].positions
            mine = {ssp: positions[ssp] for ssp in task.partitions}
            until = {ssp: max(position, ends.get(ssp, 0)) for ssp, position in mine.items()}
            skipped = skipped_between(mine, until, self._skipped) if self._skipped else 0
            found[task.name] = sum(until.values()) - sum(mine.values()) - skipped
        return found

    def time_lags_us(self, ends: Mapping[SSP, int], now_us: int) -> dict[TaskName, int]:
        """Of each task how far the event time up to which it has read its slowest partition is behind the clock, in µs; 0 where
        it has read them all. Of a partition of which it has read nothing that is not known."""
        found = {}
        for task in self.tasks:
            one = self.checkpoints[task.name]
            behind = [ssp for ssp in task.partitions if one.positions[ssp] < ends.get(ssp, 0) and ssp in one.watermarks]
            found[task.name] = max((max(0, now_us - one.watermarks[ssp]) for ssp in behind), default=0)
        return found

    def slowest_watermark_us(self, idle: set[SSP]) -> int | None:
        """The lowest watermark of all tasks that have one."""
        watermark_of = self.watermarks(idle)
        return min((at_us for task in self.one_of_siblings if (at_us := watermark_of(task)) is not None), default=None)

    def leads(self) -> dict[TaskName, int]:
        """Of each virtual task how many offsets it is ahead of the slowest one of the same partition, of its partitions the
        most."""
        lowest = self.positions()
        virtual = [task for task in self.tasks if task.name.bucket is not None]
        read = {task.name: self.checkpoints[task.name].positions for task in virtual}
        return {task.name: max(read[task.name][ssp] - lowest[ssp] for ssp in task.partitions) for task in virtual}

    def unread(self, stream: str) -> int:
        """How many offsets of one stream can be read and were not, nor are skipped."""
        positions = {ssp: position for ssp, position in self.positions().items() if ssp.stream == stream}
        found = self._system.end_offsets(stream)
        ends = {ssp: max(position, found.get(ssp.partition, 0)) for ssp, position in positions.items()}
        skipped = skipped_between(positions, ends, self._skipped)
        return sum(ends[ssp] - position for ssp, position in positions.items()) - skipped

    # --- event time -------------------------------------------------------------------------------------------------

    def is_repartition(self, ssp: SSP) -> bool:
        return self._kinds[ssp.stream] is SourceKind.REPARTITION

    def note_idle(self, ends: Mapping[SSP, int], now_s: float) -> None:
        """Remember since when each SSP has been at its end."""
        for ssp, position in self.positions().items():
            if position >= ends.get(ssp, 0):
                self._idle_since.setdefault(ssp, now_s)
            else:
                self._idle_since.pop(ssp, None)

    def idle(self, now_s: float, timeout_s: float) -> set[SSP]:
        return {ssp for ssp, since in list(self._idle_since.items()) if now_s - since >= timeout_s}

    def note_upstream(self, watermark_us: int | None) -> None:
        """Those that write this input have come to `watermark_us` with all that they have committed.

        It counts for a partition once that is read to where it ended just now, what cannot be read yet included: on Kafka a
        commit returns before its records can be read.
        """
        if watermark_us is None or (self._claims and self._claims[-1].watermark_us == watermark_us):
            return
        internal = [stream for stream in self._reads if self._kinds[stream] is SourceKind.REPARTITION]
        ends = by_ssp(self._system, internal, self._system.high_watermarks)
        self._claims = _kept_claims((*self._claims, _Claim(watermark_us, ends)), self.positions())

    def upstream_within(self, ends: Mapping[SSP, int]) -> dict[SSP, tuple[int, int]]:
        """Per partition of a repartition stream the highest upstream watermark that counts somewhere up to `ends`, behind the
        offset from which on it does."""
        found: dict[SSP, tuple[int, int]] = {}
        for claim in self._claims:
            for ssp, end in claim.ends.items():
                is_higher = ssp not in found or claim.watermark_us > found[ssp][1]
                if end <= ends.get(ssp, -1) and is_higher:
                    found[ssp] = end, claim.watermark_us
        return found

    def watermarks(self, idle: set[SSP]) -> Callable[[TaskModel], int | None]:
        """The watermark of any task as it is, which is that of its siblings: what the next round judges by."""
        known: dict[SSP, int | None] = dict(self._reported)
        for ssp, (_, watermark_us) in self.upstream_within(self.positions()).items():
            before = known.get(ssp)
            known[ssp] = watermark_us if before is None else max(watermark_us, before)
        return lambda task: task_watermark(task.partitions, known, idle)

    def has_due_timers(self, tasks: Collection[TaskName], idle: Collection[SSP], wall_us: int) -> bool:
        """Whether any of these tasks has a timer that is due, by its watermark or by `wall_us`."""
        watermark_of, named = self.watermarks(set(idle)), (task for task in self.tasks if task.name in tasks)
        timed = (task for task in named if task.name in self.with_timers)
        return any(is_task_due(self.checkpoints[task.name].due_us, watermark_of(task), wall_us) for task in timed)

    # --- new partitions, which are held back until their parents are read ----------------------------------------------

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
            highs = by_ssp(self._system, sorted({ssp.stream for ssp in wanting}), self._system.high_watermarks)
            self._barriers |= held(born, wanting, ends, highs, limit)
        return allowed_ends(born, self._barriers, positions, ends, limit)

    def targets(self) -> dict[SSP, int]:
        """Per partition the end of all that was written so far. Of a stream that grew, the ends of the youngest partitions
        are taken first, and those of their parents after them: what comes before a record is then within them as well."""
        found: dict[SSP, int] = {}
        for stream in self._reads:
            grown = self._records.expansions.get(stream, ())
            ages = {count for expansion in grown if expansion.settled is None for count in steps_of(expansion)}
            for lowest in (*sorted(ages, reverse=True), 0):
                highs = by_ssp(self._system, [stream], self._system.high_watermarks)
                found = {ssp: high for ssp, high in highs.items() if ssp.partition >= lowest} | found
        return found
