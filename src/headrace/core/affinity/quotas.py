"""How many portions each processor is to have: of each sub-topology equal shares, and equal shares of all of them together.

Of each sub-topology processors have the same number of portions, or some of them one more, an *extra* one. Which of them have
extra ones decides how level the totals are, and how many portions stay where they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

_Cost = tuple[int, int, int]  # how much less level the totals get, how many more portions move, the state of these in bytes


@dataclass(frozen=True, slots=True)
class Extras:
    """The extra portions of one sub-topology. `ids`: of its processors, sorted; `having`: those that have one. `kept`: of those
    that keep a portion by it, which they had, the bytes of its state."""

    ids: tuple[str, ...]
    having: Set[str]
    kept: Mapping[str, int]


def levelled(extras: Sequence[Extras], totals: Mapping[str, int]) -> list[Set[str]]:
    """Who has the extra portions of each sub-topology, so that the totals are as level as can be: within one where all
    sub-topologies have the same processors. Of all such choices one in which the most portions stay. `totals`: how many
    portions each processor has of all sub-topologies, under `extras`, of which each is the best for its sub-topology alone.

    Extra portions are handed on as long as that gains anything, at each time the way that gains most: from a processor to
    another one, perhaps over others (a gives one of sub-topology 1 to b, and b one of sub-topology 2 to c).

    >>> only_a = Extras(("a", "b"), {"a"}, {"a": 0})
    >>> [sorted(one) for one in levelled([only_a] * 3, {"a": 3, "b": 0})]
    [['b'], ['a'], ['a']]
    """
    having = [set(one.having) for one in extras]
    counts = dict(totals)
    while way := _best_way(extras, having, counts):
        for giver, number, taker in way:
            having[number].remove(giver)
            having[number].add(taker)
        counts[way[0][0]] -= 1
        counts[way[-1][2]] += 1
    return list(having)


def _best_way(
    extras: Sequence[Extras], having: Sequence[Set[str]], counts: Mapping[str, int]
) -> list[tuple[str, int, str]]:
    """Who gives an extra portion of which sub-topology to whom, from one to the next; empty where nothing gains anything.

    These are the cheapest ways of a flow (Bellman and Ford): what one gives costs a move if it was kept, what one takes saves a
    move if it comes back. There is no circle that gains anything, as each sub-topology alone has the best choice.
    """
    costs: dict[str, _Cost] = {id_: (-count, 0, 0) for id_, count in sorted(counts.items())}
    before: dict[str, tuple[str, int]] = {}
    has_changed = True
    while has_changed:
        has_changed = False
        for number, one in enumerate(extras):
            kept, holders = one.kept, having[number]
            if not holders:
                continue
            given = {id_: _sum(costs[id_], (0, 1, kept[id_]) if id_ in kept else (0, 0, 0)) for id_ in sorted(holders)}
            giver = min(given, key=given.__getitem__)
            for id_ in one.ids:
                cost = _sum(given[giver], (0, -1, 0) if id_ in kept else (0, 0, 0))
                if id_ not in holders and cost < costs[id_]:
                    costs[id_], before[id_], has_changed = cost, (giver, number), True
    ends = {id_: _sum(cost, (counts[id_] + 1, 0, 0)) for id_, cost in costs.items() if id_ in before}
    last = min(ends, key=ends.__getitem__, default="")
    if not ends or ends[last][:2] >= (0, 0):
        return []
    way = []
    while last in before:
        giver, number = before[last]
        way.append((giver, number, last))
        last = giver
    return way[::-1]


def _sum(one: _Cost, other: _Cost) -> _Cost:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]
