"""What the checker of startpoints must see: each way in which a job could go wrong, planted in what a right one would do."""

from __future__ import annotations

import pytest

from startpoints.checker import Pass, alone, first_at, passed_from, passed_within, passes_made

THERE = [0, 1, 2, 4, 5, 7]  # with holes, as transactions leave them
RIGHT = [0, 1, 2, 4, 2, 4, 5, 7]
PASSES = [passed_from(0), passed_from(2, after=4)]


def test_what_is_right() -> None:
    assert passes_made(RIGHT, THERE, PASSES) == len(RIGHT)
    assert passes_made(RIGHT, THERE, [passed_from(0, 5), passed_from(2, after=3)]) == len(RIGHT)
    assert passes_made(THERE, THERE, [passed_from(0), passed_from(8)]) == len(THERE)
    assert passes_made([0, 5, 7], THERE, [passed_from(0), passed_from(3 + 2)]) == 3, "forward"
    assert passes_made([0, 1, 5, 7], THERE, [passed_from(0), passed_within(4, 6)]) == 4
    assert passes_made([0, 1, 7], THERE, [passed_from(0), passed_from(6)]) == 3, "an offset in a hole"


@pytest.mark.parametrize(
    ("processed", "passes"),
    [
        ([0, 1, 2, 4, 5, 7], PASSES),
        ([0, 1, 2, 4, 2, 4, 5], PASSES),
        ([0, 1, 2, 4, 2, 5, 7], PASSES),
        ([0, 1, 2, 2, 4, 4, 5, 7], PASSES),
        ([0, 1, 2, 2, 4, 5, 4, 7], PASSES),
        ([0, 1, 2, 4, 1, 2, 4, 5, 7], PASSES),
        ([0, 1, 2, 4, 4, 5, 7], PASSES),
        ([0, 1, 2, 4, 2, 4, 5, 7, 2, 4, 5, 7], PASSES),
        ([1, 2, 4, 2, 4, 5, 7], PASSES),
        (RIGHT, [Pass(range(1), 4), passed_from(2)]),
        ([0, 1, 2, 4, 5, 7], [passed_from(0), passed_from(0, after=1)]),
        ([0, 1, 2, 4, 7], [passed_from(0), passed_within(1, 5)]),
        (RIGHT, [passed_from(0), passed_from(2, after=5)]),
        ([], PASSES),
    ],
    ids=[
        "never applied", "lost at the end", "a gap in the second pass", "old and new mixed", "out of order",
        "too far back", "not far enough back", "applied twice", "lost at the start", "read on behind where it had to end",
        "not read again at all", "further on than it could be",
        "before it was asked for", "nothing",
    ],
)  # fmt: skip
def test_what_is_wrong(processed: list[int], passes: list[Pass]) -> None:
    with pytest.raises(AssertionError):
        passes_made(processed, THERE, passes)


def test_a_bootstrapped_stream_alone() -> None:
    right = [("b", 0, 0), ("a", 0, 0), ("a", 1, 9), ("b", 1, 3), ("a", 0, 1), ("b", 0, 1), ("a", 0, 2)]
    assert alone(right, 0, "a", 0, 1, "b") == 2
    assert alone([*right, ("a", 0, 0), ("a", 0, 1)], 0, "a", 0, 1, "b") == 2
    with pytest.raises(AssertionError, match="came while 'a' was bootstrapped"):
        alone(right, 0, "a", 0, 2, "b")


def test_the_first_record_that_is_not_older() -> None:
    rows = [{"partition": p, "offset": offset, "timestamp_us": time} for p, offset, time in [(0, 3, 10), (0, 5, 20), (1, 0, 5)]]
    assert [first_at(rows, 0, time, 6) for time in (0, 10, 11, 20, 21)] == [3, 3, 5, 5, 6]
