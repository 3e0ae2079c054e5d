"""The positions of a job as a file for people and programs: where every task was, and how it can be there again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Annotated

import msgspec

from headrace.client.job_view import StoredJob
from headrace.errors import ConfigError, hint_of_missing
from headrace.model.durations import time_text
from headrace.model.startpoint import PositionType, Startpoint, StartpointKey
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName

VERSION = 1
_Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class ExportedPosition(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where a partition is read on. `task`: where several tasks read it, which; `watermark`: event time, for people."""

    stream: str
    partition: _Number
    offset: _Number
    task: str | None = None
    watermark: str | None = None


class Exported(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The positions of an application as they were at `exported_at`; `positions_version` is that of the form."""

    positions_version: int
    application: str
    exported_at: str
    positions: tuple[ExportedPosition, ...]


class _OfVersion(msgspec.Struct):
    positions_version: int


def positions_of(job: StoredJob, now_us: int) -> Exported:
    """Where every task is, as committed, by stream and partition."""
    found = []
    for ssp, tasks in sorted(job.owners.items()):
        at = {task: offset for task in tasks if (offset := job.positions.get((task, ssp))) is not None}
        rows: list[tuple[int, str | None, int | None]]
        marks = {task: job.checkpoints[task].watermarks.get(ssp) for task in at}
        if len({task.whole for task in at}) == len(set(at.values())) == 1:  # virtual tasks that are at one place
            known = [mark for mark in marks.values() if mark is not None]
            rows = [(min(at.values()), None, max(known, default=None))]
        else:
            rows = [(offset, str(task) if len(tasks) > 1 else None, marks[task]) for task, offset in at.items()]
        for offset, name, mark in rows:
            watermark = None if mark is None else time_text(mark)
            found.append(ExportedPosition(ssp.stream, ssp.partition, offset, name, watermark))
    return Exported(VERSION, job.application, time_text(now_us), tuple(found))


def encode_positions(exported: Exported) -> bytes:
    """As JSON that people can read."""
    return msgspec.json.format(msgspec.json.encode(exported), indent=2) + b"\n"


def decode_positions(data: bytes, what: str) -> Exported:
    """`ConfigError` that names `what`, and the place in it, for anything that was not exported by this or an older version."""
    try:
        version = msgspec.json.decode(data, type=_OfVersion).positions_version
        if version != VERSION:
            raise ConfigError(
                f"{what} has version {version} of exported positions, and version {VERSION} is known here",
                "use the Headrace that wrote it, or a newer one",
            )
        exported = msgspec.json.decode(data, type=Exported)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{what} holds no exported positions: {error}", "give a file that `headrace checkpoint export` wrote"
        ) from None
    counts = Counter((one.stream, one.partition, one.task) for one in exported.positions)
    for (stream, partition, task), count in counts.items():
        if count > 1:
            times = f"{count} times" if task is None else f"{count} times for task {task}"
            raise ConfigError(f"{what}: stream {stream!r} partition {partition} is there {times}", "leave one of them")
    return exported


def wanted_of(
    job: StoredJob, exported: Exported, force: bool = False, repartitions: bool = False
) -> list[tuple[StartpointKey, Startpoint]]:
    """What has to be set so that the job is at these positions; nothing for what is there already. Those of the job's own
    `repartitions` only where that is requested: what its inputs give again is written to them again."""
    if exported.application != job.application and not force:
        raise ConfigError(
            f"these positions are of application {exported.application!r}, not of {job.application!r}",
            "--force takes them all the same, where the streams and partitions are the same",
        )
    wanted = _lowest(place for one in exported.positions for place in _wanted(job, one))
    left_out = frozenset() if repartitions else job.internal
    waiting = {known.entry.key.ssp for known in job.unspent if known.status is None}

    def is_elsewhere(key: StartpointKey, offset: int | None) -> bool:
        tasks = job.owners[key.ssp] if key.task is None else (key.task,)
        return key.ssp in waiting or any(job.positions.get((task, key.ssp)) != offset for task in tasks)

    moving = [(key, one) for key, one in wanted if key.ssp.stream not in left_out]
    return [(key, one) for key, one in moving if is_elsewhere(key, one.position)]


def _lowest(wanted: Iterable[tuple[StartpointKey, int]]) -> list[tuple[StartpointKey, Startpoint]]:
    """Of several positions for one task, those of the virtual tasks that it came of, the lowest: no record is left out."""
    found: dict[StartpointKey, int] = {}
    for key, offset in wanted:
        found[key] = min(offset, found.get(key, offset))
    return [(key, Startpoint(PositionType.SPECIFIC_OFFSET, offset)) for key, offset in found.items()]


def _wanted(job: StoredJob, one: ExportedPosition) -> Iterator[tuple[StartpointKey, int]]:
    """Of a virtual task that is no more, for those that have its keys now."""
    streams = job.model.partition_counts
    if one.stream not in streams:
        raise ConfigError(
            f"application {job.application!r} does not read stream {one.stream!r}, of which there is a position",
            hint_of_missing(one.stream, streams, f"take it out of the file; it reads: {', '.join(sorted(streams))}"),
        )
    ssp = SSP(job.system.name, one.stream, one.partition)
    if ssp not in job.owners:
        raise ConfigError(
            f"application {job.application!r} does not read partition {one.partition} of stream {one.stream!r}, of which there "
            f"is a position: it reads {streams[one.stream]} partitions",
            "take it out of the file; after an expansion of the stream start the job first",
        )
    if one.task is None:
        yield StartpointKey(ssp), one.offset
        return
    if now := _after_another_factor(one.task, job.owners[ssp]):
        yield from ((StartpointKey(ssp, task), one.offset) for task in now)
        return
    task = job.task(one.task, one.stream)
    if task not in job.owners[ssp]:
        raise ConfigError(
            f"task {task} does not read partition {one.partition} of stream {one.stream!r}",
            "take `task` out of that position: then it counts for every task that reads the partition",
        )
    yield StartpointKey(ssp, task), one.offset


def _after_another_factor(text: str, readers: Collection[TaskName]) -> list[TaskName]:
    """The readers of a partition that have the keys of a task of another factor; none where it is one of them, or no task."""
    try:
        task = TaskName.parse(text)
    except ValueError:
        return []
    return [] if task in readers else [reader for reader in readers if reader.shares_keys_with(task)]
