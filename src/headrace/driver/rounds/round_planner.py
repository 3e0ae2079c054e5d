"""Planning a round: which offsets, which containers, and the payload that tells each of them its work."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from headrace.core.rewind.replays import numbers_of, unfinished, within_replays
from headrace.core.rewind.rewinds import skipped_ranges_of
from headrace.core.rewind.skipped_ranges import before_skipped, beyond_skipped
from headrace.core.rewind.startpoints import held_for_bootstrap
from headrace.core.rounds.handover import HandoverRound
from headrace.core.rounds.lost_offsets import lost_offsets
from headrace.core.rounds.offset_ranges import (
    READER_RECORDS,
    SMALL_ROUND_RECORDS,
    TASK_RECORDS,
    OffsetRange,
    is_small_round,
    lags_of,
    ranges_of,
    spark_tasks_of,
    within_bytes,
)
from headrace.core.topology.sub_topologies import SubTopology
from headrace.driver.planning.job_plan import Backend, JobPlan
from headrace.driver.rounds.handover import Handovers, handed_works
from headrace.driver.rounds.partition_barrier import Barrier
from headrace.driver.rounds.planned_round import PlannedRound, RoundInputs, RoundTerms
from headrace.driver.rounds.positions import TaskPositions
from headrace.errors import OffsetOutOfRangeError
from headrace.exchange.messages import ContainerPlan, InputRange, Reject, TaskPlan, encoded
from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.job_model import ContainerModel, TaskModel
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName
from headrace.ports import ContainerWork, InputSlice

UNCUT_S = 1e9  # 30 years: JSON has no infinity
BEGINNINGS_US = 10_000_000  # how old may be what is known of the streams' beginnings


class RoundPlanner:
    """Plans the rounds of one sub-topology, and numbers them.

    Where no operator needs the engine, the containers of a small round read by themselves, also if the engine could read for
    them: that is done sooner than the engine's query is planned.
    """

    def __init__(
        self,
        sub: SubTopology,
        plan: JobPlan,
        terms: RoundTerms,
        backend: Backend,
        task_positions: TaskPositions,
        barrier: Barrier,
        handovers: Handovers | None,
    ) -> None:
        self._sub, self._plan, self._terms, self._task_positions = sub, plan, terms, task_positions
        self._system, self._store, self._slots = backend.system, backend.store, backend.engine.slots
        self._barrier, self._handovers = barrier, handovers
        self._startpoints = plan.startpoints
        self._replays = self._startpoints.replays  # as far as they are unfinished
        self._replaying: Mapping[TaskName, int] = {}
        self._engine_reads, self._is_plain = backend.engine.reads, plan.programs[sub.name].is_plain
        self._skipped = skipped_ranges_of(plan.rewinds)  # what readers of repartition streams skip
        self._containers = {container.lane: container for container in plan.model.sub_topology(sub.name).containers}
        self._ssps = tuple(sorted({ssp.whole for task in task_positions.tasks for ssp in task.ssps}))
        self._numbers = {ssp: number for number, ssp in enumerate(self._ssps)}
        self._number = 0
        self._beginnings_us: int | None = None  # when they were last requested, by the outlook's clock

    def invalidate(self) -> None:
        """A round has failed, perhaps because records were deleted: the next plan asks for the streams' beginnings."""
        self._beginnings_us = None

    def next(self, inputs: RoundInputs, known_failures: list[tuple[SSP, int, str, str]]) -> PlannedRound | None:
        """The next round; None where there is nothing to do: no record, no due timer, nothing to renew.

        `OffsetOutOfRangeError` for a position that the stream does not reach, or whose records it does not hold any more.
        """
        is_known = self._knows_beginnings(inputs.now_us)
        try:
            return self._planned(inputs, () if is_known else self._lost(inputs), known_failures)
        except OffsetOutOfRangeError:
            if not is_known:
                raise
        return self._planned(inputs, self._lost(inputs), known_failures)

    def _planned(
        self,
        inputs: RoundInputs,
        lost: tuple[OffsetRange, ...],
        known_failures: list[tuple[SSP, int, str, str]],
    ) -> PlannedRound | None:
        round_id = RoundId(self._plan.epoch, self._sub.name, self._number + 1)
        if self._replays:
            self._replays = unfinished(self._replays, self._task_positions.checkpoints)
            self._replaying = numbers_of(self._replays)
        passed = self._beyond_skipped(inputs) | {piece.ssp: piece.end for piece in lost}
        ranges = self._ranges(inputs, passed)
        handover = None
        if self._handovers is not None:
            handover = self._handovers.next(round_id, self._task_positions, tuple(ranges.values()), passed, inputs.ends)
            handed = () if handover is None else handover.ranges
            ranges = _empty_at(passed) | {piece.ssp: piece for piece in handed}
        marks = self._task_positions.watermarks(set(inputs.idle))
        records = self._lanes(ranges, marks, inputs.now_us)
        if not records:
            return None
        self._number += 1
        common = self._common(round_id, inputs)
        few = SMALL_ROUND_RECORDS + READER_RECORDS * len(ranges)
        by_engine = self._engine_reads and not (self._is_plain and is_small_round(records.values(), few))
        payloads = {
            lane: encoded(self._filled(common, self._containers[lane], ranges, marks, known_failures, by_engine))
            for lane in records
        }
        given = ranges if by_engine else {}
        works = tuple(
            tuple(self._work(self._containers[lane], payloads[lane], records[lane], given) for lane in group)
            for group in spark_tasks_of(self._weights(records, ranges), self._slots)
        )
        bases = {
            task.name: self._task_positions.checkpoints[task.name].round_id
            for lane in records
            for task in self._containers[lane].tasks
        }
        handed_works = () if handover is None else self._handed(common, round_id, min(records), handover, known_failures)
        return PlannedRound(round_id, tuple(ranges.values()), bases, works, lost, handover, handed_works)

    def _handed(
        self,
        common: ContainerPlan,
        round_id: RoundId,
        lane: int,
        handover: HandoverRound,
        known_failures: list[tuple[SSP, int, str, str]],
    ) -> tuple[tuple[ContainerWork, ...], ...]:
        """Work that reads what a round hands over, see `for_each.handed_works`."""
        if handover.handover.is_done:
            return ()
        pieces = handover.handover.ranges
        plan = msgspec.structs.replace(
            common,
            lane=lane,
            deadline_s=UNCUT_S,
            control=None,
            terms=self._store.container_terms(round_id, lane),
            known_failures=self._known({piece.ssp for piece in pieces}, known_failures),
        )
        ranges = [self._input_range(piece, self._engine_reads) for piece in pieces]
        return handed_works(plan, pieces, ranges, self._slots)

    def _known(self, ssps: Collection[SSP], known_failures: list[tuple[SSP, int, str, str]]) -> list[Reject]:
        return [
            Reject(self._numbers[ssp], offset, "a Spark expression", kind, message)
            for ssp, offset, kind, message in known_failures
            if ssp in ssps
        ]

    def probe_work(
        self, planned: PlannedRound, piece: OffsetRange, known_failures: list[tuple[SSP, int, str, str]]
    ) -> ContainerWork:
        """Work that reads nothing but `piece`, for the search for a record that fails in the engine.

        It gets no signals: the round is given up, and its workers were signalled to stop.
        """
        owner = next(
            container
            for container in self._containers.values()
            if any(ssp.whole == piece.ssp for task in container.tasks for ssp in task.ssps)
        )
        if owner.lane not in planned.lanes:
            owner = self._containers[min(planned.lanes)]
        ranges = {piece.ssp: piece}
        inputs = RoundInputs({}, frozenset(), 0)
        common = msgspec.structs.replace(self._common(planned.id, inputs), control=None)
        marks = dict.fromkeys((task.name for task in owner.tasks), None)
        payload = encoded(self._filled(common, owner, ranges, marks, known_failures, self._engine_reads))
        return self._work(owner, payload, piece.records, ranges)

    # --- the inputs, and their readers ----------------------------------------------------------------------------------

    def _knows_beginnings(self, now_us: int) -> bool:
        return self._beginnings_us is not None and abs(now_us - self._beginnings_us) < BEGINNINGS_US

    def _beyond_skipped(self, inputs: RoundInputs) -> dict[SSP, int]:
        """Where reading resumes of partitions that are in a gap, once it can be read to there: on Kafka that may take a
        moment."""
        beyond = beyond_skipped(self._task_positions.positions(), self._skipped) if self._skipped else {}
        return {ssp: position for ssp, position in beyond.items() if position <= inputs.ends.get(ssp, 0)}

    def _lost(self, inputs: RoundInputs) -> tuple[OffsetRange, ...]:
        """What was deleted before it was read, and is skipped; `OffsetOutOfRangeError` where that may not be."""
        positions = self._task_positions.positions()
        for ssp in beyond_skipped(positions, self._skipped):
            del positions[ssp]
        internal = {ssp for ssp in positions if self._task_positions.is_repartition(ssp)}
        lost = lost_offsets(positions, self._task_positions.beginnings(), inputs.ends, self._terms.on_lost, internal)
        # while something is skipped it is asked again: the answer is of use only once that is committed
        self._beginnings_us = None if lost else inputs.now_us
        return lost

    def _ranges(self, inputs: RoundInputs, passed: Mapping[SSP, int]) -> dict[SSP, OffsetRange]:
        """The input. `passed`: partitions that are read from further on than their positions, and from where."""
        positions, ends, limit = self._task_positions.positions(), inputs.ends, inputs.limit
        lags_of(positions, ends)  # against the ends themselves: a limit must not hide a position behind them
        positions |= passed
        if limit is not None:
            ends = {ssp: min(end, limit.get(ssp, end)) for ssp, end in ends.items()}
        ends = held_for_bootstrap(ends, self._task_positions.checkpoints.values(), self._startpoints.bootstraps, limit)
        ends = self._barrier.allowed_ends(positions, ends, limit)
        if self._replays:
            ends = within_replays(ends, self._replays)
        if self._skipped:
            ends = before_skipped(positions, ends, self._skipped)
        ends = {ssp: max(positions.get(ssp, 0), end) for ssp, end in ends.items()}
        # Where nothing is left behind a skipped range, an empty range still moves the position.
        empty = _empty_at(passed)
        ranges = ranges_of(positions, ends, self._terms.max_records)
        if self._terms.max_bytes is not None and ranges:
            ranges = within_bytes(ranges, self._system.extents(ranges), self._terms.max_bytes, self._number)
        return empty | {piece.ssp: piece for piece in ranges}

    def _lanes(
        self, ranges: Mapping[SSP, OffsetRange], marks: Mapping[TaskName, int | None], now_us: int
    ) -> dict[int, int]:
        """The lanes that have something to do, and how many records."""
        renewed = frozenset(self._store.lanes_to_renew(self._sub.name, now_us))
        checkpoints = self._task_positions.checkpoints
        lanes = {}
        for container in self._containers.values():
            wanted = sum(ranges[ssp.whole].records for task in container.tasks for ssp in task.ssps if ssp.whole in ranges)
            due = any(_is_due(checkpoints[task.name], marks[task.name], now_us) for task in container.tasks)
            moved = any(ssp.whole in ranges for task in container.tasks for ssp in task.ssps)
            if moved or due or container.lane in renewed:
                lanes[container.lane] = wanted
        return lanes

    def _weights(self, records: Mapping[int, int], ranges: Mapping[SSP, OffsetRange]) -> list[tuple[int, int]]:
        """What the work of each lane amounts to, in records: those that it reads, and what its tasks cost themselves."""
        return [
            (lane, count + TASK_RECORDS * sum(_reads(task, ranges) for task in self._containers[lane].tasks))
            for lane, count in records.items()
        ]

    # --- payloads ---------------------------------------------------------------------------------------------------

    def _common(self, round_id: RoundId, inputs: RoundInputs) -> ContainerPlan:
        """What the plans of all containers of the round have in common."""
        place = self._terms.place
        return ContainerPlan(
            round_id=str(round_id),
            epoch=round_id.epoch,
            lane=0,
            ssps=[(ssp.system, ssp.stream, ssp.partition) for ssp in self._ssps],
            tasks=[],
            ranges=[],
            now_us=inputs.now_us,
            deadline_s=place.max_round_s,
            run_id=place.run_id,
            local_store_dir=place.local_store_dir,
            state_uri=place.state_uri,
            system=self._system.name,
            job_model_version=self._plan.model.version,
            control=place.control.terms_of(round_id),
            has_other_machines=place.has_other_machines,
            upstream={
                self._numbers[ssp]: claim
                for ssp, claim in self._task_positions.upstream_within(inputs.ends).items()
                if ssp in self._numbers
            },
        )

    def _filled(
        self,
        common: ContainerPlan,
        container: ContainerModel,
        ranges: Mapping[SSP, OffsetRange],
        marks: Mapping[TaskName, int | None],
        known_failures: list[tuple[SSP, int, str, str]],
        by_engine: bool,
    ) -> ContainerPlan:
        mine = _ssps_of(container, ranges)
        round_id = RoundId(common.epoch, self._sub.name, int(common.round_id.rpartition(":")[2]))
        return msgspec.structs.replace(
            common,
            lane=container.lane,
            tasks=[self._task_plan(task, marks[task.name]) for task in container.tasks],
            ranges=[self._input_range(ranges[ssp], by_engine) for ssp in mine],
            terms=self._store.container_terms(round_id, container.lane),
            known_failures=self._known(mine, known_failures),
        )

    def _input_range(self, piece: OffsetRange, by_engine: bool) -> InputRange:
        terms = None if by_engine else self._system.range_terms(piece)
        return InputRange(self._numbers[piece.ssp], piece.start, piece.end, terms)

    def _task_plan(self, task: TaskModel, watermark_us: int | None) -> TaskPlan:
        base = self._task_positions.checkpoints[task.name]
        return TaskPlan(
            str(task.name),
            {self._numbers[ssp.whole]: base.positions[ssp] for ssp in task.ssps},
            base.head,
            watermark_us,
            base.event_timer_us,
            base.wall_timer_us,
            str(base.round_id),
            {self._numbers[ssp.whole]: time_us for ssp, time_us in base.watermarks.items() if ssp.whole in self._numbers},
            {  # one of a stream that is not read now waits for when it is again
                self._numbers[ssp.whole]: pending
                for ssp, pending in self._startpoints.pending_of(task.name).items()
                if ssp in base.positions
            },
            self._replaying.get(task.name),
        )

    def _work(
        self, container: ContainerModel, payload: bytes, records: int, ranges: Mapping[SSP, OffsetRange]
    ) -> ContainerWork:
        inputs = tuple(
            InputSlice(self._numbers[ssp], ssp.stream, ssp.partition, ranges[ssp].start, ranges[ssp].end)
            for ssp in _ssps_of(container, ranges)
        )
        return ContainerWork(container.lane, payload, container.location_id, records, inputs)


def _reads(task: TaskModel, ranges: Mapping[SSP, OffsetRange]) -> bool:
    return any(ssp.whole in ranges for ssp in task.ssps)


def _empty_at(positions: Mapping[SSP, int]) -> dict[SSP, OffsetRange]:
    return {ssp: OffsetRange(ssp, position, position) for ssp, position in positions.items()}


def _ssps_of(container: ContainerModel, ranges: Mapping[SSP, OffsetRange]) -> list[SSP]:
    """Of the partitions that a round reads, those of the container's tasks."""
    return sorted({ssp.whole for task in container.tasks for ssp in task.ssps if ssp.whole in ranges})


def _is_due(checkpoint: Checkpoint, watermark_us: int | None, now_us: int) -> bool:
    event, wall = checkpoint.event_timer_us, checkpoint.wall_timer_us
    return (event is not None and watermark_us is not None and event <= watermark_us) or (wall is not None and wall <= now_us)
