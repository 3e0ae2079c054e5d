"""The shape of state in flight: Arrow record batches of one database each, sorted by key, and merging them.

A stream of such batches is sorted by (database, key), and no (database, key) occurs twice in it. Columns: `db` string, `key`
binary, `value` binary, where a null value is a deletion. Batches are small enough to be merged by the dozen."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa

from headrace.core.keys.key_layout import LAYOUT_BYTES_MAX, OF_THE_TASK, range_in
from headrace.errors import DEFECT, StateError
from headrace.model.checkpoint import Slots

SCHEMA = pa.schema([("db", pa.string()), ("key", pa.binary()), ("value", pa.binary())])
BATCH_ROWS_MAX = 16_384
BATCH_BYTES_MAX = 32 * 1024 * 1024
VALUE_BYTES_MAX = 64 * 1024 * 1024


def batch_of(db: str, keys: Sequence[bytes], values: Sequence[bytes | None]) -> pa.RecordBatch:
    return _batch(db, pa.array(keys, pa.binary()), pa.array(values, pa.binary()))


def _batch(db: str, keys: pa.Array, values: pa.Array) -> pa.RecordBatch:
    columns = [pa.repeat(pa.scalar(db, pa.string()), len(keys))]
    for array in (keys, values):
        is_small = array.type == pa.binary()
        columns.append(array if is_small else pa.array(array.to_pylist(), pa.binary()))
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def binary_array(values: Collection[bytes | None]) -> pa.Array:
    """Of the type `binary`, or `large_binary` where they are too large for one array of it."""
    found = pa.array(list(values), pa.binary())
    return found if isinstance(found, pa.Array) else pa.array(list(values), pa.large_binary())


def batches_of(db: str, keys: pa.Array, values: pa.Array) -> Iterator[pa.RecordBatch]:
    """Arrays (`binary_array`) as batches, cut where one would grow too large."""
    for start in range(0, len(keys), BATCH_ROWS_MAX):
        yield from _cut(db, keys[start : start + BATCH_ROWS_MAX], values[start : start + BATCH_ROWS_MAX])


def _cut(db: str, keys: pa.Array, values: pa.Array) -> Iterator[pa.RecordBatch]:
    import pyarrow.compute as pc

    if len(keys) > 1 and (pc.sum(pc.binary_length(values)).as_py() or 0) > BATCH_BYTES_MAX:
        middle = len(keys) // 2
        yield from _cut(db, keys[:middle], values[:middle])
        yield from _cut(db, keys[middle:], values[middle:])
    else:
        yield _batch(db, keys, values)


def batches_of_entries(db: str, entries: Iterable[tuple[bytes, bytes]]) -> Iterator[pa.RecordBatch]:
    """The same from sorted entries, of which only a batch's worth is in memory at a time."""
    remaining = iter(entries)
    while chunk := list(islice(remaining, BATCH_ROWS_MAX)):
        keys, values = zip(*chunk, strict=True)
        yield from _cut(db, pa.array(keys, pa.binary()), pa.array(values, pa.binary()))


def db_of(batch: pa.RecordBatch) -> str:
    return str(batch.column(0)[0].as_py())


def batches_within(batches: Iterable[pa.RecordBatch], slots: Slots, whole: Collection[str]) -> Iterator[pa.RecordBatch]:
    """Of sorted batches the entries of these slots, and all of the databases in `whole`. Nothing is copied."""
    for batch in batches:
        database = db_of(batch)
        if database in whole or database == OF_THE_TASK:
            yield batch
            continue
        low, high = range_in(database, slots)
        keys, rows = batch.column(1), range(batch.num_rows)
        start = bisect_left(rows, low, key=lambda row, keys=keys: keys[row].as_py())  # type: ignore[misc]
        stop = len(rows) if high is None else bisect_left(rows, high, key=lambda row, keys=keys: keys[row].as_py())  # type: ignore[misc]
        if start < stop:
            yield batch.slice(start, stop - start)


@dataclass(slots=True)
class _Front:
    """What is left of a stream: its current batch, None at its end."""

    rest: Iterator[pa.RecordBatch]
    batch: pa.RecordBatch | None = None

    def advance(self) -> None:
        self.batch = next((batch for batch in self.rest if batch.num_rows), None)

    def take(self, last_key: bytes) -> pa.RecordBatch:
        """The rows whose keys are at most `last_key`; they leave the stream."""
        assert self.batch is not None
        batch, keys = self.batch, self.batch.column(1)
        count = bisect_right(range(batch.num_rows), last_key, key=lambda row: keys[row].as_py())
        if count == batch.num_rows:
            self.advance()
        else:
            self.batch = batch.slice(count)
        return batch.slice(0, count)


def merged(streams: Sequence[Iterable[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Several streams as one, oldest first: of the rows with one (database, key) the newest stream's stays. Only one batch of
    each stream is in memory. In each step the batches at the front are cut at the smallest of their last keys, so that no later
    batch can hold a key of this step: fronts [1 4 7] and [2 4] are cut at 4 and give [1 2 4'], 4' being the second stream's;
    what is left is [7] and the second stream's next batch."""
    fronts = [_Front(iter(stream)) for stream in streams]
    for front in fronts:
        front.advance()
    while live := [front for front in fronts if front.batch is not None]:
        dbs = [db_of(front.batch) for front in live]
        first_db = min(dbs)
        here = [front for front, db in zip(live, dbs, strict=True) if db == first_db]
        last_key = min(front.batch.column(1)[-1].as_py() for front in here if front.batch is not None)
        parts = [part for front in here if (part := front.take(last_key)).num_rows]
        yield parts[0] if len(parts) == 1 else _newest_of(parts)


def _newest_of(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """The rows of `parts` (oldest first) sorted by key, the last of each key."""
    import pyarrow.compute as pc

    ages = pa.concat_arrays([pa.repeat(pa.scalar(age, pa.int32()), part.num_rows) for age, part in enumerate(parts)])
    table = pa.Table.from_batches(parts).append_column("age", ages)
    rows = table.sort_by([("key", "ascending"), ("age", "ascending")]).combine_chunks()
    keys = rows.column("key").chunk(0)
    last_of_key = pa.concat_arrays([pc.not_equal(keys[:-1], keys[1:]), pa.array([True])])
    kept = rows.drop_columns(["age"]).filter(last_of_key).combine_chunks()
    return kept.to_batches()[0]


def check_sizes(name: str, keys: pa.Array, values: pa.Array) -> None:
    """`StateError` for changes of the store `name`, of which there is one at least, that a local store cannot take."""
    import pyarrow.compute as pc

    lengths = pc.min_max(pc.binary_length(keys))
    shortest, longest = lengths["min"].as_py(), lengths["max"].as_py()
    if shortest < 1 or longest > LAYOUT_BYTES_MAX:
        raise StateError(f"store {name}: keys of {shortest} to {longest} bytes, expected 1 to {LAYOUT_BYTES_MAX}", DEFECT)
    largest = pc.max(pc.binary_length(values)).as_py() or 0
    if largest > VALUE_BYTES_MAX:
        raise StateError(
            f"store {name}: a value of {largest} bytes, at most {VALUE_BYTES_MAX} are allowed",
            "spread the value over several sub-keys",
        )
