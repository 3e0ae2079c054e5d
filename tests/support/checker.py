"""An independent judge for tests with killed processes: reads the embedded log by itself, compares with dumb models.

It imports nothing of Headrace, so that a mistake there cannot hide here. A predicate gives the number of things it
compared, and raises `AssertionError` with the first difference; a run that compared nothing has failed (`KillReport`).
A row is a dict: partition, offset, key, value, timestamp_us, headers (a list of (name, value) pairs).
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import xxhash

Row = dict[str, Any]

SCHEMA_VERSION = 1
SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("timestamp_us", pa.int64(), nullable=False),
        pa.field("headers", pa.list_(pa.struct([pa.field("name", pa.string()), pa.field("value", pa.binary())]))),
    ]
)
_MISSING = object()


# --- the log --------------------------------------------------------------------------------------------------------


def read_stream(log_dir: str | Path, stream: str) -> list[Row]:
    """All records of `stream`, partition after partition, read from the catalog and the data files themselves.

    Checked on the way: offsets are dense from the first to the end, chunks neither overlap nor leave a gap, each file
    holds the bytes that its checksum was made of and as many records as the catalog says.
    """
    root = Path(log_dir)
    database = sqlite3.connect(f"file:{quote(str(root / 'catalog.sqlite'))}?mode=ro", uri=True, isolation_level=None)
    try:
        database.execute("BEGIN")  # one state of the catalog for all that follows
        (version,) = database.execute("PRAGMA user_version").fetchone()
        assert version == SCHEMA_VERSION, f"catalog of schema version {version}: this checker reads {SCHEMA_VERSION}"
        found = database.execute("SELECT number, partitions FROM streams WHERE name = ?", (stream,)).fetchone()
        assert found is not None, f"the catalog has no stream {stream!r}"
        number, partitions = found
        bounds = database.execute(
            "SELECT partition, first_offset, end_offset FROM partitions WHERE stream = ? ORDER BY partition", (number,)
        ).fetchall()
        known = [partition for partition, _, _ in bounds]
        assert known == list(range(partitions)), f"{stream!r} has {partitions} partitions, the catalog knows {known}"
        strays = database.execute(
            "SELECT count(*) FROM chunks WHERE stream = ? AND partition NOT BETWEEN 0 AND ?", (number, partitions - 1)
        ).fetchone()[0]
        assert strays == 0, f"{strays} chunks of {stream!r} are of partitions that it does not have"
        return [
            row
            for partition, first, end in bounds
            for row in _partition_rows(root, database, stream, number, partition, first, end)
        ]
    finally:
        database.close()


def _partition_rows(
    root: Path, database: sqlite3.Connection, stream: str, number: int, partition: int, first: int, end: int
) -> list[Row]:
    where = f"{stream!r} partition {partition}"
    chunks = database.execute(
        "SELECT base_offset, records, file, position, length, checksum FROM chunks"
        " WHERE stream = ? AND partition = ? ORDER BY base_offset",
        (number, partition),
    ).fetchall()
    rows: list[Row] = []
    expected = chunks[0][0] if chunks else first
    # Whole chunks are purged or kept: the first kept one may begin below the first offset that can be read.
    assert expected <= first, f"{where}: its first chunk begins at {expected}, its first offset is {first}"
    for base, records, file, position, length, checksum in chunks:
        kind = "gap" if base > expected else "overlap"
        assert base == expected, f"{where}: {kind}, expected a chunk at offset {expected}, found one at {base}"
        columns = _chunk_columns(root / file, position, length, checksum, records, f"{where} at offset {base}")
        rows += [
            {"partition": partition, "offset": base + index, **columns[index]}
            for index in range(records)
            if base + index >= first
        ]
        expected = base + records
    assert expected == end, f"{where}: its chunks end at {expected}, its end offset is {end}"
    return rows


def _chunk_columns(path: Path, position: int, length: int, checksum: str, records: int, where: str) -> list[Row]:
    assert path.exists(), f"{where}: data file {path.name} is missing"
    with path.open("rb") as file:
        file.seek(position)
        message = file.read(length)
    assert len(message) == length, f"{where}: expected {length} bytes in {path.name}, found {len(message)}"
    digest = xxhash.xxh3_64_hexdigest(message)
    assert digest == checksum, f"{where}: expected checksum {checksum} in {path.name}, found {digest}"
    batch = pa.ipc.read_record_batch(pa.py_buffer(message), SCHEMA)
    assert batch.num_rows == records, f"{where}: expected {records} records in {path.name}, found {batch.num_rows}"
    batch.validate(full=True)
    rows: list[Row] = batch.to_pylist()
    return [{**row, "headers": [(header["name"], header["value"]) for header in row["headers"] or []]} for row in rows]


# --- what is in a row -----------------------------------------------------------------------------------------------


def long_of(value: bytes) -> int:
    """What the serde `Long` has written."""
    return int.from_bytes(value, "big", signed=True)


def window_of(key: bytes) -> tuple[bytes, int]:
    """Key and start in µs of a window's record."""
    return key[:-16], long_of(key[-16:-8])


def key_of(row: Row) -> Any:
    return row["key"]


