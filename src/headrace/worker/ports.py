"""What a container needs from outside: the worker's side of a system, next to the driver's in `headrace.ports`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from headrace.exchange.messages import Reject, TaskPlan
from headrace.model.checkpoint import Checkpoint, Head
from headrace.worker.outputs import Outputs

# The numbers that the steps of a container have in protocol.md, by kind of system; other steps are the adapters' own.
STEPS = {
    "log": {"read": 2, "work": 4, "segments": 5, "outputs": 6, "written": 7, "summary": 8},
    "kafka": {"work": 4, "segments": 5, "outputs": 6, "summary": 11},
}


class RoundSignals(Protocol):
    """What the driver has signalled to one attempt of a container or of a reader. Each call is cheap, and none waits."""

    def is_stopped(self) -> bool:
        """Whether to throw the work away."""

    def is_cut(self) -> bool:
        """Whether to end here, and to commit what was reached."""

    def troubles(self) -> Sequence[str]:
        """Why signals may not have come, for people."""

    def close(self) -> None: ...


class NoSignals:
    """Of work that nothing stops or cuts short."""

    def is_stopped(self) -> bool:
        return False

    def is_cut(self) -> bool:
        return False

    def troubles(self) -> Sequence[str]:
        return ()

    def close(self) -> None: ...


class ReaderReport(msgspec.Struct, frozen=True):
    """What a reader of a Column prefix reports to containers: records that do not decode, where the round's time limit cut it
    short (SSP to the offset reached), and whether it got the signal to stop, so that its rows are not all of the round."""

    rejects: list[Reject]
    cuts: dict[int, int]
    stopped: bool = False


class WorkerPorts(Protocol):
    """What a container needs from outside; `wiring` gives it the adapters of this job's system. One is made for each attempt,
    and called in this order: `begin`; reading and state; `write_state` of each task that changed, within `writing_state`;
    `write_outputs`; `commit`; and `committed`, before the state that was opened is closed. Wherever that ends before the
    commit, `abandon` is the last call, and nothing of the attempt may ever count."""

    signals: RoundSignals

    def begin(self) -> list[Checkpoint] | None:
        """Make sure that this attempt may work, before anything is read (protocol.md 8). None: continue. The checkpoints
        of the container's tasks: an attempt before this one has committed this very round, there is nothing to do.
        `FencedError` or `RoundFailedError` where another epoch is in force, or a task is not at its base."""

    def read(self, number: int) -> Iterator[tuple[Any, pa.RecordBatch]]:
        """Range number `number` of the plan, one with `terms`: (offsets, rows), in order. Others come prepared."""

    def originals(self, ssp: int, offsets: Sequence[int]) -> dict[int, tuple[bytes | None, bytes | None, int, Any]]:
        """Records as they were read, by offset: key, value, timestamp in µs, headers."""

    def engine_report(self) -> ReaderReport:
        """What the Column prefix's readers have reported, and the records that are known to fail in it; to be asked once all
        rows have come. Of other containers' SSPs too."""

    def write_outputs(self, outputs: Outputs) -> None:
        """Write all outputs, of each partition in the order in which they were emitted, so that `commit` can make them
        count."""

    def commit(self, checkpoints: list[Checkpoint]) -> Any:
        """Where workers commit: outputs, positions and `checkpoints` in one transaction (steps 7 to 9). Where the driver
        does: nothing. The receipt, for `model.commits.ContainerCommit`."""

    def abandon(self) -> None:
        """The attempt ends without a commit: take back what it wrote (Kafka: end its transaction). Never raises."""

    def committed(self, checkpoints: list[Checkpoint]) -> None:
        """Where workers commit: apply the deltas that were just committed (step 10), each through the state from which it
        came: to open a store costs more than most rounds do in it. Where the driver commits: nothing, it is done at the
        start of the next round. Of what is left undone the same is true: nothing here takes a commit back."""

    def open_state(self, task: TaskPlan) -> AbstractContextManager[Any]: ...

    def writing_state(self) -> AbstractContextManager[None]:
        """All calls of `write_state` are made within; what they wrote is durable when it is left. Not entered where no task
        has changed: an application without state has no place for it."""

    def write_state(self, task: TaskPlan, state: Any) -> tuple[Head, list[str]]:
        """The new head, and the paths of the files it needs."""

    def cache_of(self, task: str) -> dict[str, Any]: ...
