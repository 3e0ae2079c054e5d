"""The rounds of one processor's containers in a system."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.commits import RoundCommit
from headrace.model.job_model import JobModel
from headrace.model.tasks import TaskName

SystemPayload = Any
"""What the driver's side of an adapter tells its worker's side, or the other way round: values that msgspec writes as JSON.
The runtime carries them and never looks inside."""


class ProcessorStore(Protocol):
    """The rounds of the containers of one processor, as they are planned, committed and given up. It has nothing of the
    coordinator's in it: whatever it does, the coordinator of the application is not fenced by it.

    1. `begin`, once a plan is in force.
    2. Rounds, of several sub-topologies at once, from a thread each. `lanes_to_renew` and `container_terms` when a round is
       planned; the engine runs the containers; `commit_round` with what all of them answered.
    3. A round that failed in any way: `recover`, and a new round is planned from what that gives.

    `round_ms_max`: a container that worked for longer might not be able to commit any more (protocol.md 3); None is no
    bound.
    """

    round_ms_max: int | None

    def begin(self, epoch: int, model: JobModel, processor_id: str | None = None) -> None:
        """From now on rounds are of the containers of `model`, under `epoch`; in a group of those of one processor, under its
        grant. Their lanes were fenced before."""

    def check_epoch(self, epoch: int) -> None:
        """`FencedError` if a newer epoch is in force, or the grant `epoch` is not; `UnavailableError` where that is unknown."""

    def heard(self, sub_topology: str | None) -> Sequence[Checkpoint]:
        """In a group what the tasks of other processors have committed since the last call; some may come again."""
        return ()

    def lanes_to_renew(self, sub_topology: str | None, now_us: int) -> Collection[int]:
        """Lanes that must take part in the next round though there is nothing for them to do: what they committed last
        would expire (protocol.md 9). Empty where nothing expires."""
        return ()

    def container_terms(self, round_id: RoundId, lane: int) -> SystemPayload:
        """What the lane's worker needs for this round from the adapter: where to write, how to commit."""

    def commit_round(self, commit: RoundCommit) -> None:
        """Make a round count in which every container answered well; its checkpoints are the tasks' when this returns. Where
        the driver commits (the log) that happens here, for all containers in one transaction: `FencedError` if the epoch,
        the job model or a base is not the current one, `StorageError` if a file that it names is missing; then nothing is
        changed. Where workers commit (Kafka) each has done so before it answered, and this records it."""

    def shut_out(self, epoch: int, sub_topology: str | None) -> None:
        """End every attempt of earlier rounds of the sub-topology that might still commit; `FencedError` if the epoch is not
        ours any more. Where the driver commits there is none."""
        return

    def recover(self, epoch: int, sub_topology: str | None) -> dict[TaskName, Checkpoint]:
        """After a round that failed: `shut_out`, then read the checkpoints of the sub-topology's tasks. Where workers commit,
        some containers of the failed round may have committed and others not: each task's checkpoint says for itself, and
        the next round builds on each as it is."""

    def publish_status(self, sub_topology: str | None, status: Mapping[str, Any]) -> None:
        """For eyes, never for decisions: not tied to an epoch, and it may be lost."""

    def publish_processor(self, processor_id: str, status: Mapping[str, Any] | None) -> None:
        """The same of a processor of a group itself, with tasks or without; None: it has left."""
