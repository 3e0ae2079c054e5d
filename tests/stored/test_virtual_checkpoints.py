"""Checkpoints of virtual tasks: by whole partition here, with the key bucket as they are stored."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from headrace.codec.documents import decode, encode
from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName

SSPS = st.builds(SSP, st.just("log"), st.sampled_from(("a", "b.c", "g")), st.integers(0, 3))


@st.composite
def checkpoints(draw: st.DrawFn) -> Checkpoint:
    factor = draw(st.sampled_from((1, 2, 8, 1024)))
    bucket = draw(st.integers(0, factor - 1))
    task = TaskName.parse("Partition_3" if factor == 1 else f"Partition_3-{bucket}-{factor}")
    positions = draw(st.dictionaries(SSPS, st.integers(0, 99), min_size=1))
    some = st.lists(st.sampled_from(sorted(positions)), unique=True)
    broadcast = frozenset(ssp.stream for ssp in positions if ssp.stream == "g") if factor > 1 else frozenset[str]()
    return Checkpoint(
        task,
        RoundId(1, None, draw(st.integers(0, 9))),
        draw(st.integers(1, 9)),
        positions,
        None,
        {ssp: draw(st.integers(-5, 5)) for ssp in draw(some)},
        None,
        None,
        dict.fromkeys(draw(some), "id"),
        broadcast,
    )


@given(checkpoints())
def test_what_is_stored_carries_the_bucket_and_is_read_back_whole(checkpoint: Checkpoint) -> None:
    data = encode(checkpoint)
    assert decode(Checkpoint, data, "checkpoint") == checkpoint
    stored = msgspec.json.decode(data)
    bucket = checkpoint.task.bucket
    for name in ("positions", "watermarks", "spent_startpoints"):
        for text in stored[name]:
            assert SSP.parse(text).key_bucket == (None if bucket is None or ".g." in text else bucket.index)
    assert "broadcast" not in stored
