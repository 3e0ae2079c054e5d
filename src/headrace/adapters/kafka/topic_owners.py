"""Whose the topics of a cluster are: applications' own ones, `<application>-metadata` and `-checkpoints`, by their records; and
the repartition topics that applications have on record. The record has the topic's id: a topic of the same name may be made by
another application, once that one is deleted.

A topic holds no mark of who made it, a user's may have such a name, and not every user may read its settings. So whose it
is, its first records say, or its last: a few are looked at, never a whole topic, as another application's may be large. All
that is to be read is read at once, by one client: a cluster may have hundreds of applications.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from headrace.adapters.kafka.admin import Admin, Topic
from headrace.adapters.kafka.clients import quiet, reader, received
from headrace.adapters.kafka.deadline import Deadline
from headrace.adapters.kafka.names import (
    INTERNAL,
    checkpoint_topic,
    entries_of,
    entry_key,
    internal_id,
    is_own_key,
    metadata_topic,
)
from headrace.adapters.kafka.stored_checkpoints import is_own_checkpoint
from headrace.errors import UnavailableError

LOG = logging.getLogger("headrace.kafka")
OTHERS_S = 5.0  # for this long another application's metadata may give no answer
_LOOKED_AT = 100  # records without our mark, and a topic is somebody else's
_LAST = -2_000 - _LOOKED_AT  # so many offsets before the end, to librdkafka
_AT_ONCE = 1_000
_INTERNAL = entry_key(INTERNAL, "")  # with which the keys of its records begin
_SMALL = {"fetch.message.max.bytes": 65_536, "queued.min.messages": 1, "queued.max.messages.kbytes": 64}
Take = Callable[[str, Any], bool]
"""Take a message of this topic: whether the topic is done."""
Claims = Mapping[str, Mapping[str, str]]
"""Topics to the applications that have one of this name on record, each with the id on its record: see `internal_id`."""


class TopicOwner(Enum):
    OURS = "an application's"
    OTHERS = "another application's"
    EMPTY = "without an owner"
    UNREADABLE = "not readable for this user"


@dataclass(slots=True)
class _Read:
    """An application's metadata, read up to the offset `next`: the records of its repartition topics."""

    next: int = 0
    records: dict[bytes, bytes] = field(default_factory=dict)


