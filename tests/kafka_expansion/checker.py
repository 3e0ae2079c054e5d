"""Judges what a job made of records whose topic grew under it: by what Kafka holds and what the producers' ledgers say.

It imports nothing of Headrace. Each check raises an `AssertionError` that says how much was wrong, with examples, and
returns how many things it compared (for `KillReport.checked`). Rows are those of `kafka_faults.broker.read_topic`: committed
records, partition after partition in the order of their offsets. A value is the JSON of `producers.StaleProducer`, or one
that a job has made of it; where another is meant, a function says what is in a row.

    rows = read_topic(settings, "flights")
    ledger = merged([read_ledger(path) for path in ledgers])
    as_written(rows, ledger); partitions_by_belief(rows); assert stale_rows(rows, grown_ms=when, before=4) > 0
    out = read_topic(settings, "flights-passed")          # {"seq": ..., "task": ...} under the input's key
    once_and_in_order(out, ledger)
    one_task_per_key(out); number_of_tasks(out, 4)
    counts = last_values(read_topic(settings, "counts"), lambda row: row["key"], lambda row: int(row["value"]))
    counts_are(counts, counted(rows))  # for windows: counted_by_window(rows, window_ms=10_000)
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from kafka_expansion.producers import Ledger
from support.checker import partition_of

Row = Mapping[str, Any]
EXAMPLES_MAX = 5


def seq_of(row: Row) -> int:
    """The sequence number of the record that a row came of."""
    return int(json.loads(row["value"])["seq"])


def task_of(row: Row) -> str:
    """The task that made a row."""
    return str(json.loads(row["value"])["task"])


# --- what was written -------------------------------------------------------------------------------------------------


def as_written(rows: Iterable[Row], ledger: Ledger) -> int:
    """The input topic holds each key's records once: all that its producer knows of, and none that it did not try."""
    found: dict[bytes, Counter[int]] = defaultdict(Counter)
    for row in rows:
        found[row["key"]][seq_of(row)] += 1
    wrong = []
    for key in sorted(found.keys() | ledger.tried.keys()):
        least, most = ledger.written.get(key, 0), ledger.tried.get(key, 0)
        seqs = found[key]
        if lost := [seq for seq in range(1, least + 1) if not seqs[seq]]:
            wrong.append(f"{key!r}: {_some(lost)} lost")
        if doubled := [seq for seq, count in sorted(seqs.items()) if count > 1]:
            wrong.append(f"{key!r}: {_some(doubled)} doubled")
        if strange := [seq for seq in sorted(seqs) if not 1 <= seq <= most]:
            wrong.append(f"{key!r}: {_some(strange)} never written")
    _none(wrong, "input")
    return sum(seqs.total() for seqs in found.values())


def partitions_by_belief(rows: Iterable[Row]) -> int:
    """Every input record lies where its key belongs by the number of partitions that its producer went by."""
    checked, wrong = 0, []
    for row in rows:
        count = json.loads(row["value"])["count"]
        if row["partition"] != partition_of(row["key"], count):
            wrong.append(f"{row['key']!r} of {count} partitions is in {row['partition']}")
        checked += 1
    _none(wrong, "partitions")
    return checked


def stale_rows(rows: Iterable[Row], grown_ms: int, before: int) -> int:
    """How many records were written by the old count of `before` after the topic had grown: without any, nothing is proved.

    Of those only records count whose key belongs to another partition now than then: `before` alone moves no key.
    """
    sent = [(row, json.loads(row["value"])) for row in rows]
    after = max((value["count"] for _, value in sent), default=before)
    return sum(
        value["count"] == before
        and value["sent_ms"] > grown_ms
        and partition_of(row["key"], before) != partition_of(row["key"], after)
        for row, value in sent
    )


def moved_keys(rows: Iterable[Row]) -> set[bytes]:
    """The keys that have records in several partitions: those whose order an expansion can break."""
    places: dict[bytes, set[int]] = defaultdict(set)
    for row in rows:
        places[row["key"]].add(row["partition"])
    return {key for key, partitions in places.items() if len(partitions) > 1}


# --- what became of it ------------------------------------------------------------------------------------------------


def once_and_in_order(rows: Sequence[Row], ledger: Ledger, seq: Callable[[Row], int] = seq_of) -> int:
    """An output topic, whose number of partitions stayed, holds one row per input record, each key's in order.

    A key's rows are in one partition there: what lies in two has no order.
    """
    found: dict[bytes, list[int]] = defaultdict(list)
    places: dict[bytes, set[int]] = defaultdict(set)
    for row in rows:
        found[row["key"]].append(seq(row))
        places[row["key"]].add(row["partition"])
    wrong = [f"{key!r}: in partitions {_some(sorted(at))}" for key, at in sorted(places.items()) if len(at) > 1]
    for key in sorted(found.keys() | ledger.tried.keys()):
        wrong += _of_key(key, found[key], ledger.written.get(key, 0), ledger.tried.get(key, 0))
    _none(wrong, "output")
    return sum(map(len, found.values()))


