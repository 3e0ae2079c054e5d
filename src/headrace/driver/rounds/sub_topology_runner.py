"""The rounds of one sub-topology: have one planned, run the containers, have it committed, and begin again.

A round is the unit of retry: whatever fails, its work is thrown away, what is committed is read again, and a new round is
planned from that (protocol.md, "Terms"). `SubTopologyRunner` decides nothing about time: the caller says when to look. How a
round is committed is the adapter's, see `ports.processor_store.ProcessorStore`.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from headrace.codec.documents import decode
from headrace.core.affinity.locations import LocationId
from headrace.core.affinity.sitting_out import EVERY_TASK, SittingOut, sitting_out
from headrace.core.elasticity.recut import Recut, positions_to_reach
from headrace.core.group.grants import processor_of
from headrace.core.rewind.replays import unfinished
from headrace.core.rewind.rewinds import skipped_ranges_of
from headrace.core.rounds.event_times import warning_of
from headrace.core.rounds.lost_offsets import described
from headrace.core.rounds.task_threads import has_waited
from headrace.core.topology.sub_topologies import SubTopology, output_streams
from headrace.driver.metrics.round_meter import RoundMeter
from headrace.driver.planning.job_plan import Backend, JobPlan
from headrace.driver.rounds.absent_containers import AbsentContainers
from headrace.driver.rounds.for_each_round import Handovers
from headrace.driver.rounds.planned_round import PlannedRound, RoundInputs, RoundTerms
from headrace.driver.rounds.progress import Progress
from headrace.driver.rounds.round_planner import RoundPlanner
from headrace.driver.rounds.task_positions import TaskPositions
from headrace.driver.store_restoration import RestoringStatus
from headrace.errors import (
    DEFECT,
    HeadraceError,
    IncompatibleChangeError,
    OffsetOutOfRangeError,
    RecordError,
    RoundFailedError,
    StreamNotFoundError,
)
from headrace.exchange.errors import error_of, record_error
from headrace.exchange.fault_injection import reached
from headrace.exchange.messages import Failure, Summary, decoded_summary
from headrace.exchange.texts import in_a_line
from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.commits import ContainerCommit, RoundCommit
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName
from headrace.model.topology import ForEachRound, Source

LOG = logging.getLogger("headrace.job")
GONE_S = 2.0  # for this long a broker that has just started may know nothing of a stream


class SubTopologyRunner:
    """The rounds of one sub-topology. Not thread-safe, but `checkpoints` may be read from any."""

    def __init__(self, sub: SubTopology, plan: JobPlan, terms: RoundTerms, backend: Backend) -> None:
        system, store, engine = backend.system, backend.processor_store, backend.engine
        self.sub, self.model, self.program = sub, plan.model.sub_topology(sub.name), plan.programs[sub.name]
        skipped = skipped_ranges_of(plan.rewinds)
        self.task_positions = TaskPositions(sub, self.model, plan.checkpoints, system, skipped, plan.records)
        self.tasks = self.task_positions.tasks
        self.progress = Progress()
        self.has_unknown = False  # whether containers of its last round may have committed, or still may, without a word
        self.terms, self._epoch = terms, plan.epoch
        self._incomplete: Mapping[int, Mapping[str, int]] = {}  # lanes of the last round that lack state: by task so many bytes
        self._arrived: dict[TaskName, LocationId] = {}  # tasks that have committed for the first time, and where
        self._containers = {one.lane: one for one in self.model.containers}
        self._places = {lane: one.location_id for lane, one in self._containers.items() if one.location_id is not None}
        self.absent = AbsentContainers(self._containers, backend)
        self._unseen = {  # the tasks that have not committed under this plan, and where they are to
            task.name: LocationId(self._places[lane])
            for lane, one in self._containers.items()
            if lane in self._places
            for task in one.tasks
        }
        self._cluster, self._restoration = backend.cluster, backend.restoration
        self._system, self._store, self._engine = system, store, engine
        self._check_epoch = backend.check_epoch
        own = plan.processor_id
        self._is_in_group = own is not None
        self._own = [one for one in self.model.containers if own is None or processor_of(one) == own]
        self._elsewhere = frozenset(self.checkpoints) - {task.name for one in self._own for task in one.tasks}
        self._startpoints = plan.startpoints
        self._handovers = None
        if any(isinstance(node, ForEachRound) for node in sub.nodes):
            self._handovers = Handovers(sub, self.program, backend, plan.epoch)
        self.planner = RoundPlanner(sub, plan, terms, backend, self.task_positions, self._handovers)
        chained = frozenset(self.program.source(i).stream for i, one in enumerate(self.program.endpoints) if one.chain)
        self.meter = RoundMeter(self.model, chained, backend.sinks, time.monotonic())

    def continues(self, before: SubTopologyRunner) -> bool:
        """Whether it is known that no task was set back since another plan. A processor of a group may have slept through more
        plans."""
        pending = any(self._startpoints.pending_of(task.name) for task in self.tasks)
        return not (pending or self._is_in_group) and self.task_positions.continues(before.task_positions)

    def inherit_from(self, before: SubTopologyRunner, *, continues: bool) -> None:
        """Take over what another plan's rounds of this sub-topology have counted and learned. `continues`: whether all
        sub-topologies continue from there."""
        self.progress, self.planner.known_failures = before.progress, before.planner.known_failures
        self.planner.tasks_wait = before.planner.tasks_wait
        self.planner.number_on(before.planner)
        self.absent.inherit_from(before.absent)
        self.task_positions.inherit_from(before.task_positions, continues=continues)

    @property
    def checkpoints(self) -> Mapping[TaskName, Checkpoint]:
        return self.task_positions.checkpoints

    @property
    def is_replaying(self) -> bool:
        """Whether one of its tasks reads again what it has read before."""
        return bool(unfinished(self._startpoints.replays, self.checkpoints))

    def limit_to_merge(self, recut: Recut) -> dict[SSP, int] | None:
        """Up to where to read so that tasks which are to be merged come to the same positions; None where they are there."""
        targets = positions_to_reach(recut, self.checkpoints)
        return self.limit_at(targets) if targets else None

    def is_behind(self, targets: Mapping[SSP, int]) -> bool:
        """Whether a task that runs here has to read on to come to `targets`."""
        own = [one for task, one in self.checkpoints.items() if task not in self._elsewhere]
        return any(one.positions.get(ssp, target) < target for one in own for ssp, target in targets.items())

    def limit_at(self, targets: Mapping[SSP, int]) -> dict[SSP, int]:
        """Where to read to, to come to `targets` and no further."""
        positions = self.task_positions.positions()
        return positions | {ssp: target for ssp, target in targets.items() if ssp in positions}

    def sitting_out(self) -> SittingOut:
        """The tasks that take no part in rounds now, as their location has no worker, or their stores are restored."""
        if self._restoration is None:
            return SittingOut(elsewhere=self._elsewhere) if self._elsewhere else EVERY_TASK
        present = None if self._cluster is None else self._cluster.present()
        waiting = self._restoration.waiting(self.sub.title)
        left_bytes = sum(one.total_bytes - one.done_bytes for one in waiting.lanes.values())
        self.meter.restored(self._restoration.taken_bytes(self.sub.title), left_bytes, time.monotonic())
        return replace(sitting_out(self._own, present, waiting, self.absent.sitting_out()), elsewhere=self._elsewhere)

    def restoring(self) -> list[RestoringStatus]:
        """The tasks whose local stores are restored in the background."""
        return [] if self._restoration is None else self._restoration.status(self.sub.title)

    def hear(self) -> None:
        """Take what other processors of a group have committed since the last call."""
        heard = self._store.heard(self.sub.name) if self._elsewhere else ()
        if heard:
            self.task_positions.move_to(heard)
            self._startpoints.committed(heard)

    def plan(self, inputs: RoundInputs) -> PlannedRound | None:
        """The next round, or None where there is nothing to do."""
        reached("log", 1)
        self.meter.looked(inputs, self.task_positions, time.monotonic())
        return self.planner.next(inputs)

    def run(self, planned: PlannedRound) -> list[Summary]:
        """Call the functions of `for_each_round`, then run the containers; one summary each, by lane, but of those that have
        declined: there may be none, and where records were handed to functions there is none unless all have taken part. Raises
        what made the round fail: then `reload_committed`. What made it fail for some of its containers only is
        `absent.failure`, to be raised when the others have committed."""
        self.absent.begin()
        if self._handovers is not None:
            self._handovers.hand_over(planned)
        self.meter.began(time.monotonic())
        answers = self._engine.run(self.sub.title, str(planned.id), planned.works, self.program)
        summaries = sorted(map(decoded_summary, answers), key=lambda summary: summary.lane)
        for summary in summaries:
            if summary.failure is not None:
                self._failed(summary.failure, summary.lane)
                raise record_error(summary.failure)
            if summary.error is not None:
                raise _again_if_gone(error_of(summary.error), planned)
        lanes = {summary.lane for summary in summaries if not summary.stopped}
        if lanes != planned.lanes or len(summaries) != len(lanes):
            raise RoundFailedError(
                f"round {planned.id}: containers {sorted(lanes)} answered, expected {sorted(planned.lanes)}",
                f"the round is tried again; if that does not help, {DEFECT}",
            )
        self.terms.place.control.ended(planned.id)
        return self._accepted(planned, summaries)

    def _accepted(self, planned: PlannedRound, summaries: list[Summary]) -> list[Summary]:
        """Those of the containers that have taken part. One that Spark ran at another location than its own has declined, and
        so has one whose stores lack much of their state: that is restored now. Of one whose location was lost nothing is known;
        and before one has declined, another attempt of it may have committed."""
        self.meter.answered(summaries, time.monotonic())
        declined = [summary for summary in summaries if summary.has_declined]
        self.absent.heard(planned, declined)
        self.has_unknown = bool(declined)
        if not declined:
            return summaries
        self.progress.count(Counter("containers_lost" if one.lost else "containers_declined" for one in declined))
        self._incomplete = {summary.lane: summary.missing for summary in declined if summary.missing}
        if planned.handover is not None:  # its functions were given what the others would have read, too
            if self.absent.failure is not None:
                raise self.absent.failure
            return []  # on Kafka the others have committed: what is unknown is read
        return [summary for summary in summaries if not summary.has_declined]

    def stop_round(self, planned: PlannedRound) -> None:
        """Signal workers of a round that is given up, zombies included, to stop."""
        self.terms.place.control.stop(planned.id)

    def cut_round(self, planned: PlannedRound) -> None:
        """Signal workers of a round to end soon, and to commit what they have reached."""
        self.terms.place.control.cut(planned.id)

    def commit(self, planned: PlannedRound, summaries: list[Summary]) -> None:
        """Have the round committed, and take its positions; see `ProcessorStore.commit_round` for what is raised."""
        began = time.monotonic()
        commits = tuple(_container_commit(summary) for summary in summaries)
        commit = RoundCommit(planned.id, commits, self._bases(planned, summaries))
        self._store.commit_round(commit)
        records = self._move_to(commit.checkpoints)
        self._startpoints.committed(commit.checkpoints)
        if self._unseen:
            names = [one.task for one in commit.checkpoints if one.task in self._unseen]
            self._arrived |= {name: self._unseen.pop(name) for name in names}
        if self._restoration is not None:
            self._restoration.took_part(self.sub.title, {summary.lane for summary in summaries})
        ended = time.monotonic()
        phases_ns = self.meter.committed(planned, summaries, commit.checkpoints, ended - began, ended)
        now_us = time.time_ns() // 1000
        self.progress.add(planned.id, summaries, records, phases_ns, now_us)
        self.progress.committed([str(one.task) for one in commit.checkpoints], now_us)
        self._warn_of_far_times(summaries)
        if any(has_waited(summary.worked_s, summary.waited_s) for summary in summaries):
            self.planner.tasks_wait = True
        for piece in planned.lost:
            self.progress.lose(piece.records, described(piece, self.terms.on_lost))

    def new_locations(self) -> dict[TaskName, LocationId]:
        """Where tasks have run for the first time under this plan, since the last call."""
        arrived, self._arrived = self._arrived, {}
        return arrived

    def _bases(self, planned: PlannedRound, summaries: list[Summary]) -> Mapping[TaskName, RoundId]:
        """What the tasks build on of those containers that have taken part."""
        if len(summaries) == len(planned.lanes):
            return planned.bases
        lanes = {summary.lane for summary in summaries}
        mine = {task.name for container in self.model.containers if container.lane in lanes for task in container.tasks}
        return {name: base for name, base in planned.bases.items() if name in mine}

    def _warn_of_far_times(self, summaries: list[Summary]) -> None:
        """Once for each stream, as long as this driver runs."""
        units = {node.stream: node.timestamp_unit for node in self.program.nodes if isinstance(node, Source)}
        for far in (far for summary in summaries for far in summary.far_times):
            if far.stream not in self.progress.warned_of:
                self.progress.warned_of.add(far.stream)
                self.progress.note(warning_of(far, units.get(far.stream, "us"), self.program.far_us))

    def check_outputs(self) -> None:
        """After a round that failed: `StreamNotFoundError` or `IncompatibleChangeError` where others have deleted a stream that
        is written to, or recreated it with fewer partitions."""
        for name in output_streams(self.sub, self.program.dead_letter):
            count, began_s = self.program.partition_counts[name], time.monotonic()
            while (found := self._partitions(name)) is None and time.monotonic() < began_s + GONE_S:
                time.sleep(0.1)
            if found is None:
                raise StreamNotFoundError(
                    f"output stream {name!r} was deleted while the application runs",
                    f"recreate it with {count} partitions and restart the application: it resumes from the last commit; the "
                    "records of the deleted stream are lost",
                )
            if found < count:
                raise IncompatibleChangeError(
                    f"output stream {name!r} has fewer partitions than when the application began: {found}, not {count}",
                    "restart the application: it resumes from the last commit, with the partitions that exist",
                )

    def _partitions(self, stream: str) -> int | None:
        try:
            return len(self._system.high_watermarks(stream))
        except StreamNotFoundError:
            return None

    def shut_out(self) -> None:
        """No attempt of rounds before commits any more."""
        self._store.shut_out(self._epoch, self.sub.name)

    def reload_failed(self) -> None:
        """After a round that has failed: `reload_committed`."""
        self.meter.failed(time.monotonic())
        self.reload_committed()

    def reload_committed(self) -> None:
        """What is committed is what counts, if it is still ours; `FencedError` if it is not. No attempt of before commits any
        more."""
        self.planner.invalidate()
        if self._handovers is not None:
            self._handovers.invalidate()
        self._check_epoch(self._epoch)
        recovered = tuple(self._store.recover(self._epoch, self.sub.name).values())
        self._move_to(recovered)
        self._startpoints.committed(recovered)
        if self._restoration is not None:  # not before: one of them may have committed, and is where it is to be then
            for lane, missing in self._incomplete.items():
                heads = {task.name: self.checkpoints[task.name].head for task in self._containers[lane].tasks}
                self._restoration.request((self.sub.title, lane), self._places[lane], heads, missing)
        self._incomplete = {}

    def failed(self, planned: PlannedRound, error: BaseException) -> None:
        """A round has failed: with the tasks of all of its containers, unless it is known of which, or which task has the
        record."""
        if not isinstance(error, RecordError):
            tasks = (task.name for lane in self.absent.failed or planned.lanes for task in self._containers[lane].tasks)
            text = str(getattr(error, "message", error)).strip() or type(error).__name__
            self.progress.failed(map(str, tasks), f"round {planned.id} failed: {in_a_line(text)}", time.time_ns() // 1000)

    def _failed(self, failure: Failure, lane: int) -> None:
        """The record of a task of this container could not be processed."""
        ssp = SSP(self._system.name, failure.stream, failure.partition)
        tasks = [str(task.name) for task in self._containers[lane].tasks if ssp in task.partitions]
        text = f"{failure.operator}: {failure.error_class}: {failure.message}"
        self.progress.failed(tasks, text, time.time_ns() // 1000)

    def _move_to(self, checkpoints: tuple[Checkpoint, ...]) -> int:
        """Take these positions; how many records they are further."""
        records = self.task_positions.move_to(checkpoints)
        self.progress.records += records
        positions = self.task_positions.positions()
        known = self.planner.known_failures
        self.planner.known_failures = [one for one in known if one[1] >= positions.get(one[0], 0)]
        return records


def _again_if_gone(error: HeadraceError, planned: PlannedRound) -> HeadraceError:
    """`error`; what a worker found deleted fails its round only: the next plan asks what is there, and decides."""
    if not isinstance(error, OffsetOutOfRangeError):
        return error
    return RoundFailedError(f"round {planned.id}: {error.message}", error.hint)


def _container_commit(summary: Summary) -> ContainerCommit:
    checkpoints = tuple(decode(Checkpoint, bytes(data), "checkpoint") for data in summary.checkpoints)
    return ContainerCommit(summary.lane, checkpoints, summary.receipt, tuple(summary.state_files))


def inherit(runners: Iterable[SubTopologyRunner], before: Mapping[str | None, SubTopologyRunner]) -> None:
    """Have the runners of a plan take over what those of another one have counted and learned."""
    pairs = [(runner, before[runner.sub.name]) for runner in runners if runner.sub.name in before]
    continues = all(runner.continues(former) for runner, former in pairs)
    for runner, former in pairs:
        runner.inherit_from(former, continues=continues)
