"""One application's plan in its system: for its coordinator, and for who only looks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from headrace.core.group.grants import Grants
from headrace.errors import NotSupportedError
from headrace.model.checkpoint import Checkpoint
from headrace.model.commits import DriverLease
from headrace.model.job_model import JobModel
from headrace.model.tasks import TaskName
from headrace.ports.metadata_store import Metadata


class JobReader(Protocol):
    """What is stored of one application's job, for any process to read."""

    def holder(self) -> DriverLease | None: ...

    def job_model(self) -> JobModel | None: ...

    def checkpoints(self) -> dict[TaskName, Checkpoint]:
        """Those of the current plan, whether their tasks have committed a round yet or not. A task that has committed and
        whose checkpoint is nowhere to be found is a `StorageError`, never left out."""

    def status(self) -> dict[str, dict[str, Any]]: ...

    def processors(self) -> dict[str, dict[str, Any]]:
        """What the processors of a group have published of themselves, by id; of lost ones too."""
        return {}

    def grants(self) -> Grants | None:
        """Of a standalone group those in force; None where one driver runs everything."""
        return None


class CoordinatorStore(JobReader, Protocol):
    """One application's plan in its system, as its coordinator has it: the driver, or the leader of a group.

    The life of a job, in this order:

    1. `acquire` (steps 1 to 4 of "Start"): the epoch is ours. `fence` (step 5): no attempt of an older one can commit any more
       in the lanes that it names.
    2. `job_model`, `checkpoints`: read after that. They may be answered from memory: no other driver writes now.
    3. `commit_job_model` (step 9, and 10 before it returns): the plan, its resolved starts and stream ids, at once.
    4. Rounds are a `ProcessorStore`'s.
    5. `heartbeat` every 2 s from a thread of its own; `release` at the end.

    Every write names the epoch and is refused with `FencedError`, changing nothing, if a newer one exists. At each numbered
    step of protocol.md `exchange.fault_injection.reached` is called.
    """

    def forget(self, epoch: int) -> None:
        """Forget all that is stored of the application, and delete the streams that it made for itself: the next start is a
        first start. The epoch stays, so that no process of before can commit, and the id of the state (`state-id`), by which
        its files are known. Where it is interrupted `is_half_forgotten` until it is called again. `FencedError`."""

    def is_half_forgotten(self) -> bool:
        """Whether `forget` was begun and has not ended: then no plan may be made."""
        return False

    # --- who drives -------------------------------------------------------------------------------------------------

    def check_not_leased(self, holder: DriverLease, now_us: int) -> None:
        """`JobHeldError` while another holder lives, as `acquire` would raise; changes nothing. To be asked before what
        takes long is started."""

    def acquire(self, holder: DriverLease, now_us: int, *, for_group: bool = False) -> int:
        """Take the application and give the new epoch, which is in force, and was read back, when this returns: an attempt
        that looks at it from now on stops. The leader of a group takes it with the grants that are in force: attempts under
        these work on (`NotSupportedError` where the system has no groups). `JobHeldError` while another holder lives;
        `FencedError` if this store has it, and another driver has taken it since: who was replaced does not come back. Whatever
        it raises, the application is not held by this driver then."""

    def lanes_used(self) -> Mapping[str, int]:
        """How many lanes were ever used, by the titles of sub-topologies; empty where the epoch alone fences all of them."""

    def fence(self, epoch: int, lanes: Mapping[str, Collection[int]]) -> None:
        """End what any container of these lanes has open, and shut out who has begun there (protocol.md 7). `lanes`: by the
        titles of sub-topologies."""

    def numbers_used(self) -> int:
        """The highest number that any epoch or grant ever had."""

    def write_grants(self, epoch: int, grants: Grants, metadata: Metadata | None = None) -> None:
        """Put these in force, in place of those that were, read back: an attempt that looks from now on stops if its own is
        not among them. `metadata` is written in the same transaction."""
        raise NotSupportedError("this system has no groups: one driver commits each round", "use Kafka")

    def heartbeat(self, epoch: int, now_us: int) -> None: ...

    def check_epoch(self, epoch: int) -> None:
        """`FencedError` if a newer epoch exists. If it does not raise, nothing read before this call had been superseded."""

    def expedite(self) -> None:
        """The job ends: from now on a system that does not answer is waited for a few seconds at most, by those that wait for
        it already too; then `UnavailableError` as ever."""

    def repairs(self) -> Collection[str]:
        """Names of repairs after which checkpoints of before may be put back: the state files that were there then are kept
        until the repair is not among these any more."""
        return ()

    def release(self, epoch: int) -> None:
        """Say that this driver ended cleanly; no error if another took over."""

    def step_down(self, epoch: int) -> None:
        """Hold the application no more, and write nothing of it: another process of the same group has it, or will. This store
        may take it again later, as a new one could. One that was replaced and has not stepped down does not come back."""

    # --- the plan ---------------------------------------------------------------------------------------------------

    def commit_job_model(
        self,
        epoch: int,
        model: JobModel,
        checkpoints: Sequence[Checkpoint],
        metadata: Metadata | None = None,
        stored: Mapping[TaskName, Checkpoint] | None = None,
        grants: Grants | None = None,
    ) -> None:
        """Make `model` (its partition counts and stream ids are in it) and `checkpoints` current, and write `metadata` with
        them, in one transaction, read back. A task of the model without a checkpoint here keeps its own: of the tasks of a
        container all are here, or none. Those of tasks that the model does not have are forgotten. `stored`: what
        `checkpoints` has given; a checkpoint that is the very one of there need not be written again. `grants`: those of a
        group, put in force with it. Before this returns the store has recorded the lanes that the model uses, for `lanes_used`
        (protocol.md 7)."""

    def replaced_files(self) -> frozenset[str]:
        """The state files of checkpoints that others have followed, as was read since the last call or the first: `checkpoints`
        may not have given those. Empty where one process makes all commits."""
        return frozenset()

    def write_metadata(
        self, epoch: int, namespace: str, values: Mapping[str, bytes | None], done: Collection[str] = ()
    ) -> None:
        """Write these values (None deletes) and drop the requests `done`, all or nothing. See `MetadataStore`."""

    def purge(self, epoch: int, stream: str, offsets: Mapping[int, int]) -> None:
        """Forget what lies before `offsets` (partition to offset) of a repartition stream; one that is before the
        beginning changes nothing, and one beyond the end is an `OffsetOutOfRangeError`."""
