"""Owns the search for records on which a Spark expression raises.

Such an exception takes the whole Spark job down and names no offset (api.md, "Errors in records"): the range is halved
until one record is left. That record is then known, and never enters the engine again.
"""

from __future__ import annotations

from headrace.core.planning import OffsetRange, halves
from headrace.errors import RoundFailedError
from headrace.ports import Engine, EngineFailure
from headrace.runtime.round_plans import PlannedRound
from headrace.runtime.rounds import Rounds

CULPRITS_PER_ROUND_MAX = 10


def find_culprit(engine: Engine, rounds: Rounds, planned: PlannedRound) -> bool:
    """Find one record of the round that fails in the engine and note it in `rounds`; False if no single one does.

    `EngineFailure` if a probe fails for another reason, such as a cancelled job: then nothing is known of any record.
    """
    found_before = [known for known in rounds.known_failures if _within(known, planned)]
    if len(found_before) >= CULPRITS_PER_ROUND_MAX:
        ssp, offset, kind, message = found_before[-1]
        raise RoundFailedError(
            f"round {planned.id}: more than {CULPRITS_PER_ROUND_MAX} records fail in Spark's engine, among them {ssp} "
            f"offset {offset}: {kind}: {message}",
            "the expression does not fit the data: use try_cast or a filter before it",
        )
    for piece in planned.ranges:
        culprit = _culprit_of(engine, rounds, planned, piece)
        if culprit is not None:
            offset, failure = culprit
            rounds.known_failures.append((piece.ssp, offset, failure.error_class, failure.message))
            return True
    return False


def _within(known: tuple[object, int, str, str], planned: PlannedRound) -> bool:
    return any(piece.ssp == known[0] and piece.start <= known[1] < piece.end for piece in planned.ranges)


def _culprit_of(
    engine: Engine, rounds: Rounds, planned: PlannedRound, piece: OffsetRange
) -> tuple[int, EngineFailure] | None:
    failure = _probe(engine, rounds, planned, piece)
    if failure is None:
        return None
    while piece.records > 1:
        left, right = halves(piece)
        in_left = _probe(engine, rounds, planned, left)
        piece, failure = (left, in_left) if in_left is not None else (right, failure)
    failure = _probe(engine, rounds, planned, piece)
    return None if failure is None else (piece.start, failure)


def _probe(engine: Engine, rounds: Rounds, planned: PlannedRound, piece: OffsetRange) -> EngineFailure | None:
    failure = engine.probe(rounds.probe_work(planned, piece), rounds.program)
    if failure is not None and not failure.in_expression:
        raise failure
    return failure
