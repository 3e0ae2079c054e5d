"""How many partitions a repartition stream has. Seed: KIP-221 (an explicit number, a hint, or inherited).

Streams that are joined have equally many. So what is solved for is not a stream but a family: a stream, and all that it
meets in a join or a merge, directly or around. Of a family all have one number, but for streams that have grown since under
state (then it is the one that their tasks are still of), and for what is merely merged and was given other numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import combinations

from headrace.core.job_plan.partition_growth import expand_command
from headrace.core.topology.partition_families import Families, families_of
from headrace.errors import IncompatibleChangeError, TopologyError


def partition_counts_of(
    feeds: Mapping[str, Collection[str]],
    explicit: Mapping[str, int],
    external: Mapping[str, int],
    existing: Mapping[str, int],
    hints: Mapping[str, int] | None = None,
    joined: Mapping[str, Collection[str]] | None = None,
    recorded: Mapping[str, tuple[int, ...]] | None = None,
    bases: Mapping[str, int] | None = None,
    keyed: Mapping[str, Collection[str]] | None = None,
    merged: Mapping[str, Collection[str]] | None = None,
) -> dict[str, int]:
    """The number of partitions of each repartition stream, by name.

    `feeds`: for every repartition stream, the streams that it comes of (external ones, or repartition streams), as
    `core.topology.partition_families.feeds_of` gives them. `explicit`: what the application asks for. `external`: the external
    streams' counts. `existing`: repartition streams that were made before. `hints`: what to make a stream with; one that
    exists wins. `joined`: for every join the streams that it takes records of; `keyed` and `merged`: the same of operators
    with state, and of all others (`partition_families.Meetings`). `recorded`: every count that a stream had on record,
    oldest first. `bases`: the count that a stream's tasks are of (`assignment.bases_of`); its first one if not given.

    An explicit count is binding. Else a stream keeps the count that it was made with; else it follows those that it meets
    in a join or an operator with state; else the hint; else it follows those that it is merged with; else it takes the
    largest among the feeds of its family, through other repartition streams if need be:

    >>> partition_counts_of({"by-carrier": ["flights"], "by-day": ["by-carrier", "weather"]},
    ...                     explicit={}, external={"flights": 4, "weather": 2}, existing={})
    {'by-carrier': 4, 'by-day': 4}
    >>> partition_counts_of({"left": ["flights"], "right": ["weather"]},
    ...                     explicit={"right": 8}, external={"flights": 4, "weather": 2}, existing={},
    ...                     joined={"both": ["left", "right"]})
    {'left': 8, 'right': 8}

    A stream that was expanded keeps the count that it has now, though the application still asks for an earlier one.

    Raises `IncompatibleChangeError` if an explicit count is none that the existing stream has or had, `TopologyError` if a
    count is below 1 or follows from nothing, or if streams that are joined have different ones.
    """
    hints, recorded = hints or {}, recorded or {}
    bases = {stream: counts[0] for stream, counts in recorded.items()} | dict(bases or {})
    given: dict[str, int] = {}
    for stream in sorted(feeds):
        if stream in explicit:
            given[stream] = _agreed(stream, _positive(stream, explicit[stream]), existing.get(stream), recorded.get(stream, ()))
        elif stream in existing:
            given[stream] = existing[stream]
    streams, joined, keyed = [*feeds, *external], joined or {}, keyed or {}
    fixed = _fixed(families_of(streams, joined.values()), joined, given, external, existing, bases)
    by_key = families_of(streams, [*joined.values(), *keyed.values()])
    fixed |= _following(by_key, fixed, bases)
    for stream in sorted(set(hints) & set(feeds)):
        count = _positive(stream, hints[stream])
        family = by_key[stream]
        if not any(member in given or member in external for member in family):
            for member in family:
                fixed[member] = max(count, fixed.get(member, 0))
    families = families_of(streams, [*joined.values(), *keyed.values(), *(merged or {}).values()])
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
    return _partitions(count) if base in (None, count) else f"{_partitions(count)}, in the tasks of {base}"


def _partitions(count: int) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"


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


def untaken_hints(hints: Mapping[str, int], counts: Mapping[str, int]) -> list[str]:
    """What is to be said where a stream has another number of partitions than a hint asks for.

    >>> untaken_hints({"by-day": 4, "by-shop": 2}, {"by-day": 6, "by-shop": 2})
    ["repartition stream by-day has 6 partitions, not the 4 of its grouping's hint: that is for a new stream"]
    """
    return [
        f"repartition stream {stream} has {counts[stream]} partitions, not the {hint} of its grouping's hint: "
        "that is for a new stream"
        for stream, hint in sorted(hints.items())
        if counts[stream] != hint
    ]
