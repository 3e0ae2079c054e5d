"""Planning a round: which offsets, which containers, and the payload that tells each of them its work."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping

import msgspec

from headrace.core.affinity.sitting_out import EVERY_TASK, SittingOut
from headrace.core.job_plan.containers import inputs_of
from headrace.core.job_plan.elasticity import siblings_of
from headrace.core.rewind.replays import numbers_of, unfinished, within_replays
from headrace.core.rewind.rewinds import skipped_ranges_of
from headrace.core.rewind.skipped_ranges import before_skipped, beyond_skipped
from headrace.core.rewind.startpoint_rules import held_for_bootstrap
from headrace.core.rounds.due_times import is_task_due, wall_until_us
from headrace.core.rounds.for_each_round import HandoverRound
from headrace.core.rounds.lost_offsets import lost_offsets
from headrace.core.rounds.offset_ranges import (
    READER_RECORDS,
    SMALL_ROUND_RECORDS,
    OffsetRange,
    is_small_round,
    lags_of,
    ranges_of,
    spark_tasks_of,
    weight_of,
    within_bytes,
)
from headrace.core.rounds.task_threads import led_ends, led_ssps, threads_of
from headrace.core.topology.sub_topologies import SubTopology
from headrace.driver.planning.job_plan import Backend, JobPlan
from headrace.driver.rounds.for_each_round import Handovers, handed_works
from headrace.driver.rounds.planned_round import PlannedRound, RoundInputs, RoundTerms
from headrace.driver.rounds.task_positions import TaskPositions
from headrace.errors import OffsetOutOfRangeError
from headrace.exchange.engine import ContainerWork, InputSlice
from headrace.exchange.messages import ContainerPlan, InputRange, Reject, TaskPlan, encoded
from headrace.model.checkpoint import RoundId
from headrace.model.job_model import TaskModel
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName

WatermarkOf = Callable[[TaskModel], int | None]
UNCUT_S = 1e9  # 30 years: JSON has no infinity
BEGINNINGS_US = 10_000_000  # how old may be what is known of the streams' beginnings


class RoundPlanner:
    """Plans the rounds of one sub-topology, and numbers them. Where no operator needs the engine, the containers of a small
    round read by themselves, also if the engine could read for them: that is done sooner than the engine's query is planned."""

    def __init__(
        self,
        sub: SubTopology,
        plan: JobPlan,
        terms: RoundTerms,
        backend: Backend,
        task_positions: TaskPositions,
        handovers: Handovers | None,
    ) -> None:
        self._sub, self._plan, self._terms, self._task_positions = sub, plan, terms, task_positions
        self._system, self._store, self._slots = backend.system, backend.processor_store, backend.engine.slots
        self._handovers = handovers
        self.waits_for = ""  # what tasks wait for that take no part in rounds, for people
        self.owes_timers = False  # whether timers of such tasks are due
        self.known_failures: list[tuple[SSP, int, str, str]] = []
        self.tasks_wait = False  # a round has shown that functions of records wait
        self.held_files: Mapping[TaskName, int] = {}  # how many of each task's state files no round folds
        self._startpoints = plan.startpoints
        self._replays = self._startpoints.replays  # as far as they are unfinished
        self._replaying: Mapping[TaskName, int] = {}
        self._engine_reads, self._is_plain = backend.engine.reads, plan.programs[sub.name].is_plain
        self._skipped = skipped_ranges_of(plan.rewinds)  # what readers of repartition streams skip
        self._containers = {container.lane: container for container in plan.model.sub_topology(sub.name).containers}
        placed = self._containers.values() if backend.cluster is not None else ()
        self._locations = {container.lane: container.location_id for container in placed}  # where workers are looked for
        self._inputs = {lane: inputs_of(container) for lane, container in self._containers.items()}
        self._readers: dict[SSP, dict[int, list[TaskModel]]] = {}  # by lane
        self._places: dict[TaskName, tuple[int, TaskModel]] = {}  # each task and its lane
        for lane, task in ((lane, task) for lane, container in self._containers.items() for task in container.tasks):
            self._places[task.name] = lane, task
            for ssp in task.partitions:
                self._readers.setdefault(ssp, {}).setdefault(lane, []).append(task)
        self._ssps = tuple(sorted(self._readers))
        self._numbers = {ssp: number for number, ssp in enumerate(self._ssps)}
        self._led = led_ssps(self._containers.values(), plan.programs[sub.name])
        self._number = 0
        self._beginnings_us: int | None = None  # when they were last requested, by the outlook's clock

    def number_on(self, before: RoundPlanner) -> None:
        """Under the same epoch no round has a number that one had before."""
        if before._plan.epoch == self._plan.epoch:
            self._number = max(self._number, before._number)

    def invalidate(self) -> None:
        """A round has failed, perhaps because records were deleted: the next plan asks for the streams' beginnings."""
        self._beginnings_us = None

    def next(self, inputs: RoundInputs) -> PlannedRound | None:
        """The next round; None where there is nothing to do: no record, no due timer, nothing to renew. `OffsetOutOfRangeError`
        for a position that the stream does not reach, or whose records it does not hold any more."""
        is_known = self._beginnings_us is not None and abs(inputs.now_us - self._beginnings_us) < BEGINNINGS_US
        try:
            return self._planned(inputs, () if is_known else self._lost(inputs))
        except OffsetOutOfRangeError:
            if not is_known:
                raise
        return self._planned(inputs, self._lost(inputs))

    def _planned(self, inputs: RoundInputs, lost: tuple[OffsetRange, ...]) -> PlannedRound | None:
        round_id = RoundId(self._plan.epoch, self._sub.name, self._number + 1)
        if self._replays:
            self._replays = unfinished(self._replays, self._task_positions.checkpoints)
            self._replaying = numbers_of(self._replays)
        out = inputs.sitting_out
        self.waits_for, wall_us = out.text, wall_until_us(inputs.now_us, inputs.ended_us)
        self.owes_timers = bool(out.reasons) and self._task_positions.has_due_timers(out.reasons, inputs.idle, wall_us)
        if self._handovers is not None and out.reasons:  # its functions are given what all containers read
            return None
        resumes = self._beyond_skipped(inputs) | {piece.ssp: piece.end for piece in lost}
        ranges = self._ranges(inputs, resumes)
        handover = None
        if self._handovers is not None:
            handover = self._handovers.next(round_id, self._task_positions, tuple(ranges.values()), resumes, inputs.ends)
            handed = () if handover is None else handover.ranges
            ranges = _empty_at(resumes) | {piece.ssp: piece for piece in handed}
        watermark_of = self._task_positions.watermarks(set(inputs.idle))
        pieces = self._pieces(ranges, watermark_of, inputs)
        records = {lane: self._records(lane, mine) for lane, mine in pieces.items()}
        if not records:
            return None
        self._number += 1
        common = self._common(round_id, inputs)
        few = SMALL_ROUND_RECORDS + READER_RECORDS * len(ranges)
        by_engine = self._engine_reads and not (self._is_plain and is_small_round(records.values(), few))
        works_by_lane = {}
        for lane, mine in pieces.items():
            filled = self._filled(common, lane, mine, watermark_of, by_engine, out)
            if lane in out.inline:
                filled = msgspec.structs.replace(filled, restore_inline_bytes=sys.maxsize)
            payload = encoded(filled)
            works_by_lane[lane] = self._work(lane, mine, payload, records[lane], by_engine)
        groups = self._groups(records, pieces)
        works = tuple(tuple(works_by_lane[lane] for lane in group) for group in groups)
        bases = {
            task.name: self._task_positions.checkpoints[task.name].round_id
            for lane in records
            for task in out.part_of(self._containers[lane])
        }
        handed_works = () if handover is None else self._handed(common, round_id, min(records), handover)
        return PlannedRound(round_id, tuple(ranges.values()), bases, works, lost, handover, handed_works)

    def _handed(
        self, common: ContainerPlan, round_id: RoundId, lane: int, handover: HandoverRound
    ) -> tuple[tuple[ContainerWork, ...], ...]:
        """Work that reads what a round hands over, see `handed_works`."""
        if handover.handover.is_done:
            return ()
        pieces = handover.handover.ranges
        plan = msgspec.structs.replace(
            common,
            lane=lane,
            deadline_s=UNCUT_S,
            control=None,
            terms=self._store.container_terms(round_id, lane),
            known_failures=self._known({piece.ssp for piece in pieces}),
        )
        ranges = [self._input_range(piece, self._engine_reads) for piece in pieces]
        return handed_works(plan, pieces, ranges, self._slots)

    def _known(self, ssps: Collection[SSP]) -> list[Reject]:
        return [
            Reject(self._numbers[ssp], offset, "a Spark expression", kind, message)
            for ssp, offset, kind, message in self.known_failures
            if ssp in ssps
        ]

    def probe_work(self, planned: PlannedRound, piece: OffsetRange) -> ContainerWork:
        """Work that reads nothing but `piece`, for the search for a record that fails in the engine. It gets no signals: the
        round is given up, and its workers were signalled to stop."""
        lane = next((lane for lane in sorted(planned.lanes) if piece.ssp in self._inputs[lane]), min(planned.lanes))
        pieces = {piece.ssp: piece}
        common = msgspec.structs.replace(self._common(planned.id, RoundInputs({}, frozenset(), 0)), control=None)
        payload = encoded(self._filled(common, lane, pieces, lambda task: None, self._engine_reads, EVERY_TASK))
        return self._work(lane, pieces, payload, piece.records, self._engine_reads)

    # --- the inputs, and their readers ----------------------------------------------------------------------------------

    def _beyond_skipped(self, inputs: RoundInputs) -> dict[SSP, int]:
        """Where partitions in a skipped range resume, once they can be read to there: on Kafka that takes a moment."""
        beyond = beyond_skipped(self._task_positions.positions(), self._skipped) if self._skipped else {}
        return {ssp: position for ssp, position in beyond.items() if position <= inputs.ends.get(ssp, 0)}

    def _lost(self, inputs: RoundInputs) -> tuple[OffsetRange, ...]:
        """What was deleted before it was read, and is skipped; `OffsetOutOfRangeError` where that may not be."""
        positions = self._task_positions.positions()
        for ssp in beyond_skipped(positions, self._skipped):
            del positions[ssp]
        out, beginnings = inputs.sitting_out, self._task_positions.beginnings()
        positions = self._starts(positions, out)
        furthest = {ssp: max(self._taken(ssp, out)) for ssp in positions}
        internal = {ssp for ssp in positions if self._task_positions.is_repartition(ssp)}
        lost = lost_offsets(positions, beginnings, inputs.ends, self._terms.on_lost, internal, furthest)
        # while something is skipped it is asked again: the answer is of use only once that is committed
        self._beginnings_us = None if lost else inputs.now_us
        return lost

    def _ranges(self, inputs: RoundInputs, resumes: Mapping[SSP, int]) -> dict[SSP, OffsetRange]:
        """The input. `resumes`: partitions that are read from further on than their positions, and from where."""
        positions, ends, limit = self._task_positions.positions(), inputs.ends, inputs.limit
        lags_of(positions, ends)  # against the ends themselves: a limit must not hide a position behind them
        positions |= resumes
        if limit is not None:
            ends = {ssp: min(end, limit.get(ssp, end)) for ssp, end in ends.items()}
        ends = held_for_bootstrap(ends, self._task_positions.checkpoints.values(), self._startpoints.bootstraps, limit)
        ends = self._task_positions.allowed_ends(positions, ends, limit)
        if self._replays:
            ends = within_replays(ends, self._replays)
        if self._skipped:
            ends = before_skipped(positions, ends, self._skipped)
        if self._led:
            ends = led_ends(positions, ends, self._terms.max_bucket_lead, self._led)
        if inputs.sitting_out:
            positions = self._starts(positions, inputs.sitting_out)
            ends = {ssp: end for ssp, end in ends.items() if ssp in positions}
        ends = {ssp: max(positions.get(ssp, 0), end) for ssp, end in ends.items()}
        ranges = ranges_of(positions, ends, self._terms.max_records)
        if self._terms.max_bytes is not None and ranges:
            ranges = within_bytes(ranges, self._system.extents(ranges), self._terms.max_bytes, self._number)
        # Where nothing is left behind a skipped range, an empty range still moves the position.
        return _empty_at(resumes) | {piece.ssp: piece for piece in ranges}

    def _takers(self, ssp: SSP, out: SittingOut) -> Collection[int]:
        """The lanes that read a partition and take part: those of a lane that read it together all do, or none."""
        return [lane for lane, tasks in self._readers.get(ssp, {}).items() if tasks[0].name not in out]

    def _starts(self, positions: Mapping[SSP, int], out: SittingOut) -> dict[SSP, int]:
        """Where partitions are read from by those that take part; without those that none of them reads."""
        taken = {ssp: self._taken(ssp, out) for ssp in positions}
        return {ssp: max(position, min(taken[ssp])) for ssp, position in positions.items() if taken[ssp]}

    def _taken(self, ssp: SSP, out: SittingOut) -> list[int]:
        """Where those tasks are that read a partition and take part."""
        checkpoints = self._task_positions.checkpoints
        return [checkpoints[task.name].positions[ssp] for lane in self._takers(ssp, out) for task in self._readers[ssp][lane]]

    def _pieces(
        self, ranges: Mapping[SSP, OffsetRange], watermark_of: WatermarkOf, inputs: RoundInputs
    ) -> dict[int, dict[SSP, OffsetRange]]:
        """The lanes that have something to do and take part, and what each reads. Not what all its tasks have read already:
        others read that range for tasks whose container failed when this one committed."""
        checkpoints, out = self._task_positions.checkpoints, inputs.sitting_out
        wall_us = wall_until_us(inputs.now_us, inputs.ended_us)
        found: dict[int, dict[SSP, OffsetRange]] = {}
        for lane in frozenset(self._store.lanes_to_renew(self._sub.name, inputs.now_us)) & self._containers.keys():
            found[lane] = {}
        for name in self._task_positions.with_timers:
            lane, task = self._places[name]
            if lane not in found and name not in out and is_task_due(checkpoints[name].due_us, watermark_of(task), wall_us):
                found[lane] = {}
        for ssp in sorted(ranges):
            for lane in self._takers(ssp, out):
                if any(checkpoints[task.name].positions[ssp] < ranges[ssp].end for task in self._readers[ssp][lane]):
                    found.setdefault(lane, {})[ssp] = ranges[ssp]
        return {lane: found[lane] for lane in sorted(found) if out.part_of(self._containers[lane])}

    def _records(self, lane: int, pieces: Mapping[SSP, OffsetRange]) -> int:
        """About how many records a lane has to process: of a slice, as many as key buckets make one."""
        slices = {ssp: bucket.factor for ssp, bucket in self._inputs[lane].items() if bucket is not None}
        return sum(-(-piece.records // slices.get(ssp, 1)) for ssp, piece in pieces.items())

    def _groups(
        self, records: Mapping[int, int], pieces: Mapping[int, Mapping[SSP, OffsetRange]]
    ) -> Iterator[tuple[int, ...]]:
        """The lanes of each Spark task, which are at one location."""
        by_location: dict[str | None, list[tuple[int, int]]] = {}
        for lane, weight in self._weights(records, pieces):
            by_location.setdefault(self._locations.get(lane), []).append((lane, weight))
        for location, mine in by_location.items():
            yield from spark_tasks_of(mine, self._slots if location is None else len(mine))

    def _weights(
        self, records: Mapping[int, int], pieces: Mapping[int, Mapping[SSP, OffsetRange]]
    ) -> list[tuple[int, int]]:
        """What the work of each lane amounts to, in records: those that it processes, and what its tasks cost themselves."""
        found = []
        for lane, count in records.items():
            reading = {task.name for ssp in pieces[lane] for task in self._readers[ssp].get(lane, ())}
            found.append((lane, weight_of(count, len(reading), wait=self.tasks_wait)))
        return found

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
            lead=self._terms.max_bucket_lead,
            location_id=place.location_id,
            log_as=place.log_as,
            restore_inline_bytes=self._terms.restore_inline_bytes,
            upstream={
                self._numbers[ssp]: claim
                for ssp, claim in self._task_positions.upstream_within(inputs.ends).items()
                if ssp in self._numbers
            },
        )

    def _filled(
        self,
        common: ContainerPlan,
        lane: int,
        pieces: Mapping[SSP, OffsetRange],
        watermark_of: WatermarkOf,
        by_engine: bool,
        out: SittingOut,
    ) -> ContainerPlan:
        round_id = RoundId(common.epoch, self._sub.name, int(common.round_id.rpartition(":")[2]))
        container = self._containers[lane]
        mine = out.part_of(container)
        return msgspec.structs.replace(
            common,
            lane=lane,
            job_model_version=container.since or self._plan.model.version,
            location=self._locations.get(lane),
            is_part=len(mine) < len(container.tasks),
            tasks=[
                self._task_plan(task, watermark_us)
                for siblings in siblings_of(mine)
                for watermark_us in [watermark_of(siblings[0])]
                for task in siblings
            ],
            ranges=[self._input_range(piece, by_engine) for piece in pieces.values()],
            terms=self._store.container_terms(round_id, lane),
            known_failures=self._known(pieces),
            threads=threads_of(
                self._terms.task_threads,
                len(mine),
                are_virtual=any(task.name.bucket is not None for task in mine),
                wait=self.tasks_wait,
            ),
        )

    def _input_range(self, piece: OffsetRange, by_engine: bool) -> InputRange:
        terms = None if by_engine else self._system.range_terms(piece)
        return InputRange(self._numbers[piece.ssp], piece.start, piece.end, terms)

    def _task_plan(self, task: TaskModel, watermark_us: int | None) -> TaskPlan:
        base = self._task_positions.checkpoints[task.name]
        return TaskPlan(
            str(task.name),
            {self._numbers[ssp]: base.positions[ssp] for ssp in task.partitions},
            base.head,
            watermark_us,
            base.event_timer_us,
            base.wall_timer_us,
            str(base.round_id),
            {self._numbers[ssp]: time_us for ssp, time_us in base.watermarks.items() if ssp in self._numbers},
            {  # one of a stream that is not read now waits for when it is again
                self._numbers[ssp]: pending
                for ssp, pending in self._startpoints.pending_of(task.name).items()
                if ssp in base.positions
            },
            self._replaying.get(task.name),
            base.expiry_us,
            base.closed_us,
            self.held_files.get(task.name, 0),
            dict(base.punctuations),
        )

    def _work(
        self, lane: int, pieces: Mapping[SSP, OffsetRange], payload: bytes, records: int, by_engine: bool
    ) -> ContainerWork:
        slices = self._inputs[lane]
        inputs = tuple(
            InputSlice(self._numbers[ssp], ssp.stream, ssp.partition, piece.start, piece.end, slices.get(ssp))
            for ssp, piece in pieces.items()
        )
        return ContainerWork(lane, payload, self._locations.get(lane), records, inputs, by_engine)


def _empty_at(positions: Mapping[SSP, int]) -> dict[SSP, OffsetRange]:
    return {ssp: OffsetRange(ssp, position, position) for ssp, position in positions.items()}
