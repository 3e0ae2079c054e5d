"""The worker's side of Kafka: one transaction per container, with outputs, positions and checkpoints. Rows come prepared from
Spark's reader; where the engine does not read (tests in one process), the worker reads itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa

from headrace.adapters.kafka.clients import process_token
from headrace.adapters.kafka.compacted import CompactedTopic
from headrace.adapters.kafka.container_transaction import FlushedLane, Lane, LaneTransaction, Verdict
from headrace.adapters.kafka.fetching import fetched, fetched_at, fetched_together
from headrace.adapters.kafka.limits import batch_bytes
from headrace.adapters.kafka.messages import messages_of
from headrace.adapters.kafka.names import checkpoint_key, checkpoint_topic
from headrace.adapters.kafka.positions import Position, container_positions
from headrace.codec.documents import decode, encode
from headrace.core.topology.program import Program
from headrace.errors import OffsetOutOfRangeError, RoundFailedError
from headrace.exchange.messages import ContainerPlan
from headrace.model.checkpoint import Checkpoint
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName
from headrace.wiring.worker.fetched_ranges import FetchedRanges
from headrace.wiring.worker.worker_state import WorkerState
from headrace.worker.checkpoints import round_id_of
from headrace.worker.outputs import Outputs
from headrace.worker.ports import ReaderReport

_AHEAD_RECORDS = 10_000  # of neighbouring ranges that are read with one request; the records are held in memory


class KafkaWorkerPorts(WorkerState):
    """`worker.ports.WorkerPorts` on Kafka, where the container commits its own round."""

    def __init__(
        self, plan: ContainerPlan, program: Program, report: Callable[[], ReaderReport], fetched_ranges: FetchedRanges
    ) -> None:
        super().__init__(plan, program, report)
        self._fetched = fetched_ranges
        terms = plan.terms
        batch_size = batch_bytes(program.limits.values(), terms["client"].get("batch.size"))
        self._client: dict[str, Any] = terms["client"] | {"batch.size": batch_size}
        self._shared = {(stream, partition) for stream, partition in terms["shared"]}
        self._title = round_id_of(plan.round_id).sub_topology or "source"
        identity = (program.application, self._title, plan.lane, plan.epoch, plan.round_id)
        lane = Lane(*identity, self._client, terms["timeout_ms"], terms["producer_of"])
        self._exactly_once: bool = terms["exactly_once"]
        self._transaction = (LaneTransaction if self._exactly_once else FlushedLane)(lane)

    def begin(self) -> list[Checkpoint] | None:
        """Take the lane, look whether the round may be worked, and open the transaction (steps 1 to 3)."""
        verdict = self._transaction.check(self._base())
        if verdict is Verdict.DONE:
            return self._committed_before()
        self._transaction.begin()
        return None

    def _base(self) -> list[Position]:
        names = [SSP(*parts) for parts in self._plan.ssps]
        bases = [
            Checkpoint(
                TaskName.parse(task.name),
                round_id_of(task.round_id),
                self._plan.job_model_version,
                {names[number]: offset for number, offset in task.positions.items()},
            )
            for task in self._plan.tasks
        ]
        return self._positions(bases)

    def _positions(self, checkpoints: list[Checkpoint]) -> list[Position]:
        return container_positions(self._program.application, self._title, self._plan.lane, checkpoints, self._shared)

    def _committed_before(self) -> list[Checkpoint]:
        """What an attempt of this very round has committed: the checkpoints are in their topic.

        They are read without regard to transactions: ours is known to be committed, nothing was written by this lane since,
        and that of another container may be open behind which ours could not be seen, until this very Spark task ends it."""
        topic = CompactedTopic(self._client, checkpoint_topic(self._program.application), uncommitted=True)
        try:
            stored = topic.refresh()
        finally:
            topic.close()
        names = [task.name for task in self._plan.tasks]
        found = [decode(Checkpoint, stored[self._record_key(name)], f"checkpoint of task {name}") for name in names]
        if any(str(checkpoint.round_id) != self._plan.round_id for checkpoint in found):
            raise RoundFailedError(
                f"round {self._plan.round_id}: its positions were committed, and its checkpoints were not read back",
                "it is planned again from what is committed",
            )
        return found

    def read(self, number: int) -> Iterator[tuple[Any, pa.RecordBatch]]:
        piece = self._plan.ranges[number]
        try:
            if not self._fetched.has(piece):
                self._fetch_from(number)
            if self._fetched.has(piece):
                yield from self._fetched.take(piece)
            else:
                yield from fetched(self._client, *self._pieces[number], keep=True)
        except OffsetOutOfRangeError as error:  # removed since the round was planned; the next plan says what of it
            raise RoundFailedError(error.message, error.hint) from None

    def _fetch_from(self, number: int) -> None:
        """Fetch a range and those behind it, as far as they are few records, and hold them. Nothing where it is alone, unless
        another container of this Spark task reads it as well."""
        ranges, numbers, records = self._plan.ranges, list[int](), 0
        for at in range(number, len(ranges)):
            if self._fetched.has(ranges[at]):
                continue
            records += ranges[at].end - ranges[at].start
            if records > _AHEAD_RECORDS and numbers:
                break
            numbers.append(at)
        if len(numbers) < 2 and not self._fetched.is_shared(ranges[number]):
            return
        found = fetched_together(self._client, [self._pieces[at] for at in numbers])
        for at in numbers:
            self._fetched.hold(ranges[at], found[self._pieces[at][:2]])

    @cached_property
    def _pieces(self) -> list[tuple[str, int, int, int]]:
        """Of every range of the plan its stream, partition, start and end."""
        return [(*self._plan.ssps[piece.ssp][1:], piece.start, piece.end) for piece in self._plan.ranges]

    def originals(self, ssp: int, offsets: Sequence[int]) -> dict[int, tuple[bytes | None, bytes | None, int, Any]]:
        _, stream, partition = self._plan.ssps[ssp]
        return fetched_at(self._client, stream, partition, offsets)

    def write_outputs(self, outputs: Outputs) -> None:
        for stream, batch, partitions in outputs.batches():
            self._transaction.produce(stream, messages_of(batch, partitions))

    def commit(self, checkpoints: list[Checkpoint]) -> Any:
        """Which process has the lane's producer now."""
        application = self._program.application
        records = [(self._record_key(str(checkpoint.task)), encode(checkpoint)) for checkpoint in checkpoints]
        self._transaction.commit(self._positions(checkpoints), records, checkpoint_topic(application))
        return process_token()

    def _record_key(self, task: str) -> bytes:
        return checkpoint_key(task, self._plan.job_model_version, self._exactly_once)

    def abandon(self) -> None:
        self._transaction.give_up()

    def committed(self, checkpoints: list[Checkpoint]) -> None:
        """Apply what was just committed; where that fails the next opening does it, from the same files."""
        for checkpoint in checkpoints:
            self.apply(str(checkpoint.task), checkpoint.head)
