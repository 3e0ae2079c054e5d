"""The checkpoints that the containers of an application have committed, read from their topic."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any

import msgspec

from headrace.adapters.kafka.compacted import CompactedTopic, OpenTransactionError
from headrace.codec.documents import decode, decode_checkpoint
from headrace.errors import StorageError, UnavailableError
from headrace.model.checkpoint import Checkpoint
from headrace.model.job_model import JobModel
from headrace.model.tasks import TaskName

OTHERS_S = 5.0  # for so long one of a group waits for the transactions of other processors to end
_SORT_KEY = attrgetter("sort_key")


class _OfTask(msgspec.Struct, frozen=True):
    wire: int
    task: str


def is_own_checkpoint(key: bytes | None, value: bytes) -> bool:
    """Whether a record is the checkpoint of a task, in the form of this version or of another one.

    >>> is_own_checkpoint(b"source 0", b'{"wire":3,"task":"source 0"}'), is_own_checkpoint(b"t@7", b'{"wire":1,"task":"t"}')
    (True, True)
    >>> is_own_checkpoint(b"model-1", b'{"wire":1,"task":"source 0"}'), is_own_checkpoint(b"model-1", b"weights")
    (False, False)
    """
    try:
        task = msgspec.json.decode(value, type=_OfTask).task.encode()
    except msgspec.MsgspecError:
        return False
    return key is not None and (key == task or key.startswith(task + b"@"))


class CheckpointTopic(CompactedTopic):
    """The topic of an application's checkpoints. It knows the files of every checkpoint that it has read, also of one that
    others have followed since the last look."""

    replaced: set[str] | None = None  # None: they are not collected

    def replaced_files(self) -> frozenset[str]:
        """The state files of checkpoints that others have taken the place of, as was read since the last call, or the first."""
        with self._lock:
            found, self.replaced = self.replaced or set(), set()
        return frozenset(found)

    def _take(self, message: Any) -> None:
        before = self._values.get(message.key())
        if self.replaced is not None and before is not None and message.value() is not None:
            head = decode_checkpoint(before, f"checkpoint of task {message.key().decode()!r}").head
            self.replaced.update(file.name for file in (() if head is None else head.files))
        super()._take(message)


def refreshed(topic: CompactedTopic, *, in_group: bool, wait: bool = True) -> dict[bytes, bytes]:
    """See `CompactedTopic.refresh`. In a group `UnavailableError` after `OTHERS_S`: a processor that sleeps in a transaction is
    fenced when its session has ended, and who waits here may be the one that does so."""
    try:
        return topic.refresh(wait=wait, within_s=OTHERS_S if in_group else None)
    except OpenTransactionError as error:
        if not in_group:
            raise
        raise UnavailableError(error.message, "try again: a processor that has stopped is fenced soon") from None


def stored_checkpoints(
    topic: CompactedTopic, model: JobModel, *, is_held: bool, in_group: bool
) -> dict[TaskName, Checkpoint]:
    """The checkpoint of every task of `model`; `StorageError` where one is missing. Who does not hold the application
    (`is_held`) waits for no round: the transaction of a killed process ends at its timeout only. Who holds it waits, see
    `refreshed`."""
    tasks = [task.name for task in model.tasks]
    decoded = partial(decode, Checkpoint) if is_held else decode_checkpoint
    found = _of_model(refreshed(topic, in_group=in_group, wait=is_held), model, decoded)
    if not is_held and any(task not in found for task in tasks):  # a transaction ends in one topic before the other
        found = _of_model(refreshed(topic, in_group=in_group), model, decoded)
    for task in tasks:
        if task not in found:
            raise StorageError(
                f"application {model.application!r}: task {task} has committed, but its checkpoint is not in topic "
                f"{topic.topic!r}",
                "records were removed from that topic: restore it, or run the application under another name",
            )
    return {task: found[task] for task in sorted(tasks, key=_SORT_KEY)}


def _of_model(
    values: dict[bytes, bytes], model: JobModel, decoded: Callable[[bytes, str], Checkpoint]
) -> dict[TaskName, Checkpoint]:
    of = f"of application {model.application!r}"
    stored = [decoded(value, f"checkpoint of task {key.decode()!r} {of}") for key, value in values.items()]
    versions = model.versions  # a position of another version is not a position
    return {one.task: one for one in stored if one.job_model_version == versions.get(one.task)}
