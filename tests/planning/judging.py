"""What must hold of every plan, by any history. Imports no step of the planner."""

from __future__ import annotations

from headrace.core.job_plan.draft import Draft
from headrace.core.job_plan.snapshot import Snapshot
from headrace.model.startpoint import StartpointStatus
from headrace.model.streams import SSP


def judge(made: Draft, snapshot: Snapshot) -> None:
    """`AssertionError` where a plan skips, doubles or loses something. `snapshot`: what it was made from."""
    assert every_partition_is_read_by_one_task(made)
    assert every_task_is_in_one_container(made)
    assert containers_differ_by_one_task(made)
    assert every_checkpoint_is_of_its_task(made)
    assert no_position_moves_unless_requested(made, snapshot)
    assert no_state_is_lost(made, snapshot)
    assert born_partitions_begin_at_their_first_record(made, snapshot)
    assert no_watermark_is_newer_than_its_position(made)
    assert nothing_that_was_left_is_forgotten(made, snapshot)
    assert nothing_is_created_that_exists(made, snapshot)


def every_partition_is_read_by_one_task(made: Draft) -> bool:
    wanted = sorted(
        SSP(made.terms.system, stream, number)
        for sub in made.terms.subs
        for stream in sub.reads
        for number in range(made.streams.counts[stream])
    )
    return wanted == sorted(ssp for task in made.job_model.tasks for ssp in task.ssps)


def every_task_is_in_one_container(made: Draft) -> bool:
    names = [task.name for task in made.job_model.tasks]
    return len(names) == len(set(names)) and set(names) == set(made.checkpoints)


def containers_differ_by_one_task(made: Draft) -> bool:
    sizes = {sub.name: [len(one.tasks) for one in sub.containers] for sub in made.job_model.sub_topologies}
    return all(max(of_sub) - min(of_sub) <= 1 for of_sub in sizes.values())


def every_checkpoint_is_of_its_task(made: Draft) -> bool:
    ssps = {task.name: set(task.ssps) for task in made.job_model.tasks}
    return all(
        one.task == task and set(one.positions) == ssps[task] and one.job_model_version == made.job_model.version
        for task, one in made.checkpoints.items()
    )


def no_position_moves_unless_requested(made: Draft, snapshot: Snapshot) -> bool:
    """What this plan sets elsewhere has a startpoint that this plan has written."""
    set_now = {
        (one.task, one.ssp)
        for record in made.changed_startpoints.values()
        if record is not None
        for one in record.resolutions
    }
    before = {ssp: at for one in snapshot.checkpoints.values() for ssp, at in one.positions.items()}
    return all(
        before.get(ssp, at) == at or (task, ssp) in set_now
        for task, one in made.checkpoints.items()
        for ssp, at in one.positions.items()
    )


def no_state_is_lost(made: Draft, snapshot: Snapshot) -> bool:
    """A task that is still there has the state that it had, but where a startpoint takes it back."""
    rewound = {version.checkpoint.task for version in made.rewind_changes.versions.values() if version is not None}
    return all(
        made.checkpoints[task].head == one.head
        for task, one in snapshot.checkpoints.items()
        if one.head and task in made.checkpoints and task not in rewound
    )


def born_partitions_begin_at_their_first_record(made: Draft, snapshot: Snapshot) -> bool:
    known = {} if snapshot.model is None else snapshot.model.partition_counts
    set_now = {
        one.ssp for record in made.changed_startpoints.values() if record is not None for one in record.resolutions
    }
    return all(
        at == made.offsets.beginnings(ssp.stream)[ssp.partition]
        for one in made.checkpoints.values()
        for ssp, at in one.positions.items()
        if ssp.stream in known and ssp.partition >= known[ssp.stream] and ssp not in set_now
    )


def no_watermark_is_newer_than_its_position(made: Draft) -> bool:
    """Where a startpoint is pending that set a position back, what is read again would be late."""
    back = {
        (one.task, one.ssp)
        for record in made.changed_startpoints.values()
        if record is not None and record.status is StartpointStatus.PENDING and record.entry.state == "keep"
        for one in record.resolutions
        if one.offset < one.before and made.checkpoints[one.task].positions[one.ssp] == one.offset
    }
    return not any(ssp in made.checkpoints[task].watermarks for task, ssp in back)


def nothing_that_was_left_is_forgotten(made: Draft, snapshot: Snapshot) -> bool:
    """A position stays: in a checkpoint, or in the job model for when its stream is read again."""
    left = {(one.task, one.ssp) for one in made.job_model.left}
    read = {ssp for one in made.checkpoints.values() for ssp in one.positions}
    were = {(task, ssp) for task, one in snapshot.checkpoints.items() for ssp in one.positions}
    return all((task, ssp) in left or ssp in read for task, ssp in were)


def nothing_is_created_that_exists(made: Draft, snapshot: Snapshot) -> bool:
    return not set(made.creates) & set(snapshot.streams)
