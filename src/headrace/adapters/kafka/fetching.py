"""Owns reading exact offsets of one partition in a worker: what the engine does not read, and single records again."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from headrace.adapters.kafka.messages import batch_of
from headrace.errors import OffsetOutOfRangeError, StorageError

FETCH_S = 60.0
_BATCH = 10_000


def fetched(
    client: Mapping[str, Any], topic: str, partition: int, start: int, end: int
) -> Iterator[tuple[Any, pa.RecordBatch]]:
    """(offsets, rows) of the committed records start <= offset < end, in order.

    `OffsetOutOfRangeError` if the partition does not hold `start` any more, `StorageError` if nothing comes for `FETCH_S`.
    """
    consumer = Consumer(
        {
            **client,
            "group.id": "headrace-readers",  # librdkafka wants one; it is never joined, and commits nothing
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 5,  # that it is at the end must be heard soon
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, start)])
        done, heard_s = start, time.monotonic()
        while done < end:
            rows = []
            # The first is waited for, and what came with it is taken: asking for many waits until there are so many.
            first = consumer.consume(1, timeout=0.2)
            for message in first + (consumer.consume(_BATCH, timeout=0) if first else []):
                error = message.error()
                if error is None:
                    done = int(message.offset() or 0) + 1
                    if done <= end:
                        rows.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    done = max(done, int(message.offset() or 0))
                elif error.code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
                    raise OffsetOutOfRangeError(
                        f"topic {topic!r} partition {partition}: offset {done} is not there any more",
                        "retention has removed it; set on_lost_offsets, or a startpoint",
                    )
                else:
                    raise KafkaException(error)
                heard_s = time.monotonic()
            if rows:
                yield np.array([message.offset() for message in rows], np.int64), batch_of(rows)
            if time.monotonic() - heard_s > FETCH_S:
                raise StorageError(
                    f"topic {topic!r} partition {partition}: nothing came from offset {done} on for {FETCH_S:.0f} s, "
                    f"expected records up to {end}",
                    "is the broker up?",
                )
    except KafkaException as error:
        raise StorageError(f"topic {topic!r} partition {partition}: {error.args[0].str()}", "is the broker up?") from None
    finally:
        consumer.close()


def fetched_at(
    client: Mapping[str, Any], topic: str, partition: int, offsets: Sequence[int]
) -> dict[int, tuple[bytes | None, bytes | None, int, Any]]:
    """Single records again, by offset: key, value, timestamp in µs, headers."""
    found: dict[int, tuple[bytes | None, bytes | None, int, Any]] = {}
    wanted = set(offsets)
    while wanted:
        start = min(wanted)
        for numbers, batch in fetched(client, topic, partition, start, max(wanted) + 1):
            for offset, row in zip(numbers.tolist(), batch.to_pylist(), strict=True):
                if offset in wanted:
                    found[offset] = (row["key"], row["value"], row["timestamp_us"], row["headers"])
        wanted -= set(found)
        if start in wanted:
            raise StorageError(f"topic {topic!r} partition {partition}: the record at offset {start} is gone", "run it again")
    return found
