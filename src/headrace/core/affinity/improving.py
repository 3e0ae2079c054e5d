"""The best shares of all: what can be gained by handing portions on is found as circles of a flow.

A circle is a way on which one holder after the other hands a portion on, or that it has one more of a sub-topology than the
least, until the way is back where it began. Each circle that gains anything is applied; where there is none any more, no other
shares are better (Klein's theorem on flows of least cost). What counts, the first most:

1. how level the totals of holders are, and of their slots (`sharing.rank_of`),
2. portions that stay with their holder,
3. of these the ones that are not beyond the share of the slot that had them: so they stay in that slot, too,
4. portions at the location where they have run last,
5. portions at a location where they ran before and may have a store, first those that lived there, then the last that left,
6. portions that have been where they are for long stay, and those move that came of late from where they lived,
7. the state of those that move, in bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headrace.core.affinity.lived import Left
from headrace.core.affinity.sharing import Holder, Portion, Shares, rank_of


class _Node(NamedTuple):
    """What can have something too many: a holder of a sub-topology, "total" of all of them, "anywhere" or a "location" of one,
    until it is with a holder there, or "outside". `sub`: the number of the sub-topology; `name`: of a holder or location."""

    kind: str
    sub: int = 0
    name: str = ""


class _Arc(NamedTuple):
    """One step of a circle, between nodes by their numbers, and what it costs. `portion`: which one is handed on by it."""

    begin: int
    end: int
    cost: int
    portion: int = -1


@dataclass(frozen=True, slots=True)
class _Weights:
    """What a gain of one is worth, so that all that is worth less never outweighs it."""

    lefts: Mapping[Left, int]  # by when a portion has left a location: its rank
    comings: Mapping[tuple[bool, int], int]  # by `Portion.came`: its rank
    coming: int
    left: int
    former: int
    last: int
    slot: int
    stays: int
    within: int
    level: int

    @classmethod
    def of(cls, subs: Sequence[Shares]) -> _Weights:
        portions = [portion for one in subs for portion in one.portions]
        lefts = {one: rank for rank, one in enumerate(sorted({left for one in portions for left in one.former.values()}))}
        comings = {came: rank for rank, came in enumerate(sorted({one.came for one in portions}, reverse=True))}
        many = len(portions) + 1
        coming = sum(portion.state_bytes for portion in portions) + 1
        left = coming * (many * len(comings) + 1)
        former = left * (many * len(lefts) + 1)
        last, slot, stays, within = former * many, former * many**2, 3 * former * many**3, 3 * former * many**4
        most = max((one.slots for sub in subs for one in sub.holders), default=1)
        return cls(lefts, comings, coming, left, former, last, slot, stays, within, within * many * most)

    def value(self, portion: Portion, holder: str, place: str | None) -> int:
        """Of a portion with this holder, at this location."""
        found = 0
        if portion.owner == holder:
            found += self.stays + self.comings[portion.came] * self.coming + portion.state_bytes
            found += (2 - portion.beyond) * self.slot
        if place is not None and portion.last == place:
            found += self.last
        elif place is not None and place in portion.former:
            found += self.former + self.lefts[portion.former[place]] * self.left
        return found


class _Network:
    """All steps that are open: a portion that is too many with a holder of a sub-topology is handed on to another holder, or is
    counted as one more than the least; what is one too many of a holder's total is one less of another sub-topology, or one
    more of its total for which another holder has one less."""

    def __init__(self, subs: Sequence[Shares]) -> None:
        self.subs, self.weights = subs, _Weights.of(subs)
        self.locations = [one.locations for one in subs]
        self.there = [frozenset(place for place in one.values() if place is not None) for one in self.locations]
        self.by_number = [{portion.number: portion for portion in one.portions} for one in subs]
        self.slots = Counter[str]()
        for sub in subs:
            for one in sub.holders:
                self.slots[one.id] = max(one.slots, self.slots[one.id])
        self.totals = Counter(id_ for sub in subs for id_ in sub.holding.values())
        self.held: dict[tuple[int, str], set[int]] = {
            (number, one.id): set() for number, sub in enumerate(subs) for one in sub.holders
        }
        for number, sub in enumerate(subs):
            for portion, id_ in sub.holding.items():
                self.held[number, id_].add(portion)
        self.nodes: list[_Node] = []
        self._numbers: dict[_Node, int] = {}
        self.coming = [arc for number, sub in enumerate(subs) for arc in self._coming(number, sub.holders)]
        self.handing = {place: self._handing(*place) for place in self.held}
        pairs = {place: (self.node("holder", *place), self.node("total", 0, place[1])) for place in self.held}
        self.more = {place: _Arc(*pair, 0) for place, pair in pairs.items()}
        self.less = {place: _Arc(*pair[::-1], 0) for place, pair in pairs.items()}

    def node(self, kind: str, sub: int = 0, name: str = "") -> int:
        node = _Node(kind, sub, name)
        number = self._numbers.setdefault(node, len(self.nodes))
        if number == len(self.nodes):
            self.nodes.append(node)
        return number

    def _coming(self, number: int, holders: Sequence[Holder]) -> Iterator[_Arc]:
        for one in holders:
            node = self.node("holder", number, one.id)
            yield _Arc(self.node("anywhere", number), node, 0)
            if one.location_id is not None:
                yield _Arc(self.node("location", number, one.location_id), node, 0)

    def _handing(self, number: int, id_: str) -> list[_Arc]:
        """The cheapest steps by which this holder hands on a portion of this sub-topology."""
        locations, weights, node = self.locations[number], self.weights, self.node("holder", number, id_)
        anywhere, there = self.node("anywhere", number), self.there[number]
        best: dict[int, tuple[int, int]] = {}
        for name in sorted(self.held[number, id_]):
            portion = self.by_number[number][name]
            here = weights.value(portion, id_, locations[id_])
            ends = [(anywhere, 0)]
            owner = portion.owner
            if owner in locations and owner != id_:
                ends.append((self.node("holder", number, owner), weights.value(portion, owner, locations[owner])))
            for place in sorted(there & {portion.last, *portion.former}):
                ends.append((self.node("location", number, place), weights.value(portion, "", place)))
            for end, value in ends:
                if end not in best or here - value < best[end][0]:
                    best[end] = here - value, name
        return [_Arc(node, end, cost, name) for end, (cost, name) in best.items()]

    def _rank(self, id_: str, count: int) -> int:
        level, within = rank_of(self.slots[id_], count)
        return level * self.weights.level + within * self.weights.within

    def arcs(self) -> list[_Arc]:
        """All of now, in the order in which most circles run."""
        outside, totals = self.node("outside"), {id_: self.node("total", 0, id_) for id_ in sorted(self.slots)}
        found = [
            _Arc(outside, node, -self._rank(id_, self.totals[id_] - 1)) for id_, node in totals.items() if self.totals[id_]
        ]
        for number, sub in enumerate(self.subs):
            found += [self.less[number, id_] for id_ in sorted(sub.extra)]
        for arcs in self.handing.values():
            found += arcs
        found += self.coming
        for number, sub in enumerate(self.subs):
            found += [self.more[number, id_] for id_ in sorted(sub.open_ones - sub.extra)]
        return [*found, *(_Arc(node, outside, self._rank(id_, self.totals[id_])) for id_, node in totals.items())]

    def go(self, circle: Sequence[_Arc]) -> None:
        changed = set[tuple[int, str]]()
        for number, arc in enumerate(circle):
            begin, end = self.nodes[arc.begin], self.nodes[arc.end]
            match begin.kind, end.kind:
                case "outside", "total":
                    self.totals[end.name] -= 1
                case "total", "outside":
                    self.totals[begin.name] += 1
                case "total", "holder":
                    self.subs[end.sub].extra.remove(end.name)
                case "holder", "total":
                    self.subs[begin.sub].extra.add(begin.name)
                case "holder", _:
                    taker = end if end.kind == "holder" else self.nodes[circle[(number + 1) % len(circle)].end]
                    self.held[begin.sub, begin.name].remove(arc.portion)
                    self.held[begin.sub, taker.name].add(arc.portion)
                    self.subs[begin.sub].holding[arc.portion] = taker.name
                    changed |= {(begin.sub, begin.name), (begin.sub, taker.name)}
        for sub, id_ in sorted(changed):
            self.handing[sub, id_] = self._handing(sub, id_)


def improve(subs: Sequence[Shares]) -> None:
    """Change the shares of all sub-topologies to the best that there are."""
    network = _Network(subs)
    while circle := _circle_that_gains(network.arcs(), len(network.nodes)):
        network.go(circle)


def _circle_that_gains(arcs: Sequence[_Arc], nodes: int) -> list[_Arc]:
    """By Bellman and Ford; empty where there is none."""
    costs, came = [0] * nodes, dict[int, _Arc]()
    has_changed = True
    while has_changed:
        has_changed = False
        for arc in arcs:
            begin, end, cost, _ = arc
            if costs[begin] + cost < costs[end]:
                costs[end], came[end], has_changed = costs[begin] + cost, arc, True
        if circle := _circle_in(came):
            return circle
    return []


def _circle_in(came: Mapping[int, _Arc]) -> list[_Arc]:
    """A circle of these steps, of which each says how its end was reached; empty where there is none."""
    seen: dict[int, int] = {}  # from which node it was looked at
    for start in came:
        node = start
        while node in came and node not in seen:
            seen[node] = start
            node = came[node].begin
        if node in came and seen[node] == start:
            circle = [came[node]]
            while circle[-1].begin != node:
                circle.append(came[circle[-1].begin])
            return circle[::-1]
    return []
