"""What a worker samples of the keys that pass by: the smallest of all, whatever they come in."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.core.rounds import key_samples
from headrace.core.rounds.key_samples import KeySample, rank_of, sample_digest
from headrace.worker import key_sampling
from headrace.worker.key_sampling import TEXT_MAX, KeySampling, ranks_of, text_of

KEYS = st.none() | st.binary(max_size=9)
BATCHES = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 7), st.lists(KEYS, max_size=20)), max_size=8)


@given(st.lists(st.binary(max_size=300)))
def test_ranks_are_those_of_the_core(keys: list[bytes]) -> None:
    assert ranks_of(pa.array(keys, pa.binary())).tolist() == [rank_of(key) for key in keys]


@pytest.mark.parametrize("limit", [1, 4, 500])
@settings(max_examples=150, deadline=None)
@given(batches=BATCHES, count=st.integers(1, 4))
def test_the_smallest_keys_of_all_and_where_they_are_apart(
    limit: int, batches: list[tuple[str, int, list[bytes | None]]], count: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_sampling, "SAMPLED_MAX", limit)
        sampling = KeySampling({"a": count, "b": count}, {})
        for stream, partition, keys in batches:
            whole = pa.array([b"before", *keys, b"after"], pa.binary())
            sampling.see(stream, partition, whole.slice(1, len(keys)))  # as a part of a larger array
    found = sampling.samples()
    for stream in "ab":
        seen: dict[int, set[int]] = {}
        for _, partition, keys in (batch for batch in batches if batch[0] == stream):
            for key in keys:
                if key is not None:
                    seen.setdefault(sample_digest(key), set()).add(partition)
        mine: dict[int, list[int]] = {}
        for one in found:
            if one.stream == stream:
                mine.setdefault(one.digest, []).append(one.partition)
        assert sorted(mine) == sorted(seen)[:limit]
        for digest, partitions in mine.items():
            assert set(partitions) <= seen[digest]
            residues = {partition % count for partition in seen[digest]}
            assert len({partition % count for partition in partitions}) == len(partitions) == min(2, len(residues))


def test_a_sample_that_is_full_takes_what_is_smaller_and_stays_as_large() -> None:
    keys = sorted((str(number).encode() for number in range(4000)), key=rank_of, reverse=True)
    sampling = KeySampling({"s": 1}, {"s": hr.String()})
    for start in range(0, len(keys), 250):
        sampling.see("s", 0, pa.array(keys[start : start + 250], pa.binary()))
    expected = [KeySample("s", 0, sample_digest(key), key.decode()) for key in keys[: -key_samples.SAMPLED_MAX - 1 : -1]]
    assert sampling.samples() == expected


class Failing(hr.String):
    def decode(self, data: bytes) -> Any:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("serde", "key", "text"),
    [
        (hr.String(), "ü".encode(), "ü"),
        (hr.String(), b"\xff", "0xff"),
        (hr.Long(), hr.Long().encode(7), "7"),
        (hr.Json(), b'{"a":1}', "{'a': 1}"),
        (hr.Bytes(), b"plain", "plain"),
        (None, b"a\n", "0x610a"),
        (Failing(), b"as it is", "as it is"),
        (hr.String(), b"x" * 61, "x" * 59 + "…"),
    ],
)
def test_keys_are_shown_as_people_read_them(serde: Any, key: bytes, text: str) -> None:
    assert text_of(serde, key) == text
    assert len(text) <= TEXT_MAX
