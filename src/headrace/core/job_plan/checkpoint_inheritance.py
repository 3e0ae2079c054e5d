"""What of the former tasks' positions and state continues when an edit gives a job other tasks or other inputs.

Positions belong to the partitions that they are in: they go wherever a partition goes, also to a task of another name,
and those of a stream that is taken out wait in the job model until it is put back. State belongs to its task: where a
task that has some would read other partitions than before, the edit is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from headrace.core.job_plan.assignment import owners_of
from headrace.core.rounds.purging import lowest_positions
from headrace.core.rounds.watermarks import joined_reports
from headrace.core.topology.sub_topologies import SubTopology
from headrace.errors import IncompatibleChangeError
from headrace.model.checkpoint import Checkpoint
from headrace.model.job_model import JobModel, LeftPosition, SubTopologyModel, TaskModel
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName
from headrace.model.topology import Process


@dataclass(frozen=True, slots=True)
class InheritedPositions:
    """Inherited positions, and watermarks with them. `stored`: the checkpoints of the former tasks; `left`: their positions in
    streams that are inputs again; `lowest`: over all tasks.

    A task continues where it was; where it did not read a partition, at the lowest position of those that did. Tasks 0 and 1
    read one up to 5 and 8: a task of another name that gets it begins at 5, so that no record is skipped.
    """

    stored: Mapping[TaskName, Checkpoint]
    left: Mapping[TaskName, Mapping[SSP, int]]
    lowest: Mapping[SSP, int]
    watermarks: Mapping[SSP, int]

    def positions_of(self, task: TaskName) -> Mapping[SSP, int]:
        """Where a task was."""
        found = self.stored.get(task)
        own = {} if found is None else found.positions
        return {**self.left.get(task, {}), **own} if self.left else own

    def watermarks_of(self, task: TaskModel, found: Checkpoint | None) -> dict[SSP, int]:
        """Per partition of a task what it has reported, as `found` says; of one that others read, what they have."""
        read, own = ({}, {}) if found is None else (found.positions, found.watermarks)
        if not own and not self.watermarks:
            return {}
        known = {ssp: own.get(ssp) if ssp in read else self.watermarks.get(ssp) for ssp in task.partitions}
        return {ssp: time_us for ssp, time_us in known.items() if time_us is not None}

    def positions(self) -> list[tuple[SSP, int]]:
        """Each position in a partition once: siblings share most."""
        found: set[tuple[SSP, int]] = set()
        for positions in (*self.left.values(), *(one.positions for one in self.stored.values())):
            found.update(positions.items())
        return sorted(found, key=lambda one: (one[0].sort_key, one[1]))


def inherited_positions_of(
    previous: JobModel | None, stored: Mapping[TaskName, Checkpoint], ids: Mapping[str, str | None]
) -> InheritedPositions:
    """What continues. `ids`: the streams that the job reads now to their ids, None for one that does not exist."""
    left: dict[TaskName, dict[SSP, int]] = {}
    lowest: dict[SSP, int] = {}
    for one in () if previous is None else previous.left:
        if ids.get(one.ssp.stream) == one.stream_id:
            left.setdefault(one.task, {})[one.ssp] = one.position
            lowest[one.ssp] = min(one.position, lowest.get(one.ssp, one.position))
    return InheritedPositions(stored, left, lowest | lowest_positions(stored.values()), joined_reports(stored.values()))


def left_of(
    previous: JobModel | None, stored: Mapping[TaskName, Checkpoint], streams: Collection[str]
) -> tuple[LeftPosition, ...]:
    """The positions of streams that are not read any more, sorted; `streams` are those that are."""
    if previous is None:
        return ()
    found = {(one.task, one.ssp): one for one in previous.left if one.ssp.stream not in streams}
    for checkpoint in stored.values():
        for ssp, position in checkpoint.positions.items():
            id_ = previous.stream_ids.get(ssp.stream)
            if ssp.stream not in streams and id_ is not None:
                found[checkpoint.task, ssp] = LeftPosition(checkpoint.task, ssp, position, id_)
    return tuple(found[key] for key in sorted(found))


def formerly_other_inputs(model: JobModel) -> frozenset[str | None]:
    """The sub-topologies that have read streams which they do not read now."""
    return frozenset(one.task.sub_topology for one in model.left if one.position)


def carrying_notes(
    previous: JobModel | None, stored: Mapping[TaskName, Checkpoint], ids: Mapping[str, str | None]
) -> list[str]:
    """What continues, but should be said of inputs that went or came back. `ids` as for `inherited_positions_of`."""
    if previous is None:
        return []
    removed = {ssp.stream for checkpoint in stored.values() for ssp in checkpoint.positions} - set(ids)
    notes = [f"stream {name!r} is not read any more; where the job was in it is kept" for name in sorted(removed)]
    for name, id_ in sorted({(one.ssp.stream, one.stream_id) for one in previous.left}):
        if name in ids and ids[name] == id_:
            notes.append(f"stream {name!r} is an input again; reading resumes at the job's last position")
        elif name in ids:
            notes.append(f"stream {name!r} was recreated since the job last read it, and is read as a new stream")
    return notes


def check_tasks(
    previous: JobModel | None,
    stored: Mapping[TaskName, Checkpoint],
    stores: Mapping[str, str],
    subs: Sequence[SubTopology],
    models: Sequence[SubTopologyModel],
) -> None:
    """Refuse, with `IncompatibleChangeError`, what takes the state of a task away from the partitions that it is of.

    `stores`: what `store_forms` gives for the edited application; `models`: its tasks, in the order of `subs`.
    """
    if previous is None:
        return
    kept_places = {form.partition("|")[0] for name, form in previous.stores.items() if stores.get(name) == form}
    streams = {source.stream for sub in subs for source in sub.sources if not source.broadcast}  # these, every task reads
    timed = {stream for sub in subs if _has_timers(sub) for stream in sub.reads}
    tasks = [task for model in models for task in model.tasks]
    kept = [
        name
        for name, one in stored.items()
        if (one.head is not None and (name.sub_topology or "source") in kept_places)
        or (_timer_is_set(one) and any(ssp.stream in timed for ssp in one.positions))
    ]
    if not kept:
        return
    before = owners_of((checkpoint.task, checkpoint.positions) for checkpoint in stored.values())
    now, names = owners_of((task.name, task.partitions) for task in tasks), {task.name for task in tasks}
    moved = {ssp for ssp, readers in before.items() if ssp.stream in streams and readers != now.get(ssp)}
    for name in sorted(kept, key=attrgetter("sort_key")):
        checkpoint = stored[name]
        for ssp in sorted(checkpoint.positions):
            if ssp in moved:
                raise _refusal(
                    previous,
                    f"task {name} has state, and partition {ssp.partition} of stream {ssp.stream!r} was read by "
                    f"{_listed(before[ssp])} and would be read by {_listed(now.get(ssp, ()))}",
                )
        if name not in names:
            read = ", ".join(sorted({repr(ssp.stream) for ssp in checkpoint.positions}))
            raise _refusal(previous, f"task {name} has state, of records of {read}, and there would be no such task any more")


def _has_timers(sub: SubTopology) -> bool:
    return any(isinstance(node, Process) and node.timers for node in sub.nodes)


def _timer_is_set(checkpoint: Checkpoint) -> bool:
    return checkpoint.event_timer_us is not None or checkpoint.wall_timer_us is not None


def _listed(names: Collection[TaskName]) -> str:
    return ("task " if len(names) == 1 else "tasks ") + (", ".join(map(str, names)) or "none")


def _refusal(previous: JobModel, what: str) -> IncompatibleChangeError:
    return IncompatibleChangeError(
        f"application {previous.application!r} is incompatible with its stored state: {what}",
        "undo that edit (which task reads what follows from ssp_grouper, the inputs, and which of them are broadcast); or "
        "give its stores other names, and drop the old ones (headrace run --drop-store NAME): they start empty; or run the "
        "edited application under another application name, from the beginning",
    )
