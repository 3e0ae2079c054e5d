"""What was handed over and not committed, of a span that a rewind passes over: it comes again, under another id."""

from __future__ import annotations

from headrace.core.job_plan.startpoints import handovers_set_elsewhere
from headrace.core.rounds.for_each_round import Handover
from headrace.core.rounds.offset_ranges import OffsetRange
from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName

PLACE = SSP("log", "app-by-key-repartition", 0)
TASK = TaskName.parse("by-key/Partition_0")


def after(skipped_ranges: dict[SSP, tuple[tuple[int, int], ...]], committed: int) -> Handover | None:
    handover = Handover(4, RoundId(1, "by-key", 7), (OffsetRange(PLACE, 10, 20),))
    checkpoints = {TASK: Checkpoint(TASK, RoundId(1, "by-key", committed), 1, {PLACE: 10})}
    return handovers_set_elsewhere({"by-key": handover}, checkpoints, checkpoints, skipped_ranges).get("by-key")


def test_a_handover_that_reaches_into_a_gap_is_not_given_again() -> None:
    assert after({PLACE: ((15, 30),)}, committed=6) == Handover(4, RoundId(1, "by-key", 7), ())


def test_one_that_does_not_stays_as_it_is() -> None:
    assert after({PLACE: ((20, 30), (0, 10))}, committed=6) is None
    assert after({}, committed=6) is None
