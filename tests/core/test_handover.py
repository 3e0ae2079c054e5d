"""Which records an id of `for_each_round` stands for: the same ones at every attempt, and each record under one id."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headrace.codec.documents import decode, encode
from headrace.core.rounds.for_each_round import Handover, HandoverRound, next_handover, set_elsewhere
from headrace.core.rounds.offset_ranges import OffsetRange, ranges_of
from headrace.model.checkpoint import RoundId
from headrace.model.streams import SSP

A, B = SSP("log", "in", 0), SSP("log", "in", 1)
FIRST, SECOND = RoundId(1, None, 1), RoundId(2, "by-key", 5)
STORED = Handover(3, FIRST, (OffsetRange(A, 10, 20), OffsetRange(B, 5, 8)))
ENDS = {A: 100, B: 100}


def after(
    positions: dict[SSP, int], committed: RoundId, stored: Handover = STORED, ends: dict[SSP, int] = ENDS
) -> HandoverRound:
    planned = ranges_of(positions, ENDS, 1000)
    found = next_handover(stored, SECOND, planned, positions, ends, {committed})
    assert found is not None
    return found


def pieces(found: HandoverRound) -> dict[SSP, tuple[int, int]]:
    return {piece.ssp: (piece.start, piece.end) for piece in found.ranges}


def test_the_first_id_is_0_and_rises_by_1() -> None:
    planned = (OffsetRange(A, 0, 4),)
    first = next_handover(None, FIRST, planned, {A: 0}, {A: 9}, ())
    assert first == HandoverRound(Handover(0, FIRST, planned), planned)
    following = after({A: 20, B: 8}, FIRST)
    assert (following.handover.id, following.handover.round_id, following.handover.is_done) == (4, SECOND, False)
    assert pieces(following) == {A: (20, 100), B: (8, 100)}


def test_nothing_to_read_is_no_handover() -> None:
    assert next_handover(None, FIRST, (), {A: 0}, {A: 0}, ()) is None
    assert next_handover(STORED, SECOND, (), {A: 20, B: 8}, ENDS, {FIRST}) is None


def test_a_round_that_committed_nothing_gives_the_same_ranges_again_whatever_would_be_planned() -> None:
    again = next_handover(STORED, SECOND, (OffsetRange(A, 10, 11),), {A: 10, B: 5}, ENDS, {RoundId(1, None, 0)})
    assert again == HandoverRound(Handover(3, SECOND, STORED.ranges), STORED.ranges)


def test_what_a_round_left_that_committed_in_part_is_worked_off_without_the_functions() -> None:
    rest = after({A: 20, B: 5}, FIRST)
    assert (rest.handover.id, rest.handover.is_done, pieces(rest)) == (3, True, {B: (5, 8)})
    cut = after({A: 15, B: 8}, RoundId(2, None, 4), stored=rest.handover)  # by another attempt, cut short
    assert (cut.handover, pieces(cut)) == (rest.handover, {A: (15, 20)})


def test_several_tasks_that_read_one_partition_count_as_committed_in_part() -> None:
    rest = next_handover(STORED, SECOND, (), {A: 10, B: 5}, ENDS, {RoundId(1, None, 0), FIRST})
    assert rest == HandoverRound(Handover(3, FIRST, STORED.ranges, is_done=True), STORED.ranges)


def test_what_a_startpoint_brings_back_has_an_id_of_its_own() -> None:
    whole = set_elsewhere(STORED, {A}, {FIRST})
    for position in (0, 10, 14, 30):
        again = after({A: position, B: 8}, FIRST, whole)
        assert (again.handover.id, again.handover.is_done) == (4, False)
        assert pieces(again)[A] == (position, 100)


def test_behind_a_startpoint_what_other_partitions_have_left_is_worked_off_without_the_functions() -> None:
    rest = after({A: 14, B: 5}, FIRST, set_elsewhere(STORED, {A}, {FIRST}))
    assert rest == HandoverRound(Handover(3, FIRST, (OffsetRange(B, 5, 8),), is_done=True), (OffsetRange(B, 5, 8),))
    assert after({A: 14, B: 8}, FIRST, rest.handover).handover.id == 4


def test_a_handover_that_was_interrupted_before_a_startpoint_is_not_given_out_again() -> None:
    unknown = RoundId(1, None, 0)
    void = set_elsewhere(STORED, {A}, {unknown})
    for position in (0, 10, 14, 30):
        again = after({A: position, B: 5}, unknown, void)
        assert (again.handover.id, again.handover.is_done, pieces(again)[B]) == (4, False, (5, 100))
    assert set_elsewhere(STORED, {SSP("log", "other", 0)}, {unknown}) == STORED
    assert decode(Handover, encode(void), "handover") == void


def test_ranges_that_cannot_be_given_again_have_the_next_id() -> None:
    unknown = RoundId(1, None, 0)
    lost = after({A: 12, B: 5}, unknown)
    assert (lost.handover.id, pieces(lost)) == (4, {A: (12, 100), B: (5, 100)})
    cut_off = after({A: 10, B: 5}, unknown, ends={A: 19, B: 100})
    assert cut_off.handover.id == 4
    without_b = after({A: 10}, unknown)
    assert (without_b.handover.id, pieces(without_b)) == (4, {A: (10, 100)})


def test_a_position_that_was_set_back_is_a_new_id() -> None:
    for done in (STORED, Handover(3, FIRST, STORED.ranges, is_done=True)):
        back = after({A: 0, B: 5}, FIRST, stored=done)
        assert (back.handover.id, back.handover.is_done, pieces(back)) == (4, False, {A: (0, 100), B: (5, 100)})


def test_what_is_stored_is_read_as_it_was() -> None:
    for handover in (STORED, Handover(0, SECOND, (), is_done=True)):
        assert decode(Handover, encode(handover), "handover") == handover


# --- any history ----------------------------------------------------------------------------------------------------


@dataclass
class HandoverModel:
    """A sub-topology of 3 partitions, one container each; what is stored survives its driver."""

    positions: dict[SSP, int] = field(default_factory=lambda: {SSP("log", "in", p): 0 for p in range(3)})
    by: dict[SSP, RoundId] = field(default_factory=dict)
    ends: dict[SSP, int] = field(default_factory=lambda: {SSP("log", "in", p): 0 for p in range(3)})
    stored: Handover | None = None
    given: list[tuple[int, tuple[OffsetRange, ...]]] = field(default_factory=list)
    rounds: int = 0

    def round(self, max_records: int, fate: str, commits: set[int], cut: int) -> None:
        """`fate`: where the driver dies. `commits`: the containers that commit; the first of them `cut` records short."""
        self.rounds += 1
        own = RoundId(1, None, self.rounds)
        planned = ranges_of(self.positions, self.ends, max_records)
        found = next_handover(self.stored, own, planned, self.positions, self.ends, set(self.by.values()))
        if found is None or fate == "before it is stored":
            return
        self.stored = found.handover
        if fate == "before the functions":
            return
        if not found.handover.is_done:
            self.given.append((found.handover.id, found.handover.ranges))
        if fate == "after the functions":
            return
        for number, piece in enumerate(found.ranges):
            if piece.ssp.partition in commits or fate == "never":
                end = max(piece.start, piece.end - cut) if number == 0 else piece.end
                self.positions[piece.ssp], self.by[piece.ssp] = end, own


FATES = ("before it is stored", "before the functions", "after the functions", "in the commits", "never")
step = st.tuples(
    st.lists(st.integers(0, 9), min_size=3, max_size=3),  # records that arrive
    st.integers(1, 12),
    st.sampled_from(FATES),
    st.sets(st.integers(0, 2)),
    st.integers(0, 2),
)


def same_records_under_an_id(given_: list[tuple[int, tuple[OffsetRange, ...]]]) -> bool:
    seen: dict[int, tuple[OffsetRange, ...]] = {}
    return all(seen.setdefault(number, ranges) == ranges for number, ranges in given_)


def ids_rise_by_one(given_: list[tuple[int, tuple[OffsetRange, ...]]]) -> bool:
    ids = [number for number, _ in given_]
    return not ids or (ids[0] == 0 and all(later - earlier in (0, 1) for earlier, later in pairwise(ids)))


def every_record_under_one_id(given_: list[tuple[int, tuple[OffsetRange, ...]]], positions: dict[SSP, int]) -> bool:
    """All that is committed was given, and nothing has two ids."""
    ids: dict[tuple[SSP, int], set[int]] = {}
    for number, ranges in given_:
        for piece in ranges:
            for offset in range(piece.start, piece.end):
                ids.setdefault((piece.ssp, offset), set()).add(number)
    committed = {(ssp, offset) for ssp, position in positions.items() for offset in range(position)}
    return committed <= set(ids) and all(len(found) == 1 for found in ids.values())


@given(st.lists(step, max_size=25))
def test_whatever_dies_and_whenever_an_id_means_the_same_records(
    steps: list[tuple[list[int], int, str, set[int], int]],
) -> None:
    world = HandoverModel()
    for arriving, max_records, fate, commits, cut in steps:
        for ssp, more in zip(sorted(world.ends), arriving, strict=True):
            world.ends[ssp] += more
        world.round(max_records, fate, commits, cut)
        assert same_records_under_an_id(world.given)
        assert ids_rise_by_one(world.given)
        assert every_record_under_one_id(world.given, world.positions)
    for _ in range(200):
        world.round(5, "never", set(), 0)
    assert world.positions == world.ends
    assert every_record_under_one_id(world.given, world.positions)
