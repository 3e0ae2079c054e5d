"""Adding partitions to a topic, and waiting until every broker reports them.

A broker hears of new partitions a little after they were made: who asks the one that has not heard yet would write and read
by the old count, and a job might see the growth twice, forth and back.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headrace.adapters.kafka.admin import Admin, Topic
from headrace.adapters.kafka.broker_requests import LOG, SAY_AGAIN_S, SAY_S
from headrace.adapters.kafka.clients import CLIENT_LOG, quiet
from headrace.errors import StorageError

_LOOK_S = 0.05
_ANSWER_S = 2.0
_BOOTSTRAP = -1  # of an answer's broker, where the client has only its address yet


def expanded(admin: Admin, topic: Topic, partitions: int) -> Topic:
    """Give `topic` this many partitions. When this returns every broker reports them, and each can be written and read."""
    admin.add_partitions(topic.name, partitions)
    aware: set[int] = set()
    deadline_s = time.monotonic() + admin.connection.wait_s
    while unaware := _unaware(admin, topic.name, partitions, aware):
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


def _unaware(admin: Admin, topic: str, partitions: int, aware: set[int]) -> list[int]:
    """The cluster's brokers that do not report all partitions of a topic, with leaders; those that do go into `aware`. A
    client cannot say whom it asks. One that is new and knows a single address mostly asks that broker, and an answer says
    whose it is: so new ones are made until each broker has answered."""

    def look(listed: Any, asked: int) -> None:
        found = listed.topics.get(topic)
        if found is None or found.error is not None:
            return
        if sum(partition.leader >= 0 for partition in found.partitions.values()) >= partitions:
            aware.add(asked if listed.orig_broker_id == _BOOTSTRAP else listed.orig_broker_id)

    listed = admin.listed(topic)
    look(listed, _BOOTSTRAP)
    for number in sorted(set(listed.brokers) - aware):
        address = f"{listed.brokers[number].host}:{listed.brokers[number].port}"
        # what is wrong with one broker shows in that it does not answer
        settings: dict[str, Any] = {"bootstrap.servers": address, "error_cb": lambda _: None, "logger": CLIENT_LOG}
        client = AdminClient({**quiet(admin.connection.client), **settings, "allow.auto.create.topics": False})
        with suppress(KafkaException):  # it may be about to leave the cluster: the next look asks which brokers there are
            look(client.list_topics(topic, timeout=_ANSWER_S), number)
    return sorted(set(listed.brokers) - aware)
