"""Reads a broker by itself for tests with faults: committed records, what is open, checkpoints. Imports nothing of Headrace.

What is read here is judged by `checker`: a mistake of Headrace's own readers cannot hide.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from support.checker import Row

READ_S_MAX = 60.0
QUIET = {"log_level": 0}  # librdkafka prints each lost connection; here they are meant


def read_topic(settings: Mapping[str, str], topic: str) -> list[Row]:
    """All records that are committed when it begins, and maybe later ones, partition after partition, in the order of their
    offsets; offsets may have holes. A job may write all the while: then the end of a partition is never there to be met."""
    consumer = Consumer(
        {
            **settings,
            **QUIET,
            "group.id": f"judge-{uuid.uuid4().hex}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    rows: list[Row] = []
    try:
        found = consumer.list_topics(topic, timeout=READ_S_MAX).topics[topic]
        assert found.error is None, f"topic {topic!r}: {found.error}"
        left = _committed_ends(settings, topic, found.partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in left])
        deadline_s = time.monotonic() + READ_S_MAX
        while left:
            assert time.monotonic() < deadline_s, f"topic {topic!r}: the ends of partitions {sorted(left)} were not reached"
            for message in consumer.consume(10_000, 0.2):
                error = message.error()
                if error is None:
                    rows.append(_row(message))
                    end = left.get(message.partition())
                    if end is not None and message.offset() >= end - 1:
                        del left[message.partition()]
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.pop(message.partition(), None)
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
    rows.sort(key=lambda row: row["partition"])  # stable: within a partition they came in order
    return rows


def _committed_ends(settings: Mapping[str, str], topic: str, partitions: Iterable[int]) -> dict[int, int]:
    """Behind the last record, of each partition, that no open transaction holds back; markers of transactions count."""
    latest = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in partitions}
    admin = AdminClient({**settings, **QUIET})
    found = admin.list_offsets(latest, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=READ_S_MAX)
    return {place.partition: future.result(READ_S_MAX).offset for place, future in found.items()}


def _row(message: Any) -> Row:
    return {
        "partition": message.partition(),
        "offset": message.offset(),
        "key": message.key(),
        "value": message.value(),
        "timestamp_us": message.timestamp()[1] * 1000,
        "headers": message.headers() or [],
    }


def newest(rows: Iterable[Row]) -> dict[bytes, bytes]:
    """What stands in a compacted topic: the last value of each key, tombstones taken out."""
    values: dict[bytes, bytes] = {}
    for row in rows:
        if row["value"] is None:
            values.pop(row["key"], None)
        else:
            values[row["key"]] = row["value"]
    return values


def checkpoints_of(settings: Mapping[str, str], application: str) -> dict[str, dict[str, Any]]:
    """Every task's checkpoint, as it is committed."""
    stored = [json.loads(text) for text in newest(read_topic(settings, f"{application}-checkpoints")).values()]
    current = max((one["job_model_version"] for one in stored), default=0)  # one of an older plan is no checkpoint
    return {one["task"]: one for one in stored if one["job_model_version"] == current}


def has_open_transaction(settings: Mapping[str, str], application: str) -> bool:
    """Whether the application's lanes have written records that are neither committed nor aborted."""
    known = AdminClient({**settings, **QUIET}).list_topics(timeout=READ_S_MAX).topics
    mine = [name for name in known if name.startswith(f"{application}-") and not name.endswith(("-in", "-metadata"))]
    return is_in_transaction(settings, mine)


def is_in_transaction(settings: Mapping[str, str], topics: Iterable[str]) -> bool:
    """Whether records were written to any of these that are neither committed nor aborted."""
    admin = AdminClient({**settings, **QUIET})
    known = admin.list_topics(timeout=READ_S_MAX).topics
    places = [TopicPartition(topic, number) for topic in topics if topic in known for number in known[topic].partitions]
    if not places:
        return False
    stable, written = (
        admin.list_offsets({place: OffsetSpec.latest() for place in places}, isolation_level=level, request_timeout=20)
        for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
    )
    return any(stable[place].result().offset < written[place].result().offset for place in places)
