"""The checker sees what is wrong: each fault is planted into what a right job leaves behind."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kafka_expansion import checker
from kafka_expansion.producers import Ledger, merged, read_ledger
from support.checker import partition_of

KEYS = [f"p-{number}".encode() for number in range(8)]
SEQS, GROWN_AT, LEARNED_AT = 6, 2, 4  # the topic grows behind the second record of a key, producers learn of it two later
BEFORE, AFTER = 4, 8
LEDGER = Ledger(dict.fromkeys(KEYS, SEQS), dict.fromkeys(KEYS, SEQS), ((AFTER, 1000 * LEARNED_AT),), True)
Rows = list[dict[str, Any]]


def row(key: bytes, partition: int, seq: int, value: Mapping[str, Any]) -> dict[str, Any]:
    text = json.dumps({"seq": seq, **value})
    return {"key": key, "partition": partition, "timestamp_us": seq * 1_000_000, "value": text.encode()}


def inputs() -> Rows:
    """What producers write that learn of the growth late, by partition and offset."""
    rows = []
    for seq in range(1, SEQS + 1):
        count = BEFORE if seq <= LEARNED_AT else AFTER
        rows += [row(key, partition_of(key, count), seq, {"count": count, "sent_ms": seq * 1000}) for key in KEYS]
    return sorted(rows, key=lambda row: row["partition"])


def outputs() -> Rows:
    """What a right job makes of them: each key in the task of its oldest partition."""
    return [
        row(key, partition_of(key, 3), seq, {"task": f"Partition_{partition_of(key, BEFORE)}", "count": seq})
        for key in KEYS
        for seq in range(1, SEQS + 1)
    ]


def count_of(row: Mapping[str, Any]) -> int:
    return int(json.loads(row["value"])["count"])


def test_what_is_right_passes_and_is_counted() -> None:
    rows, out = inputs(), outputs()
    assert checker.as_written(rows, LEDGER) == checker.partitions_by_belief(rows) == len(KEYS) * SEQS
    moved = {key for key in KEYS if partition_of(key, BEFORE) != partition_of(key, AFTER)}
    assert checker.moved_keys(rows) == moved
    assert checker.stale_rows(rows, GROWN_AT * 1000, BEFORE) == len(moved) * (LEARNED_AT - GROWN_AT) > 0
    assert checker.stale_rows(rows, LEARNED_AT * 1000, BEFORE) == 0
    assert checker.once_and_in_order(out, LEDGER) == len(KEYS) * SEQS
    assert checker.one_task_per_key(out) == len(KEYS)
    assert checker.number_of_tasks(out, len({partition_of(key, BEFORE) for key in KEYS})) > 1
    assert checker.counts_rise_by_one(out, count_of) == len(out)
    assert checker.counts_are(checker.last_values(out, lambda row: row["key"], count_of), checker.counted(rows)) == len(KEYS)


def lost(rows: Rows) -> None:
    del rows[7]


def doubled(rows: Rows) -> None:
    rows.insert(7, dict(rows[7]))


def doubled_much_later(rows: Rows) -> None:
    rows.append(dict(rows[0]))


def never_written(rows: Rows) -> None:
    last = rows[SEQS - 1]
    rows.insert(SEQS, last | {"value": last["value"].replace(b'"seq": 6', b'"seq": 7')})


def of_another_key(rows: Rows) -> None:
    rows[7] = rows[7] | {"key": b"strange"}


def swapped(rows: Rows) -> None:
    rows[0], rows[1] = rows[1], rows[0]


def in_two_partitions(rows: Rows) -> None:
    rows[0] = rows[0] | {"partition": 3}


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (lost, "2 lost"),
        (doubled, "2 doubled"),
        (doubled_much_later, "1 doubled"),
        (never_written, "7 never written"),
        (of_another_key, "'strange': 2 never written"),
        (swapped, "2 before 1, out of order"),
        (in_two_partitions, "in partitions"),
    ],
)
def test_a_fault_of_the_output_is_seen(fault: Callable[[Rows], None], text: str) -> None:
    rows = outputs()
    fault(rows)
    with pytest.raises(AssertionError, match=text):
        checker.once_and_in_order(rows, LEDGER)


@pytest.mark.parametrize(("fault", "text"), [(lost, "lost"), (doubled, "doubled"), (of_another_key, "never written")])
def test_a_fault_of_the_input_is_seen(fault: Callable[[Rows], None], text: str) -> None:
    rows = inputs()
    fault(rows)
    with pytest.raises(AssertionError, match=text):
        checker.as_written(rows, LEDGER)


def test_a_record_beside_its_partition_is_seen() -> None:
    rows = inputs()
    rows[0] = rows[0] | {"partition": 99}
    with pytest.raises(AssertionError, match="is in 99"):
        checker.partitions_by_belief(rows)


def test_a_key_in_two_tasks_is_seen_and_a_task_too_many() -> None:
    rows = outputs()
    rows[SEQS - 1] = rows[SEQS - 1] | {"value": b'{"seq": 6, "task": "Partition_4"}'}
    with pytest.raises(AssertionError, match=r"'p-0': in Partition_\d, Partition_\d"):
        checker.one_task_per_key(rows)
    with pytest.raises(AssertionError, match="tasks, expected"):
        checker.number_of_tasks(rows, len({partition_of(key, BEFORE) for key in KEYS}))


@pytest.mark.parametrize("change", [-1, 1])
def test_a_count_that_is_off_by_one_is_seen(change: int) -> None:
    expected = checker.counted(inputs())
    with pytest.raises(AssertionError, match=f"{SEQS + change}, expected {SEQS}"):
        checker.counts_are(expected | {KEYS[0]: SEQS + change}, expected)
    with pytest.raises(AssertionError, match="counts: 1 wrong"):
        checker.counts_are({key: count for key, count in expected.items() if key != KEYS[1]}, expected)


@pytest.mark.parametrize("fault", [lost, doubled, swapped])
def test_a_count_that_skips_or_repeats_is_seen(fault: Callable[[Rows], None]) -> None:
    rows = outputs()
    fault(rows)
    with pytest.raises(AssertionError, match="updates: "):
        checker.counts_rise_by_one(rows, count_of)


def test_windows_are_counted_by_the_records_times() -> None:
    counts = checker.counted_by_window(inputs(), window_ms=4000)  # seconds 1 to 3, and 4 to 6
    assert counts == {(key, start): 3 for key in KEYS for start in (0, 4000)}


def test_a_table_is_its_last_rows() -> None:
    rows = [*outputs(), {"key": KEYS[0], "partition": 0, "timestamp_us": 0, "value": None}]
    found = checker.last_values(rows, lambda row: row["key"], count_of)
    assert found == dict.fromkeys(KEYS[1:], SEQS)


class TestLedgers:
    def written(self, path: Path, *lines: Any) -> Path:
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    def test_a_batch_that_was_cut_may_be_there_or_not(self, tmp_path: Path) -> None:
        path = self.written(
            tmp_path / "p",
            {"load": {"name": "p"}, "count": 4},
            {"tried": [[0, 1], [1, 1]]},
            {"written": 2},
            {"count": 8, "at_ms": 70},
            {"tried": [[0, 2], [1, 2]]},
        )
        with path.open("a") as ledger:
            ledger.write('{"writ')
        ledger = read_ledger(path)
        assert ledger == Ledger({b"p-0": 1, b"p-1": 1}, {b"p-0": 2, b"p-1": 2}, ((8, 70),), False)
        for there in (1, 2):
            rows = [row(b"p-0", 0, seq, {}) for seq in range(1, there + 1)] + [row(b"p-1", 0, 1, {})]
            assert checker.as_written(rows, ledger) == checker.once_and_in_order(rows, ledger) == there + 1
        with pytest.raises(AssertionError, match="3 never written"):
            checker.as_written([row(b"p-0", 0, seq, {}) for seq in (1, 2, 3)] + [row(b"p-1", 0, 1, {})], ledger)

    def test_ledgers_are_one_if_no_key_is_in_two(self) -> None:
        one = Ledger({b"a": 1}, {b"a": 2}, ((8, 7),), True)
        other = Ledger({b"b": 3}, {b"b": 3}, ((8, 5),), False)
        assert merged([one, other]) == Ledger({b"a": 1, b"b": 3}, {b"a": 2, b"b": 3}, ((8, 5), (8, 7)), False)
        with pytest.raises(AssertionError, match="two producers"):
            merged([one, one])
