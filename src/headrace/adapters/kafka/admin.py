"""Asking a broker: topics, offsets, settings; with a bound on every wait, and errors that say what was waited for."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, OffsetSpec, ResourceType

from headrace.adapters.kafka.clients import CLIENT_LOG, quiet
from headrace.adapters.kafka.connection import Connection
from headrace.adapters.kafka.deadline import Deadline
from headrace.core.job_plan.growth_rules import check_expansion
from headrace.errors import ConfigError, OffsetOutOfRangeError, StorageError, StreamExistsError, UnavailableError

T = TypeVar("T")
LOG = logging.getLogger("headrace.kafka")
REQUEST_S = 5.0  # for this long one request is waited for
LOOK_S = 1.0  # for this long a look waits that is made again anyway
SAY_AGAIN_S = 60.0  # how often it says the same again
ANSWERED_S_MAX = 30.0  # librdkafka gives up after the time of each request, which is less
BROKERS_S = 10.0  # for this long a broker that has just started may list none
SETTLE_S = 5.0  # how long errors that may be temporary are retried: a refused user, an unknown topic
SAY_S = 2.0  # after this long a wait says what it waits for
EARLIEST, LATEST = OffsetSpec.earliest(), OffsetSpec.latest()
COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
_RIGHTS = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)  # fmt: skip
_NO_CONNECTION = frozenset({KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN})
# May be so for a moment, while a broker starts; else for ever.
_SETTLES = frozenset({KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART})
# What is known of a partition's leader is of before it went away.
_STALE = frozenset({KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH})
# Not retriable by librdkafka's word, but temporary: until the broker is back, or its leader has just come back. It knows its
# topics first, and their leaders later (_NOENT); when it goes down, it breaks handshakes off, too (_SSL).
_WAIT = _NO_CONNECTION | _STALE | {
    KafkaError._RESOLVE, KafkaError._NOENT, KafkaError._SSL, KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.OFFSET_NOT_AVAILABLE, KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE,
}  # fmt: skip
_NOT_REACHED = "cannot reach Kafka at "
_PLAIN = {
    "Connection refused": "connection refused",
    "Failed to resolve": "unknown host name",
    "No route to host": "no route to host",
}


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    partitions: int
    id: str


class _Heard:
    """Why there is no connection: a request says only that there is none. librdkafka calls it; it knows no `Admin`, which a
    client would keep alive otherwise."""

    def __init__(self) -> None:
        self.error: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # what that comes from has been heard before it
            self.error = error


class Admin:
    """Requests to one broker. Each is tried again for `connection.wait_s`, while it may help; then `StorageError`."""

    def __init__(self, connection: Connection, deadline: Deadline | None = None) -> None:
        self.connection = connection
        self._deadline = deadline or Deadline()
        self._heard = _Heard()
        self._kept: AdminClient | None = self._connected()

    @property
    def _client(self) -> AdminClient:
        client = self._kept
        if client is None:  # one with nothing to do is false
            client = self._kept = self._connected()
        return client

    def close(self) -> None:
        """Give up the connection; what is asked after this makes another one."""
        self._kept = None

    @property
    def _request_s(self) -> float:
        return 1.0 if self._deadline.is_expedited else min(REQUEST_S, max(1.0, self.connection.wait_s))

    def _connected(self) -> AdminClient:
        settings: dict[str, Any] = {**quiet(self.connection.client), "socket.timeout.ms": 10_000}
        settings |= {"error_cb": self._heard, "logger": CLIENT_LOG}
        try:
            return AdminClient(settings)
        except KafkaException as error:
            text = self.connection.secrets.cleaned(error.args[0].str())
            raise ConfigError(f"the kafka.* settings are refused: {text}", "see the configuration's kafka.* keys") from None

    def answer(self, what: str, ask: Callable[[], T]) -> T:
        """The answer of `ask`. `what` completes "cannot ..." for the error, and "waiting to ..." for the log."""
        began_s = said_s = time.monotonic()
        said = ""
        while True:
            try:
                found = ask()
                self._heard.error = None  # not before: what stays as it is is heard once
                return found
            except KafkaException as error:
                cause = error.args[0]
            now_s = time.monotonic()
            self._client.poll(0)  # to hear
            if cause.code() in _STALE:  # librdkafka would ask with what it knows, again and again
                self._kept = self._connected()
            if self._heard.error is not None and (cause.code() in _NO_CONNECTION):
                cause = self._heard.error
            if self._deadline.left_s(began_s, self._bound_s(cause)) <= 0:
                raise self.failed(what, cause, now_s - began_s)
            text = self._text(cause)
            if now_s - began_s > SAY_S and (text != said or now_s - said_s > SAY_AGAIN_S):
                said_s, said = now_s, text
                LOG.warning("waiting to %s, for up to %.0f s: %s", what, self._bound_s(cause), text)
            self._deadline.pause(0.1)

    def _requested(self, request: Callable[[AdminClient], Mapping[Any, Any]]) -> Mapping[Any, Any]:
        """The futures of a request, once all are done: `result()` then gives at once. The client is held meanwhile: another
        thread may put a new one in its place, and what is asked of a client that is no longer referenced is never answered."""
        client, began_s = self._client, time.monotonic()
        futures = request(client)
        while wait(futures.values(), self._deadline.piece_s(began_s, ANSWERED_S_MAX)).not_done:
            if self._deadline.left_s(began_s, ANSWERED_S_MAX) <= 0:
                waited_s = time.monotonic() - began_s
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"no answer within {waited_s:.0f} s"))
        return futures

    def _answers(self, what: str, request: Callable[[AdminClient], Mapping[Any, Any]], *absent: int) -> dict[Any, Any]:
        """What each future of a request gives, without those that failed with the codes `absent`."""

        def ask() -> dict[Any, Any]:
            found = {}
            for key, future in self._requested(request).items():
                try:
                    found[key] = future.result()
                except KafkaException as error:
                    if error.args[0].code() not in absent:
                        raise
            return found

        return self.answer(what, ask)

    def _bound_s(self, cause: KafkaError) -> float:
        """For how long it may help to ask again."""
        if cause.code() in _RIGHTS:
            return 0.0
        if cause.code() in _SETTLES:
            return min(SETTLE_S, self.connection.wait_s)
        return self.connection.wait_s if cause.retriable() or cause.code() in _WAIT else 0.0

    def _text(self, cause: KafkaError) -> str:
        plain = plain_cause(cause.str()) if cause.code() in _WAIT else None
        if plain is not None and "," not in self.connection.servers:  # of several others may answer
            return f"cannot reach Kafka at {self.connection.servers}: {plain}"
        return self.connection.secrets.cleaned(f"{cause.name()}: {cause.str()}")

    def failed(self, what: str, cause: KafkaError, after_s: float = 0.0) -> StorageError:
        waited = f" after {after_s:.0f} s" if after_s >= 1 else ""
        hint = f"is the broker at {self.connection.servers} up, and are its address and the kafka.security settings right?"
        if cause.code() in _RIGHTS:
            hint = "this user has not the right to; see the list in docs/ARCHITECTURE.md"
        kind = UnavailableError if cause.retriable() or cause.code() in _WAIT else StorageError
        text = self._text(cause)
        if text.startswith(_NOT_REACHED):
            return kind(text + (f" (tried for {after_s:.0f} s, to {what})" if after_s >= 1 else ""), hint)
        return kind(f"cannot {what}{waited}: {text}", hint)

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
        return {name: Topic(name, len(one.partitions), str(one.topic_id)) for name, one in found.items()}

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
                if code == KafkaError.INVALID_REPLICATION_FACTOR:
                    raise self._too_few_brokers(name, error.args[0]) from None
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

    def _too_few_brokers(self, name: str, cause: KafkaError) -> ConfigError:
        count = self._brokers()
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
            *(*_RIGHTS, KafkaError.UNKNOWN_TOPIC_OR_PART),
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
                if cause.retriable() or cause.code() in _WAIT | _SETTLES:  # it was not refused
                    raise
                LOG.warning("a broker's setting %s is not known: %s", name, self._text(cause))
                return {}

        found = self.answer("read a broker's settings", ask)
        return found[name].value if name in found else None


def plain_cause(text: str) -> str | None:
    """Why there is no connection, in a few words; None where librdkafka's own text says it best.

    >>> plain_cause("127.0.0.1:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused (after 0ms)")
    'connection refused'
    """
    return next((plain for words, plain in _PLAIN.items() if words in text), None)
