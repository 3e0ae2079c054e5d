"""What tests do with a broker through a client of its own: make a topic, write in a transaction, read what counts."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

WAIT_S = 60
QUIET = {"log_level": 0}  # librdkafka prints each lost connection; here they are meant


def make_topic(settings: Mapping[str, str], partitions: int = 1, replicas: int = 1) -> str:
    name = f"t-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({**settings, **QUIET})  # it has to live until the answer is there
    admin.create_topics([NewTopic(name, partitions, replicas)], request_timeout=WAIT_S)[name].result(WAIT_S)
    return name


def write(settings: Mapping[str, str], topic: str, *values: bytes) -> None:
    """All in one transaction."""
    producer = Producer({**settings, **QUIET, "transactional.id": f"tx-{uuid.uuid4().hex}"})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    producer.commit_transaction(WAIT_S)


def errors_of(settings: Mapping[str, str], code: int) -> set[int]:
    """The codes of the errors that a client with these settings meets, until `code` is among them or time is up."""
    found: set[int] = set()
    admin = AdminClient({**settings, **QUIET, "error_cb": lambda error: found.add(error.code())})
    end = time.monotonic() + WAIT_S
    while code not in found and time.monotonic() < end:
        admin.poll(0.1)
    return found


def read(settings: Mapping[str, str], topic: str, count: int) -> list[bytes]:
    """The first `count` committed values of partition 0; fewer if they do not come in time."""
    consumer = Consumer({**settings, **QUIET, "group.id": uuid.uuid4().hex, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    try:
        while len(found) < count:
            message = consumer.poll(WAIT_S)
            if message is None:
                break
            if message.error() is None:
                found.append(message.value() or b"")
        return found
    finally:
        consumer.close()
