"""Watermarks: what is known, what holds back, what does not (protocol.md 23)."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.rounds.watermarks import joined_reports, joint_watermark, task_watermark
from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.streams import SSP
from headrace.model.tasks import PartitionGroup, TaskName

SSPS = [SSP("log", "s", partition) for partition in range(4)]
marks = st.one_of(st.none(), st.integers(-(10**6), 10**6))


@given(st.dictionaries(st.sampled_from(SSPS), marks), st.sets(st.sampled_from(SSPS)))
def test_a_task_is_never_ahead_of_an_active_ssp(known: dict[SSP, int | None], idle: set[SSP]) -> None:
    mark = task_watermark(SSPS, known, idle)
    active = [known.get(ssp) for ssp in SSPS if ssp not in idle]
    if None in active:
        assert mark is None
    elif active:
        assert mark == min(m for m in active if m is not None)
    else:
        assert mark == max((m for m in known.values() if m is not None), default=None)


@given(st.lists(marks, min_size=1, max_size=4))
def test_inputs_end_at_one_time_in_whichever_order_they_become_idle(known: list[int | None]) -> None:
    ends = set()
    for order in permutations(range(len(known))):
        steps = [
            joint_watermark((mark, at in order[:count]) for at, mark in enumerate(known)) for count in range(len(known) + 1)
        ]
        seen = [mark for mark in steps if mark is not None]
        assert seen == sorted(seen), "an input that becomes idle never takes the watermark back"
        assert steps[len(steps) - len(seen) :] == seen, "nor makes it unknown"
        ends.add(steps[-1])
    assert ends == {max((mark for mark in known if mark is not None), default=None)}


def at(position: int, task: int = 0, **watermarks: int) -> Checkpoint:
    """A task that is at one position in two SSPs, and what it reports of them."""
    reports = {SSPS[int(name[1:])]: mark for name, mark in watermarks.items()}
    return Checkpoint(TaskName(PartitionGroup(task)), RoundId(1, None, 1), 1, dict.fromkeys(SSPS[:2], position), None, reports)


def test_siblings_join_their_reports() -> None:
    assert joined_reports([at(3, 0, s0=5, s1=7), at(3, 1, s0=9)]) == {SSPS[0]: 9, SSPS[1]: 7}


def test_what_a_task_reports_that_has_read_on_does_not_count() -> None:
    ahead, behind = at(8, 0, s0=90, s1=70), at(3, 1, s0=5)
    for order in permutations((ahead, behind, at(3, 2, s0=4))):
        assert joined_reports(order) == {SSPS[0]: 5}, "of the second nothing is known where all have been"


@given(st.lists(st.tuples(st.integers(0, 3), marks), min_size=1, max_size=6))
def test_the_joined_report_is_the_highest_of_those_at_the_lowest_position(found: list[tuple[int, int | None]]) -> None:
    lowest = min(position for position, _ in found)
    expected = max((mark for position, mark in found if position == lowest and mark is not None), default=None)
    reports = [(position, {} if mark is None else {"s0": mark}) for position, mark in found]
    given_marks = [at(position, number, **report) for number, (position, report) in enumerate(reports)]
    assert joined_reports(given_marks).get(SSPS[0]) == expected
