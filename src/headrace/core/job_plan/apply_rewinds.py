"""Taking tasks' states back with their positions, where a startpoint asks for it: to which kept versions, what has to go
back with them, and the undo while nothing has been committed since."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.core.job_plan.snapshot import Offsets
from headrace.core.rewind.consistent_cuts import ConsistentCut, SubTopologyEdges, going_by_cuts
from headrace.core.rewind.rewinds import Rewind, RewindTarget, needed_rewinds, rewind_of, rewind_target_of, undone_with
from headrace.core.rewind.state_history import StateVersion, Versions, abandoned_version, before_rewind, rewound, undo_rewind
from headrace.model.checkpoint import Checkpoint
from headrace.model.startpoint import PositionType, Startpoint
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName

EARLIEST = Startpoint(PositionType.EARLIEST)


@dataclass(frozen=True, slots=True)
class RewindChanges:
    """What is to be stored with a plan, by key: kept versions and rewinds; None for one that is deleted."""

    versions: Mapping[str, StateVersion | None] = field(default_factory=dict)
    rewinds: Mapping[str, Rewind | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StateHistory:
    """What is on record that tasks could go back to, and the rewinds that were applied before."""

    versions: Versions = field(default_factory=dict)
    cuts: Sequence[ConsistentCut] = ()
    rewinds: Sequence[Rewind] = ()

    def without(self, streams: Collection[str]) -> StateHistory:
        """Without what is of these streams, which were recreated: offsets of one are none of the other."""
        versions = {
            task: tuple(one for one in kept if not any(ssp.stream in streams for ssp in one.checkpoint.positions))
            for task, kept in self.versions.items()
        }
        cuts = tuple(cut for cut in self.cuts if not any(ssp.stream in streams for ssp in cut.written))
        return StateHistory(versions, cuts, self.rewinds)


class StateRewinds:
    """`edges`: the job's sub-topologies. `born`: partitions that came by an expansion. `formerly_other`: see
    `rewind_target_of`. `recreated`: streams that are others now, under the same names: what is kept of them is of no use."""

    def __init__(
        self,
        kept: StateHistory,
        edges: Sequence[SubTopologyEdges],
        offsets: Offsets,
        now_us: int,
        born: Collection[SSP] = (),
        formerly_other: Collection[str | None] = (),
        recreated: Collection[str] = (),
    ) -> None:
        all_known = kept
        kept = kept.without(recreated) if recreated else kept
        self._recreated_keys = {one.key for of_task in all_known.versions.values() for one in of_task}
        self._recreated_keys -= {one.key for of_task in kept.versions.values() for one in of_task}
        self._formerly_other = formerly_other
        self._versions, self._cuts, self._rewinds = kept.versions, kept.cuts, {one.key: one for one in kept.rewinds}
        self._stored = frozenset(self._rewinds)
        self._last_us = max((one.applied_at_us for one in kept.rewinds), default=0)  # no two have one key, whatever the clock
        self.edges, self.offsets, self.now_us, self._born = edges, offsets, now_us, born
        self._ends: dict[str, Mapping[int, int]] = {}
        self._left: list[StateVersion] = []
        self.past = RewindTarget()  # what goes back, and to what

    def take_back(
        self, checkpoints: Mapping[TaskName, Checkpoint], targets: Mapping[TaskName, Mapping[SSP, int]]
    ) -> dict[TaskName, Checkpoint]:
        """The tasks that go back where `targets` are requested, with the newest kept states that suit, and where those were;
        also tasks that no target names, behind repartition streams. Not among them is one whose state can stay, because it has
        none or is not after the requested offsets. `StateError` where no version is old enough."""
        past = self.past = rewind_target_of(
            self.edges,
            checkpoints,
            targets,
            self._versions,
            self._cuts,
            self._beginning,
            self._end,
            self._born,
            self._formerly_other,
        )
        for task, version in past.versions.items():
            self._left.append(abandoned_version(self._versions.get(task, ()), checkpoints[task], version, self.now_us))
        if past.versions:
            rewind = rewind_of(past, checkpoints, max(self.now_us, self._last_us + 1))
            self._rewinds[rewind.key] = rewind
        return {task: rewound(checkpoints[task], version) for task, version in past.versions.items()}

    def _beginning(self, ssp: SSP) -> int:
        return self.offsets.register(ssp, EARLIEST)

    def _end(self, ssp: SSP) -> int:
        if ssp.stream not in self._ends:
            self._ends[ssp.stream] = self.offsets.high_watermarks(ssp.stream)
        return self._ends[ssp.stream][ssp.partition]

    def went_back(self, checkpoint: Checkpoint) -> bool:
        """Whether a task's state went back, and nothing was committed since."""
        return before_rewind(self._versions.get(checkpoint.task, ()), checkpoint) is not None

    def too_late(self, checkpoints: Mapping[TaskName, Checkpoint]) -> frozenset[TaskName]:
        """Of the tasks that go back with their states, or with others, those that could not be put where they were, if they
        went back: they have committed something since, or one that went back with them has."""
        with_more = {flow.name for flow in self.edges if flow.has_state} | going_by_cuts(self.edges)
        tasks = frozenset(task for task in checkpoints if task.sub_topology in with_more)
        found, _ = undone_with(tasks, self._rewinds.values(), checkpoints, self._reading_others(checkpoints))
        return tasks - {task for task in found if self.went_back(checkpoints[task])}

    def as_they_were(
        self, tasks: Collection[TaskName], checkpoints: Mapping[TaskName, Checkpoint]
    ) -> dict[TaskName, Checkpoint]:
        """Those of `tasks` that can be put where they were before they went back, there, with all that went back with them.

        From then on none of them ever went back: what is kept of that time counts again. One that has committed something
        since stays, and all that went back with it.
        """
        found, undone = undone_with(tasks, self._rewinds.values(), checkpoints, self._reading_others(checkpoints))
        back = {task: checkpoints[task] for task in sorted(found) if self.went_back(checkpoints[task])}
        for task, checkpoint in back.items():
            versions, back[task] = undo_rewind(self._versions[task], checkpoint)
            self._versions = {**self._versions, task: versions}
            self._left.extend(version for version in versions if version.checkpoint.round_id == checkpoint.round_id)
        for rewind in undone:
            del self._rewinds[rewind.key]
        return back

    def _reading_others(self, checkpoints: Mapping[TaskName, Checkpoint]) -> frozenset[TaskName]:
        """Tasks that went back, and have got other partitions since, or lost some: where they were is no place for them."""
        before = {task: before_rewind(kept, checkpoints[task]) for task, kept in self._versions.items() if task in checkpoints}
        return frozenset(
            task
            for task, one in before.items()
            if one is not None and one.checkpoint.positions.keys() != checkpoints[task].positions.keys()
        )

    # --- what is stored ---------------------------------------------------------------------------------------------

    def in_force(self, checkpoints: Mapping[TaskName, Checkpoint]) -> tuple[Rewind, ...]:
        """The rewinds that matter to tasks at `checkpoints`, oldest first."""
        skipped = {ssp for rewind in self._rewinds.values() for ssp in rewind.skipped_ranges}
        read = {ssp for one in checkpoints.values() for ssp in one.positions if ssp in skipped} if skipped else skipped
        known = {ssp: self._beginning(ssp) for ssp in read}
        # A stream that is not read now may be again, with versions from before the gap.
        needed = needed_rewinds(self._rewinds.values(), checkpoints, lambda ssp: known.get(ssp, 0))
        return tuple(sorted(needed, key=lambda rewind: rewind.key))

    def changes(self, in_force: Iterable[Rewind]) -> RewindChanges:
        """What is to be stored with the plan: where the tasks come from, so that its files stay, and what is skipped."""
        now = {one.key: one for one in in_force}
        new = {key: one for key, one in now.items() if key not in self._stored}
        versions = {**dict.fromkeys(self._recreated_keys), **{one.key: one for one in self._left}}
        return RewindChanges(versions, {**new, **dict.fromkeys(self._stored - now.keys())})
