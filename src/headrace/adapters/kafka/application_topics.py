"""Telling an application's bookkeeping from a user's topics of such names: by the keys that its first records have.

A topic holds no mark of who made it, and not every user may read its settings. So a few records are looked at,
never a whole topic: another application's may be large.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from headrace.adapters.kafka.admin import Topic
from headrace.adapters.kafka.clients import come, reader
from headrace.adapters.kafka.deadline import Deadline
from headrace.errors import UnavailableError

_LOOKED_AT = 100  # records without our mark, and a topic is somebody else's
_AT_ONCE = 1_000
# Of what the driver writes, under `entries.entry_key`, the namespaces that there always are; and any request.
_NAMESPACES = (b"job/", b"job-models/", b"lanes/", b"status/", b"internal-topics/")
_REQUESTS = b"%2Frequests/"
_SMALL = {"fetch.message.max.bytes": 65_536, "queued.min.messages": 1, "queued.max.messages.kbytes": 64}


class TopicOwner(Enum):
    OURS = "an application's"
    OTHERS = "another application's"
    EMPTY = "without an owner"


class ApplicationTopics:
    """Whose topics are that have the name of an application's metadata. Threads may share it.

    What was seen once of a topic (by its id) is not looked at again, unless there was nothing in it.
    """

    def __init__(self, client: Mapping[str, Any], patience: Deadline, wait_s: float) -> None:
        self._client, self._patience, self._wait_s = dict(client), patience, wait_s
        self._seen: dict[str, TopicOwner] = {}

    def whose(self, topics: Collection[Topic]) -> dict[str, TopicOwner]:
        """By name. A topic that this user may not read is somebody else's."""
        new = [topic for topic in topics if topic.id not in self._seen]
        found = {topic.name: TopicOwner.OTHERS for topic in new if topic.partitions != 1}
        found |= self._looked_at([topic.name for topic in new if topic.partitions == 1])
        self._seen |= {topic.id: found[topic.name] for topic in new if found[topic.name] is not TopicOwner.EMPTY}
        return {topic.name: self._seen.get(topic.id, TopicOwner.EMPTY) for topic in topics}

    def _looked_at(self, names: Sequence[str]) -> dict[str, TopicOwner]:
        """Of all of them at once: a cluster may have hundreds, and one look takes as long as many."""
        found: dict[str, TopicOwner] = {}
        if not names:
            return found
        # what is not committed yet is a mark as well
        consumer = reader({**self._client, **_SMALL}, f"{names[0]}-readers", isolation="read_uncommitted")
        strange = dict.fromkeys(names, 0)  # records without our mark, by topic
        began_s = time.monotonic()
        try:
            consumer.assign([TopicPartition(name, 0, 0) for name in names])
            while len(found) < len(names) and self._patience.left_s(began_s, self._wait_s) > 0:
                for message in come(consumer, _AT_ONCE):
                    name = message.topic()
                    if name is None or name in found:
                        continue
                    whose = _told(message, strange)
                    if whose is not None:
                        found[name] = whose
                        consumer.incremental_unassign([TopicPartition(name, 0)])
        except KafkaException as error:
            raise UnavailableError(f"topics cannot be read: {error.args[0].str()}", "is the broker up?") from None
        finally:
            consumer.close()
        left = [name for name in names if name not in found]
        if left:
            raise UnavailableError(
                f"topic {left[0]!r} cannot be read: no answer for {self._wait_s:.0f} s", "is the broker up?"
            )
        return found


def _told(message: Any, strange: dict[str, int]) -> TopicOwner | None:
    """Whose its topic is, if that is known by this message; `strange` counts the records without our mark."""
    error, name = message.error(), message.topic()
    if error is None:
        if is_mark(message.key()):
            return TopicOwner.OURS
        strange[name] += 1
        return TopicOwner.OTHERS if strange[name] >= _LOOKED_AT else None
    if error.code() == KafkaError._PARTITION_EOF:
        return TopicOwner.OTHERS if strange[name] else TopicOwner.EMPTY
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return TopicOwner.OTHERS
    return None


def is_mark(key: bytes | None) -> bool:
    """Whether a record with this key is of an application's bookkeeping.

    >>> is_mark(b"job/epoch"), is_mark(b"startpoints%2Frequests/1"), is_mark(b"jobs"), is_mark(None)
    (True, True, False, False)
    """
    return key is not None and (key.startswith(_NAMESPACES) or _REQUESTS in key)
