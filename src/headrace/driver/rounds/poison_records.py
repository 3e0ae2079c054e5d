"""The search for records on which a Spark expression raises.

Such an exception takes the whole Spark job down and names no offset (api.md, "Errors in records"): ranges are read again
piece by piece until one record is left. That record is then known, and never enters the engine again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from headrace.core.rounds.offset_ranges import OffsetRange, first_failing
from headrace.driver.rounds.planned_round import PlannedRound
from headrace.driver.rounds.sub_topology_runner import SubTopologyRunner
from headrace.errors import RoundFailedError
from headrace.exchange.engine import Engine, EngineFailure
from headrace.model.streams import SSP

LOG = logging.getLogger("headrace.job")
CULPRITS_PER_ROUND_MAX = 10
KnownFailure = tuple[SSP, int, str, str]  # offset, kind of error, message


def are_poison_records_why(
    failure: Exception,
    engine: Engine,
    rounds: SubTopologyRunner,
    planned: PlannedRound,
    *,
    say: Callable[[str], None],
    is_stopping: Callable[[], bool],
) -> bool:
    """Whether the round failed by records on which an expression raises, which were found: the next round skips them."""
    if not isinstance(failure, EngineFailure) or not failure.in_expression:
        return False
    try:
        return find_poison_records(engine, rounds, planned, say=say, is_stopping=is_stopping)
    except EngineFailure as error:
        LOG.warning("the search for the record that fails in round %s failed: %s", planned.id, error.message)
        return False


def find_poison_records(
    engine: Engine,
    rounds: SubTopologyRunner,
    planned: PlannedRound,
    *,
    say: Callable[[str], None] = LOG.warning,
    is_stopping: Callable[[], bool] = lambda: False,
) -> bool:
    """Find the records of the round that fail in the engine and note them in `rounds`; False if no single one does.

    Without a dead-letter stream the first of them ends the job: then no other is looked for. `RoundFailedError` if there
    are too many. `EngineFailure` if a probe fails for another reason, such as a cancelled job: then nothing is known of
    any record. `say` takes one line on what is looked for, and one for each record found.
    """
    records = sum(piece.records for piece in planned.ranges)
    say(f"round {planned.id}: a Spark expression fails; looking for the record among {records:,}, reading them again")
    ranges = {piece.ssp: piece for piece in planned.ranges}
    within = [one for one in rounds.planner.known_failures if one[0] in ranges]
    known = [one for one in within if ranges[one[0]].start <= one[1] < ranges[one[0]].end]
    found_any = False
    for piece in planned.ranges:
        for failed in _failing(engine, rounds, planned, piece, is_stopping):
            if len(known) >= CULPRITS_PER_ROUND_MAX:
                ssp, offset, kind, message = known[-1]
                raise RoundFailedError(
                    f"round {planned.id}: more than {CULPRITS_PER_ROUND_MAX} records fail in Spark's engine, among them {ssp} "
                    f"offset {offset}: {kind}: {message}",
                    "the expression does not fit the data: use try_cast or a filter before it",
                )
            rounds.planner.known_failures.append(failed)
            known.append(failed)
            found_any = True
            ssp, offset, kind, message = failed
            say(f"round {planned.id}: {ssp} offset {offset} fails: {kind}: {message}")
            if rounds.program.dead_letter is None:
                return True
    return found_any


def _failing(
    engine: Engine, rounds: SubTopologyRunner, planned: PlannedRound, piece: OffsetRange, is_stopping: Callable[[], bool]
) -> Iterator[KnownFailure]:
    """The failing records of one range, one after the other."""

    def failure_of(part: OffsetRange) -> EngineFailure | None:
        if is_stopping():
            raise EngineFailure("the job stops", cancelled=True)
        failure = engine.probe(rounds.planner.probe_work(planned, part), rounds.program)
        if failure is not None and not failure.in_expression:
            raise failure
        return failure

    start = piece.start
    while start < piece.end:
        culprit = first_failing(OffsetRange(piece.ssp, start, piece.end), failure_of)
        if culprit is None:
            return
        offset, failure = culprit
        yield piece.ssp, offset, failure.error_class, failure.message
        start = offset + 1
