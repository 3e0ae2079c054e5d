"""The topics that an application has for itself, `<application>-metadata` and `-checkpoints`: made, read and written. Whose a
topic of such a name is, `topic_owners` says.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, Producer

from headrace.adapters.kafka.admin import Admin, Topic
from headrace.adapters.kafka.broker_requests import LOG, lasting_hint
from headrace.adapters.kafka.clients import CLIENT_LOG, produce_all, quiet
from headrace.adapters.kafka.compacted import CompactedTopic
from headrace.adapters.kafka.deadline import Deadline
from headrace.adapters.kafka.names import (
    INTERNAL,
    OF_REQUESTS,
    PIECE_BYTES,
    checkpoint_topic,
    entries_of,
    entry_key,
    internal_id,
    metadata_topic,
    records_of,
)
from headrace.adapters.kafka.topic_owners import TopicOwner, TopicOwners, owners_of
from headrace.errors import ConfigError, IncompatibleChangeError, RoundFailedError, StorageError, StreamExistsError
from headrace.ports.metadata_store import MetadataStore

if TYPE_CHECKING:  # it imports Arrow, which commands that read no records do without
    from headrace.adapters.kafka.messages import Message

# What the job rests on, and kafka.topic.* does not change: all else of a topic that it makes, it does.
_COMPACTED = {"cleanup.policy": "compact"}
_OFTEN = {"segment.ms": "3600000", "min.cleanable.dirty.ratio": "0.1"}
MADE_S = 2.0  # for this long another start, which has created a topic, may take to write its id


class ApplicationTopics:
    """The topics of all applications of a cluster. Threads may share it. `find` gives a topic as it was seen last. `driven`:
    the applications that this process drives."""

    def __init__(self, admin: Admin, deadline: Deadline, find: Callable[[str], Topic | None]) -> None:
        self._admin, self._deadline, self._find = admin, deadline, find
        self._connection, self._wait_s = admin.connection, admin.connection.wait_s
        self._client = quiet(self._connection.client)
        self._owners = TopicOwners(admin, deadline)
        self._compared: set[str] = set()  # topics, by their ids, whose settings were looked at
        self._lock = threading.Lock()
        self.driven: set[str] = set()
        self._metadata: dict[str, tuple[str, CompactedTopic]] = {}  # by application the topic's id, and its reader
        self._writing = threading.Lock()
        self._producer: Producer | None = None
        self._large: dict[str, dict[bytes, bytes]] = {}  # by application the records of values in pieces, as written last

    def close(self) -> None:
        with self._lock:
            for _, topic in self._metadata.values():
                topic.close()
            self._metadata.clear()
        with self._writing:
            self._producer = None

    def ensure(self, application: str) -> None:
        """Make an application's own topics, where they are not there yet; `IncompatibleChangeError` as for `is_initialized`,
        and of both where the metadata is not there."""
        there = self._own(application)
        self._check_owner(application, [one for one in there if one.name == metadata_topic(application)] or there)
        self._make(application, there)

    def begin(self, application: str) -> None:
        """As `ensure`, before an application is taken. `IncompatibleChangeError` of both its own topics, as a plan deletes the
        checkpoints that it finds; `ConfigError` for one that deletes records by age or size."""
        there = self._own(application)
        self._check_owner(application, there)
        self._check_policy(application, there)
        self._make(application, there)

    def _own(self, application: str) -> list[Topic]:
        names = (metadata_topic(application), checkpoint_topic(application))
        return [topic for topic in map(self._find, names) if topic is not None]

    def _make(self, application: str, there: Collection[Topic]) -> None:
        for name in (metadata_topic(application), checkpoint_topic(application)):
            if name not in {topic.name for topic in there}:
                with suppress(StreamExistsError):  # another driver was quicker
                    self._admin.create(name, 1, {**_OFTEN, **self._connection.topic_settings, **_COMPACTED})

    def is_initialized(self, application: str) -> bool:
        """Whether the application's metadata is there; `IncompatibleChangeError` where its topic is somebody else's,
        `StorageError` where this user may not read it."""
        topic = self._find(metadata_topic(application))
        if topic is None:
            return False
        self._check_owner(application, [topic])
        return True

    def bookkeeping_of(self, topic: str) -> str | None:
        """The application that has this topic for itself; None for a stream."""
        for own in (metadata_topic, checkpoint_topic):
            application = topic.removesuffix(own(""))
            if application not in ("", topic):
                both = [metadata_topic(application), checkpoint_topic(application)]
                return application if self._owners.found(both) else None
        return None

    def _check_owner(self, application: str, topics: Sequence[Topic]) -> None:
        owners = self._owners.whose(topics)
        is_known = owners.get(metadata_topic(application)) is TopicOwner.OURS
        for topic in topics:
            owner = owners[topic.name]
            if owner is TopicOwner.UNREADABLE:
                raise self._admin.failed(f"read topic {topic.name!r}", KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
            # none of ours begins with several partitions: there may be records of theirs in the others
            is_theirs = owner is TopicOwner.EMPTY and topic.partitions > 1 and not is_known
            if owner is TopicOwner.OTHERS or is_theirs:
                raise IncompatibleChangeError(
                    f"topic {topic.name!r} exists, and is not the bookkeeping of application {application!r}",
                    "give the application another name, or that topic",
                )

    def _check_policy(self, application: str, topics: Sequence[Topic]) -> None:
        """Of topics that somebody else may have made, with the settings that are the cluster's default."""
        new = [topic.name for topic in topics if topic.id not in self._compared]
        found = self._admin.topic_settings(new)
        for name, settings in found.items():
            policy = settings.get("cleanup.policy")
            if policy not in (None, "compact"):
                raise ConfigError(
                    f"topic {name!r} has cleanup.policy={policy}, expected compact: the bookkeeping of application "
                    f"{application!r} would be deleted, and it would begin again and write its outputs again",
                    f"kafka-configs.sh --bootstrap-server {self._connection.servers} --alter --entity-type topics "
                    f"--entity-name {name} --add-config cleanup.policy=compact",
                )
        if unknown := [name for name in new if "cleanup.policy" not in found.get(name, {})]:
            LOG.warning(
                "cannot check cleanup.policy of %s, which has to be compact: this user may not read the settings "
                "(DESCRIBE_CONFIGS)",
                " and ".join(unknown),
            )
        self._compared |= {topic.id for topic in topics}

    def metadata(self, application: str) -> CompactedTopic:
        """The reader of an application's metadata, shared by all who ask this system. A topic that was deleted and recreated
        is read from its beginning, once that is known."""
        topic = self._find(metadata_topic(application))
        with self._lock:
            id_, known = self._metadata.get(application, ("", None))
            if known is not None and (topic is None or topic.id == id_):
                return known
            made = CompactedTopic(self._client, metadata_topic(application), self._deadline)
            self._metadata[application] = ("" if topic is None else topic.id), made
        if known is not None:
            known.close()
        return made

    def write(self, application: str, namespace: str, entries: Mapping[str, bytes | None]) -> None:
        """Write metadata records outside of the coordinator: not in a transaction, durable when this returns. None deletes.
        Where it raises, some may be written. The producer is kept: a new one takes longer than all the rest. Not an
        idempotent one, which would wait for its number."""
        keys = {entry_key(namespace, name): value for name, value in entries.items()}
        failed: list[KafkaError] = []
        with self._writing:
            began_s = time.monotonic()
            there, known = self._there(application, keys), self._large[application]
            records = [record for name, value in entries.items() for record in records_of(namespace, name, value, there)]
            messages: list[Message] = [(value, key, 0, 0, None) for key, value in records]
            for key in keys:  # until it is known to be written
                known.pop(key, None)
            producer = self._producer = self._producer or self._new_producer()
            try:
                produce_all(producer, metadata_topic(application), messages, failed, self._wait_s)
            except KafkaException as error:  # such as of one that is larger than it sends
                failed.append(error.args[0])
            except RoundFailedError:  # its queue stayed full
                failed.append(KafkaError(KafkaError._TIMED_OUT, "no answer"))
            unanswered = producer.flush(max(0.0, self._deadline.left_s(began_s, self._wait_s + 1)))
            if failed or unanswered:
                producer.purge()  # what has failed is not written later
                self._producer = None
            else:
                known |= {key: one for key, one in records if one is not None and len(keys.get(key) or b"") > PIECE_BYTES}
        if failed or unanswered:
            failure = failed[0].str() if failed else "no answer"
            lasting = lasting_hint(failed[0]) if failed else None
            names = repr(next(iter(entries))) + (f" and {len(entries) - 1} more" if len(entries) > 1 else "")
            raise StorageError(
                f"application {application!r}: {namespace} {names} could not be written: "
                f"{self._connection.secrets.cleaned(failure)}",
                lasting or f"is the broker at {self._connection.servers} up, and may this user write there?",
            )

    def _there(self, application: str, keys: Mapping[bytes, bytes | None]) -> Mapping[bytes, bytes]:
        """What there is of the values of these keys, where one is deleted, or is or was in pieces: as this process has written
        it last. Else it is read, also behind a transaction that is open: these records are in none."""
        known = self._large.setdefault(application, {})
        if any(value is None or (len(value) > PIECE_BYTES and key not in known) for key, value in keys.items()):
            return self.metadata(application).written()
        return {key: known[key] for key in keys if key in known}

    def _new_producer(self) -> Producer:
        settings = {"acks": "all", "linger.ms": 0, "message.timeout.ms": int(self._wait_s * 1000)}
        return Producer({**self._client, **settings, "allow.auto.create.topics": False, "logger": CLIENT_LOG})

    def found(self, names: Collection[str] | None = None) -> dict[str, Topic]:
        """The metadata topics of applications, see `TopicOwners.found`."""
        return self._owners.found(names)

    def owners(self, found: Mapping[str, Topic], topics: Collection[Topic]) -> dict[str, str]:
        """Those of these topics that are repartition topics of an application, to it."""
        return owners_of(topics, self._owners.claims(found, self.driven))

    def made_by(self, application: str, topics: Collection[Topic]) -> dict[str, str]:
        """Those of these topics that one application has on record, to its name. Nothing is asked about others, but where its
        record has no id: then another application may have this very topic on record."""
        own = entries_of(self.metadata(application).refresh(wait=False), INTERNAL)
        ids = {name: internal_id(value) for name, value in own.items()}
        mine = [topic for topic in topics if ids.get(topic.name) in (topic.id, "")]
        claims = {} if all(ids[topic.name] for topic in mine) else self._owners.claims(self.found(), self.driven)
        anothers = {topic.name for topic in mine if not ids[topic.name] and topic.id in claims.get(topic.name, {}).values()}
        return {topic.name: application for topic in mine if topic.name not in anothers}

    def has_made(self, application: str, topic: Topic) -> bool:
        """Whether another start of the application has created this topic. It may be about to write that."""
        began_s = time.monotonic()
        while topic.id not in self._owners.ids_written(application, topic.name):
            if self._deadline.left_s(began_s, MADE_S) <= 0:
                return False
            self._deadline.pause(0.2)
        return True


