"""`KafkaSystem`: a Kafka cluster as one system; a stream is a topic."""

from __future__ import annotations

import threading
import uuid
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from confluent_kafka.admin import OffsetSpec

from headrace.adapters.common.offset_resolver import StreamConsumer, ranges_to_read
from headrace.adapters.kafka.admin import UNCOMMITTED, Admin, Topic
from headrace.adapters.kafka.application_topics import ApplicationTopics, KafkaMetadataStore
from headrace.adapters.kafka.clients import quiet
from headrace.adapters.kafka.connection import connection_of
from headrace.adapters.kafka.coordinator_store import KafkaCoordinatorStore
from headrace.adapters.kafka.deadline import Deadline
from headrace.adapters.kafka.held_job import HeldJob
from headrace.adapters.kafka.known_topics import KnownTopics, refuse_kafkas_own
from headrace.adapters.kafka.limits import batch_bytes, limits_of
from headrace.adapters.kafka.names import INTERNAL, checkpoint_topic, dead_letters_id, internal_value, metadata_topic
from headrace.adapters.kafka.processor_store import KafkaProcessorStore
from headrace.adapters.kafka.stored_checkpoints import CheckpointTopic
from headrace.adapters.kafka.topic_expansion import expanded
from headrace.core.job_plan.growth_rules import check_expansion
from headrace.core.rounds.offset_ranges import OffsetRange
from headrace.core.rounds.stream_limits import StreamLimits
from headrace.errors import (
    ConfigError,
    IncompatibleChangeError,
    StreamExistsError,
)
from headrace.model.names import checked_name
from headrace.model.serde import of_stream
from headrace.model.streams import StreamDescription
from headrace.ports.processor_store import SystemPayload
from headrace.ports.system import System
from headrace.record import Record

# Reading and writing records needs pyarrow, which takes longer to import than most commands to answer: such imports
# are inside the methods that need them.
_REPARTITION = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}  # purged by the job, not by age
# Records keep their times, whatever they are and whatever brokers do by default: windows go by them, and one time that is
# refused ends a round.
_OWN_TIMES = {"message.timestamp.type": "CreateTime"}
_ANY_TIME = {f"message.timestamp.{side}.max.ms": str(2**63 - 1) for side in ("before", "after")}
_ANY_TIME_BEFORE_3_6 = {"message.timestamp.difference.max.ms": str(2**63 - 1)}
_MINUTE_S = 60
PUT_BACK_MS = 10_000  # a killed process holds back what others read for so long


def open_system(url: str, settings: Mapping[str, str] | None = None) -> KafkaSystem:
    """Open the cluster that `url` names, such as `kafka://localhost:9092`; `settings` are the `kafka.*` ones. Nothing is
    asked before the first use. Close it, or use it as a context manager."""
    return KafkaSystem(url, settings or {})