def values_by_key(
    rows: Iterable[Row], value: Callable[[Row], Any], key: Callable[[Row], Any] = key_of
) -> dict[Any, list[Any]]:
    """Each key's values in their order."""
    found: dict[Any, list[Any]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(value(row))
    return found


def offsets_of(rows: Iterable[Row]) -> dict[int, list[int]]:
    """Per partition the offsets that hold a record; there may be holes between them."""
    return values_by_key(rows, lambda row: row["offset"], lambda row: row["partition"])


# --- predicates -----------------------------------------------------------------------------------------------------


def same_records(
    actual: Iterable[Row], expected: Iterable[Row], *, by: str = "partition", fields: Sequence[str] = ("key", "value")
) -> int:
    """The same sequences of `fields`: per partition (`by="partition"`), or per key wherever that is (`by="key"`).

    Both are given in offset order within each partition. Per key, the order between partitions is that of the lists.
    """
    assert by in ("partition", "key"), f"by={by!r}: expected 'partition' or 'key'"
    found, wanted = (
        values_by_key(rows, lambda row: tuple(row[name] for name in fields), lambda row: row[by])
        for rows in (actual, expected)
    )
    checks = 0
    for group in _sorted(found.keys() | wanted.keys()):
        pairs = zip_longest(found.get(group, []), wanted.get(group, []), fillvalue=_MISSING)
        for index, (left, right) in enumerate(pairs):
            where = f"{by} {group!r}, record {index}"
            assert right is not _MISSING, f"{where}: found {left}, expected no more than {index}"
            assert left is not _MISSING, f"{where}: found only {index}, expected {right} next"
            assert left == right, f"{where}: found {left}, expected {right}"
            checks += 1
    return checks


def order_kept_per_key(
    inputs: Iterable[Row],
    outputs: Iterable[Row],
    *,
    identity: Callable[[Row], Hashable] = lambda row: row["value"],
    key: Callable[[Row], Hashable] = key_of,
) -> int:
    """The outputs of each key stand in the order of its inputs, each at most once, all in one partition.

    `identity` says of an input and of the output made from it which record of its key it is; it must tell the inputs of
    a key apart. `inputs` are in the order in which they were produced. Nothing is said about records left out.
    """
    place: dict[Hashable, dict[Hashable, int]] = {}
    for row in inputs:
        of_key = place.setdefault(key(row), {})
        name = identity(row)
        assert name not in of_key, f"key {key(row)!r}: two inputs are called {name!r}, their order cannot be told"
        of_key[name] = len(of_key)
    last: dict[Hashable, tuple[int, Hashable, int]] = {}  # key to (place, identity, partition)
    checks = 0
    for row in outputs:
        name, of_key = identity(row), place.get(key(row), {})
        where = f"key {key(row)!r}, output at {row['partition']}:{row['offset']}"
        assert name in of_key, f"{where}: {name!r} is none of this key's inputs"
        now = of_key[name]
        if key(row) in last:
            before, before_name, partition = last[key(row)]
            assert row["partition"] == partition, f"{where}: an earlier one is in partition {partition}"
            assert now != before, f"{where}: {name!r} is there twice"
            assert now > before, f"{where}: {name!r} comes after {before_name!r}, the inputs have it before"
        last[key(row)] = (now, name, row["partition"])
        checks += 1
    return checks


def subsequence_ending_in_last(updates: Mapping[Any, Sequence[Any]], model: Mapping[Any, Sequence[Any]]) -> int:
    """Each key's updates are some of the model's, in its order, none twice, and end in its last (`emit="round"`)."""
    checks = 0
    for key in _sorted(updates.keys() | model.keys()):
        found, wanted = updates.get(key, ()), model.get(key, ())
        assert wanted or not found, f"key {key!r}: found {found[0]!r}, the model has no update of it"
        assert found or not wanted, f"key {key!r}: found no update, expected the last to be {wanted[-1]!r}"
        rest = iter(wanted)
        for index, update in enumerate(found):
            # `in` moves the iterator past the match: each of the model's updates serves at most once
            assert update in rest, f"key {key!r}, update {index}: {update!r} does not come there in the model: {wanted!r}"
            checks += 1
        if found:
            assert found[-1] == wanted[-1], f"key {key!r}: ends in {found[-1]!r}, expected {wanted[-1]!r}"
            checks += 1
    return checks


def state_equals(model: Mapping[Any, Any], dump: Mapping[Any, Any]) -> int:
    """The same keys with the same values; `dump` is what the store holds."""
    for key in _sorted(model.keys() | dump.keys()):
        assert key in dump, f"key {key!r}: not in the store, expected {model[key]!r}"
        assert key in model, f"key {key!r}: the store has {dump[key]!r}, expected nothing"
        assert model[key] == dump[key], f"key {key!r}: the store has {dump[key]!r}, expected {model[key]!r}"
    return len(model)


def partitioned_by_murmur2(rows: Iterable[Row], partitions: int) -> int:
    """Every record with a key lies where a Java producer puts it; those without one are not looked at."""
    checks = 0
    for row in rows:
        if row["key"] is not None:
            expected = partition_of(row["key"], partitions)
            assert row["partition"] == expected, (
                f"key {row['key']!r} at {row['partition']}:{row['offset']}: expected in partition {expected}"
            )
            checks += 1
    return checks


def _sorted(keys: Iterable[Any]) -> list[Any]:
    return sorted(keys, key=repr)  # None and bytes have no order; a fixed one makes the first difference the same


# --- models ---------------------------------------------------------------------------------------------------------


def model_count(records: Iterable[Row]) -> dict[bytes, list[int]]:
    """Every count that each key ever has, oldest first; records without a key are dropped, as by a grouping."""
    updates: dict[bytes, list[int]] = {}
    for row in records:
        if row["key"] is not None:
            counts = updates.setdefault(row["key"], [])
            counts.append(len(counts) + 1)
    return updates


def model_windowed(
    records: Iterable[Row],
    size_us: int,
    advance_us: int | None = None,
    *,
    grace_us: int | None = None,
    cuts: Sequence[int] = (),
    initial: Any = 0,
    fold: Callable[[Any, Row], Any] = lambda count, row: count + 1,
) -> dict[tuple[bytes, int], list[Any]]:
    """Every value that each (key, start of window in µs) ever has, oldest first; without `fold` a count.

    Windows begin at multiples of `advance_us` (by default `size_us`) and hold start <= timestamp < start + size.
    With `grace_us` a record is late for a window that ended that long before the watermark. The records are those of
    ONE SSP in order; `cuts` are the indexes at which a new round begins, and the watermark is the largest timestamp
    before the last cut passed (protocol.md 23). Without `grace_us` no record is late.
    """
    advance = size_us if advance_us is None else advance_us
    updates: dict[tuple[bytes, int], list[Any]] = {}
    newest: int | None = None
    watermark: int | None = None
    for index, row in enumerate(records):
        if index in cuts:
            watermark = newest
        time = row["timestamp_us"]
        newest = time if newest is None else max(newest, time)
        if row["key"] is None:
            continue
        start = time // advance * advance
        starts = []
        while start + size_us > time:
            starts.append(start)
            start -= advance
        for start in reversed(starts):
            late = grace_us is not None and watermark is not None and start + size_us + grace_us <= watermark
            if not late:
                values = updates.setdefault((row["key"], start), [])
                values.append(fold(values[-1] if values else initial, row))
    return updates


def last_of(updates: Mapping[Any, Sequence[Any]]) -> dict[Any, Any]:
    """The state that the updates lead to: the last value of each key."""
    return {key: values[-1] for key, values in updates.items()}


def murmur2(data: bytes) -> int:
    """Kafka's murmur2 (seed 0x9747b28c) as an unsigned 32-bit number, byte after byte as its paper has it."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = (0x9747B28C ^ len(data)) & mask
    whole = len(data) - len(data) % 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if len(data) % 4:
        h = (h ^ int.from_bytes(data[whole:], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


def partition_of(key: bytes, partitions: int) -> int:
    """Where a Java producer puts `key`: the sign bit is cleared, not the absolute value taken."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


# --- the report -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class KillReport:
    """What a run with faults did: faults by (step, kind), how many of them landed, how many checks were made."""

    tried: Counter[tuple[str, str]] = field(default_factory=Counter)
    landed: Counter[tuple[str, str]] = field(default_factory=Counter)
    checks: Counter[str] = field(default_factory=Counter)

    def fault(self, step: str, kind: str, *, landed: bool) -> None:
        """Note a fault; it landed if the process was still at that step when it came."""
        self.tried[step, kind] += 1
        self.landed[step, kind] += landed

    def checked(self, what: str, count: int) -> None:
        """Note what a predicate gave."""
        self.checks[what] += count

    def verify(self, *, landed_min: int = 1) -> None:
        """`AssertionError` unless faults landed, and every kind of check that was made compared something."""
        empty = [what for what, count in sorted(self.checks.items()) if count == 0]
        assert self.checks.total() > 0, f"no checks were made: the run proves nothing\n{self}"
        assert not empty, f"these checks compared nothing: {', '.join(empty)}\n{self}"
        landed = self.landed.total()
        assert landed >= landed_min, f"{landed} faults landed, expected at least {landed_min}\n{self}"

    def __str__(self) -> str:
        faults = [
            (step, kind, str(self.tried[step, kind]), str(self.landed[step, kind]))
            for step, kind in sorted(self.tried, key=_step_order)
        ]
        total = ("all", "", str(self.tried.total()), str(self.landed.total()))
        checks = [(what, f"{count:,}") for what, count in sorted(self.checks.items())]
        checks.append(("all", f"{self.checks.total():,}"))
        return "\n\n".join([_table(("step", "fault", "tried", "landed"), [*faults, total]), _table(("check", "made"), checks)])


def _step_order(fault: tuple[str, str]) -> tuple[list[tuple[int, str]], str]:
    """Step 2 before step 10: numbers by value, other words by text."""
    step, kind = fault
    return [(int(word), "") if word.isdigit() else (-1, word) for word in step.split()], kind


def _table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (header, *rows)]
    return "\n".join(line.rstrip() for line in lines)