class KafkaMetadataStore(MetadataStore):
    """An application's named values, and requests to its driver. A request is a record too,
    under a key of its own, written outside of any transaction: an open one there would hold back what the driver reads
    (protocol.md 6)."""

    def __init__(self, topics: ApplicationTopics, application: str) -> None:
        self._topics, self._application = topics, application

    def get(self, namespace: str, key: str) -> bytes | None:
        return self.all(namespace).get(key)

    def all(self, namespace: str) -> dict[str, bytes]:
        """Every value of the namespace, by key; empty where the application never ran."""
        if not self._topics.is_initialized(self._application):
            return {}
        topic = self._topics.metadata(self._application)
        # A driver waits for what it has written itself, and whose outcome it may not have heard.
        return entries_of(topic.refresh() if self._is_driven else topic.look(), namespace)

    @property
    def _is_driven(self) -> bool:
        return self._application in self._topics.driven

    def stamp(self) -> object:
        """How far the topic was read, None where there is none."""
        if not self._topics.is_initialized(self._application):
            return None
        return self._topics.metadata(self._application).looked_to()

    def request_all(self, namespace: str, values: Sequence[bytes]) -> tuple[str, ...]:
        if not values:
            return ()
        self._topics.ensure(self._application)
        now_ns = time.time_ns()
        ids = [f"{now_ns + nth:020d}-{uuid.uuid4().hex[:12]}" for nth in range(len(values))]  # in the order of their making
        entries = {id_: bytes(value) for id_, value in zip(ids, values, strict=True)}
        self._topics.write(self._application, namespace + OF_REQUESTS, entries)
        return tuple(ids)

    def requests(self, namespace: str) -> dict[str, bytes]:
        """A driver looks all the time, and sees them as they are written, also behind a transaction that stays open: they are
        in none. Where its own deletion of one comes to nothing, it sees that one again at a later look."""
        if not self._is_driven:
            return self.all(namespace + OF_REQUESTS)
        return entries_of(self._topics.metadata(self._application).written(), namespace + OF_REQUESTS)

    def withdraw(self, namespace: str, ids: Collection[str]) -> None:
        if ids and self._topics.is_initialized(self._application):
            self._topics.write(self._application, namespace + OF_REQUESTS, dict.fromkeys(ids))
