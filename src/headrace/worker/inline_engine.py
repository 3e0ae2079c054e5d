"""Running a round's containers in this process: for tests of jobs without Spark expressions, in milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace.core.topology.program import Program
from headrace.errors import NotSupportedError
from headrace.exchange.engine import ContainerWork, DriverAddress, EngineFailure, RestoreWork, WorkerCheck


class InlineEngine:
    """See `headrace.exchange.engine.Engine`. `run_container(payload, program)` gives a summary."""

    slots = 1
    reads = False
    driver_address: DriverAddress | None = None

    def __init__(self, run_container: Callable[[bytes, Program], bytes]) -> None:
        self._run_container = run_container

    def locations(self) -> Mapping[str, int]:
        return {}

    def wait_for_workers(self, check: WorkerCheck, say: Callable[[str], None]) -> None:
        """Containers run in this process: there is nothing to wait for."""

    def rejections(self) -> Mapping[str, str]:
        return {}

    def run(self, sub_topology: str, round_id: str, works: Sequence[Sequence[ContainerWork]], program: Any) -> list[bytes]:
        for endpoint in program.endpoints:
            if endpoint.chain:
                raise NotSupportedError(
                    f"{endpoint.entry!r} is a Spark expression: it needs Spark", "run the job on Spark, or use a function"
                )
        return [self._run_container(work.payload, program) for group in works for work in group]

    def failed_at(self, round_id: str) -> Mapping[str, EngineFailure]:
        return {}

    def probe(self, work: ContainerWork, program: Any) -> EngineFailure | None:
        return None

    def frames(
        self, sub_topology: str, round_id: str, works: Sequence[Sequence[ContainerWork]], program: Any, endpoints: Sequence[int]
    ) -> Sequence[Any]:
        raise NotSupportedError("for_each_round gives a DataFrame: it needs Spark", "run the job on Spark, or write with to()")

    def failure_in(self, error: BaseException) -> EngineFailure | None:
        return None

    def cancel(self, round_id: str) -> None:
        """Containers look at the round's signals; there is nothing else to cancel."""

    def restore(self, works: Sequence[RestoreWork]) -> Sequence[bytes]:
        """Containers that run in this process have no location, and restore in their rounds."""
        raise AssertionError("no container has declined")

    def on_each_machine(self, work: Callable[[], None], within_s: float) -> None:
        work()

    def close(self) -> None: ...
