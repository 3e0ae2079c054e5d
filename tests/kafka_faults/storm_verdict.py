"""Judges what a storm left behind: a million records and what a job made of them, held against plain dicts.

It imports nothing of Headrace. `same_sequences` says of all keys how much was lost, doubled and out of order; what a key
was counted to is judged by `support.checker`.
"""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from support.broker import QUIET, checkpoints_of
from support.checker import KillReport, last_of, long_of, partition_of, state_equals, subsequence_ending_in_last
from support.log_states import state_of, stored_count, stored_fields

PARTITIONS = 4
GROUPS = 997
READ_S_MAX = 180.0
Found = dict[bytes, list[Any]]


@dataclass(frozen=True, slots=True)
class Input:
    """All records in the order in which they were produced: the number of one is its place. `names[keys[i]]` is its key."""

    names: Sequence[bytes]
    keys: Sequence[int]
    numbers: Sequence[int]

    def records(self) -> Iterator[tuple[int, bytes, int]]:
        """Each as its id, key and n."""
        for id_, (key, n) in enumerate(zip(self.keys, self.numbers, strict=True)):
            yield id_, self.names[key], n


def judge_storm(settings: Mapping[str, str], name: str, state_dir: Path, given: Input, report: KillReport) -> None:
    """Compare all that application `name` wrote with plain models of what it was `given`."""
    by_key: dict[bytes, list[tuple[int, int]]] = {}
    for id_, key, n in given.records():
        by_key.setdefault(key, []).append((id_, n))

    def found(part: str, value: Callable[[bytes], Any]) -> Found:
        return read_by_key(settings, f"{name}-{part}", value)

    wanted: dict[Any, list[Any]] = {k: [b'{"id":%d,"n":%d}' % (i, n * 2) for i, n in of] for k, of in by_key.items()}
    report.checked("mapped: each record once, in order of its key", same_sequences(found("mapped", bytes), wanted))

    regrouped = found("regrouped", lambda value: json.loads(value)["id"])
    report.checked("regrouped: each record once, in order of its key", same_sequences(*by_source(regrouped, given)))

    checkpoints = checkpoints_of(settings, name)

    def state(store: str, value: Callable[[bytes], Any]) -> dict[bytes, Any]:
        return {key: value(held) for (key, _), held in state_of(checkpoints, state_dir, store).items()}

    groups = Counter(b"g%d" % (n % GROUPS) for n in given.numbers)
    models: dict[str, dict[bytes, list[int]]] = {
        "counts": {key: list(range(1, len(of) + 1)) for key, of in by_key.items()},
        "totals": {key: list(accumulate(n for _, n in of)) for key, of in by_key.items()},
        "groups": {group: list(range(1, count + 1)) for group, count in groups.items()},
    }
    for store, model in models.items():
        updates, held = (_total, lambda value: stored_fields(value)[0]) if store == "totals" else (long_of, stored_count)
        report.checked(f"{store}: updates", subsequence_ending_in_last(found(store, updates), model))
        report.checked(f"{store}: state", state_equals(last_of(model), state(store, held)))


def by_source(regrouped: Found, given: Input) -> tuple[dict[Any, list[int]], dict[Any, list[int]]]:
    """Ids by (group, key of the input): so far an order is kept under any factor. As found, and as they should be."""
    found: dict[Any, list[int]] = {}
    for group, ids in regrouped.items():
        for id_ in ids:
            found.setdefault((group, given.keys[id_]), []).append(id_)
    wanted: dict[Any, list[int]] = {}
    for id_, (key, n) in enumerate(zip(given.keys, given.numbers, strict=True)):
        wanted.setdefault((b"g%d" % (n % GROUPS), key), []).append(id_)
    return found, wanted


def same_sequences(found: Mapping[Any, Sequence[Any]], wanted: Mapping[Any, Sequence[Any]]) -> int:
    """The same things under each key, in the same order; the number of them. Says how many were not, and how."""
    wrong = [key for key in sorted(found.keys() | wanted.keys(), key=repr) if found.get(key, ()) != wanted.get(key, ())]
    lost = doubled = strange = moved = 0
    for key in wrong:
        there, due = Counter(found.get(key, ())), Counter(wanted.get(key, ()))
        lost += (due - there).total()
        doubled += sum(count for thing, count in (there - due).items() if thing in due)
        strange += sum(count for thing, count in (there - due).items() if thing not in due)
        moved += there == due
    first = _first_difference(wrong[0], found, wanted) if wrong else ""
    assert not wrong, (
        f"{lost} lost, {doubled} doubled, {strange} that were never due, {moved} keys out of order only; the first: {first}"
    )
    return sum(map(len, wanted.values()))


def _first_difference(key: Any, found: Mapping[Any, Sequence[Any]], wanted: Mapping[Any, Sequence[Any]]) -> str:
    there, due = found.get(key, ()), wanted.get(key, ())
    place = next((i for i, (a, b) in enumerate(zip(there, due, strict=False)) if a != b), min(len(there), len(due)))
    return f"key {key!r}, place {place}: found {list(there[place : place + 3])}, expected {list(due[place : place + 3])}"


def read_by_key(settings: Mapping[str, str], topic: str, value: Callable[[bytes], Any]) -> Found:
    """All committed records of a topic by their keys, each key's in order, and each key in the partition that is its own."""
    consumer = Consumer(
        {
            **settings,
            **QUIET,
            "group.id": f"judge-{uuid.uuid4().hex}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "queued.min.messages": 500_000,
        }
    )
    found: Found = {}
    partitions: dict[bytes, int] = {}
    try:
        known = consumer.list_topics(topic, timeout=READ_S_MAX).topics[topic]
        assert known.error is None, f"topic {topic!r}: {known.error}"
        assert len(known.partitions) == PARTITIONS, f"topic {topic!r} has {len(known.partitions)} partitions"
        consumer.assign([TopicPartition(topic, partition, 0) for partition in known.partitions])
        left, deadline_s = set(known.partitions), time.monotonic() + READ_S_MAX
        while left:
            assert time.monotonic() < deadline_s, f"topic {topic!r}: the ends of partitions {sorted(left)} were not reached"
            for message in consumer.consume(50_000, 0.2):
                error = message.error()
                if error is None:
                    key = message.key()
                    found.setdefault(key, []).append(value(message.value()))
                    before = partitions.setdefault(key, message.partition())
                    assert before == message.partition(), f"topic {topic!r}: key {key!r} is in two partitions"
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
    for key, partition in partitions.items():
        due = partition_of(key, PARTITIONS)
        assert partition == due, f"topic {topic!r}: key {key!r} is in partition {partition}, expected {due}"
    return found


def _total(value: bytes) -> int:
    total: int = json.loads(value)["total"]
    return total
