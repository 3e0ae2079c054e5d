"""Running a container in a worker process: by the plan's kind of system, with what it reads from and writes to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from headrace.core.topology.program import Program
from headrace.errors import StoreDamagedError
from headrace.exchange.errors import worker_error
from headrace.exchange.json_logs import log_in_worker
from headrace.exchange.messages import ContainerPlan, Summary, decoded_plan, encoded
from headrace.model.checkpoint import RoundId
from headrace.wiring.worker.fetched_ranges import FetchedRanges
from headrace.wiring.worker.location import location_of
from headrace.wiring.worker.store_restoring import end_restore, missing_bytes
from headrace.worker import container
from headrace.worker.operators.faults import is_signal
from headrace.worker.ports import ReaderReport, WorkerPorts
from headrace.worker.rows import Rows


def ports_of(
    plan: ContainerPlan, program: Program, report: Callable[[], ReaderReport], fetched: FetchedRanges
) -> WorkerPorts:
    """The container's ports by the plan's kind of system; imported when first needed, so that none loads what others use."""
    if plan.system == "kafka":
        from headrace.wiring.worker.kafka_worker import KafkaWorkerPorts

        return KafkaWorkerPorts(plan, program, report, fetched)
    from headrace.wiring.worker.log_worker import LogWorkerPorts

    return LogWorkerPorts(plan, program, report)


def run_container(
    payload: bytes,
    program: Program,
    prepared: Iterable[tuple[int, int, Rows]] = (),
    report: Callable[[], ReaderReport] = lambda: ReaderReport([], {}),
) -> bytes:
    """Process one container and give its summary; an error of ours or of the machine is in the summary too."""
    return run_planned(decoded_plan(payload), program, prepared, report, FetchedRanges([]))


def run_containers(payloads: Sequence[bytes], program: Program) -> list[bytes]:
    """Process the containers of one Spark task, which read by themselves; a summary each. What several of them read is fetched
    once."""
    plans = [decoded_plan(payload) for payload in payloads]
    fetched = FetchedRanges(plans)
    return [run_planned(plan, program, (), lambda: ReaderReport([], {}), fetched) for plan in plans]


def run_planned(
    plan: ContainerPlan,
    program: Program,
    prepared: Iterable[tuple[int, int, Rows]],
    report: Callable[[], ReaderReport],
    fetched: FetchedRanges,
) -> bytes:
    """As `run_container`, of a plan that is decoded."""
    try:
        if plan.log_as is not None:
            log_in_worker(plan.log_as, RoundId.parse(plan.round_id))
        if (declined := _declined(plan, program)) is not None:
            return encoded(declined)
        try:
            summary = container.run(plan, program, ports_of(plan, program, report, fetched), prepared)
        except StoreDamagedError:
            # Met while in use: the next opening rebuilds it. Rows that came out of Spark's engine cannot be read twice.
            if not isinstance(prepared, tuple):
                raise
            summary = container.run(plan, program, ports_of(plan, program, report, fetched), prepared)
    except BaseException as error:  # of the user's code too: what it does while it is made ready has no record
        if is_signal(error):
            raise
        summary = Summary(plan.lane, error=worker_error(error))
    return encoded(summary)


def _declined(plan: ContainerPlan, program: Program) -> Summary | None:
    """Why a container does not take part in the round, before anything of it has begun; None: it does."""
    if plan.location is not None and (here := location_of(plan.location_id)) != plan.location:
        return Summary(plan.lane, declined=here)
    if not program.stateful or plan.restore_inline_bytes is None:
        return None
    missing = missing_bytes(plan, program.application)
    if missing:
        return Summary(plan.lane, missing=missing)
    end_restore(plan, program.application, program.sub_topology or "source")
    return None