def _of_key(key: bytes, seqs: Sequence[int], least: int, most: int) -> list[str]:
    """What is wrong with the rows of one key, whose sequence is 1 to some number from `least` to `most`."""
    counts, wrong = Counter(seqs), []
    last = max([least, *(seq for seq in counts if seq <= most)])
    if lost := [seq for seq in range(1, last + 1) if seq not in counts]:
        wrong.append(f"{key!r}: {_some(lost)} lost")
    if doubled := [seq for seq, count in sorted(counts.items()) if count > 1]:
        wrong.append(f"{key!r}: {_some(doubled)} doubled")
    if strange := [seq for seq in sorted(counts) if not 1 <= seq <= most]:
        wrong.append(f"{key!r}: {_some(strange)} never written")
    firsts = list(dict.fromkeys(seqs))
    if swapped := [f"{one} before {other}" for one, other in pairwise(firsts) if one > other]:
        wrong.append(f"{key!r}: {_some(swapped)}, out of order")
    return wrong


def one_task_per_key(rows: Iterable[Row], task: Callable[[Row], str] = task_of) -> int:
    """No key was ever in two tasks."""
    tasks: dict[bytes, set[str]] = defaultdict(set)
    for row in rows:
        tasks[row["key"]].add(task(row))
    _none([f"{key!r}: in {', '.join(sorted(of))}" for key, of in sorted(tasks.items()) if len(of) > 1], "keys in two tasks")
    return len(tasks)


def number_of_tasks(rows: Iterable[Row], expected: int, task: Callable[[Row], str] = task_of) -> int:
    """So many tasks have made these rows, before the topic grew and after."""
    found = sorted({task(row) for row in rows})
    assert len(found) == expected, f"{len(found)} tasks, expected {expected}: {', '.join(found)}"
    return len(found)


# --- counts -----------------------------------------------------------------------------------------------------------


def counted(rows: Iterable[Row]) -> dict[bytes, int]:
    """The model's count: how many records of each key the input topic holds."""
    return dict(Counter(row["key"] for row in rows))


def counted_by_window(rows: Iterable[Row], window_ms: int) -> dict[tuple[bytes, int], int]:
    """The model's count per key and tumbling window, named by its start in ms, by the records' timestamps."""
    return dict(Counter((row["key"], row["timestamp_us"] // 1000 // window_ms * window_ms) for row in rows))


def last_values(rows: Iterable[Row], name: Callable[[Row], Hashable], value: Callable[[Row], Any]) -> dict[Any, Any]:
    """A table as it stands at the end of its topic, whose number of partitions stayed: the last row of each name.

    Rows without a value (tombstones) take theirs out.
    """
    found: dict[Any, Any] = {}
    for row in rows:
        if row["value"] is None:
            found.pop(name(row), None)
        else:
            found[name(row)] = value(row)
    return found


def counts_are(found: Mapping[Any, int], expected: Mapping[Any, int]) -> int:
    """What a job has counted is what the model has."""
    wrong = [
        f"{name!r}: {found.get(name, 0)}, expected {expected.get(name, 0)}"
        for name in sorted(found.keys() | expected.keys(), key=repr)
        if found.get(name, 0) != expected.get(name, 0)
    ]
    _none(wrong, "counts")
    return len(expected)


def counts_rise_by_one(rows: Iterable[Row], count: Callable[[Row], int]) -> int:
    """A count that gives every update gives 1, 2, 3, … under each key: nothing was counted twice, or under two tasks."""
    last: dict[bytes, int] = defaultdict(int)
    wrong, checked = [], 0
    for row in rows:
        now = count(row)
        if now != last[row["key"]] + 1:
            wrong.append(f"{row['key']!r}: {now} after {last[row['key']]}")
        last[row["key"]] = now
        checked += 1
    _none(wrong, "updates")
    return checked


def _none(wrong: Sequence[str], what: str) -> None:
    assert not wrong, f"{what}: {len(wrong)} wrong: {'; '.join(wrong[:EXAMPLES_MAX])}" + (
        " …" if len(wrong) > EXAMPLES_MAX else ""
    )


def _some(things: Sequence[Any]) -> str:
    return ", ".join(map(str, things[:EXAMPLES_MAX])) + (f" … ({len(things)})" if len(things) > EXAMPLES_MAX else "")
