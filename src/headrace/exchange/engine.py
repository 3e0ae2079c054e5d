"""How a round's containers are run: the port of an engine, what it is given, and how the driver signals to containers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from headrace.core.affinity.admission import Verdict, WorkerAnswer
from headrace.core.topology.program import Program
from headrace.model.checkpoint import RoundId
from headrace.model.tasks import KeyBucket
from headrace.ports.processor_store import SystemPayload


@dataclass(frozen=True, slots=True)
class InputSlice:
    """Offsets start <= o < end of one partition, which the round's containers know as SSP number `ssp`. Of its records a
    container takes those of key bucket `bucket`, which is a slice of the partition; None: all."""

    ssp: int
    stream: str
    partition: int
    start: int
    end: int
    bucket: KeyBucket | None = None


@dataclass(frozen=True, slots=True)
class ContainerWork:
    """One container's share of a round, as bytes that `worker.container.run` understands, and the location where it prefers to
    run, None for any.
    `inputs`: what it takes, and `by_engine` whether the engine reads that; else the container, or what is in front of a Column
    prefix, as the payload says."""

    lane: int
    payload: bytes
    location: str | None
    records: int
    inputs: tuple[InputSlice, ...] = ()
    by_engine: bool = False


class RoundControl(Protocol):
    """The driver's side of two signals to the containers of a round: stop and throw the work away, or end soon and commit
    what was reached. The worker's side is `worker.ports.RoundSignals`. A signal only saves time. A worker that gets none
    works on: its round is cancelled by the engine, or cut short after `max_round_ms`, and what must not be committed is
    refused at its commit."""

    def begin(self, epoch: int) -> None:
        """Drop what is left of rounds of earlier epochs."""

    def terms_of(self, round_id: RoundId) -> SystemPayload:
        """What a worker of the round needs to get its signals. No secret is in it: the engine may log it."""

    def stop(self, round_id: RoundId) -> None: ...

    def cut(self, round_id: RoundId) -> None: ...

    def ended(self, round_id: RoundId) -> None:
        """All containers have answered: no signal is of use any more."""

    def close(self) -> None: ...


WORKER_DIED = "PythonWorkerDied"
WORKER_START = "PythonWorkerStart"
EXECUTOR_LOST = "ExecutorLost"
ENGINE_LOST = "EngineLost"


class EngineFailure(Exception):
    """A round's job failed as a whole. `in_expression`: a Spark expression raised on some record; `cancelled`: we did it;
    `error_class` `WORKER_DIED`: a process that ran containers ended without an answer; `WORKER_START`: none could be started;
    `EXECUTOR_LOST`: the machine, or what runs processes there, ended; `ENGINE_LOST`: the engine itself has ended, and runs
    nothing any more."""

    def __init__(self, message: str, *, in_expression: bool = False, cancelled: bool = False, error_class: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.in_expression = in_expression
        self.cancelled = cancelled
        self.error_class = error_class


@dataclass(frozen=True, slots=True)
class RestoreWork:
    """What a worker at `location` is asked about the local stores of a container there, as bytes that
    `wiring.worker.store_restoring` understands."""

    location: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class DriverAddress:
    """Where workers on other machines reach the driver: they connect with `host`, a name or an address, and it listens
    at its address `bind`."""

    host: str
    bind: str


@dataclass(frozen=True, slots=True)
class WorkerCheck:
    """How it is decided whether a machine's workers get work: `ask` runs in one of them, `verdict_on` in the driver."""

    ask: Callable[[], WorkerAnswer]
    verdict_on: Callable[[WorkerAnswer], Verdict]


class Engine(Protocol):
    """Runs the containers of a round: on Spark, or in this process. `reads`: it can read the ranges that are a work's `inputs`,
    and give the rows to the container; else their workers do. `driver_address`: where its workers reach the driver's
    machine; None where they run on it."""

    slots: int
    reads: bool
    driver_address: DriverAddress | None

    def locations(self) -> Mapping[str, int]:
        """How many Spark tasks run at once at each location that has workers now, by its id; empty where all workers are on
        the driver's machine. `EngineFailure` where the engine does not say."""

    def wait_for_workers(self, check: WorkerCheck, say: Callable[[str], None]) -> None:
        """Wait, within a bound, for the workers that are promised before the first plan; `say` hears for what. `check` is made
        on each machine with workers as it appears, now and later. `SetupError` where none may work."""

    def rejections(self) -> Mapping[str, str]:
        """By host, why workers there get no work."""

    def run(
        self, sub_topology: str, round_id: str, works: Sequence[Sequence[ContainerWork]], program: Program
    ) -> list[bytes]:
        """Run each inner sequence as one Spark task, at the location of its works, which is one; the summaries, one per
        container, in any order. Raises `EngineFailure` if the job failed or was cancelled: what single containers did by then
        is for `ProcessorStore.recover` to find out."""

    def failed_at(self, round_id: str) -> Mapping[str, EngineFailure]:
        """By location how an attempt of a container of the round has failed there, though the round's job has not: the engine
        has tried it again. Without those that were lost with their machine, and empty where it is not known."""

    def probe(self, work: ContainerWork, program: Program) -> EngineFailure | None:
        """Run nothing but the Column prefix over what `work` reads; how it failed, or None. Nothing is committed."""

    def frames(
        self,
        sub_topology: str,
        round_id: str,
        works: Sequence[Sequence[ContainerWork]],
        program: Program,
        endpoints: Sequence[int],
    ) -> Sequence[Any]:
        """For each of these endpoints a DataFrame of what `works` read behind its chain, each record once: key, value,
        timestamp, partition, offset, headers, for the user's own code in the calling thread. What that starts is cancelled
        with the round. `EngineFailure` where an expression raises on one of the records: then no code has seen any."""

    def failure_in(self, error: BaseException) -> EngineFailure | None:
        """What the engine says, in one line, where it is behind `error`, which the user's code raised over a frame."""

    def cancel(self, round_id: str) -> None:
        """Cancel what runs for the round, and what would be started for it."""

    def restore(self, works: Sequence[RestoreWork]) -> Sequence[bytes]:
        """Ask workers how far the stores are that they restore in the background, each at its location if that can be; an
        answer for each, at once. `EngineFailure` where no answer comes within a minute."""

    def on_each_machine(self, work: Callable[[], None], within_s: float) -> None:
        """Run `work` on each machine that has workers; what does not end within that time is cancelled. Raises nothing:
        it is for work that only saves time."""

    def close(self) -> None: ...