class KafkaSystem(System):
    """A Kafka cluster. `client` are librdkafka's settings. Threads may share it."""

    name = "kafka"

    def __init__(self, url: str, settings: Mapping[str, str]) -> None:
        self.connection = connection_of(url, settings)
        self.client: dict[str, Any] = quiet(self.connection.client)
        self.deadline = Deadline()
        self._admin = Admin(self.connection, self.deadline)
        self._topics = topics = KnownTopics(self._admin, self.connection.servers)
        self.own_topics = ApplicationTopics(self._admin, self.deadline, lambda name: topics.last(name) or topics.find(name))
        self._producer: Any = None
        self._batch_bytes: dict[str, int] = {}  # by topic's id: what `produce` sends at once
        self._writing = threading.RLock()  # of the producer
        self.held_jobs = weakref.WeakSet[HeldJob]()  # of its job stores: they have the clients, and may outlive the stores
        self._readers: dict[str, KafkaCoordinatorStore] = {}
        self._checkpoints: dict[str, CheckpointTopic] = {}

    def __repr__(self) -> str:
        return f"KafkaSystem({self.connection.servers})"

    def close(self) -> None:
        """Close every client of it at once, and of its job stores: one that is left to the garbage has threads until then."""
        for job in list(self.held_jobs):
            job.close()
        for topic in list(self._checkpoints.values()):
            topic.close()
        self.own_topics.close()
        self._admin.close()
        with self._writing:
            self._producer = None

    # --- applications -----------------------------------------------------------------------------------------------

    def job_store(self, application: str, exactly_once: bool = True) -> KafkaCoordinatorStore:
        application = checked_name("application", application)
        return KafkaCoordinatorStore(self, application, self.connection.transaction_timeout_ms, exactly_once)

    def job_reader(self, application: str) -> KafkaCoordinatorStore:
        """One for all who ask this system: what it has read of the application's topics it reads no second time."""
        return self._readers.get(application) or self._readers.setdefault(application, self.job_store(application))

    def processor_store(self, application: str, exactly_once: bool = True) -> KafkaProcessorStore:
        application = checked_name("application", application)
        return KafkaProcessorStore(self, application, self.connection.transaction_timeout_ms, exactly_once)

    def checkpoint_reader(self, application: str) -> CheckpointTopic:
        """The reader of an application's checkpoints, shared by its stores: it holds all of them."""
        topic = CheckpointTopic(self.client, checkpoint_topic(application), self.deadline)
        return self._checkpoints.setdefault(application, topic)

    def consumer(self) -> StreamConsumer:
        return StreamConsumer(self)

    def metadata_store(self, application: str) -> KafkaMetadataStore:
        return KafkaMetadataStore(self.own_topics, checked_name("application", application))

    def applications(self) -> list[str]:
        return list(self.own_topics.found())

    def has_run(self, application: str) -> bool:
        application = checked_name("application", application)
        return bool(self.own_topics.found([metadata_topic(application), checkpoint_topic(application)]))

    def check_transaction_timeout(self, timeout_ms: int) -> None:
        """`ConfigError` where the broker does not allow transactions that long."""
        most = self._admin.broker_setting("transaction.max.timeout.ms")
        if most is not None and timeout_ms > int(most):
            raise ConfigError(
                f"kafka.transaction.timeout.ms = {timeout_ms}: the broker at {self.connection.servers} allows at most {most}",
                "set it lower, or raise transaction.max.timeout.ms of the broker",
            )

    def offsets_retention_s(self) -> int:
        """How long the broker keeps a position that is not committed again."""
        return int(self._admin.broker_setting("offsets.retention.minutes") or 10_080) * _MINUTE_S

    # --- streams ----------------------------------------------------------------------------------------------------

    def create_stream(self, name: str, partitions: int, *, internal_of: str | None = None) -> StreamDescription:
        name = checked_name("stream", name)
        refuse_kafkas_own(name)
        if not isinstance(partitions, int) or isinstance(partitions, bool) or partitions < 1:
            raise ConfigError(f"stream {name!r}: {partitions!r} partitions: expected a number of at least 1")
        found = self._topics.find(name)
        if found is not None:
            owner = self.own_topics.bookkeeping_of(name)
            if owner is not None:
                raise StreamExistsError(f"topic {name!r} is the bookkeeping of application {owner!r}", "choose another name")
            raise StreamExistsError(
                f"stream {name!r} exists already, with {found.partitions} partitions", "use it, or another name"
            )
        topic = self._made(name, partitions) if internal_of is None else self._made_on_record(name, partitions, internal_of)
        self._topics.learn(topic)
        return StreamDescription(name, topic.partitions, topic.id, internal_of)

    def _made_on_record(self, name: str, partitions: int, application: str) -> Topic:
        """On record before it is there: one that is there and not on record is refused. Then with its id: another application
        may have one of that name on record too, and create it at the same time. A record stays where the creation fails: the
        topic may come into being all the same, and without an id it counts for nothing where another has that."""
        own = self.own_topics
        own.ensure(application)
        own.write(application, INTERNAL, {name: internal_value(partitions)})
        try:
            topic = self._made(name, partitions, _REPARTITION)
        except StreamExistsError:
            found = self._topics.find(name)
            if found is not None and own.has_made(application, found):
                own.write(application, INTERNAL, {name: internal_value(found.partitions, found.id)})
            raise
        own.write(application, INTERNAL, {name: internal_value(partitions, topic.id)})
        return topic

    def _made(self, name: str, partitions: int, own: Mapping[str, str] | None = None) -> Topic:
        """`own`: settings that users do not set otherwise. Of a topic that they read, they may set everything."""

        def settings(times: dict[str, str]) -> dict[str, str]:
            return _OWN_TIMES | times | dict(self.connection.topic_settings if own is None else own)

        try:
            return self._admin.create(name, partitions, settings(_ANY_TIME))
        except ConfigError as error:
            if not any(setting in error.message for setting in _ANY_TIME):
                raise
            # a broker before 3.6 does not know these
            return self._admin.create(name, partitions, settings(_ANY_TIME_BEFORE_3_6))

    def expand_stream(self, name: str, partitions: int) -> StreamDescription:
        before = self.describe_stream(name)
        check_expansion(name, before.partitions, partitions)
        owner = before.internal_of
        if owner is not None and name in (metadata_topic(owner), checkpoint_topic(owner)):
            raise IncompatibleChangeError(
                f"topic {name!r} is the bookkeeping of application {owner!r}, which has one partition",
                "expand the streams that it reads",
            )
        self._topics.learn(expanded(self._admin, self._topics.get(name), partitions))
        return replace(before, partitions=partitions)

    def streams(self, of: str | None = None) -> list[StreamDescription]:
        """All topics but Kafka's own, and applications' bookkeeping."""
        names, own = self._admin.names(), self.own_topics
        found = own.found(names) if of is None else {}
        applications = list(found) if of is None else [of] if own.is_initialized(of) else []
        hidden = {topic(owner) for owner in applications for topic in (metadata_topic, checkpoint_topic)}
        topics = self._topics.read(names - hidden)
        if of is None:
            owners = own.owners(found, topics)
        else:
            owners = own.made_by(of, topics) if applications else {}
        return [StreamDescription(topic.name, topic.partitions, topic.id, owners.get(topic.name)) for topic in topics]

    def describe_stream(self, name: str) -> StreamDescription:
        """Of an application is a repartition topic, and its bookkeeping."""
        topic, applications = self._topics.get(name), self.own_topics.found()
        bookkeeping = {own(owner): owner for owner in applications for own in (metadata_topic, checkpoint_topic)}
        owner = bookkeeping.get(name) or self.own_topics.owners(applications, [topic]).get(name)
        return StreamDescription(name, topic.partitions, topic.id, owner)

    def delete_stream(self, name: str) -> None:
        self._topics.get(name)
        self._admin.delete(name)
        self._topics.forget(name)

    def pin(self, ids: Mapping[str, str], counts: Mapping[str, int]) -> None:
        """From now on streams of these names are those with these ids, with these counts: see `KnownTopics.pin`."""
        self._topics.pin(ids, counts)

    # --- records ----------------------------------------------------------------------------------------------------

    def produce(self, stream: str, records_: Iterable[Any], key: Any = None, value: Any = None) -> int:
        """They can be read when this returns, unless somebody else's open transaction holds them back. Kafka keeps
        milliseconds from 1970 on: what a timestamp has below is lost, and one before is 1970."""
        from headrace.adapters.kafka import records

        topic = self._topics.get(stream)
        with self._writing:
            if self._producer is None:
                id_ = f"headrace-produce/{uuid.uuid4().hex}"
                timeout_ms = min(records.TIMEOUT_MS, self.connection.transaction_timeout_ms)  # a broker may allow no more
                self._producer = records.TransactionalWriter(self.client, id_, self.connection.secrets, timeout_ms)
            if topic.id not in self._batch_bytes:
                limits = self.limits([topic.name])
                self._batch_bytes[topic.id] = batch_bytes(limits.values(), self.client.get("batch.size"))
            self._producer.send_at_once(self._batch_bytes[topic.id])
            keys, values = of_stream(key, stream, "key"), of_stream(value, stream, "value")
            written = records.produce(
                self._producer, topic.name, lambda: self._topics.get(stream).partitions, records_, keys, values
            )
        if written:
            records.await_readable(self._admin, self._topics.last(stream) or topic, written)  # as it was for the last of them
        return sum(written.values())

    def put_back(
        self, application: str, records: Mapping[str, Sequence[Record]], marks: Mapping[str, bytes | None]
    ) -> None:
        """An open transaction holds back what others read of these streams: it is a short one."""
        from headrace.adapters.kafka import records as writing

        application = checked_name("application", application)
        found = {self._topics.get(stream): mine for stream, mine in records.items()}
        timeout_ms, client = min(PUT_BACK_MS, self.connection.transaction_timeout_ms), {**self.client, "linger.ms": 0}
        writer = writing.TransactionalWriter(client, dead_letters_id(application), self.connection.secrets, timeout_ms)
        writer.send_at_once(batch_bytes(self.limits([topic.name for topic in found]).values(), self.client.get("batch.size")))
        written = writing.put_back(writer, found, self.own_topics.metadata(application), marks)
        for topic in found:
            writing.await_readable(self._admin, topic, written.get(topic.name, {}))

    def consume(
        self, stream: str, key: Any = None, value: Any = None, partitions: Sequence[int] | None = None, start: Any = None
    ) -> Iterator[Record]:
        from headrace.adapters.kafka import records

        topic = self._topics.get(stream)
        ends, begins = self._admin.ends(topic), self._admin.beginnings(topic)
        bounds = {partition: (begins[partition], end) for partition, end in ends.items()}
        return records.consume(self.client, stream, ranges_to_read(stream, bounds, partitions, start), key, value)

    def beginning_offsets(self, stream: str) -> dict[int, int]:
        """`IncompatibleChangeError` for a stream that was pinned, and is missing."""
        with self._topics.explaining(stream):
            return self._admin.beginnings(self._topics.get(stream))

    def end_offsets(self, stream: str) -> dict[int, int]:
        """`IncompatibleChangeError` for a stream that was pinned, and was deleted or recreated."""
        pinned = self._topics.is_pinned(stream)
        with self._topics.explaining(stream):
            ends = self._admin.ends(self._topics.as_pinned(self._topics.get(stream, known=pinned)))
        if pinned:
            self._topics.check_pinned(stream)  # behind the question: the answer was of a topic with this id, or an older one
        return ends

    def partition_counts(self, streams: Collection[str]) -> dict[str, int]:
        """A pinned stream has new partitions when all of them can be written and read."""
        return self._topics.counts(streams)

    def high_watermarks(self, stream: str) -> dict[int, int]:
        """`IncompatibleChangeError` for a stream that was pinned, and is missing."""
        with self._topics.explaining(stream):
            return self._admin.ends(self._topics.get(stream), UNCOMMITTED)

    def held_back_by(self, stream: str) -> dict[int, tuple[int, str]]:
        stable, written = self.end_offsets(stream), self.high_watermarks(stream)
        return {
            partition: (offset, "an open transaction (`kafka-transactions.sh find-hanging` names it)")
            for partition, offset in stable.items()
            if offset < written[partition]
        }

    def offsets_for_time(self, stream: str, timestamp_us: int) -> dict[int, int]:
        from headrace.adapters.kafka import records

        topic = self._topics.get(stream)
        millis = -(-timestamp_us // 1000)  # the first ms that is not before it
        found = self._admin.offsets(topic, OffsetSpec.for_timestamp(max(0, millis)))
        ends = self._admin.ends(topic)
        # The broker also finds the markers that end transactions, whose time is when that was: the record is at that
        # offset or behind it.
        return {
            partition: records.first_not_older(self.client, stream, partition, offset, ends[partition], millis * 1000)
            if 0 <= offset < ends[partition]
            else ends[partition]
            for partition, offset in found.items()
        }

    def limits(self, streams: Collection[str]) -> dict[str, StreamLimits]:
        """By the topics' settings; where this user may not ask for them, only what is true of any topic."""
        settings = self._admin.topic_settings(streams)
        return {stream: limits_of(settings.get(stream, {}), self.connection.client) for stream in sorted(streams)}

    def range_terms(self, piece: OffsetRange) -> SystemPayload:
        """A worker needs to know nothing more: it fetches the offsets."""
        return True

    # --- room -------------------------------------------------------------------------------------------------------

    def purge(self, stream: str, offsets: Mapping[int, int]) -> None:
        begins = self.beginning_offsets(stream)
        wanted = {partition: offset for partition, offset in offsets.items() if offset > begins[partition]}
        if wanted:
            self._admin.purge(stream, wanted)
