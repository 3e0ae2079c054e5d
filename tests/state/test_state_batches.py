"""Merging streams of batches against a dict."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.state_files import batches as state_batches
from headrace.state_files.batches import batches_of, batches_of_entries, binary_array, merged

keys = st.binary(min_size=1, max_size=2)
layers = st.lists(st.dictionaries(st.tuples(st.sampled_from(["a", "b", "c"]), keys), st.none() | st.binary(max_size=2)))


def stream_of(layer: dict[tuple[str, bytes], bytes | None], rows: int) -> Iterator[pa.RecordBatch]:
    for db in sorted({db for db, _ in layer}):
        of_db = sorted(key for name, key in layer if name == db)
        for start in range(0, len(of_db), rows):
            part = of_db[start : start + rows]
            yield from batches_of(db, binary_array(part), binary_array([layer[db, key] for key in part]))


@given(layers, st.integers(1, 5))
def test_merged_keeps_the_newest_of_each_key_in_order(
    layers: list[dict[tuple[str, bytes], bytes | None]], rows: int
) -> None:
    expected: dict[tuple[str, bytes], bytes | None] = {}
    for layer in layers:
        expected |= layer
    found = [row for batch in merged([stream_of(layer, rows) for layer in layers]) for row in batch.to_pylist()]
    assert [(row["db"], row["key"], row["value"]) for row in found] == [
        (db, key, expected[db, key]) for db, key in sorted(expected)
    ]


@given(st.dictionaries(keys, st.binary(max_size=40), min_size=1), st.integers(1, 7), st.integers(1, 60))
def test_cutting_by_rows_and_bytes_loses_nothing(entries: dict[bytes, bytes], rows: int, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_batches, "BATCH_ROWS_MAX", rows)
        patch.setattr(state_batches, "BATCH_BYTES_MAX", size)
        ordered = sorted(entries.items())
        batches = list(batches_of_entries("a", ordered))
        for kind in (pa.binary(), pa.large_binary()):
            key_array, values = (pa.array(each, kind) for each in zip(*ordered, strict=True))
            assert batches == list(batches_of("a", key_array, values))
    assert [(row["key"], row["value"]) for batch in batches for row in batch.to_pylist()] == ordered
    for batch in batches:
        assert batch.num_rows <= rows
        assert batch.num_rows == 1 or sum(map(len, batch["value"].to_pylist())) <= size
