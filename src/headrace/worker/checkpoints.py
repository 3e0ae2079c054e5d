"""The checkpoint that a task's round comes to. The container makes it, for itself or the driver to commit."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from headrace.core.topology.program import Program
from headrace.exchange.messages import ContainerPlan, TaskPlan
from headrace.model.checkpoint import Checkpoint, Head, RoundId
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName
from headrace.model.topology import Source, SourceKind


def round_id_of(text: str) -> RoundId:
    """The round id whose `str` is `text`.

    >>> round_id_of("3:source:7"), round_id_of("3:by-carrier:7")
    (RoundId(epoch=3, sub_topology=None, number=7), RoundId(epoch=3, sub_topology='by-carrier', number=7))
    """
    epoch, rest = text.split(":", 1)
    name, number = rest.rsplit(":", 1)
    return RoundId(int(epoch), None if name == "source" else name, int(number))


def checkpoint_of(
    plan: ContainerPlan,
    program: Program,
    task: TaskPlan,
    positions: Mapping[int, int],
    head: Head | None,
    reports: Mapping[int, int],
    times_us: Mapping[str, int | None],
) -> Checkpoint:
    """The checkpoint of `task` after the round `plan`: at `positions`, with the state `head`, and the `times_us` of its
    `TaskRun`. `reports`: per SSP the highest time of the rows of this round. A report never goes back. That of a repartition
    stream is the writers' watermark (protocol.md 23), and counts once the task has read up to where the stream ended. A
    startpoint is spent by what moves its position, rows or not (protocol.md 25), and named until that is known."""
    # Of this task only: the plan has the SSPs of all tasks, and there may be a thousand of either.
    names = {number: SSP(*plan.ssps[number]) for number in {*positions, *task.watermarks}}
    sources = [node for node in program.nodes if isinstance(node, Source)]
    kinds = {node.stream: node.kind for node in sources}
    name = TaskName.parse(task.name)
    marks = dict(task.watermarks)
    for number, position in positions.items():
        if kinds[names[number].stream] is SourceKind.REPARTITION:
            end, watermark_us = plan.upstream.get(number, (sys.maxsize, 0))
            seen = watermark_us if position >= end else None
        else:
            seen = reports.get(number)
        if seen is not None:
            marks[number] = max(seen, marks.get(number, seen))
    return Checkpoint(
        name,
        round_id_of(plan.round_id),
        plan.job_model_version,
        {names[number]: position for number, position in positions.items()},
        head,
        {names[number]: time_us for number, time_us in marks.items()},
        times_us["event"],
        times_us["wall"],
        {names[number]: id_ for number, (id_, offset) in task.startpoints.items() if positions[number] != offset},
        frozenset() if name.bucket is None else frozenset(node.stream for node in sources if node.broadcast),
        times_us["expiry"],
        times_us["closed"],
    )
