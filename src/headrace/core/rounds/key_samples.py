"""Whether the keys of a stream are where hash(key) mod n puts them, judged by a sample. Seed: SEP-5, "the hashed result
must be mod by the partitionNum".

Which hash a producer takes is its own affair, and not known here. But under any hash a key can only be in partitions that are
equal modulo the smallest number that the stream had: of 4 that grew to 8, in 1 and 5, never in 1 and 2. Sampled are the keys
with the smallest digests: so each partition, container and round gives the same ones, and what is kept has a bound. Of those
that are kept nothing is missed, whichever came first: a key that is among the smallest of all is so among those of a round.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace.core.keys.hashing import key_hash, murmur2
from headrace.core.topology.sub_topologies import SubTopology
from headrace.model.topology import Partitioning, SourceKind

SAMPLED_MAX = 500  # keys of a stream that a container reports, and that the driver remembers
PAIRS_MAX = 8  # of partitions that are named of one stream
METRIC = "keys_in_two_partitions"
RANK_FACTOR = 0x9E3779B1  # odd: the rank mixes all bits of the hash, of which a partition shows only the low ones
_LOW_32 = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class KeySample:
    """A key of `stream` was seen in `partition`; `text` is the key as people read it."""

    stream: str
    partition: int
    digest: int
    text: str


@dataclass(frozen=True, slots=True)
class SeenKeys:
    """What was seen of a stream's sampled keys. `first`: digest to the first partition; `apart`: the digests of those that
    were seen in one where they cannot be, too; `pairs`: of partitions, that were named."""

    first: Mapping[int, int]
    apart: frozenset[int] = frozenset()
    pairs: frozenset[tuple[int, int]] = frozenset()


@dataclass(frozen=True, slots=True)
class SampleFinding:
    """What a look at samples gave: all that is known now, how many keys were newly found apart, and what to say of it."""

    known: Mapping[str, SeenKeys]
    found: int
    warnings: tuple[str, ...]


def rank_of(key: bytes) -> int:
    """The place of a key in the order in which keys are sampled, lowest first: 32 bits."""
    return (murmur2(key) * RANK_FACTOR) & _LOW_32


def sample_digest(key: bytes, rank: int | None = None) -> int:
    """What a sampled key is known by: its rank (given where it is known already), then 32 bits of another hash."""
    return (rank_of(key) if rank is None else rank) << 32 | (key_hash(key) & _LOW_32)


def is_apart(one: int, other: int, count: int) -> bool:
    """Whether no producer that takes hash(key) modulo `count`, or modulo a multiple of it, writes a key to both partitions.

    >>> is_apart(1, 5, 4), is_apart(1, 2, 4), is_apart(1, 2, 1)
    (False, True, False)
    """
    return one % count != other % count


def sampled_streams(sub: SubTopology, counts: Mapping[str, int]) -> dict[str, int]:
    """The inputs of a sub-topology whose keys are to be sampled, to the smallest number of partitions that each had.

    `counts` has that number. Left out are repartition streams, global tables, and what is declared to go by something else.
    """
    return {
        source.stream: counts[source.stream]
        for source in sub.sources
        if source.kind is not SourceKind.REPARTITION
        and not source.broadcast
        and source.partitioning is Partitioning.HASH
    }


def looked_at(known: Mapping[str, SeenKeys], samples: Iterable[KeySample], counts: Mapping[str, int]) -> SampleFinding:
    """Judge new samples by what is known; `counts` as `sampled_streams` gives them."""
    by_stream: dict[str, list[KeySample]] = {}
    for sample in samples:
        by_stream.setdefault(sample.stream, []).append(sample)
    after, found, warnings = dict(known), 0, list[str]()
    for stream, mine in sorted(by_stream.items()):
        before = known.get(stream, SeenKeys({}))
        after[stream], said = _judged(before, mine, counts[stream])
        found += len(after[stream].apart - before.apart)
        warnings += said
    return SampleFinding(after, found, tuple(warnings))


def _judged(before: SeenKeys, samples: list[KeySample], count: int) -> tuple[SeenKeys, list[str]]:
    """What is known of one stream afterwards, and what to say."""
    kept = set(sorted(before.first.keys() | {sample.digest for sample in samples})[:SAMPLED_MAX])
    first = {digest: partition for digest, partition in before.first.items() if digest in kept}
    apart, pairs, said = set(before.apart & kept), set(before.pairs), list[str]()
    for sample in samples:
        if sample.digest not in kept:
            continue
        there = first.setdefault(sample.digest, sample.partition)
        if not is_apart(there, sample.partition, count):
            continue
        apart.add(sample.digest)
        pair = (min(there, sample.partition), max(there, sample.partition))
        if pair not in pairs and len(pairs) < PAIRS_MAX:
            pairs.add(pair)
            said.append(_warning(sample, pair, count, is_last=len(pairs) == PAIRS_MAX))
    return SeenKeys(first, frozenset(apart), frozenset(pairs)), said


def _warning(sample: KeySample, pair: tuple[int, int], count: int, is_last: bool) -> str:
    more = f"; further partitions of this stream are only counted ({METRIC})" if is_last else ""
    return (
        f"stream {sample.stream!r}: key {sample.text!r} is in partitions {pair[0]} and {pair[1]}; a producer that goes by "
        f"hash(key) mod the number of partitions ({count}, or a multiple of it) cannot have written it to both. Its records "
        f'have no order, and come to different tasks: declare the stream partitioning="other" where the application reads '
        f"it, or let all its producers choose partitions by one hash of the key{more}"
    )