class TopicOwners:
    """Threads may share it. What was seen once of a topic (by its id) is not looked at again, unless there was nothing in
    it, or this user might not read it."""

    def __init__(self, admin: Admin, deadline: Deadline) -> None:
        self._admin, self._deadline, self._wait_s = admin, deadline, admin.connection.wait_s
        self._client = quiet(admin.connection.client)
        self._seen: dict[str, TopicOwner] = {}
        self._reading = threading.Lock()
        self._read: dict[str, _Read] = {}  # by the topic's id: one that is deleted and recreated is another one
        self._unread: frozenset[str] = frozenset()  # applications, at the last look

    def found(self, names: Collection[str] | None = None) -> dict[str, Topic]:
        """By application, sorted, the metadata topic of all whose own topics are among these, or there; a user's topics may
        have such names too. Of topics that say nothing, as they have no leader or this user may not read them, the names
        count."""
        names = self._admin.names() if names is None else names
        suffix = metadata_topic("")
        owners = {name: name.removesuffix(suffix) for name in names if name.endswith(suffix) and name != suffix}
        topics = self._admin.topics([name for name, owner in owners.items() if checkpoint_topic(owner) in names])
        mute = {name for name, topic in topics.items() if not topic.is_led} - self._known(topics)
        whose = self.whose([topic for name, topic in topics.items() if name not in mute])
        ours = mute | {name for name, owner in whose.items() if owner in (TopicOwner.OURS, TopicOwner.UNREADABLE)}
        return {owners[name]: topics[name] for name in sorted(ours, key=owners.__getitem__)}

    def _known(self, topics: Mapping[str, Topic]) -> set[str]:
        return {name for name, topic in topics.items() if topic.id in self._seen}

    def whose(self, topics: Collection[Topic]) -> dict[str, TopicOwner]:
        """By name, by what is in partition 0: ours have no other, but somebody may have added some."""
        new = [topic for topic in topics if topic.id not in self._seen]
        # a number: librdkafka would request where the beginning is, and that takes half a second of a new client
        found = self._looked_at([topic.name for topic in new], 0)
        # A newer version may have namespaces that this one does not know: the heartbeat is among the last records.
        strange = [topic.name for topic in new if found[topic.name] is TopicOwner.OTHERS]
        last = self._looked_at(strange, _LAST)
        found |= {name: owner for name, owner in last.items() if owner is TopicOwner.OURS}
        known = (TopicOwner.OURS, TopicOwner.OTHERS)
        self._seen |= {topic.id: found[topic.name] for topic in new if found[topic.name] in known}
        return {topic.name: self._seen.get(topic.id) or found[topic.name] for topic in topics}

    def _looked_at(self, names: Collection[str], start: int) -> dict[str, TopicOwner]:
        """By the records from this offset on."""
        found: dict[str, TopicOwner] = {}
        strange = dict.fromkeys(names, 0)  # records without our mark, by topic

        def take(name: str, message: Any) -> bool:
            whose = _owner_by(message, name, strange)
            if whose is not None:
                found[name] = whose
            return whose is not None

        # what is not committed yet is a mark as well
        self._read_all(dict.fromkeys(names, start), take, _SMALL)
        return found

    def _read_all(self, starts: Mapping[str, int], take: Take, settings: Mapping[str, Any]) -> None:
        """With what is not committed yet; `UnavailableError` where a topic is not read to where `take` is done with it."""
        left = self._each(starts, take, settings, "read_uncommitted", self._wait_s)
        if left:
            raise UnavailableError(f"topic {left[0]!r} cannot be read: no answer for {self._wait_s:.0f} s", "is the broker up?")

    def claims(self, found: Mapping[str, Topic], needed: Collection[str] = ()) -> Claims:
        """The repartition topics that applications have on record, as far as that is committed. Of an application whose
        metadata cannot be read the last known ones count; `UnavailableError` where it is a `needed` one, or none can be
        read. Of one whose metadata this user may not read, none are known."""
        with self._reading:
            self._read = {topic.id: self._read.get(topic.id) or _Read() for topic in found.values()}
            applications = {topic.name: application for application, topic in found.items()}
            reads = {topic.name: self._read[topic.id] for topic in found.values() if topic.is_led}
            failed = dict.fromkeys(applications.keys() - reads.keys(), "it has no leader")
            refused = set[str]()

            def take(name: str, message: Any) -> bool:
                error, read = message.error(), reads[name]
                if error is None:
                    _keep(read, message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    read.next = max(read.next, int(message.offset() or 0))
                elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED and applications[name] not in needed:
                    refused.add(name)
                else:
                    failed[name] = error.str()
                return error is not None

            starts = {name: read.next for name, read in reads.items()}
            left = self._each(starts, take, {}, "read_committed", OTHERS_S)
            failed |= dict.fromkeys(left, f"no answer for {OTHERS_S:.0f} s")
            unread = {applications[name]: (name, why) for name, why in sorted(failed.items())}
            is_none_read = len(unread) == len(found) - len(refused)
            self._check_unread(unread, [one for one in unread if one in needed or is_none_read])
            claims: dict[str, dict[str, str]] = {}
            for application, one in found.items():
                for topic, value in entries_of(self._read[one.id].records, INTERNAL).items():
                    claims.setdefault(topic, {})[application] = internal_id(value)
            return claims

    def ids_written(self, application: str, topic: str) -> set[str]:
        """The ids that an application's record of this topic had since it was last deleted, also those that another process has
        overwritten."""
        key, ids = entry_key(INTERNAL, topic), set[str]()

        def take(_: str, message: Any) -> bool:
            if message.error() is None and message.key() == key:
                if message.value() is None:
                    ids.clear()
                else:
                    ids.add(internal_id(message.value()))
            return message.error() is not None

        self._read_all({metadata_topic(application): 0}, take, {})
        return ids - {""}

    def _check_unread(self, unread: Mapping[str, tuple[str, str]], needed: Collection[str]) -> None:
        for application in needed:
            topic, why = unread[application]
            raise UnavailableError(f"topic {topic!r} cannot be read: {why}", "are the brokers up that have it?")
        for application in sorted(unread.keys() - self._unread):
            topic, why = unread[application]
            LOG.warning("application %r is skipped: its topic %r cannot be read: %s", application, topic, why)
        self._unread = frozenset(unread)

    def _each(
        self, starts: Mapping[str, int], take: Take, settings: Mapping[str, Any], isolation: str, quiet_s: float
    ) -> list[str]:
        """Read these topics from these offsets on, until `take` is done with each: those that it is not when nothing has come
        for `quiet_s`."""
        left = set(starts)
        if not left:
            return []
        consumer = reader({**self._client, **settings}, f"{min(left)}-readers", isolation=isolation)
        heard_s = time.monotonic()
        try:
            consumer.assign([TopicPartition(name, 0, start) for name, start in starts.items()])
            while left and self._deadline.left_s(heard_s, quiet_s) > 0:
                for message in received(consumer, _AT_ONCE):
                    name = message.topic()
                    if name not in left:
                        continue
                    heard_s = time.monotonic()
                    if take(name, message):
                        left.discard(name)
                        consumer.incremental_unassign([TopicPartition(name, 0)])
        except KafkaException as error:
            raise UnavailableError(f"topics cannot be read: {error.args[0].str()}", "is the broker up?") from None
        finally:
            consumer.close()
        return sorted(left)


def _keep(read: _Read, message: Any) -> None:
    read.next = message.offset() + 1
    key, value = message.key(), message.value()
    if key is None or not key.startswith(_INTERNAL):
        return
    if value is None:
        read.records.pop(key, None)
    else:
        read.records[key] = value


def _owner_by(message: Any, name: str, strange: dict[str, int]) -> TopicOwner | None:
    """Whose the topic is, if that is known by this message; `strange` counts the records without our mark."""
    error = message.error()
    if error is None:
        is_of_metadata = not name.endswith(checkpoint_topic(""))
        if not is_of_metadata and message.value() is None:  # whose it was, no record says any more: a reset leaves such ones
            return None
        if is_own_key(message.key()) if is_of_metadata else is_own_checkpoint(message.key(), message.value()):
            return TopicOwner.OURS
        strange[name] += 1
        return TopicOwner.OTHERS if strange[name] >= _LOOKED_AT else None
    if error.code() == KafkaError._PARTITION_EOF:
        return TopicOwner.OTHERS if strange[name] else TopicOwner.EMPTY
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return TopicOwner.UNREADABLE
    return None


def owners_of(topics: Collection[Topic], claims: Claims) -> dict[str, str]:
    """These topics to the application that has made them, without those that none has: the one that has this very topic on
    record; else, by the name alone, one whose record has no id.

    >>> topic = Topic("flight-delays-by-carrier-repartition", 2, "new")
    >>> owners_of([topic], {topic.name: {"flight": "old", "flight-delays": "new"}})
    {'flight-delays-by-carrier-repartition': 'flight-delays'}
    >>> owners_of([topic], {topic.name: {"flight": "", "late": "old"}}), owners_of([topic], {topic.name: {"flight": "old"}})
    ({'flight-delays-by-carrier-repartition': 'flight'}, {})
    """
    return {
        topic.name: application
        for topic in topics
        for id_ in ("", topic.id)  # the last one counts
        for application, on_record in claims.get(topic.name, {}).items()
        if on_record == id_
    }
