"""What the judge of attempts refuses, and what it allows: see `attempts.check_attempts`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from groups.attempts import Attempt, Hit, check_attempts

# Of a processor that worked from 1 s to 3 s, and of the one that had the task next.
FIRST = Attempt("a/1", 11, 7, ("0",), "7--1", 0.9, 1.0, commits_s=2.8, committed_s=3.0, ended_s=3.0)
NEXT = Attempt("b/2", 22, 8, ("0",), "8--1", 3.1, 3.2, commits_s=4.0, committed_s=4.1, ended_s=4.1)
EARLY = replace(NEXT, asked_s=1.9, began_s=2.0)
DROPPED = replace(FIRST, commits_s=None, committed_s=None)
STOPPED = {"a/1": [Hit(1.5)]}


def test_one_after_the_other_is_right() -> None:
    assert check_attempts([FIRST, NEXT, replace(EARLY, tasks=("1",))], {}) == 3


def test_two_that_live_may_not_work_on_a_task_at_once() -> None:
    with pytest.raises(AssertionError, match="two that live worked on it at once"):
        check_attempts([DROPPED, EARLY], {})
    with pytest.raises(AssertionError, match="two that live worked on it at once"):
        check_attempts([DROPPED, EARLY], {"a/1": [Hit(0.1, 0.2)], "b/2": [Hit(1.5)]})


def test_what_a_signal_has_hit_may_work_on_and_commits_nothing() -> None:
    for refused in (DROPPED, replace(FIRST, committed_s=None), replace(DROPPED, ended_s=None)):
        assert check_attempts([refused, EARLY], STOPPED) == 2
    with pytest.raises(AssertionError, match="it committed after another had its task"):
        check_attempts([FIRST, EARLY], STOPPED)


def test_a_commit_that_was_sent_before_may_be_answered_late() -> None:
    assert check_attempts([replace(FIRST, commits_s=1.9), EARLY], STOPPED) == 2


def test_none_begins_under_a_grant_that_was_taken_back() -> None:
    late = replace(DROPPED, asked_s=3.3, began_s=3.4, ended_s=3.5)
    with pytest.raises(AssertionError, match="it began under a grant that was taken back"):
        check_attempts([late, NEXT], STOPPED)
    assert check_attempts([replace(late, began_s=None), NEXT], STOPPED) == 2


def test_of_a_round_and_its_next_try_one_commits() -> None:
    again = replace(EARLY, who="a/1", grant=7)
    assert check_attempts([FIRST, replace(again, committed_s=None)], {}) == 2
    assert check_attempts([DROPPED, again], {}) == 2
    with pytest.raises(AssertionError, match="both have committed"):
        check_attempts([FIRST, again], {})


def test_a_grant_is_of_one_incarnation() -> None:
    with pytest.raises(AssertionError, match="grant 7 is of a/1 and of b/2"):
        check_attempts([FIRST, replace(NEXT, grant=7, tasks=("1",))], {})
