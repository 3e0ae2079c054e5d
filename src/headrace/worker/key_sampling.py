"""Samples the keys that a worker reads, where `check_partitioning` is set; `core.rounds.key_samples` judges them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.rounds.key_samples import RANK_FACTOR, SAMPLED_MAX, KeySample, is_apart, sample_digest
from headrace.exchange.messages import Program
from headrace.model.serde import Serde
from headrace.worker.vectors import U32, murmur2_many

TEXT_MAX = 60  # characters of a key that a message shows
_RANK_MAX = 0xFFFFFFFF


def ranks_of(keys: pa.BinaryArray) -> U32:
    """`core.rounds.key_samples.rank_of` of each key; what stands for a null key means nothing."""
    return murmur2_many(keys) * np.uint32(RANK_FACTOR)


def sampling_of(program: Program, endpoints: Collection[int]) -> KeySampling:
    """The sampling at those of a program's endpoints where one reader reads."""
    sources = [source for number, source in program.sampled_at.items() if number in endpoints]
    return KeySampling(
        {source.stream: program.sampled[source.stream] for source in sources},
        {source.stream: source.key for source in sources},
    )


class KeySampling:
    """The sample of what one reader reads in a round. `counts`: of each stream the smallest number of partitions it had."""

    def __init__(self, counts: Mapping[str, int], serdes: Mapping[str, Serde | None]) -> None:
        self._serdes = serdes
        self._streams = {stream: _StreamSample(count) for stream, count in counts.items()}

    def see(self, stream: str, partition: int, keys: pa.Array) -> None:
        """Records of one partition pass by, with these keys."""
        self._streams[stream].see(partition, keys)

    def samples(self) -> list[KeySample]:
        """The keys of each stream with the smallest digests, once for each partition that says something about them."""
        return [
            KeySample(stream, partition, digest, text_of(self._serdes.get(stream), key))
            for stream, sample in sorted(self._streams.items())
            for digest, (key, partitions) in sorted(sample.held.items())
            for partition in partitions
        ]


class _StreamSample:
    """Of one stream. Two keys of one rank, of 4 billion, are taken for one: the second goes unseen."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._cut = np.uint32(_RANK_MAX)  # no key of a higher rank can come in any more
        self._known: dict[int, set[int]] = {}  # partition to the ranks that it has shown already
        self.held: dict[int, tuple[bytes, list[int]]] = {}  # digest to the key and its partitions, at most 2

    def see(self, partition: int, keys: pa.Array) -> None:
        ranks = ranks_of(keys)
        near = ranks <= self._cut
        if keys.null_count:
            near &= keys.is_valid().to_numpy(zero_copy_only=False)
        found = np.flatnonzero(near)
        ranks_here = pa.array(ranks[found])
        known = self._known.setdefault(partition, set())
        lowest = np.sort(ranks_here.unique().to_numpy())[: SAMPLED_MAX + len(known)]
        new = [rank for rank in lowest.tolist() if rank not in known][:SAMPLED_MAX]
        if not new:
            return
        known.update(new)
        first_rows = found[pc.index_in(pa.array(new, pa.uint32()), value_set=ranks_here).to_numpy(zero_copy_only=False)]
        self._add(partition, zip(keys.take(pa.array(first_rows)).to_pylist(), new, strict=True))

    def _add(self, partition: int, keys: Iterable[tuple[bytes, int]]) -> None:
        """Take keys, each with its rank, that this partition has not shown before."""
        for key, rank in keys:
            _, partitions = self.held.setdefault(sample_digest(key, rank), (key, []))
            if not partitions or (len(partitions) == 1 and is_apart(partitions[0], partition, self._count)):
                partitions.append(partition)
        if len(self.held) > SAMPLED_MAX:
            kept = sorted(self.held)[:SAMPLED_MAX]
            self.held = {digest: self.held[digest] for digest in kept}
            self._cut = np.uint32(kept[-1] >> 32)
            self._known = {p: {rank for rank in ranks if rank <= self._cut} for p, ranks in self._known.items()}


def text_of(serde: Serde | None, key: bytes) -> str:
    """A key for people: decoded, else as text, else in hexadecimal digits; cut where it is long."""
    value: Any = key
    if serde is not None:
        try:
            value = serde.decode(key)
        except Exception:  # a user's serde may raise anything, and the record is dealt with elsewhere
            value = key
    if isinstance(value, bytes):
        value = _as_text(value)
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= TEXT_MAX else f"{text[: TEXT_MAX - 1]}…"


def _as_text(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"
    return text if text.isprintable() else f"0x{data.hex()}"
