"""What a round reads, and how its containers become Spark tasks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.rounds.offset_ranges import OffsetRange, first_failing, halves, ranges_of, spark_tasks_of
from headrace.errors import OffsetOutOfRangeError
from headrace.model.streams import SSP

inputs = st.dictionaries(
    st.builds(SSP, st.just("k"), st.sampled_from("ab"), st.integers(0, 12)),
    st.tuples(st.integers(0, 1000), st.just(0) | st.integers(0, 300)),
    max_size=12,
)
containers = st.dictionaries(st.integers(0, 20), st.just(0) | st.integers(0, 90), max_size=10).map(
    lambda found: list(found.items())
)


def shares_by_one(lags: dict[SSP, int], budget: int) -> list[int]:
    """The dumb water-filling: one offset for each SSP in turn. Which SSPs get the odd ones is left open: sorted."""
    shares = dict.fromkeys(lags, 0)
    while budget and any(shares[ssp] < lags[ssp] for ssp in lags):
        for ssp, lag in lags.items():
            if budget and shares[ssp] < lag:
                shares[ssp] += 1
                budget -= 1
    return sorted(share for share in shares.values() if share)


@given(inputs, st.none() | st.integers(1, 2000))
def test_ranges_are_the_fair_shares(found: dict[SSP, tuple[int, int]], max_records: int | None) -> None:
    positions = {ssp: position for ssp, (position, _) in found.items()}
    ends = {ssp: position + lag for ssp, (position, lag) in found.items()}
    ranges = ranges_of(positions, ends, max_records)
    assert [offsets.ssp for offsets in ranges] == sorted(offsets.ssp for offsets in ranges)
    assert all(positions[r.ssp] == r.start < r.end <= ends[r.ssp] for r in ranges)
    lags = {ssp: lag for ssp, (_, lag) in found.items()}
    budget = sum(lags.values()) if max_records is None else max_records
    assert sum(offsets.records for offsets in ranges) == min(budget, sum(lags.values()))
    assert sorted(offsets.records for offsets in ranges) == shares_by_one(lags, budget)
    backwards = dict(reversed(positions.items()))
    assert ranges_of(backwards, ends, max_records) == ranges


@given(st.lists(st.integers(0, 50), min_size=1, max_size=9), st.integers(1, 12))
def test_nobody_starves_below_one_record_each(starts: list[int], budget: int) -> None:
    """With everyone far behind, each SSP is served within as many rounds as a pass over all takes."""
    positions = {SSP("k", "s", number): start for number, start in enumerate(starts)}
    ends = dict.fromkeys(positions, 10**6)
    served: set[SSP] = set()
    for _ in range(-(-len(starts) // budget)):
        for offsets in ranges_of(positions, ends, budget):
            served.add(offsets.ssp)
            positions[offsets.ssp] = offsets.end
    assert served == set(positions)


def test_a_position_behind_the_end_is_an_error_that_names_it() -> None:
    with pytest.raises(OffsetOutOfRangeError, match=r"stream 's' partition 3: the position is 8, but the end offset is 7"):
        ranges_of({SSP("k", "s", 3): 8}, {SSP("k", "s", 3): 7}, None)


@given(containers, st.integers(1, 6), st.integers(0, 60))
def test_every_lane_is_in_exactly_one_spark_task(found: list[tuple[int, int]], slots: int, small: int) -> None:
    tasks = spark_tasks_of(found, slots, small)
    assert sorted(lane for task in tasks for lane in task) == sorted(lane for lane, _ in found)
    assert all(tasks)
    assert spark_tasks_of(found[::-1], slots, small) == tasks
    records = dict(found)
    total = sum(records.values())
    if total <= small:
        assert len(tasks) == min(1, len(found))
    else:
        busy = sum(count > 0 for count in records.values())
        assert len(tasks) == min(slots, busy)
        loads = [sum(records[lane] for lane in task) for task in tasks]
        # What a greedy choice guarantees: a container went to the lightest task, which was not above the mean.
        assert min(loads) > 0
        assert max(loads) <= total / len(tasks) + max(records.values())
        assert max(loads) - min(loads) <= max(records.values())


def test_a_round_for_timers_only_is_one_spark_task() -> None:
    assert spark_tasks_of([(2, 0), (1, 0)], slots=4) == ((1, 2),)
    assert spark_tasks_of([], slots=4) == ()


def test_the_heaviest_container_is_placed_first() -> None:
    assert spark_tasks_of([(0, 20_000), (1, 20_000), (2, 40_000)], slots=2) == ((0, 1), (2,))


def test_with_slots_enough_each_container_is_a_spark_task() -> None:
    assert spark_tasks_of([(0, 30_000), (1, 1), (2, 7)], slots=4) == ((0,), (1,), (2,))


def test_the_halving_finds_any_record() -> None:
    ssp = SSP("k", "s", 0)
    for culprit in (100, 101, 555_555, 999_999):
        offsets, steps = OffsetRange(ssp, 100, 1_000_000), 0
        while offsets.records > 1:
            left, right = halves(offsets)
            assert (left.start, left.end, right.end) == (offsets.start, right.start, offsets.end)
            offsets, steps = (left if culprit < left.end else right), steps + 1
        assert offsets == OffsetRange(ssp, culprit, culprit + 1)
        assert steps <= 20


def test_one_record_cannot_be_halved() -> None:
    with pytest.raises(AssertionError):
        halves(OffsetRange(SSP("k", "s", 0), 4, 5))


@given(st.integers(0, 10_000), st.sets(st.integers(0, 500), max_size=6), st.integers(1, 501))
def test_the_first_failing_offset_is_found(start: int, failing: set[int], length: int) -> None:
    offsets = OffsetRange(SSP("k", "s", 0), start, start + length)
    bad = sorted(start + at for at in failing if at < length)

    def failure_of(piece: OffsetRange) -> str | None:
        return next((f"at {at}" for at in bad if piece.start <= at < piece.end), None)

    assert first_failing(offsets, failure_of) == ((bad[0], f"at {bad[0]}") if bad else None)


def test_where_every_record_fails_one_question_is_enough() -> None:
    asked: list[OffsetRange] = []

    def failure_of(piece: OffsetRange) -> str:
        asked.append(piece)
        return "as all do"

    assert first_failing(OffsetRange(SSP("k", "s", 0), 7, 1_000_000), failure_of) == (7, "as all do")
    assert len(asked) == 1


@given(st.integers(0, 999_999))
def test_one_failing_record_of_a_million_is_found_with_few_questions(culprit: int) -> None:
    read = []

    def failure_of(piece: OffsetRange) -> bool | None:
        read.append(piece.records)
        return piece.start <= culprit < piece.end or None

    assert first_failing(OffsetRange(SSP("k", "s", 0), 0, 1_000_000), failure_of) == (culprit, True)
    assert len(read) <= 6 + 20 + 1
    assert sum(read) <= 3_000_000


def test_records_that_fail_only_together_are_not_blamed() -> None:
    def failure_of(piece: OffsetRange) -> str | None:
        return "too many" if piece.records > 3 else None

    assert first_failing(OffsetRange(SSP("k", "s", 0), 0, 100), failure_of) is None
