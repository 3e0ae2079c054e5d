"""Owns which change of a stream's partition count an application that reads it can follow. Seed: SEP-5 (hash(key) mod n).

A key's records go on in the same task where the new count is a whole multiple of the old one: what is x modulo 8 is x mod 4
modulo 4. After any other change a key's new records would come to another task than its state.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from headrace.errors import ConfigError, IncompatibleChangeError

PARTITIONS_MAX = 100_000  # of one stream, on any system: more is a typing error, not a need


@dataclass(frozen=True, slots=True)
class Growth:
    """A stream went from `before` to `after` partitions, a whole multiple; `warning` says what should be known of it."""

    stream: str
    before: int
    after: int
    warning: str | None = None


def growth_of(stream: str, before: int, after: int) -> Growth:
    """The change of `stream` from `before` to `after` partitions, where an application can follow it.

    >>> growth_of("flights", 4, 32).warning is None
    True
    >>> growth_of("flights", 4, 12).warning
    "stream 'flights' grew from 4 to 12 partitions, 3 times as many, which is no power of two: keys stay in their tasks \
where producers take hash(key) mod n, but not where they take the last bits of the hash"

    `IncompatibleChangeError` for any other change, with the ways out: fewer partitions, or no whole multiple.
    """
    assert before > 0 and after > 0, f"{stream}: {before} to {after}"
    times, rest = divmod(after, before)
    if rest:
        raise IncompatibleChangeError(
            f"stream {stream!r} had {_partitions(before)} and now has {after}, which is no multiple of {before}: "
            "a key's new records would come to other tasks than its older ones and its state",
            _ways_out(stream, before, after),
        )
    if _is_power_of_two(times):
        return Growth(stream, before, after)
    warning = (
        f"stream {stream!r} grew from {before} to {after} partitions, {times} times as many, which is no power of two: keys "
        "stay in their tasks where producers take hash(key) mod n, but not where they take the last bits of the hash"
    )
    return Growth(stream, before, after, warning)


@dataclass(frozen=True, slots=True)
class Changes:
    """How the streams of a job have changed: `grown` are those that it can follow, `refused` why it cannot, by stream."""

    grown: tuple[Growth, ...]
    refused: Mapping[str, IncompatibleChangeError]


def changes_of(
    before: Mapping[str, int],
    now: Mapping[str, int],
    unordered: Collection[str] = (),
    by_users: Collection[str] = (),
) -> Changes:
    """What became of the numbers of partitions, by stream, of those that stand in both.

    `unordered`: streams whose keys are anywhere; any growth will do. `by_users`: those under state that a user's
    partitioner distributes: of it nobody knows where it puts a key among more partitions.

    >>> changes = changes_of({"a": 4, "b": 4, "c": 4}, {"a": 8, "b": 6, "c": 4})
    >>> [growth.stream for growth in changes.grown], sorted(changes.refused)
    (['a'], ['b'])
    """
    grown: list[Growth] = []
    refused: dict[str, IncompatibleChangeError] = {}
    for stream in sorted(set(before) & set(now)):
        if before[stream] == now[stream]:
            continue
        try:
            if stream in by_users:
                raise _unknown_to_us(stream, before[stream], now[stream])
            is_free = stream in unordered and now[stream] > before[stream]
            grown.append(
                Growth(stream, before[stream], now[stream]) if is_free else growth_of(stream, before[stream], now[stream])
            )
        except IncompatibleChangeError as error:
            refused[stream] = error
    return Changes(tuple(grown), refused)


def check_expansion(stream: str, before: int, after: object) -> None:
    """Refuse what is no expansion of a stream of `before` partitions, on any system.

    `ConfigError` for what is no number that a stream may have, `IncompatibleChangeError` for one that is not larger:
    partitions never go away.
    """
    if not isinstance(after, int) or isinstance(after, bool) or not 1 <= after <= PARTITIONS_MAX:
        raise bad_count(stream, after)
    if after <= before:
        raise IncompatibleChangeError(
            f"stream {stream!r} has {_partitions(before)}, and cannot be expanded to {after}: partitions are only ever added",
            _larger_counts(before),
        )


def bad_count(stream: str, partitions: object) -> ConfigError:
    """The error for a number of partitions that no stream has."""
    return ConfigError(
        f"stream {stream!r} with {partitions!r} partitions: expected a whole number, at least 1, at most {PARTITIONS_MAX:,}"
    )


def next_multiple(before: int, at_least: int) -> int:
    """The smallest multiple of `before` that is not below `at_least`.

    >>> next_multiple(4, 6), next_multiple(4, 8), next_multiple(8, 4)
    (8, 8, 8)
    """
    return -(-at_least // before) * before


def next_doubling(before: int, at_least: int) -> int:
    """The smallest multiple by a power of two that is not below `at_least`.

    >>> next_doubling(4, 6), next_doubling(4, 9), next_doubling(3, 13)
    (8, 16, 24)
    """
    count = before
    while count < at_least:
        count *= 2
    return count


def _larger_counts(before: int) -> str:
    if before >= PARTITIONS_MAX:
        return f"a stream has at most {PARTITIONS_MAX:,}"
    better = [str(count) for count in (2 * before, 4 * before) if count <= PARTITIONS_MAX]
    keep = f": {' or '.join(better)} keep{'s' if len(better) == 1 else ''} keys in the tasks of the applications that read it"
    return f"name more than {before}{keep if better else ''}"


def _ways_out(stream: str, before: int, after: int) -> str:
    counts = sorted({next_multiple(before, after), next_doubling(before, after)})
    expand = f"expand {stream!r} to {' or '.join(map(str, counts))} partitions"
    if any(count % after for count in counts):  # `headrace stream expand` asks for it, seeing what it has grown to by now
        expand += " with --force"
    ways = (
        f"{expand} (what was written by hash(key) mod {after} until then stays where it is, in other tasks than its keys')",
        'declare the stream with partitioning="other" if its producer does not take hash(key) mod n',
        "run the application under another name, from the beginning",
    )
    return "; or ".join(ways)


def _unknown_to_us(stream: str, before: int, after: int) -> IncompatibleChangeError:
    return IncompatibleChangeError(
        f"stream {stream!r} had {_partitions(before)} and now has {after}, and a partitioner of the application's own "
        "distributes its records: where that puts a key among more partitions is not known, and its state would not be found",
        "give the repartition, and the stores behind it, other names, so that they begin anew; or leave the partitioner out",
    )


def _is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0


def _partitions(count: int) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"
