"""As what checkpoints are stored. There may be a hundred thousand at once: msgspec reads and writes them, and what siblings
have in common is read once. In memory they are by whole partitions, as stored by the SSPs of the task's key bucket.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from headrace.model.checkpoint import Checkpoint, Head, RoundId, Slots, StateFile, StateFileKind
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName


def is_later(checkpoint: Checkpoint) -> bool:
    """Whether it has something that form 1 has no place for."""
    head = checkpoint.head
    if checkpoint.expiry_us is not None or checkpoint.closed_us is not None or checkpoint.punctuations:
        return True
    return head is not None and (head.slots is not None or any(file.covers or file.slots for file in head.files))


class _StoredFile(msgspec.Struct, frozen=True):
    name: str
    kind: StateFileKind
    bytes: int
    entries: int
    checksum: str
    version: int
    reaches: str
    covers: Slots | msgspec.UnsetType
    slots: Slots | msgspec.UnsetType
    whole: tuple[str, ...] | msgspec.UnsetType


class _StoredHead(msgspec.Struct, frozen=True):
    version: int
    files: list[_StoredFile]
    slots: Slots | msgspec.UnsetType


class StoredCheckpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """By the texts of SSPs, in their order; those of a virtual task have its bucket. A head is written as a `_StoredHead`."""

    wire: int
    task: str
    round_id: RoundId
    job_model_version: int
    positions: dict[str, int]
    head: Head | None
    watermarks: dict[str, int]
    event_timer_us: int | None
    wall_timer_us: int | None
    spent_startpoints: dict[str, str] | tuple[()]  # an empty list in those of an older version
    expiry_us: int | msgspec.UnsetType | None = msgspec.UNSET
    closed_us: int | msgspec.UnsetType | None = msgspec.UNSET
    punctuations: dict[str, tuple[int, int]] | msgspec.UnsetType = msgspec.UNSET


@lru_cache(maxsize=16_384)
def _whole_ssp_of(text: str) -> SSP:
    """Of a partition, which siblings have in common."""
    return SSP.parse(text).whole


def stored_checkpoint(checkpoint: Checkpoint, wire: int) -> StoredCheckpoint:
    """As which it is stored, in form `wire`."""
    bucket, broadcast, head = checkpoint.task.bucket, checkpoint.broadcast, checkpoint.head
    end = "" if bucket is None else f"/{bucket.index}"

    def by_text(values: Mapping[SSP, Any]) -> dict[str, Any]:
        if len(values) > 1:
            values = dict(sorted(values.items()))
        return {f"{ssp}{'' if ssp.stream in broadcast else end}": value for ssp, value in values.items()}

    return StoredCheckpoint(
        wire,
        str(checkpoint.task),
        checkpoint.round_id,
        checkpoint.job_model_version,
        by_text(checkpoint.positions),
        None if head is None else _stored_head(head),  # type: ignore[arg-type]  # what is omitted of a head is not in `Head`
        by_text(checkpoint.watermarks),
        checkpoint.event_timer_us,
        checkpoint.wall_timer_us,
        by_text(checkpoint.spent_startpoints),
        msgspec.UNSET if checkpoint.expiry_us is None else checkpoint.expiry_us,
        msgspec.UNSET if checkpoint.closed_us is None else checkpoint.closed_us,
        dict(sorted(checkpoint.punctuations.items())) or msgspec.UNSET,
    )


def read_checkpoint(stored: StoredCheckpoint) -> Checkpoint:
    """The checkpoint that is stored so, by whole partitions. `ValueError` where its texts name no task or SSP."""
    task, broadcast = TaskName.parse(stored.task), frozenset[str]()
    by_text: tuple[Mapping[str, Any], ...] = (stored.positions, stored.watermarks, stored.spent_startpoints or {})
    if task.bucket is None:
        by_ssp = [{SSP.parse(text): value for text, value in each.items()} for each in by_text]
    else:
        end = f"/{task.bucket.index}"
        by_ssp = [
            {_whole_ssp_of(text.removesuffix(end)): value for text, value in each.items()} if each else {} for each in by_text
        ]
        if whole := [text for text in stored.positions if "/" not in text]:
            broadcast = frozenset(_whole_ssp_of(text).stream for text in whole)
    return Checkpoint(
        task,
        stored.round_id,
        stored.job_model_version,
        by_ssp[0],
        stored.head,
        by_ssp[1],
        stored.event_timer_us,
        stored.wall_timer_us,
        by_ssp[2],
        broadcast,
        None if stored.expiry_us is msgspec.UNSET else stored.expiry_us,
        None if stored.closed_us is msgspec.UNSET else stored.closed_us,
        {} if stored.punctuations is msgspec.UNSET else stored.punctuations,
    )


def _stored_head(head: Head) -> _StoredHead:
    return _StoredHead(head.version, [_stored_file(file) for file in head.files], head.slots or msgspec.UNSET)


def _stored_file(file: StateFile) -> _StoredFile:
    known = (file.name, file.kind, file.bytes, file.entries, file.checksum, file.version, file.reaches)
    return _StoredFile(*known, file.covers or msgspec.UNSET, file.slots or msgspec.UNSET, file.whole or msgspec.UNSET)
