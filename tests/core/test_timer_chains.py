"""How far timers that set timers are followed: every chain ends, in rounds of a bounded size."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.rounds.timer_chains import CATCH_UP_MAX, FIRINGS_MAX, Next, next_of

times = st.integers(-(10**18), 10**18)


def rounds_of(step_us: int, lag_us: int) -> list[int]:
    """Of a timer that repeats each `step_us`, `lag_us` behind the present: how many follow the first one in each round,
    until none is left; ends with -1 where that is refused."""
    rounds, at_us = [], 0
    while at_us <= lag_us:
        first_us, fired = at_us, 0
        at_us += step_us
        while at_us <= lag_us:
            found = next_of(fired, first_us, at_us, lag_us, is_time=False)
            if found is Next.ENDLESS:
                return [*rounds, -1]
            if found is Next.NEXT_ROUND:
                break
            fired, at_us = fired + 1, at_us + step_us
        rounds.append(fired)
    return rounds


@given(first=times, moved=st.integers(1, 10**15), left=st.integers(0, 10**15), fired=st.integers(0, 3 * FIRINGS_MAX))
def test_a_round_never_has_more_than_its_bound(first: int, moved: int, left: int, fired: int) -> None:
    at = first + moved
    for is_time in (False, True):
        found = next_of(fired, first, at, at + left, is_time=is_time)
        assert (found is Next.FIRE) == (fired < FIRINGS_MAX and not is_time)


@given(first=times, back=st.integers(0, 10**15), left=st.integers(0, 10**15))
def test_what_does_not_move_on_is_an_error_and_never_left_to_the_next_round(first: int, back: int, left: int) -> None:
    for is_time in (False, True):
        found = [next_of(fired, first, first - back, first + left, is_time=is_time) for fired in range(0, FIRINGS_MAX, 97)]
        assert set(found) == {Next.FIRE}
        assert next_of(FIRINGS_MAX, first, first - back, first + left, is_time=is_time) is Next.ENDLESS


@given(left=st.integers(0, 10**15), moved=st.integers(1, 10**12))
def test_what_would_take_too_long_to_catch_up_is_an_error(left: int, moved: int) -> None:
    found = next_of(FIRINGS_MAX, 0, moved, moved + left, is_time=False)
    assert (found is Next.ENDLESS) == (left * FIRINGS_MAX > CATCH_UP_MAX * moved)


def test_repeating_timers_that_people_have() -> None:
    second, day = 1_000_000, 86_400_000_000
    assert rounds_of(60 * second, day) == [1_440]
    assert sum(rounds_of(second, day)) + len(rounds_of(second, day)) == 86_401
    assert rounds_of(second, 30 * day)[-1] != -1
    assert rounds_of(1, day) == [-1]
    assert rounds_of(1, 5 * FIRINGS_MAX)[-1] != -1
