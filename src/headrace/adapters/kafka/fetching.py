"""Owns reading exact offsets of one partition in a worker: what the engine does not read, and single records again."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from headrace.adapters.kafka.client_log import CLIENT_LOG
from headrace.adapters.kafka.messages import batch_of
from headrace.errors import OffsetOutOfRangeError, RoundFailedError, StorageError

FETCH_S = 60.0
_BATCH = 10_000
# What a consumer tells and gets over by itself, as soon as the broker is there again.
GONE_FOR_NOW = frozenset({KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE, KafkaError._TIMED_OUT})


_kept: dict[tuple[int, str], Consumer] = {}  # by process and client, those that wait for their next use
_lock = threading.Lock()


def fetched(
    client: Mapping[str, Any], topic: str, partition: int, start: int, end: int, *, keep: bool = False
) -> Iterator[tuple[Any, pa.RecordBatch]]:
    """(offsets, rows) of the committed records start <= offset < end, in order.

    With `keep` the process keeps its consumer for the next call: to make one takes longer than to read some records.
    `OffsetOutOfRangeError` if the partition does not hold `start` any more, `RoundFailedError` if nothing comes for `FETCH_S`.
    """
    consumer = _taken(client) if keep else _made(client)
    ended = False
    try:
        yield from _batches(consumer, topic, partition, start, end)
        ended = True
    finally:
        if keep and ended:
            _give_back(client, consumer)
        else:
            consumer.close()


def _taken(client: Mapping[str, Any]) -> Consumer:
    with _lock:
        return _kept.pop(_kept_key(client), None) or _made(client)


def _give_back(client: Mapping[str, Any], consumer: Consumer) -> None:
    consumer.unassign()
    with _lock:
        other = _kept.pop(_kept_key(client), None)
        _kept[_kept_key(client)] = consumer
    if other is not None:
        other.close()


def _kept_key(client: Mapping[str, Any]) -> tuple[int, str]:
    return os.getpid(), repr(sorted(client.items()))


def _made(client: Mapping[str, Any]) -> Consumer:
    return Consumer(
        {
            **client,
            "logger": CLIENT_LOG,
            "group.id": "headrace-readers",  # librdkafka wants one; it is never joined, and commits nothing
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 5,  # that it is at the end must be heard soon
        }
    )


def _batches(
    consumer: Consumer, topic: str, partition: int, start: int, end: int
) -> Iterator[tuple[Any, pa.RecordBatch]]:
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
                elif error.code() in GONE_FOR_NOW:
                    continue
                else:
                    raise KafkaException(error)
                heard_s = time.monotonic()
            if rows:
                yield np.array([message.offset() for message in rows], np.int64), batch_of(rows)
            if time.monotonic() - heard_s > FETCH_S:
                raise RoundFailedError(
                    f"topic {topic!r} partition {partition}: nothing came from offset {done} on for {FETCH_S:.0f} s, "
                    f"expected records up to {end}",
                    "is the broker up?",
                )
    except KafkaException as error:
        raise RoundFailedError(f"topic {topic!r} partition {partition}: {error.args[0].str()}", "is the broker up?") from None


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
