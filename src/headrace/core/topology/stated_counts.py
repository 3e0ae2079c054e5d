"""What can be said of the number of partitions of a repartition stream without a look at any stream that exists.

It follows the rules of `core.topology.partition_counts`, which knows the counts of inputs and of streams that were made before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from headrace.core.topology.partition_families import families_of, feeds_of, meetings_of
from headrace.core.topology.sub_topologies import SubTopology
from headrace.model.topology import Repartition


class Stated(StrEnum):
    EXPLICIT = "explicit"
    HINT = "a hint"  # for a stream that does not exist yet
    JOINED = "joined"  # as a stream has that it is joined with, or that it meets in an operator with state
    MERGED = "merged"  # as a stream has that it is merged with
    INHERITED = "inherited"  # as the largest has of the streams that it comes of, with all that it meets


@dataclass(frozen=True, slots=True)
class StatedCount:
    """`partitions`: the number, if the application says it; `is_hint`: for streams that do not exist yet. `of`: the streams
    whose number it is, sorted; none where it is the stream's own."""

    stated: Stated
    partitions: int | None = None
    is_hint: bool = False
    of: tuple[str, ...] = ()


def stated_counts_of(subs: Collection[SubTopology]) -> dict[str, StatedCount]:
    """Of every repartition stream of a topology."""
    asked = [node for sub in subs for node in sub.nodes if isinstance(node, Repartition) and node.partitions is not None]
    explicit = {node.stream: node.partitions for node in asked if node.partitions and not node.partitions_is_hint}
    hints = {node.stream: node.partitions for node in asked if node.partitions and node.partitions_is_hint}
    meetings = meetings_of(subs)
    return stated_counts(feeds_of(subs), explicit, hints, meetings.joined, meetings.keyed, meetings.merged)


def stated_counts(
    feeds: Mapping[str, Collection[str]],
    explicit: Mapping[str, int],
    hints: Mapping[str, int],
    joined: Mapping[str, Collection[str]],
    keyed: Mapping[str, Collection[str]],
    merged: Mapping[str, Collection[str]],
) -> dict[str, StatedCount]:
    """Of every stream of `feeds`; the arguments are those of `partition_counts_of`. What meets are streams of `feeds`.

    >>> stated_counts({"left": ["a"], "right": ["b"]}, {"right": 8}, {}, {"both": ["left", "right"]}, {}, {})["left"]
    StatedCount(stated=<Stated.JOINED: 'joined'>, partitions=8, is_hint=False, of=('right',))
    """
    by_join = families_of(feeds, joined.values())
    by_key = families_of(feeds, [*joined.values(), *keyed.values()])
    families = families_of(feeds, [*joined.values(), *keyed.values(), *merged.values()])
    known = {stream: StatedCount(Stated.EXPLICIT, count) for stream, count in explicit.items()}
    known |= _following(by_join, known, Stated.JOINED)
    known |= _following(by_key, known, Stated.JOINED)
    known |= {stream: StatedCount(Stated.HINT, count, is_hint=True) for stream, count in _largest(hints, by_key, known).items()}
    known |= _following(by_key, known, Stated.JOINED)
    known |= _following(families, known, Stated.MERGED)
    for stream in sorted(feeds.keys() - known.keys()):
        reached = {feed for member in families[stream] for feed in feeds[member]}
        known[stream] = StatedCount(Stated.INHERITED, of=tuple(sorted(reached)))
    return known


def _largest(
    hints: Mapping[str, int], families: Mapping[str, tuple[str, ...]], known: Collection[str]
) -> dict[str, int]:
    """The hints that count: of a family the largest, where nothing else says its number."""
    return {
        stream: count
        for stream, count in hints.items()
        if stream not in known and count == max(hints.get(member, 0) for member in families[stream])
    }


def _following(
    families: Mapping[str, tuple[str, ...]], known: Mapping[str, StatedCount], stated: Stated
) -> dict[str, StatedCount]:
    """The streams of which nothing is known, where something is of their families: they take the largest number."""
    found: dict[str, StatedCount] = {}
    for stream, family in families.items():
        given = {member: known[member] for member in family if member in known}
        if given and stream not in known:
            most = max(one.partitions or 0 for one in given.values())
            giving = {member: one for member, one in given.items() if one.partitions == most}
            own = tuple(member for member, one in giving.items() if not one.of)
            found[stream] = StatedCount(stated, most, any(giving[member].is_hint for member in giving), own or tuple(giving))
    return found
