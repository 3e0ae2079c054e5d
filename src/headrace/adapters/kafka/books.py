"""Owns telling an application's bookkeeping from a user's topics of such names: by the keys that its first records have.

A topic holds no mark of who made it, and its settings may not be asked for by everybody. So a few records are looked at,
never a whole topic: somebody else's may be large.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from enum import Enum
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from headrace.adapters.kafka.admin import Topic
from headrace.adapters.kafka.client_log import CLIENT_LOG
from headrace.adapters.kafka.patience import Patience
from headrace.errors import UnavailableError

_LOOKED_AT = 100  # records, of those that come at once
# Of what the driver writes, under `entries.entry_key`, the namespaces that there always are; and any request.
_NAMESPACES = (b"job/", b"job-models/", b"lanes/", b"status/", b"internal-topics/")
_REQUESTS = b"%2Frequests/"
_SMALL = {"fetch.message.max.bytes": 65_536, "queued.min.messages": 1, "queued.max.messages.kbytes": 64}


class Whose(Enum):
    OURS = "an application's"
    OTHERS = "somebody else's"
    EMPTY = "nobody's yet"


class Books:
    """Whose topics are that have the name of an application's metadata. Threads may share it.

    What was seen once of a topic (by its id) is not looked at again, unless there was nothing in it.
    """

    def __init__(self, client: Mapping[str, Any], patience: Patience, wait_s: float) -> None:
        self._client, self._patience, self._wait_s = dict(client), patience, wait_s
        self._seen: dict[str, Whose] = {}

    def whose(self, topics: Collection[Topic]) -> dict[str, Whose]:
        """By name. A topic that this user may not read is somebody else's."""
        new = [topic for topic in topics if topic.id not in self._seen]
        empty = set()
        if new:
            consumer = Consumer(
                {
                    **self._client,
                    **_SMALL,
                    "logger": CLIENT_LOG,
                    "group.id": f"{new[0].name}-readers",  # librdkafka wants one; it is never joined
                    "isolation.level": "read_uncommitted",  # what is not committed yet is a mark as well
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    "auto.offset.reset": "earliest",
                    "fetch.wait.max.ms": 5,
                }
            )
            try:
                for topic in new:
                    found = Whose.OTHERS if topic.partitions != 1 else self._looked_at(consumer, topic.name)
                    if found is Whose.EMPTY:
                        empty.add(topic.id)
                    else:
                        self._seen[topic.id] = found
            finally:
                consumer.close()
        return {topic.name: Whose.EMPTY if topic.id in empty else self._seen[topic.id] for topic in topics}

    def _looked_at(self, consumer: Consumer, topic: str) -> Whose:
        consumer.assign([TopicPartition(topic, 0, 0)])
        began_s = time.monotonic()
        try:
            while self._patience.left_s(began_s, self._wait_s) > 0:
                first = consumer.consume(1, timeout=0.2)
                messages = first + (consumer.consume(_LOOKED_AT, timeout=0) if first else [])
                if any(is_mark(message.key()) for message in messages if message.error() is None):
                    return Whose.OURS
                if any(message.error() is None for message in messages):
                    return Whose.OTHERS
                codes = [error.code() for message in messages if (error := message.error()) is not None]
                if KafkaError._PARTITION_EOF in codes:
                    return Whose.EMPTY
                if KafkaError.TOPIC_AUTHORIZATION_FAILED in codes:
                    return Whose.OTHERS
        except KafkaException as error:
            raise UnavailableError(f"topic {topic!r} cannot be read: {error.args[0].str()}", "is the broker up?") from None
        finally:
            consumer.unassign()
        raise UnavailableError(f"topic {topic!r} cannot be read: no answer for {self._wait_s:.0f} s", "is the broker up?")


def is_mark(key: bytes | None) -> bool:
    """Whether a record with this key is of an application's bookkeeping.

    >>> is_mark(b"job/epoch"), is_mark(b"startpoints%2Frequests/1"), is_mark(b"jobs"), is_mark(None)
    (True, True, False, False)
    """
    return key is not None and (key.startswith(_NAMESPACES) or _REQUESTS in key)
