"""Owns where tasks begin: at what is stored, checked against the streams as they are, else at what the source says.

A start is resolved once and stored with the plan; from then on only the stored offset counts (protocol.md 1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headrace.core.lost_offsets import OnLostOffsets, lost_offsets
from headrace.core.planning import check_positions
from headrace.core.sub_topologies import SubTopology
from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.job_model import JobModel
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName
from headrace.model.topology import Source, SourceKind
from headrace.ports import System


def resolved_starts(
    subs: tuple[SubTopology, ...],
    model: JobModel,
    stored: Mapping[TaskName, Checkpoint],
    system: System,
    epoch: int,
) -> dict[TaskName, Checkpoint]:
    """A checkpoint for every task: the stored one, with starts for SSPs that it does not know."""
    defaults: dict[SSP, int] = {}
    checkpoints: dict[TaskName, Checkpoint] = {}
    for sub in subs:
        sources = {source.stream: source for source in sub.sources}
        for task in model.sub_topology(sub.name).tasks:
            found = stored.get(task.name)
            fresh = {
                ssp: _start_of(sources[ssp.stream], ssp, system, defaults)
                for ssp in task.ssps
                if found is None or ssp not in found.positions or sources[ssp.stream].reset_offset
            }
            if found is None:
                checkpoints[task.name] = Checkpoint(task.name, RoundId(epoch, sub.name, 0), model.version, fresh)
            else:
                positions = {ssp: fresh.get(ssp, found.positions.get(ssp, 0)) for ssp in task.ssps}
                watermarks = {ssp: time for ssp, time in found.watermarks.items() if ssp in positions}
                checkpoints[task.name] = replace(
                    found, positions=positions, watermarks=watermarks, job_model_version=model.version
                )
    return checkpoints


def check_stored(
    subs: tuple[SubTopology, ...],
    stored: Mapping[TaskName, Checkpoint],
    counts: Mapping[str, int],
    system: System,
    on_lost: OnLostOffsets,
) -> None:
    """Raise `OffsetOutOfRangeError` for a stored position that its stream does not reach, or does not hold any more.

    The latter only where `on_lost` does not let it pass: then the first round goes on behind it. `counts`: of the streams
    that exist. Streams that are to be read from another place anyway are left out.
    """
    sources = {source.stream: source for sub in subs for source in sub.sources}
    positions = [
        (ssp.whole, position)
        for checkpoint in stored.values()
        for ssp, position in checkpoint.positions.items()
        if ssp.stream in counts and ssp.stream in sources and not sources[ssp.stream].reset_offset
    ]
    streams = sorted({ssp.stream for ssp, _ in positions})
    beginnings = {SSP(system.name, s, p): offset for s in streams for p, offset in system.beginning_offsets(s).items()}
    ends = {SSP(system.name, s, p): offset for s in streams for p, offset in system.high_watermarks(s).items()}
    internal = {ssp for ssp, _ in positions if sources[ssp.stream].kind is SourceKind.REPARTITION}
    for ssp, position in sorted(positions):  # of several tasks that read a partition, each
        check_positions({ssp: position}, {}, ends)
        lost_offsets({ssp: position}, beginnings, ends, on_lost, internal)


def _start_of(source: Source, ssp: SSP, system: System, known: dict[SSP, int]) -> int:
    """The first position of an SSP that has none, from its source's `start`; resolved once."""
    if ssp in known:
        return known[ssp]
    start: Any = "earliest" if source.kind is SourceKind.REPARTITION else source.start
    if start == "earliest":
        offsets = system.beginning_offsets(ssp.stream)
    elif start == "latest":
        offsets = system.end_offsets(ssp.stream)
    elif isinstance(start, int):
        low, high = system.beginning_offsets(ssp.stream), system.end_offsets(ssp.stream)
        offsets = {p: min(max(start, low[p]), high[p]) for p in low}
    else:
        offsets = system.offsets_for_time(ssp.stream, start.position)
    for partition, offset in offsets.items():
        known[SSP(ssp.system, ssp.stream, partition)] = offset
    return known[ssp]
