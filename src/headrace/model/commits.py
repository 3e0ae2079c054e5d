"""Who drives an application, and what a round has done: what a driver hands to its job store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.tasks import TaskName


@dataclass(frozen=True, slots=True)
class DriverLease:
    """Who drives an application: for the second driver's message, and to see whether the first still lives."""

    run_id: str
    host: str
    pid: int
    process_started: str  # the kernel's start time of the process: a pid alone may be used again
    boot_id: str
    heartbeat_us: int


@dataclass(frozen=True, slots=True)
class ContainerCommit:
    """What one container's worker answered for its share of a round. `receipt` is what the worker's side of the adapter gave
    for it (`WorkerPorts.commit` in `worker.container`): on the embedded log the chunks that are to be committed, on Kafka
    which producer committed."""

    lane: int
    checkpoints: tuple[Checkpoint, ...]
    receipt: Any = None  # a `ports.processor_store.SystemPayload`
    state_files: tuple[str, ...] = ()  # absolute paths that must exist


@dataclass(frozen=True, slots=True)
class RoundCommit:
    """What one round of one sub-topology has done. `bases`: the round that each task's checkpoint must be of before."""

    round_id: RoundId
    containers: tuple[ContainerCommit, ...]
    bases: Mapping[TaskName, RoundId | None] = field(default_factory=dict)

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        return tuple(checkpoint for container in self.containers for checkpoint in container.checkpoints)
