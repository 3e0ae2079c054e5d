"""Which change of a stream's partition count an application that reads it can follow. Seed: SEP-5 (hash(key) mod n).

A key's records stay in the same task where the new count is a whole multiple of the old one: what is x modulo 8 is x mod 4
modulo 4. After any other change a key's new records would come to another task than its state; without state, to another
one than its older records, which they might overtake. So both are refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import lcm

from headrace.errors import ConfigError, IncompatibleChangeError
from headrace.model.names import partitions_text

PARTITIONS_MAX = 100_000  # of one stream, on any system: more is a typing error, not a need


@dataclass(frozen=True, slots=True)
class Growth:
    """A stream went from `before` to `after` partitions, a whole multiple; `warning` says what should be known of it."""

    stream: str
    before: int
    after: int
    warning: str | None = None


def growth_of(stream: str, before: int, after: int, *, has_state: bool = True, system: str | None = None) -> Growth:
    """The change of `stream` from `before` to `after` partitions, where an application can follow it.

    For messages: `has_state`, whether what reads it has; `system`, the URL for a command.

    >>> growth_of("flights", 4, 32).warning is None
    True
    >>> growth_of("flights", 4, 12).warning
    "stream 'flights' grew from 4 to 12 partitions, 3 times as many, which is no power of two: keys stay in their tasks \
where producers take hash(key) mod n, but not where they take the last bits of the hash"

    `IncompatibleChangeError` for any other change, with how to recover: fewer partitions, or no whole multiple.
    """
    assert before > 0 and after > 0, f"{stream}: {before} to {after}"
    times, rest = divmod(after, before)
    if rest:
        harm = "its older ones and its state" if has_state else "its older ones, and might overtake them"
        raise IncompatibleChangeError(
            f"stream {stream!r} had {partitions_text(before)} and now has {after}, which is no multiple of {before}: "
            f"a key's new records would come to other tasks than {harm}",
            _recovery(stream, before, after, has_state, system),
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
    *,
    stateless: Collection[str] = (),
    system: str | None = None,
) -> Changes:
    """What became of the numbers of partitions, by stream, of those that are in both.

    `unordered`: streams whose keys are anywhere; any growth will do. `by_users`: those under state that a user's
    partitioner distributes: it is unknown where it puts a key among more partitions. For messages: `stateless`, those
    that only operators without state take, and the system's URL.

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
            if stream in unordered and now[stream] > before[stream]:
                grown.append(Growth(stream, before[stream], now[stream]))
                continue
            has_state = stream not in stateless
            grown.append(growth_of(stream, before[stream], now[stream], has_state=has_state, system=system))
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
            f"stream {stream!r} has {partitions_text(before)}, and cannot be expanded to {after}: partitions are only ever "
            "added",
            _larger_counts(before),
        )


def refused_multiple(stream: str, before: int, after: int, application: str) -> IncompatibleChangeError:
    """The error of an expansion that is planned, and that an application which reads the stream could not follow."""
    return IncompatibleChangeError(
        f"stream {stream!r} has {partitions_text(before)}: with {after}, which is no multiple of {before}, a key's new "
        f"records would come to other tasks than its older ones, and application {application!r} would stop",
        f"expand it to {next_doubling(before, after)}",
    )


def bad_count(stream: str, partitions: object) -> ConfigError:
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


def expand_command(stream: str, partitions: int, system: str | None = None, *, force: bool = False) -> str:
    """The command line that expands `stream`.

    >>> expand_command("flights", 8, "log:./data", force=True)
    'headrace stream expand flights --partitions 8 --system log:./data --force'
    """
    at = "" if system is None else f" --system {system}"
    return f"headrace stream expand {stream} --partitions {partitions}{at}{' --force' if force else ''}"


def _recovery(stream: str, before: int, after: int, has_state: bool, system: str | None) -> str:
    """The first count is a multiple of both, so that what is still unread is read in order: the command takes it unforced."""
    both = lcm(before, after)
    forced = {count for count in (next_multiple(before, after), next_doubling(before, after)) if count < both}
    counts = [count for count in (both, *sorted(forced)) if count <= PARTITIONS_MAX]
    expand = " or ".join(f"`{expand_command(stream, count, system, force=count in forced)}`" for count in counts)
    misplaced = f"records written by hash(key) mod {after} until then stay in other tasks than their keys'"
    ways = [f"{expand} ({misplaced})"] if counts else []
    restart = "run the application under another name, from the beginning"
    otherwise = 'partitioning="other" if its producer does not take hash(key) mod n'
    ways += [f"{restart} (with {otherwise})"] if has_state else [f"declare the stream with {otherwise}", restart]
    return "; or ".join(ways)


def _unknown_to_us(stream: str, before: int, after: int) -> IncompatibleChangeError:
    return IncompatibleChangeError(
        f"stream {stream!r} had {partitions_text(before)} and now has {after}, and a partitioner of the application's own "
        "distributes its records: where that puts a key among more partitions is not known, and its state would not be found",
        "give the repartition, and the stores behind it, other names, so that they start empty; or remove the partitioner",
    )


def _is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0
