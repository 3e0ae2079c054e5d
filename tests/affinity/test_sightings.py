"""Which locations count for a plan, and when another one is due."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.affinity.cluster import members_of
from headrace.core.affinity.sightings import Sightings

RETURN_S, SETTLE_S = 10.0, 2.0
SLOTS = st.dictionaries(st.sampled_from("abcd"), st.integers(1, 3), max_size=4)


def looked(*looks: tuple[float, Mapping[str, int]]) -> Sightings:
    sightings = Sightings(RETURN_S, SETTLE_S)
    for now_s, slots in looks:
        sightings = sightings.with_look(slots, now_s)
    return sightings


def test_who_is_away_for_a_moment_counts_and_then_has_gone() -> None:
    planned = {"a": 1, "b": 1}
    away = looked((0.0, planned), (5.0, {"a": 1}), (14.9, {"a": 1}))
    assert away.present == {"a": 1} and away.counted == planned
    assert away.change_due(planned, 14.9) == ""
    gone = away.with_look({"a": 1}, 15.0)
    assert gone.counted == {"a": 1} and gone.change_due(planned, 15.0) == "b has left"
    assert away.with_look(planned, 14.95).change_due(planned, 100.0) == "", "it is back, as if nothing had been"


def test_who_comes_is_waited_for_until_no_more_come() -> None:
    planned = {"a": 1}
    one = looked((0.0, planned), (5.0, {"a": 1, "b": 1}))
    assert one.change_due(planned, 6.9) == "" and one.change_due(planned, 7.0) == "b has joined"
    two = one.with_look({"a": 1, "b": 1, "c": 2}, 6.9)
    assert two.change_due(planned, 8.8) == "" and two.change_due(planned, 8.9) == "b has joined, c has joined"


def test_slots_come_and_go_as_locations_do() -> None:
    planned = {"a": 2}
    fewer = looked((0.0, planned), (1.0, {"a": 1}))
    assert fewer.counted == {"a": 2} and fewer.with_look({"a": 1}, 11.0).change_due(planned, 11.0) == "a has fewer slots"
    assert looked((0.0, planned), (1.0, {"a": 3})).change_due(planned, 3.0) == "a has more slots"


def test_with_nobody_there_is_nothing_to_plan_with() -> None:
    assert looked((0.0, {"a": 1}), (1.0, {}), (50.0, {})).change_due({"a": 1}, 50.0) == ""
    assert looked((0.0, {})).change_due({"a": 1}, 50.0) == ""


def test_where_all_were_away_the_first_that_is_back_is_not_alone() -> None:
    """However long that took: the others may come as well, and it would have to restore all that is theirs."""
    planned = {"a": 1, "b": 2}
    back = looked((0.0, planned), (5.0, {}), (8.0, {}), (100.0, {"a": 1}))
    assert back.present == {"a": 1} and back.counted == planned and back.change_due(planned, 100.0) == ""
    assert back.with_look(planned, 109.0).change_due(planned, 109.0) == ""
    assert back.with_look({"a": 1}, 110.0).change_due(planned, 110.0) == "b has left"


def test_who_was_away_before_all_were_has_the_rest_of_its_time() -> None:
    away = looked((0.0, {"a": 1, "b": 1}), (4.0, {"a": 1}), (10.0, {}), (60.0, {"a": 1}))
    assert away.counted == {"a": 1, "b": 1} and away.with_look({"a": 1}, 63.9).counted == {"a": 1, "b": 1}
    assert away.with_look({"a": 1}, 64.0).counted == {"a": 1}


@given(looks=st.lists(st.tuples(st.integers(1, 60).map(lambda quarters: quarters / 4), SLOTS), min_size=1))
def test_what_counts_is_what_was_there_within_the_time(looks: Sequence[tuple[float, Mapping[str, int]]]) -> None:
    """Against all that was seen, looked through again, by a clock that stands still while nothing is there."""
    sightings, now_s, history = Sightings(RETURN_S, SETTLE_S), 0.0, list[tuple[float, Mapping[str, int]]]()
    passed_s = 0.0
    for after_s, slots in looks:
        now_s += after_s
        passed_s += after_s if history and history[-1][1] else 0.0
        sightings = sightings.with_look(slots, now_s)
        history.append((passed_s, slots))
        until = [*(since for since, _ in history[1:]), float("inf")]
        recent = [slots for (_, slots), end_s in zip(history, until, strict=True) if end_s > passed_s - RETURN_S]
        names = {name for slots in recent for name in slots}
        assert sightings.counted == {name: max(slots.get(name, 0) for slots in recent) for name in names}
        assert sightings.present == slots


@given(slots=SLOTS.filter(bool), wanted=st.none() | st.integers(1, 20))
def test_processors_are_spread_as_slots_are(slots: dict[str, int], wanted: int | None) -> None:
    found = members_of(slots, wanted)
    assert len({one.id for one in found}) == len(found) == (sum(slots.values()) if wanted is None else wanted)
    counts = {name: sum(one.location_id == name for one in found) for name in slots}
    if wanted is not None and wanted <= sum(slots.values()):
        assert all(counts[name] <= slots[name] for name in slots), "no location has more than it runs at once"
    if wanted is not None and wanted >= len(slots):
        assert all(counts.values())
