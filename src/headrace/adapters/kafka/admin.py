"""Asking brokers about topics, offsets and settings."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import ConfigResource, NewPartitions, NewTopic, OffsetSpec, ResourceType

from headrace.adapters.kafka.broker_requests import LOG, RIGHTS, SETTLES, WAIT, BrokerRequests
from headrace.core.job_plan.growth_rules import check_expansion
from headrace.errors import (
    ConfigError,
    InvalidNameError,
    OffsetOutOfRangeError,
    StorageError,
    StreamExistsError,
    UnavailableError,
)

LOOK_S = 1.0  # for this long a look waits that is made again anyway
BROKERS_S = 10.0  # for this long a broker that has just started may list none
EARLIEST, LATEST = OffsetSpec.earliest(), OffsetSpec.latest()
COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    partitions: int
    id: str
    is_led: bool = field(default=True, compare=False)  # whether each partition has a leader


class Admin(BrokerRequests):
    """What is asked of brokers about topics, offsets and settings, and told them."""

    def names(self) -> set[str]:
        """All topics but Kafka's own."""
        return {name for name in self._listed("list the topics").topics if not name.startswith("__")}

    def _listed(self, what: str, **topic: str) -> Any:
        return self.answer(what, lambda: self._client.list_topics(timeout=self._request_s, **topic))

    def topics(self, names: Collection[str]) -> dict[str, Topic]:
        """Those of `names` that exist."""
        if not names:
            return {}
        absent = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION)

        wanted = TopicCollection(sorted(names))
        title = f"describe topic {next(iter(names))!r}" if len(names) == 1 else f"describe {len(names)} topics"
        found = self._answers(title, lambda c: c.describe_topics(wanted, request_timeout=self._request_s), *absent)
        return {
            name: Topic(name, len(one.partitions), str(one.topic_id), all(part.leader for part in one.partitions))
            for name, one in found.items()
        }

    def create(self, name: str, partitions: int, settings: Mapping[str, str]) -> Topic:
        """Create a topic and wait until all its partitions have a leader. `settings` win over the user's kafka.topic.*."""
        factor = self.connection.replication_factor or min(3, self._brokers())
        new = NewTopic(name, partitions, factor, config={**self.connection.topic_settings, **settings})
        unsure = False

        def ask() -> None:
            nonlocal unsure
            try:
                self._requested(lambda c: c.create_topics([new], operation_timeout=10, request_timeout=15))[name].result()
            except KafkaException as error:
                code = error.args[0].code()
                if code == KafkaError.TOPIC_ALREADY_EXISTS and unsure:
                    return  # it was made by the request before, whose answer was lost
                if code == KafkaError.TOPIC_ALREADY_EXISTS:
                    raise StreamExistsError(f"topic {name!r} exists already", "choose another name, or use that one") from None
                if code == KafkaError.INVALID_REPLICATION_FACTOR and factor > (count := self._brokers()):
                    raise self._too_few_brokers(name, error.args[0], count) from None
                if code == KafkaError.TOPIC_EXCEPTION:
                    raise InvalidNameError(
                        f"topic {name!r} cannot be created: {error.args[0].str()}",
                        "choose another name for the application or the stream: topics differ in more than '.' and '_', and "
                        "their names have at most 249 characters",
                    ) from None
                if code in (KafkaError.INVALID_CONFIG, KafkaError.POLICY_VIOLATION):
                    raise ConfigError(
                        f"topic {name!r} cannot be created: {error.args[0].str()}", "settings of new topics: kafka.topic.*"
                    ) from None
                unsure = True
                raise

        self.answer(f"create topic {name!r}", ask)
        return self._led(name, partitions)

    def add_partitions(self, name: str, partitions: int) -> None:
        """Have a topic get this many partitions; `IncompatibleChangeError` if it has as many by now, or more."""
        unsure = False

        def ask() -> None:
            nonlocal unsure
            new = [NewPartitions(name, partitions)]
            try:
                self._requested(lambda c: c.create_partitions(new, operation_timeout=10, request_timeout=15))[name].result()
            except KafkaException as error:
                code = error.args[0].code()
                if code == KafkaError.POLICY_VIOLATION:
                    said = f"topic {name!r} cannot be expanded: {error.args[0].str()}"
                    raise ConfigError(said, "a policy of the cluster refuses it: ask who runs the cluster") from None
                found = self.topics([name]).get(name) if code == KafkaError.INVALID_PARTITIONS else None
                if found is not None and unsure and found.partitions == partitions:
                    return  # by the request before, whose answer was lost
                if found is not None:
                    check_expansion(name, found.partitions, partitions)
                unsure = True
                raise

        self.answer(f"add partitions to topic {name!r}", ask)

    def listed(self, name: str) -> Any:
        """A topic with its partitions and their leaders, and the cluster's brokers, as one of these tells."""
        return self._listed(f"list topic {name!r}", topic=name)

    def _too_few_brokers(self, name: str, cause: KafkaError, count: int) -> ConfigError:
        brokers = "is 1 broker" if count == 1 else f"are {count} brokers"
        return ConfigError(
            f"topic {name!r} cannot be created: {cause.str()}",
            f"there {brokers} at {self.connection.servers}: set kafka.replication.factor to at most {count}",
        )

    def _led(self, name: str, partitions: int) -> Topic:
        deadline_s = time.monotonic() + self.connection.wait_s
        while True:
            topic = self.topics([name]).get(name)
            if topic is not None and topic.partitions == partitions:
                seen = self.listed(name).topics[name]
                if len(seen.partitions) == partitions and all(p.leader >= 0 for p in seen.partitions.values()):
                    return topic
            if time.monotonic() > deadline_s:
                said = f"topic {name!r} was created, but has no leaders after {self.connection.wait_s:.0f} s"
                raise StorageError(said, "are all brokers up? Do not create it again: it gets leaders when they are")
            time.sleep(0.05)

    def delete(self, name: str) -> None:
        """Delete a topic and wait until it is deleted."""
        deleted = KafkaError.UNKNOWN_TOPIC_OR_PART  # by the request before, or by others
        self._answers(f"delete topic {name!r}", lambda c: c.delete_topics([name], operation_timeout=15), deleted)
        deadline_s = time.monotonic() + self.connection.wait_s
        while name in self.names():
            if time.monotonic() > deadline_s:
                said = f"topic {name!r} was deleted, but still exists after {self.connection.wait_s:.0f} s"
                raise StorageError(said, "are all brokers up? It is deleted when they are: wait before you create it again")
            time.sleep(0.05)

    def _brokers(self) -> int:
        return len(self._listed("list the brokers").brokers)

    def offsets(self, topic: Topic, spec: Any, isolation: Any = COMMITTED) -> dict[int, int]:
        """Per partition the offset that `spec` asks for; -1 where there is none."""
        wanted = {TopicPartition(topic.name, partition): spec for partition in range(topic.partitions)}

        def ask() -> dict[int, int]:
            futures = self._requested(
                lambda client: client.list_offsets(wanted, isolation_level=isolation, request_timeout=self._request_s)
            )
            try:
                offsets = {place.partition: future.result().offset for place, future in futures.items()}
            except KafkaException as error:
                if error.args[0].code() == KafkaError._NOENT and not self.topics([topic.name]):  # it has no leader to come
                    raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, "it does not exist")) from None
                if error.args[0].code() == KafkaError._NOENT:
                    self._refresh_leaders(topic.name)
                raise
            if min(offsets.values(), default=0) <= OFFSET_INVALID:  # while a broker comes back this is no error to librdkafka
                raise KafkaException(KafkaError(KafkaError.OFFSET_NOT_AVAILABLE, "no offset was returned for a partition"))
            return offsets

        return dict(sorted(self.answer(f"read the offsets of topic {topic.name!r}", ask).items()))

    def unmade(self, topic: Topic, partitions: Collection[int]) -> list[int]:
        """Those of these partitions that have no end offset yet: brokers report new ones before they have made them."""
        wanted = {TopicPartition(topic.name, partition): LATEST for partition in partitions}
        if not wanted:
            return []
        try:
            futures = self._requested(lambda c: c.list_offsets(wanted, isolation_level=UNCOMMITTED, request_timeout=LOOK_S))
        except KafkaException:
            return sorted(partitions)
        unmade = [
            place.partition
            for place, future in futures.items()
            if future.exception() is not None or future.result().offset <= OFFSET_INVALID
        ]
        if unmade:
            self._refresh_leaders(topic.name)
        return sorted(unmade)

    def _refresh_leaders(self, topic: str) -> None:
        """librdkafka keeps to what it has heard of leaders, for minutes also to that there are none yet."""
        with suppress(KafkaException):  # what is asked next fails too, and says why
            self._client.list_topics(topic, timeout=LOOK_S)

    def beginnings(self, topic: Topic) -> dict[int, int]:
        return self.offsets(topic, EARLIEST)

    def ends(self, topic: Topic, isolation: Any = COMMITTED) -> dict[int, int]:
        return self.offsets(topic, LATEST, isolation)

    def purge(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Delete the records before `offsets`; `OffsetOutOfRangeError` for one beyond the end."""
        wanted = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        beyond = KafkaError.OFFSET_OUT_OF_RANGE
        found = self._answers(f"purge topic {topic!r}", lambda c: c.delete_records(wanted, request_timeout=10), beyond)
        for place in wanted:
            if place not in found:
                said = f"topic {topic!r} partition {place.partition}: {place.offset} lies beyond its end"
                raise OffsetOutOfRangeError(said, "give an offset up to its end, or the end itself")

    def topic_settings(self, names: Collection[str]) -> dict[str, dict[str, str | None]]:
        """The settings of these topics, without those that this user may not ask for, or that are not there."""
        resources = {ConfigResource(ResourceType.TOPIC, name): name for name in sorted(names)}
        if not resources:
            return {}

        found = self._answers(
            "read the settings of topics",
            lambda c: c.describe_configs(list(resources), request_timeout=self._request_s),
            *(*RIGHTS, KafkaError.UNKNOWN_TOPIC_OR_PART),
        )
        return {resources[one]: {name: entry.value for name, entry in own.items()} for one, own in found.items()}

    def broker_setting(self, name: str) -> str | None:
        """A setting of one of the brokers; None where we have no right to read it."""
        began_s = time.monotonic()
        while not (brokers := self._listed("list the brokers").brokers):  # one that has just started may not know itself
            if time.monotonic() - began_s > BROKERS_S:
                raise UnavailableError(f"Kafka lists no broker, for {BROKERS_S:g} s", "is the cluster starting? Try again")
            time.sleep(0.1)
        resource = ConfigResource(ResourceType.BROKER, str(min(brokers)))

        def ask() -> Any:
            answers = self._requested(lambda c: c.describe_configs([resource], request_timeout=self._request_s))
            try:
                return answers[resource].result()
            except KafkaException as error:
                cause = error.args[0]
                if cause.retriable() or cause.code() in WAIT | SETTLES:  # it was not refused
                    raise
                LOG.warning("a broker's setting %s is not known: %s", name, self._text(cause))
                return {}

        found = self.answer("read a broker's settings", ask)
        return found[name].value if name in found else None
