"""How many partitions a repartition stream has. Seed: KIP-221 (an explicit number, a hint, or inherited).

Streams that are joined have equally many. So what is solved for is not a stream but a family: a stream, and all that it
meets in a join or a merge, directly or around. Of a family all have one number, but for streams that have grown since under
state (then it is the one that their tasks are still of), and for what is merely merged and was given other numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations

from headrace.core.job_plan.growth_rules import expand_command
from headrace.core.topology.partition_families import CountRequests
from headrace.core.topology.sub_topologies import Families
from headrace.errors import IncompatibleChangeError, TopologyError
from headrace.model.names import partitions_text


def partition_counts_of(
    requests: CountRequests,
    external: Mapping[str, int],
    existing: Mapping[str, int],
    recorded: Mapping[str, tuple[int, ...]] | None = None,
    bases: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """The number of partitions of each repartition stream, by name.

    `external`: the external streams' counts. `existing`: repartition streams that were made before. `recorded`: every count
    that a stream had on record, oldest first. `bases`: the count that a stream's tasks are of (`assignment.bases_of`); its
    first one if not given.

    An explicit count is binding. Else a stream keeps the count that it was made with; else it follows those that it meets
    in a join or an operator with state; else the hint; else it follows those that it is merged with; else it takes the
    largest among the feeds of its family, through other repartition streams if need be:

    >>> requests = CountRequests({"by-carrier": ("flights",), "by-day": ("by-carrier", "weather")})
    >>> partition_counts_of(requests, external={"flights": 4, "weather": 2}, existing={})
    {'by-carrier': 4, 'by-day': 4}

    A stream that was expanded keeps the count that it has now, though the application still asks for an earlier one.

    Raises `IncompatibleChangeError` if an explicit count is none that the existing stream has or had, `TopologyError` if a
    count is below 1 or follows from nothing, or if streams that are joined have different ones.
    """
    feeds, recorded = requests.feeds, recorded or {}
    bases = {stream: counts[0] for stream, counts in recorded.items()} | dict(bases or {})
    given = {stream: count for stream, count in existing.items() if stream in feeds}
    for stream in sorted(requests.explicit.keys() & feeds.keys()):
        asked = _positive(stream, requests.explicit[stream])
        given[stream] = _agreed(stream, asked, existing.get(stream), recorded.get(stream, ()))
    by_join, by_key, families = requests.meetings.families([*feeds, *external])
    fixed = _fixed(by_join, requests.meetings.joined, given, external, existing, bases)
    fixed |= _following(by_key, fixed, bases)
    for stream in sorted(requests.hints.keys() & feeds.keys()):
        count = _positive(stream, requests.hints[stream])
        if not any(member in given or member in external for member in by_key[stream]):
            fixed |= {member: max(count, fixed.get(member, 0)) for member in by_key[stream]}
    fixed |= _following(families, fixed, bases)
    return {stream: fixed.get(stream) or _inherited(stream, feeds, fixed, external, families) for stream in sorted(feeds)}


def _following(families: Families, fixed: Mapping[str, int], bases: Mapping[str, int]) -> dict[str, int]:
    """The streams without a count whose family has one; of several the largest."""
    followed = {}
    for stream, family in families.items():
        known = [bases.get(member, fixed[member]) for member in family if member in fixed]
        if known and stream not in fixed:
            followed[stream] = max(known)
    return followed


def _fixed(
    families: Families,
    joined: Mapping[str, Collection[str]],
    given: Mapping[str, int],
    external: Mapping[str, int],
    existing: Mapping[str, int],
    bases: Mapping[str, int],
) -> dict[str, int]:
    """The counts that are given, for all of the families of those that have one; `TopologyError` where they differ.

    Of streams that have grown the bases count: `views` grew from 4 to 8, and its keys are still in 4 tasks, so that a
    stream of 4 partitions meets it, and a new one that meets it gets 4.
    """
    counts = {**external, **given}
    fixed: dict[str, int] = {}
    for family in sorted(set(families.values())):
        known = [stream for stream in family if stream in counts]
        for first, other in combinations(known, 2):
            if counts[first] != counts[other] and bases.get(first, counts[first]) != bases.get(other, counts[other]):
                raise _apart(first, other, counts, _join_of(family, joined), external, existing, bases)
        if known:
            fixed |= dict.fromkeys(family, bases.get(known[0], counts[known[0]]))
            fixed |= {stream: counts[stream] for stream in known}
    return fixed


def _join_of(family: tuple[str, ...], joined: Mapping[str, Collection[str]]) -> str:
    return ", ".join(repr(join) for join in sorted(joined) if set(joined[join]) & set(family))


def _apart(
    first: str,
    other: str,
    counts: Mapping[str, int],
    joins: str,
    external: Mapping[str, int],
    existing: Mapping[str, int],
    bases: Mapping[str, int],
) -> TopologyError:
    ways = []
    if first in external or other in external:
        ways.append("put a repartition() before the join on one side, which then has as many partitions as the other")
    few, many = sorted((first, other), key=lambda stream: bases.get(stream, counts[stream]))
    if few in external and few not in bases and bases.get(many, counts[many]) > counts[few]:
        expand = expand_command(few, bases.get(many, counts[many]))
        ways.append(f"expand {few!r} before anything is written to it that is to be joined: `{expand}`")
    if not (first in external and other in external):
        ways.append("set the same number_of_partitions on both sides, or leave it out on one")
    if first in existing or other in existing:
        ways.append("give the existing stream another name, so that a new one is created (state behind it starts empty too)")
    return TopologyError(
        f"{joins} joins the streams {first!r} ({_grown(counts[first], bases.get(first))}) and {other!r} "
        f"({_grown(counts[other], bases.get(other))}): a key's records would come to different tasks",
        "; or ".join(ways),
    )


def _grown(count: int, base: int | None) -> str:
    return partitions_text(count) if base in (None, count) else f"{partitions_text(count)}, in the tasks of {base}"


def _inherited(
    stream: str,
    feeds: Mapping[str, Collection[str]],
    fixed: Mapping[str, int],
    external: Mapping[str, int],
    families: Families,
) -> int:
    """The largest count among the streams that reach the family of `stream` through repartition streams without one.

    No stream of the family has a count: it would follow that."""
    counts: list[int] = []
    ahead = list(families[stream])
    seen = set(ahead)
    while ahead:
        reader = ahead.pop()
        for feed in sorted(feeds[reader]):
            if feed in fixed:
                counts.append(fixed[feed])
            elif feed in feeds:
                for member in families[feed]:
                    if member not in seen:
                        seen.add(member)
                        ahead.append(member)
            elif feed in external:
                counts.append(external[feed])
            else:
                raise TopologyError(
                    f"repartition stream {reader!r}: the number of partitions of its source {feed!r} is not known",
                    f"create stream {feed!r} first, or give {reader!r} a number_of_partitions",
                )
    if counts:
        return max(counts)
    if len(seen) == 1 and not feeds[stream]:
        raise TopologyError(
            f"repartition stream {stream!r}: nothing feeds it, so it has no number of partitions to inherit",
            f"give {stream!r} a number_of_partitions",
        )
    raise TopologyError(
        f"repartition streams {', '.join(map(repr, sorted(seen)))} feed only each other: there is no number of"
        " partitions to inherit",
        "give one of them a number_of_partitions",
    )


def _agreed(stream: str, asked: int, found: int | None, recorded: tuple[int, ...]) -> int:
    """The count of a stream whose application asks for one: as found, if it is or was the requested one."""
    if found is None or found == asked:
        return asked
    if asked in recorded:
        return found
    before = sorted({*recorded} - {found})
    grown = f" (it was expanded from {', '.join(map(str, before))})" if before else ""
    expand = f"; or expand it: headrace stream expand {stream} --partitions {asked}" if asked % found == 0 else ""
    raise IncompatibleChangeError(
        f"repartition stream {stream!r} exists with {found} partitions{grown}, but the application requests {asked}",
        f"request {found}, or leave the number out to keep the stream{expand}; or give the stream another name to start over"
        f" (state behind it starts empty too); or, if the records of {stream!r} are not needed, stop the job and delete it",
    )


def _positive(stream: str, count: int) -> int:
    if count < 1:
        raise TopologyError(
            f"repartition stream {stream!r}: {count} partitions", "give a number of at least 1, or none to inherit it"
        )
    return count


def unused_hints(hints: Mapping[str, int], counts: Mapping[str, int]) -> list[str]:
    """What is to be said where a stream has another number of partitions than a hint asks for.

    >>> unused_hints({"by-day": 4, "by-shop": 2}, {"by-day": 6, "by-shop": 2})
    ["repartition stream by-day has 6 partitions, not the 4 of its grouping's hint: that is for a new stream"]
    """
    return [
        f"repartition stream {stream} has {counts[stream]} partitions, not the {hint} of its grouping's hint: "
        "that is for a new stream"
        for stream, hint in sorted(hints.items())
        if counts[stream] != hint
    ]


# --- what can be said without a look at any stream that exists ---------------------------------------------------------


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


def stated_counts_of(requests: CountRequests) -> dict[str, StatedCount]:
    """Of every repartition stream, by the rules of `partition_counts_of`. What meets are streams of `feeds`.

    >>> from headrace.core.topology.partition_families import Meetings
    >>> meetings = Meetings(joined={"both": ("left", "right")})
    >>> stated_counts_of(CountRequests({"left": ("a",), "right": ("b",)}, {"right": 8}, {}, meetings))["left"]
    StatedCount(stated=<Stated.JOINED: 'joined'>, partitions=8, is_hint=False, of=('right',))
    """
    feeds, hints = requests.feeds, requests.hints
    by_join, by_key, families = requests.meetings.families(feeds)
    known = {stream: StatedCount(Stated.EXPLICIT, count) for stream, count in requests.explicit.items()}
    known |= _as_stated(by_join, known, Stated.JOINED)
    known |= _as_stated(by_key, known, Stated.JOINED)
    for stream in hints.keys() - known.keys():
        if hints[stream] == max(hints.get(member, 0) for member in by_key[stream]):  # of a family the largest
            known[stream] = StatedCount(Stated.HINT, hints[stream], is_hint=True)
    known |= _as_stated(by_key, known, Stated.JOINED)
    known |= _as_stated(families, known, Stated.MERGED)
    for stream in sorted(feeds.keys() - known.keys()):
        reached = {feed for member in families[stream] for feed in feeds[member]}
        known[stream] = StatedCount(Stated.INHERITED, of=tuple(sorted(reached)))
    return known


def _as_stated(
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
