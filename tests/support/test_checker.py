"""The checker is given wrong data of every kind that it is there to find, and must say so."""

from __future__ import annotations

import ast
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from headrace.adapters.log.system import open_system
from headrace.record import Record
from support import checker
from support.checker import (
    KillReport,
    Row,
    last_of,
    model_count,
    model_windowed,
    murmur2,
    order_kept_per_key,
    partition_of,
    partitioned_by_murmur2,
    read_stream,
    same_records,
    state_equals,
    subsequence_ending_in_last,
)


def row(key: bytes | None, value: bytes | None, *, partition: int = 0, offset: int = 0, timestamp_us: int = 0) -> Row:
    return {
        "partition": partition,
        "offset": offset,
        "key": key,
        "value": value,
        "timestamp_us": timestamp_us,
        "headers": [],
    }


# --- the log --------------------------------------------------------------------------------------------------------


class HandMadeLog:
    """A log folder written by the test: stream `s` of two partitions, whose catalog can be spoiled by SQL."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.end = {0: 0, 1: 0}
        self.sql("PRAGMA user_version = 1")
        self.sql("CREATE TABLE streams (number INTEGER PRIMARY KEY, name, id, partitions, internal_of)")
        self.sql("CREATE TABLE partitions (stream, partition, first_offset, end_offset)")
        self.sql(
            "CREATE TABLE chunks (stream, partition, base_offset, records, file, position, length, checksum, max_timestamp_us)"
        )
        self.sql("INSERT INTO streams VALUES (7, 's', 'x', 2, NULL)")
        self.sql("INSERT INTO partitions VALUES (7, 0, 0, 0), (7, 1, 0, 0)")

    def sql(self, text: str, *values: Any) -> None:
        with sqlite3.connect(self.root / "catalog.sqlite") as database:
            database.execute(text, values)
        database.close()

    def append(self, partition: int, values: list[bytes], file: str) -> None:
        columns = [
            [b"k"] * len(values),
            values,
            list(range(len(values))),
            [[{"name": "h", "value": b"1"}]] + [None] * (len(values) - 1),
        ]
        arrays = [pa.array(column, f.type) for column, f in zip(columns, checker.SCHEMA, strict=True)]
        message = pa.RecordBatch.from_arrays(arrays, schema=checker.SCHEMA).serialize().to_pybytes()
        with (self.root / file).open("ab") as data:
            position = data.tell()
            data.write(message)
        digest = xxhash.xxh3_64_hexdigest(message)
        place = (7, partition, self.end[partition], len(values), file, position, len(message), digest, 0)
        self.sql("INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", *place)
        self.end[partition] += len(values)
        self.sql("UPDATE partitions SET end_offset = ? WHERE partition = ?", self.end[partition], partition)


@pytest.fixture
def log(tmp_path: Path) -> HandMadeLog:
    made = HandMadeLog(tmp_path)
    made.append(0, [b"a", b"b"], "one.arrow")
    made.append(1, [b"x"], "one.arrow")  # two partitions in one file, as a round writes them
    made.append(0, [b"c"], "two.arrow")
    return made


def test_read_stream_gives_partition_after_partition_in_offset_order(log: HandMadeLog) -> None:
    rows = read_stream(log.root, "s")
    assert [(r["partition"], r["offset"], r["value"]) for r in rows] == [
        (0, 0, b"a"),
        (0, 1, b"b"),
        (0, 2, b"c"),
        (1, 0, b"x"),
    ]
    assert rows[1] == {"partition": 0, "offset": 1, "key": b"k", "value": b"b", "timestamp_us": 1, "headers": []}
    assert rows[0]["headers"] == [("h", b"1")]


def test_read_stream_starts_at_the_first_offset_that_was_not_purged(log: HandMadeLog) -> None:
    log.sql("UPDATE partitions SET first_offset = 1 WHERE partition = 0")
    assert [r["offset"] for r in read_stream(log.root, "s") if r["partition"] == 0] == [1, 2]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            "UPDATE chunks SET base_offset = 3 WHERE file = 'two.arrow'",
            "gap, expected a chunk at offset 2, found one at 3",
        ),
        ("UPDATE chunks SET base_offset = 1 WHERE file = 'two.arrow'", "overlap, expected a chunk at offset 2"),
        ("INSERT INTO chunks SELECT * FROM chunks WHERE file = 'two.arrow'", "overlap, expected a chunk at offset 3"),
        (
            "DELETE FROM chunks WHERE partition = 0 AND base_offset = 0",
            "first chunk begins at 2, its first offset is 0",
        ),
        ("DELETE FROM chunks WHERE file = 'two.arrow'", "chunks end at 2, its end offset is 3"),
        ("UPDATE partitions SET end_offset = 9 WHERE partition = 1", "chunks end at 1, its end offset is 9"),
        ("UPDATE chunks SET records = 2 WHERE partition = 1", "expected 2 records"),
        ("UPDATE chunks SET file = 'gone.arrow' WHERE partition = 1", "gone.arrow is missing"),
        ("UPDATE chunks SET length = length + 8 WHERE file = 'two.arrow'", "bytes in two.arrow"),
        ("UPDATE chunks SET position = position + 8 WHERE partition = 0 AND base_offset = 0", "expected checksum"),
        ("DELETE FROM partitions WHERE partition = 1", "has 2 partitions"),
        ("UPDATE chunks SET partition = 2 WHERE partition = 1", "partitions that it does not have"),
        ("DELETE FROM streams", "no stream 's'"),
        ("PRAGMA user_version = 2", "schema version 2"),
    ],
)
def test_read_stream_fails_on_a_spoiled_catalog(log: HandMadeLog, spoil: str, message: str) -> None:
    log.sql(spoil)
    with pytest.raises(AssertionError, match=message):
        read_stream(log.root, "s")


def test_read_stream_fails_on_a_flipped_bit(log: HandMadeLog) -> None:
    data = bytearray((log.root / "two.arrow").read_bytes())
    data[-1] ^= 1
    (log.root / "two.arrow").write_bytes(data)
    with pytest.raises(AssertionError, match="expected checksum"):
        read_stream(log.root, "s")


def test_read_stream_reads_what_the_embedded_log_wrote(tmp_path: Path) -> None:
    records = [
        Record(key, b"%d" % number, 1_000 + number, (("h", None),), partition=number % 3)
        for number, key in enumerate([b"a", b"b", None] * 4)
    ]
    with open_system(f"log:{tmp_path}") as system:
        system.create_stream("views", 3)
        for start in range(0, len(records), 5):  # three commits, several chunks per partition
            system.produce("views", records[start : start + 5])
        rows = read_stream(tmp_path, "views")  # while it is open, the newest commits still in SQLite's journal
    expected = [
        {
            "partition": partition,
            "offset": offset,
            "key": record.key,
            "value": record.value,
            "timestamp_us": record.timestamp_us,
            "headers": [("h", None)],
        }
        for partition in range(3)
        for offset, record in enumerate(records[partition::3])
    ]
    assert rows == expected
    assert read_stream(tmp_path, "views") == expected


def test_the_checker_imports_nothing_of_headrace() -> None:
    tree = ast.parse(Path(checker.__file__).read_text(encoding="utf-8"))
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "." for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert {name.partition(".")[0] for name in names} <= set(sys.stdlib_module_names) | {"pyarrow", "xxhash"}


# --- predicates -----------------------------------------------------------------------------------------------------

EXPECTED = [row(b"a", b"1"), row(b"b", b"2"), row(b"a", b"3"), row(b"c", b"4", partition=1)]


def test_same_records_counts_what_it_compared() -> None:
    assert same_records(EXPECTED, EXPECTED) == 4
    assert same_records(EXPECTED, EXPECTED, by="key") == 4
    assert same_records([], []) == 0


@pytest.mark.parametrize(
    ("actual", "message"),
    [
        (EXPECTED[:1] + EXPECTED[2:], r"partition 0, record 1: found \(b'a', b'3'\), expected \(b'b', b'2'\)"),
        ([*EXPECTED[:3], EXPECTED[2], EXPECTED[3]], r"partition 0, record 3: found .*, expected no more than 3"),
        (EXPECTED[:3], r"partition 1, record 0: found only 0, expected \(b'c', b'4'\) next"),
        ([*EXPECTED[:3], row(b"c", b"5", partition=1)], "partition 1, record 0"),
        ([*EXPECTED[:3], row(b"c", b"4", partition=2)], "partition 1, record 0: found only 0"),
        ([*EXPECTED[:3], row(b"c", None, partition=1)], "partition 1, record 0"),
    ],
    ids=["lost", "twice", "lost at the end", "changed", "elsewhere", "null"],
)
def test_same_records_fails_on(actual: list[Row], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        same_records(actual, EXPECTED)


def test_same_records_by_key_lets_keys_interleave_but_not_swap() -> None:
    moved = [EXPECTED[1], EXPECTED[0], EXPECTED[2], EXPECTED[3]]
    assert same_records(moved, EXPECTED, by="key") == 4
    with pytest.raises(AssertionError, match="partition 0, record 0"):
        same_records(moved, EXPECTED)
    with pytest.raises(AssertionError, match="key b'a', record 0"):
        same_records([EXPECTED[2], EXPECTED[1], EXPECTED[0], EXPECTED[3]], EXPECTED, by="key")


def test_same_records_looks_at_the_fields_named() -> None:
    early, late = [row(b"a", b"1", timestamp_us=1)], [row(b"a", b"1", timestamp_us=2)]
    assert same_records(early, late) == 1
    with pytest.raises(AssertionError):
        same_records(early, late, fields=("timestamp_us",))


INPUTS = [row(b"a", b"1"), row(b"b", b"1"), row(b"a", b"2"), row(b"a", b"3")]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([b"2", b"1"], "b'1' comes after b'2'"),
        ([b"1", b"1"], "b'1' is there twice"),
        ([b"1", b"2", b"1"], "b'1' comes after b'2'"),
        ([b"1", b"9"], "b'9' is none of this key's inputs"),
    ],
)
def test_order_kept_per_key_fails_on(values: list[bytes], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        order_kept_per_key(INPUTS, [row(b"a", value) for value in values])


def test_order_kept_per_key_allows_records_left_out_and_keys_interleaved() -> None:
    assert order_kept_per_key(INPUTS, [row(b"a", b"1"), row(b"b", b"1", partition=1), row(b"a", b"3")]) == 3
    with pytest.raises(AssertionError, match="an earlier one is in partition 0"):
        order_kept_per_key(INPUTS, [row(b"a", b"1"), row(b"a", b"2", partition=1)])
    with pytest.raises(AssertionError, match="order cannot be told"):
        order_kept_per_key([row(b"a", b"1"), row(b"a", b"1")], [])


def test_order_kept_per_key_follows_a_changed_key_and_value() -> None:
    outputs = [row(b"A", b"v1"), row(b"A", b"v3"), row(b"B", b"v1")]
    names = {"identity": lambda r: r["value"][-1:], "key": lambda r: r["key"].lower()}
    assert order_kept_per_key(INPUTS, outputs, **names) == 3
    with pytest.raises(AssertionError, match="comes after"):
        order_kept_per_key(INPUTS, outputs[1::-1], **names)


@pytest.mark.parametrize(
    ("updates", "message"),
    [
        ({b"a": [1, 3]}, "key b'b': found no update"),
        ({b"a": [1, 2], b"b": [1]}, "key b'a': ends in 2, expected 3"),
        ({b"a": [2, 1, 3], b"b": [1]}, "key b'a', update 1: 1 does not come there"),
        ({b"a": [1, 1, 3], b"b": [1]}, "key b'a', update 1: 1 does not come there"),
        ({b"a": [3, 3], b"b": [1]}, "key b'a', update 1"),
        ({b"a": [4], b"b": [1]}, "key b'a', update 0: 4"),
        ({b"a": [3], b"b": [1], b"c": [1]}, "key b'c': found 1, the model has no update"),
        ({b"a": [], b"b": [1]}, "key b'a': found no update"),
    ],
)
def test_subsequence_ending_in_last_fails_on(updates: dict[bytes, list[int]], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        subsequence_ending_in_last(updates, {b"a": [1, 2, 3], b"b": [1]})


@given(st.lists(st.integers(0, 3), min_size=1), st.data())
def test_subsequence_ending_in_last_takes_any_choice_of_updates(model: list[int], data: st.DataObject) -> None:
    kept = data.draw(st.lists(st.booleans(), min_size=len(model) - 1, max_size=len(model) - 1))
    chosen = [value for value, keep in zip(model, [*kept, True], strict=True) if keep]
    assert subsequence_ending_in_last({b"k": chosen}, {b"k": model}) == len(chosen) + 1


@pytest.mark.parametrize(
    ("dump", "message"),
    [
        ({b"a": 1}, "key b'b': not in the store, expected 2"),
        ({b"a": 1, b"b": 3}, "key b'b': the store has 3, expected 2"),
        ({b"a": 1, b"b": 2, b"c": 0}, "key b'c': the store has 0, expected nothing"),
    ],
)
def test_state_equals_fails_on(dump: dict[bytes, int], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        state_equals({b"a": 1, b"b": 2}, dump)


def test_state_equals_counts_keys() -> None:
    assert state_equals({b"a": 1, b"b": 2}, {b"b": 2, b"a": 1}) == 2


def test_partitioned_by_murmur2_finds_a_record_that_lies_elsewhere() -> None:
    rows = [row(b"%d" % number, b"", partition=partition_of(b"%d" % number, 4)) for number in range(50)]
    assert {r["partition"] for r in rows} == {0, 1, 2, 3}
    assert partitioned_by_murmur2([*rows, row(None, b"")], 4) == 50
    wrong = {**rows[7], "partition": (rows[7]["partition"] + 1) % 4}
    with pytest.raises(AssertionError, match=f"expected in partition {rows[7]['partition']}"):
        partitioned_by_murmur2([*rows, wrong], 4)


# --- models ---------------------------------------------------------------------------------------------------------


def test_model_count_numbers_each_key_and_drops_null_keys() -> None:
    updates = model_count([row(b"a", b""), row(None, b""), row(b"b", b""), row(b"a", b"")])
    assert updates == {b"a": [1, 2], b"b": [1]}
    assert last_of(updates) == {b"a": 2, b"b": 1}


def at(*times_us: int) -> list[Row]:
    return [row(b"k", b"%d" % time, timestamp_us=time) for time in times_us]


def test_model_windowed_puts_a_record_into_each_window_that_holds_it() -> None:
    assert model_windowed(at(0, 9, 10), 10) == {(b"k", 0): [1, 2], (b"k", 10): [1]}
    assert model_windowed(at(12), 10, 5) == {(b"k", 5): [1], (b"k", 10): [1]}
    assert model_windowed(at(-1), 10) == {(b"k", -10): [1]}
    assert model_windowed([row(None, b"")], 10) == {}


def test_model_windowed_folds() -> None:
    total = model_windowed(at(1, 2, 11), 10, fold=lambda sum_, r: sum_ + int(r["value"]))
    assert total == {(b"k", 0): [1, 3], (b"k", 10): [11]}


def test_model_windowed_judges_lateness_by_the_watermark_before_the_round() -> None:
    times = at(1, 15, 2)  # the window [0, 10) with grace 5 closes at a watermark of 15
    assert model_windowed(times, 10, grace_us=5) == {(b"k", 0): [1, 2], (b"k", 10): [1]}
    assert model_windowed(times, 10, grace_us=5, cuts=[2]) == {(b"k", 0): [1], (b"k", 10): [1]}
    assert model_windowed(times, 10, grace_us=6, cuts=[2]) == {(b"k", 0): [1, 2], (b"k", 10): [1]}
    assert model_windowed(times, 10, cuts=[2]) == {(b"k", 0): [1, 2], (b"k", 10): [1]}


@given(st.integers(-100, 100), st.integers(1, 20), st.data())
def test_model_windowed_agrees_with_the_definition_of_a_window(time: int, size: int, data: st.DataObject) -> None:
    advance = data.draw(st.integers(1, size))
    starts = {start for start in range(-200, 201) if start % advance == 0 and start <= time < start + size}
    assert {start for _, start in model_windowed(at(time), size, advance)} == starts


@pytest.mark.parametrize(
    ("data", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_gives_what_kafka_s_own_test_expects(data: bytes, signed: int) -> None:
    assert murmur2(data) == signed % 2**32
    assert partition_of(data, 6) == (signed & 0x7FFFFFFF) % 6


# --- the report -----------------------------------------------------------------------------------------------------


def test_a_report_without_checks_fails() -> None:
    report = KillReport()
    report.fault("log 4", "SIGKILL", landed=True)
    with pytest.raises(AssertionError, match="no checks were made"):
        report.verify()
    report.checked("same_records", 12)
    report.verify()
    report.checked("state_equals", 0)
    with pytest.raises(AssertionError, match="compared nothing: state_equals"):
        report.verify()


def test_a_report_without_faults_that_landed_fails() -> None:
    report = KillReport()
    report.checked("same_records", 12)
    with pytest.raises(AssertionError, match="0 faults landed, expected at least 1"):
        report.verify()
    report.fault("log 4", "SIGKILL", landed=False)
    with pytest.raises(AssertionError, match="0 faults landed"):
        report.verify()
    report.verify(landed_min=0)


def test_a_report_prints_itself_as_a_table() -> None:
    report = KillReport()
    report.fault("log 12", "SIGKILL", landed=True)
    report.fault("log 4", "SIGSTOP", landed=False)
    report.fault("log 4", "SIGKILL", landed=True)
    report.fault("log 4", "SIGKILL", landed=False)
    report.checked("same_records", 1200)
    report.checked("state_equals", 34)
    assert str(report).splitlines() == [
        "step    fault    tried  landed",
        "log 4   SIGKILL  2      1",
        "log 4   SIGSTOP  1      0",
        "log 12  SIGKILL  1      1",
        "all              4      2",
        "",
        "check         made",
        "same_records  1,200",
        "state_equals  34",
        "all           1,234",
    ]
