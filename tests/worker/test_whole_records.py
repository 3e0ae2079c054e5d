"""Rows that an expression made of one record stay together, however Spark cuts its batches."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.serdes.scalars import Bytes
from headrace.worker.container import _whole_records
from headrace.worker.rows import Field, Rows

STEPS = st.lists(st.sampled_from([0, 0, 1, 2]), min_size=1, max_size=6)  # by how much offsets grow
BATCHES = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2), STEPS), max_size=12)  # endpoint, SSP, and these


@settings(max_examples=300, deadline=None)
@given(drawn=BATCHES)
def test_no_record_is_in_two_batches(drawn: list[tuple[int, int, list[int]]]) -> None:
    reached: dict[tuple[int, int], int] = {}
    prepared, model = [], []
    for endpoint, ssp, steps in drawn:
        offsets = []
        for step in steps:
            reached[endpoint, ssp] = reached.get((endpoint, ssp), 0) + step
            offsets.append(reached[endpoint, ssp])
        count = len(offsets)
        texts = Field(Bytes(), raw=pa.array([b"%d" % offset for offset in offsets]))
        lows = np.arange(count, dtype=np.int32)
        numbers = np.array(offsets, np.int64)
        rows = Rows(np.full(count, ssp, np.int32), numbers, numbers, texts, texts, None, None, numbers, lows)
        prepared.append((endpoint, ssp, rows))
        model += [(endpoint, ssp, offset, low) for offset, low in zip(offsets, lows.tolist(), strict=True)]
    found = list(_whole_records(prepared))
    assert all(len(rows) for *_, rows in found)
    taken = []
    for endpoint, ssp, rows in found:
        assert rows.own_us.tolist() == rows.offset.tolist() == [int(text.as_py()) for text in rows.key.raw]
        taken += [(endpoint, ssp, o, low) for o, low in zip(rows.offset.tolist(), rows.low.tolist(), strict=True)]
    assert taken == model
    for (endpoint, ssp, before), (other, after_ssp, after) in pairwise(found):
        assert (endpoint, ssp) != (other, after_ssp) or before.offset[-1] != after.offset[0]
