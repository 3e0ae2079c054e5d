"""Who holds which portions, of several sub-topologies: equal shares, and of all such shares those that move the least.

A *holder* has one or several slots. Of each sub-topology every slot has as many portions as any other, or an *extra* one.
Holders have equally many extra portions, or one more than others, as far as their slots go. Which of them have one more is all
that is open of shares. It decides how level the totals of all sub-topologies are, and what moves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from headrace.core.affinity.lived import Left

_NEVER = Left(False, 0)


class Portion(NamedTuple):
    """What one slot holds. `owner`: the holder that had it, also one that is not there any more. `last`: the location where it
    has run last, as far as that is known; `former`: those where it ran before and may have a store, with when it left.
    `slot`: that of its owner which had it; `beyond`: 0 if that is there and had it among as many as each slot has at least, or
    is the only one, 1 if it had it as its extra one, else 2."""

    number: int
    state_bytes: int
    owner: str | None
    last: str | None
    former: Mapping[str, Left]
    slot: str | None = None
    beyond: int = 0

    @property
    def came(self) -> tuple[bool, int]:
        """Whether it is where it came last from somewhere where it lived, and when; what is so leaves first, the last first."""
        lefts = self.former.values()
        return any(one.is_home for one in lefts), max((one.left_us for one in lefts), default=0)


@dataclass(frozen=True, slots=True)
class Holder:
    id: str
    location_id: str | None = None
    slots: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Shares:
    """Of one sub-topology who holds which portions. `least`: by holder how many it has in any case; `open_ones`: the holders
    that may have one more; `extra`: those of them that have. Holders are sorted by id."""

    portions: Sequence[Portion]
    holders: Sequence[Holder]
    least: Mapping[str, int]
    open_ones: frozenset[str]
    extra: set[str] = field(default_factory=set)
    holding: dict[int, str] = field(default_factory=dict)  # number of a portion to its holder

    @property
    def locations(self) -> dict[str, str | None]:
        return {one.id: one.location_id for one in self.holders}

    def count(self, id_: str) -> int:
        return self.least[id_] + (id_ in self.extra)


def rank_of(slots: int, count: int) -> tuple[int, int]:
    """How soon a holder with so many slots gets its next portion when it has `count`, against others: the fewer its slots have,
    the sooner; among those whose slots have as many, the fewer of its slots have one more.

    >>> sorted([("a", rank_of(4, count)) for count in range(4)] + [("b", rank_of(2, count)) for count in range(2)])[:3]
    [('a', (0, 0)), ('a', (0, 1)), ('a', (0, 2))]
    >>> rank_of(2, 1) < rank_of(4, 3) < rank_of(2, 2)
    True
    """
    return divmod(count, slots)


def open_shares(portions: Sequence[Portion], holders: Sequence[Holder]) -> tuple[Shares, int]:
    """The shares of nothing that is held yet, and how many holders are to have one more than the least."""
    low, more = divmod(len(portions), sum(one.slots for one in holders))
    level = 0  # so many extra portions each holder has, as far as its slots go
    while more >= (there := sum(one.slots > level for one in holders)) > 0:
        more -= there
        level += 1
    least = {one.id: one.slots * low + min(one.slots, level) for one in holders}
    may_have_more = frozenset(one.id for one in holders if one.slots > level)
    return Shares(portions, sorted(holders, key=lambda one: one.id), least, may_have_more), more


def seen_by_slot(portions: Sequence[Portion], holders: Sequence[Holder], slots: Set[str]) -> list[Portion]:
    """The same, with how far they are beyond the least share of the slot that had them. `slots`: the ids of those that are
    there."""
    least = len(portions) // sum(one.slots for one in holders)
    locations = {one.id: one.location_id for one in holders}
    single = {one.id for one in holders if one.slots == 1}
    by_slot: dict[str | None, list[Portion]] = {}
    for portion in portions:
        by_slot.setdefault(portion.slot, []).append(portion)
    beyond: dict[int, int] = {}
    for slot, mine in by_slot.items():
        mine.sort(key=lambda one: _leaves_late(one, locations.get(one.owner or ""), set(locations.values())))
        for place, one in enumerate(mine):
            own = 0 if one.owner in single else min(2, max(0, place + 1 - least))
            beyond[one.number] = own if slot in slots else 2
    return [one._replace(beyond=beyond[one.number]) for one in portions]


def first_shares(portions: Sequence[Portion], holders: Sequence[Holder], load: Mapping[str, int]) -> Shares:
    """What is good for one sub-topology alone: as many portions as can be stay, and those that move come where they have run,
    as far as that is seen from each alone. `load`: how many portions holders have of others."""
    shares, more = open_shares(portions, holders)
    owned: dict[str | None, list[Portion]] = {one.id: [] for one in shares.holders}
    free: list[Portion] = []
    for portion in portions:
        owned.get(portion.owner, free).append(portion)
    waiting = [one for one in shares.holders if one.id in shares.open_ones]
    waiting.sort(
        key=lambda one: (
            len(owned[one.id]) <= shares.least[one.id],  # first those that keep a portion by it
            rank_of(one.slots, load.get(one.id, 0)),
            -len(owned[one.id]),
            one.id,
        )
    )
    shares.extra.update(one.id for one in waiting[:more])
    there = {one.location_id for one in shares.holders}
    room: dict[str, int] = {}
    for one in shares.holders:
        mine, quota = owned[one.id], shares.count(one.id)
        mine.sort(key=lambda portion: _leaves_late(portion, one.location_id, there))
        shares.holding.update((portion.number, one.id) for portion in mine[:quota])
        free += mine[quota:]
        room[one.id] = quota - len(mine[:quota])
    _place(sorted(free, key=lambda portion: portion.number), shares, room)
    return shares


def _leaves_late(
    portion: Portion, here: str | None, there: set[str | None]
) -> tuple[int, int, int, Left, tuple[bool, int], int, int]:
    """By what it has to be sorted, so that what is better elsewhere comes last: what full slots have beyond their share, what
    has run elsewhere and may find a place there, what has a store elsewhere, what came last, what is soonest restored."""
    strange = 0 if portion.last in (None, here) else 2 if portion.last in there else 1
    homes = [left for place, left in portion.former.items() if place != here and place in there]
    left = max(homes, default=_NEVER)
    has_better = 2 * (here not in portion.former) + bool(homes)  # one with a store here too leaves after one without any
    return portion.beyond, strange, has_better, left, portion.came, -portion.state_bytes, portion.number


def _place(free: Sequence[Portion], shares: Shares, room: dict[str, int]) -> None:
    """Put each portion where it has run last, else where it ran before, what left there of late first, else anywhere."""

    def last(portion: Portion) -> list[str]:
        return [] if portion.last is None else [portion.last]

    def former(portion: Portion) -> list[str]:
        return sorted(sorted(portion.former), key=portion.former.__getitem__, reverse=True)

    left = _placed(free, shares, room, shares.locations.__getitem__, last)
    left.sort(key=lambda portion: max(portion.former.values(), default=_NEVER), reverse=True)
    left = _placed(left, shares, room, shares.locations.__getitem__, former)
    left = _placed(sorted(left, key=lambda portion: portion.number), shares, room, lambda _: "", lambda _: [""])
    assert not left, left


def _placed(
    free: Sequence[Portion],
    shares: Shares,
    room: dict[str, int],
    place_of: Callable[[str], str | None],
    wanted: Callable[[Portion], Sequence[str]],
) -> list[Portion]:
    """Put each portion at the first place that it wants and that has room, with the holder there that has most; gives those
    that find none."""
    rooms: dict[str | None, list[tuple[int, str]]] = {}
    for id_, left in room.items():
        if left:
            rooms.setdefault(place_of(id_), []).append((-left, id_))
    for heap in rooms.values():
        heapify(heap)
    homeless = list[Portion]()
    for portion in free:
        heap = next((rooms[place] for place in wanted(portion) if rooms.get(place)), [])
        if not heap:
            homeless.append(portion)
            continue
        left, id_ = heappop(heap)
        shares.holding[portion.number] = id_
        room[id_] -= 1
        if room[id_]:
            heappush(heap, (left + 1, id_))
    return homeless
