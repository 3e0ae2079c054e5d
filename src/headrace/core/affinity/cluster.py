"""The processors of a cluster: slots at locations. Executors come and go there under ids of their own, which are in no plan."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.core.affinity.members import SLOT, Member


def members_of(slots: Mapping[str, int], wanted: int | None = None) -> tuple[Member, ...]:
    """`wanted` processors at the locations of `slots`, which says how many Spark tasks each runs at once; None for as many as
    these. Locations have shares as their slots are, so that a location that comes or goes changes little for the others. How
    tasks are shared out among them, which may be fewer, says `core.affinity.members`.

    >>> [one.id for one in members_of({"host-1": 2, "host-2": 1})]
    ['host-1#0', 'host-1#1', 'host-2#0']
    >>> [one.id for one in members_of({"host-1": 2, "host-2": 1}, wanted=2)]
    ['host-1#0', 'host-2#0']
    """
    assert slots and all(count >= 1 for count in slots.values()), slots
    counts = dict(slots) if wanted is None else dict.fromkeys(slots, 0)
    for _ in range(wanted or 0):
        least = min(sorted(slots), key=lambda location: (counts[location] + 1) / slots[location] if counts[location] else 0.0)
        counts[least] += 1
    places = [(location, number) for location in sorted(slots) for number in range(counts[location])]
    return tuple(Member(f"{location}{SLOT}{number}", location) for location, number in places)
