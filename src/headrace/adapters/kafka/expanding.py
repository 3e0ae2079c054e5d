"""Adding partitions to a topic, and waiting until every broker reports them.

A broker hears of new partitions a little after they were made: who asks the one that has not heard yet would write and read
by the old count, and a job might see the growth twice, forth and back.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from headrace.adapters.kafka.admin import LOG, SAY_AGAIN_S, SAY_S, Admin, Topic
from headrace.adapters.kafka.clients import CLIENT_LOG, quiet
from headrace.errors import StorageError

_LOOK_S = 0.05
_ANSWER_S = 2.0
_BOOTSTRAP = -1  # of an answer's broker, where the client has only its address yet


def expanded(admin: Admin, topic: Topic, partitions: int) -> Topic:
    """Give `topic` this many partitions. When this returns every broker reports them, and each can be written and read."""
    admin.add_partitions(topic.name, partitions)
    asked = _Brokers(admin, topic.name, partitions)
    deadline_s = time.monotonic() + admin.connection.wait_s
    while unaware := asked.unaware():
        if time.monotonic() > deadline_s:
            names = ", ".join(map(str, unaware))
            raise StorageError(
                f"topic {topic.name!r} was expanded to {partitions} partitions, but broker {names} does not report all of "
                f"them, with leaders, after {admin.connection.wait_s:.0f} s",
                "is that broker up, and can it be reached from here? The partitions exist: do not repeat the command",
            )
        time.sleep(_LOOK_S)
    grown = Topic(topic.name, partitions, topic.id)
    _await_made(admin, grown, range(topic.partitions, partitions))
    return grown


def _await_made(admin: Admin, topic: Topic, new: Sequence[int]) -> None:
    """Until all of `new` can be written and read. Brokers may make some dozens a second: waits while they progress."""
    left, moved_s = len(new), time.monotonic()
    say_s = moved_s + SAY_S
    while new := admin.unmade(topic, new):
        if time.monotonic() > say_s:
            say_s = time.monotonic() + SAY_AGAIN_S
            LOG.warning("waiting until the brokers have made all partitions of topic %r: %d are left", topic.name, len(new))
        if len(new) < left:
            left, moved_s = len(new), time.monotonic()
        elif time.monotonic() - moved_s > admin.connection.wait_s:
            raise StorageError(
                f"topic {topic.name!r} was expanded to {topic.partitions} partitions, and its partition {new[0]}"
                f"{f' (and {left - 1} more)' if left > 1 else ''} has no end offset after "
                f"{admin.connection.wait_s:.0f} s",
                "are all brokers up? The partitions exist, or will: do not repeat the command",
            )
        time.sleep(_LOOK_S)


class _Brokers:
    """Which brokers report all partitions of a topic.

    A client cannot say whom it asks. One that is new and knows a single address mostly asks that broker, and an answer says
    whose it is: so new ones are made until each broker has answered.
    """

    def __init__(self, admin: Admin, topic: str, partitions: int) -> None:
        self._admin, self._topic, self._partitions = admin, topic, partitions
        self._aware: set[int] = set()

    def unaware(self) -> list[int]:
        """The brokers that have not told yet, of those that the cluster has now."""
        listed = self._admin.listed(self._topic)
        self._hear(listed, _BOOTSTRAP)
        for broker in sorted(set(listed.brokers) - self._aware):
            self._ask(broker, f"{listed.brokers[broker].host}:{listed.brokers[broker].port}")
        return sorted(set(listed.brokers) - self._aware)

    def _ask(self, broker: int, address: str) -> None:
        client = AdminClient(_settings(self._admin.connection.client, address))
        try:
            self._hear(client.list_topics(self._topic, timeout=_ANSWER_S), broker)
        except KafkaException:
            return  # it may be about to leave the cluster: the next look asks which brokers there are

    def _hear(self, listed: Any, asked: int) -> None:
        topic = listed.topics.get(self._topic)
        if topic is not None and topic.error is None and _led(topic.partitions.values()) >= self._partitions:
            self._aware.add(asked if listed.orig_broker_id == _BOOTSTRAP else listed.orig_broker_id)


def _led(partitions: Iterable[Any]) -> int:
    return sum(partition.leader >= 0 for partition in partitions)


def _settings(client: Mapping[str, str], address: str) -> dict[str, Any]:
    return {**quiet(client), "bootstrap.servers": address, "error_cb": _unheard, "logger": CLIENT_LOG}


def _unheard(error: KafkaError) -> None:
    """What is wrong with one broker shows in that it does not answer."""
