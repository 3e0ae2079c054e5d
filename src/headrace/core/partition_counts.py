"""Owns how many partitions a repartition stream has. Seed: KIP-221 (an explicit number, a hint, or inherited)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headrace.errors import IncompatibleChangeError, TopologyError


def partition_counts_of(
    feeds: Mapping[str, Collection[str]],
    explicit: Mapping[str, int],
    external: Mapping[str, int],
    existing: Mapping[str, int],
    hints: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """The number of partitions of each repartition stream, by name.

    `feeds`: for every repartition stream, the streams that the sub-topologies which write to it read (external ones, or
    repartition streams). `explicit`: what the application asks for. `external`: the external streams' counts.
    `existing`: repartition streams that were made before. `hints`: what to make a stream with; one that exists wins.

    An explicit count is binding. Else a stream keeps the count that it was made with; else the hint; else it takes the
    largest among its feeds, through other repartition streams if need be:

    >>> partition_counts_of({"by-carrier": ["flights"], "by-day": ["by-carrier", "weather"]},
    ...                     explicit={}, external={"flights": 4, "weather": 2}, existing={})
    {'by-carrier': 4, 'by-day': 4}

    Raises `IncompatibleChangeError` if an explicit count is not that of the existing stream, `TopologyError` if a count
    is below 1 or follows from nothing.
    """
    hints = hints or {}
    fixed: dict[str, int] = {}
    for stream in sorted(feeds):
        if stream in explicit:
            fixed[stream] = _agreed(stream, _positive(stream, explicit[stream]), existing.get(stream))
        elif stream in existing:
            fixed[stream] = existing[stream]
        elif stream in hints:
            fixed[stream] = _positive(stream, hints[stream])
    return {stream: fixed.get(stream) or _inherited(stream, feeds, fixed, external) for stream in sorted(feeds)}


def _inherited(
    stream: str, feeds: Mapping[str, Collection[str]], fixed: Mapping[str, int], external: Mapping[str, int]
) -> int:
    """The largest count among the streams that reach `stream` through repartition streams without one."""
    counts: list[int] = []
    seen, ahead = {stream}, [stream]
    while ahead:
        reader = ahead.pop()
        for feed in sorted(feeds[reader]):
            if feed in fixed:
                counts.append(fixed[feed])
            elif feed in feeds:
                if feed not in seen:
                    seen.add(feed)
                    ahead.append(feed)
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


def _agreed(stream: str, asked: int, found: int | None) -> int:
    if found is None or found == asked:
        return asked
    raise IncompatibleChangeError(
        f"repartition stream {stream!r} exists with {found} partitions, but the application asks for {asked}",
        f"ask for {found}, or leave the number out to keep what exists; or give the stream another name to begin anew"
        f" (state behind it begins anew too); or, if what {stream!r} holds is not needed, stop the job and delete it",
    )


def _positive(stream: str, count: int) -> int:
    if count < 1:
        raise TopologyError(
            f"repartition stream {stream!r}: {count} partitions", "give a number of at least 1, or none to inherit it"
        )
    return count
