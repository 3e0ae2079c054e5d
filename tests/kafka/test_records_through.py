"""Records on their way through librdkafka: handed over in order, whatever the queue holds, and fetched again by offset."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.adapters.kafka import fetching
from headrace.adapters.kafka.clients import new_producer, produce_all
from headrace.adapters.kafka.fetching import fetched
from headrace.adapters.kafka.messages import Message
from headrace.testing import KafkaServer
from kafka.clients import QUIET, WAIT_S, make_topic

TIME_MS = 1_700_000_000_000


def test_a_full_queue_keeps_order_times_and_headers(kafka_server: KafkaServer) -> None:
    settings = {**kafka_server.client_settings(), **QUIET}
    topic = make_topic(settings)
    sent: list[Message] = [
        (b"%d" % n, None if n % 3 else b"k", 0, TIME_MS + n, [("h", b"x")] if n % 2 else None) for n in range(500)
    ]
    errors: list[KafkaError] = []
    producer = new_producer({**settings, "queue.buffering.max.messages": 20}, None, 60_000)
    produce_all(producer, topic, sent, errors, WAIT_S)
    assert (producer.flush(WAIT_S), errors) == (0, [])
    found = [row for _, batch in fetched(settings, topic, 0, 0, 500) for row in batch.to_pylist()]
    assert [(row["value"], row["key"], row["timestamp_us"] // 1000) for row in found] == [(m[0], m[1], m[3]) for m in sent]
    assert [row["headers"] is not None for row in found] == [n % 2 == 1 for n in range(500)]


def test_what_the_broker_refuses_is_reported(kafka_server: KafkaServer) -> None:
    settings = {**kafka_server.client_settings(), **QUIET}
    topic = f"t-{uuid.uuid4().hex[:12]}"
    admin = AdminClient(settings)
    admin.create_topics([NewTopic(topic, 1, 1, config={"max.message.bytes": "1000"})])[topic].result(WAIT_S)
    errors: list[KafkaError] = []
    producer = new_producer({**settings, "compression.type": "none"}, None, 60_000)
    produce_all(producer, topic, [(b"v" * 5_000, b"k", 0, TIME_MS, None)], errors, WAIT_S)
    producer.flush(WAIT_S)
    assert [error.code() for error in errors] == [KafkaError.MSG_SIZE_TOO_LARGE]


def test_a_kept_consumer_reads_on_and_one_that_was_left_is_not_kept(
    kafka_server: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**kafka_server.client_settings(), **QUIET}
    topic = make_topic(settings, partitions=2)
    producer = new_producer(settings, None, 60_000)
    for partition in (0, 1):
        rows = [(b"%d-%d" % (partition, n), None, partition, TIME_MS, None) for n in range(10)]
        produce_all(producer, topic, rows, [], WAIT_S)
    producer.flush(WAIT_S)
    made: list[Any] = []
    make = fetching.reader
    monkeypatch.setattr(fetching, "reader", lambda *given: made.append(make(*given)) or made[-1])

    def values(partition: int, start: int, end: int) -> list[bytes]:
        batches = fetched(settings, topic, partition, start, end, keep=True)
        return [row["value"] for _, batch in batches for row in batch.to_pylist()]

    assert values(0, 2, 5) == [b"0-2", b"0-3", b"0-4"]
    assert values(1, 9, 10) == [b"1-9"]
    assert values(0, 0, 1) == [b"0-0"]
    assert len(made) == 1
    left = fetched(settings, topic, 0, 0, 10, keep=True)
    next(left)
    left.close()
    assert values(1, 0, 2) == [b"1-0", b"1-1"]
    assert len(made) == 2


def test_few_records_of_many_partitions_come_together_again_and_again(kafka_server: KafkaServer) -> None:
    settings = {**kafka_server.client_settings(), **QUIET}
    topic = make_topic(settings, partitions=20)
    producer = new_producer(settings, None, 60_000)
    for partition in range(20):
        rows = [(b"%d-%d" % (partition, n), None, partition, TIME_MS, None) for n in range(12)]
        produce_all(producer, topic, rows, [], WAIT_S)
    producer.flush(WAIT_S)
    for start, end in ((0, 5), (5, 6), (6, 12)):  # the same consumer goes on where it stopped short
        found = fetching.fetched_together(settings, [(topic, partition, start, end) for partition in range(20)])
        values = {
            partition: [row["value"] for offsets, batch in batches for row in batch.to_pylist()]
            for (_, partition), batches in found.items()
        }
        assert values == {partition: [b"%d-%d" % (partition, n) for n in range(start, end)] for partition in range(20)}
