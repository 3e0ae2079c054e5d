"""Kafka clients: how each is made, kept from one round to the next, and called again while that may help."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from headrace.adapters.kafka.deadline import Deadline
from headrace.adapters.kafka.limits import BATCH_BYTES
from headrace.core.rounds.stream_limits import RECORD_BYTES_MAX
from headrace.errors import ConfigError, RoundFailedError

if TYPE_CHECKING:  # it imports Arrow, which commands that read no records do without
    from headrace.adapters.kafka.messages import Message

T = TypeVar("T")
KEPT_MAX = 128  # a client is two threads and one of the 1,024 thread-local keys that a process has
ANSWER_S = 30.0
FENCED = frozenset({KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED})
# What befalls a record, or the next call, because of another error: the producer was given up, or purged.
FOLLOWS = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._FATAL, KafkaError._STATE})
OFFSETS_S = 10.0
OFFSETS_BYTES = 500_000  # of the positions of one request
POSITION_BYTES = 64  # of one, besides its names and its metadata
UNKNOWN_MS = 10_000  # for this long a topic that brokers do not know may be one that was just made
GROWN_S = 3.0  # for this long a broker may not have heard of partitions that others report
_IN_TRANSACTION = ("message.timeout.ms", "delivery.timeout.ms", "socket.timeout.ms")  # at most as long as it: else refused
_LOOK_S = 0.25  # how often a wait for a thread looks whether it is to end
_ASKED_FOR = "__transaction_state"  # a topic's name keeps the answer short; it does not matter whether it is there
_tokens: dict[int, str] = {}  # by pid: a forked copy of this process gets one of its own


class _ClientLog:
    """Takes librdkafka's own log lines, as details: what a user must know, an error or warning of ours says. A fenced
    producer, which is part of every take-over, is an alert to it."""

    def log(self, level: int, message: str, *arguments: Any) -> None:
        logging.getLogger("headrace.kafka.client").debug(message, *arguments)


CLIENT_LOG = _ClientLog()


def quiet(client: Mapping[str, Any]) -> dict[str, Any]:
    """`client` with librdkafka's log at what a user can act on: it repeats each refused connection at every try."""
    return {"log.connection.close": False, "log_level": 2, **client}


def process_token() -> str:
    """Names this process, and no other that ever was."""
    pid = os.getpid()
    if pid not in _tokens:
        _tokens[pid] = f"{socket.gethostname()}:{pid}:{uuid.uuid4().hex}"
    return _tokens[pid]


def kept_key(client: Mapping[str, Any], name: object) -> str:
    """The key of a client that this process keeps; `name` tells apart those of one broker."""
    return f"{process_token()}/{client.get('bootstrap.servers')}/{name}"


class ClientPool(Generic[T]):
    """At most `KEPT_MAX` clients; the one that was used longest ago is dropped first. Thread-safe. A client that is dropped
    closes as soon as no thread uses it any more."""

    def __init__(self) -> None:
        self._clients: dict[str, T] = {}  # the one that was used last is at the end
        self._lock = threading.Lock()

    def take(self, key: str) -> T | None:
        """The client kept under `key`, which belongs to the caller from now on; None if there is none."""
        with self._lock:
            return self._clients.pop(key, None)

    def keep(self, key: str, client: T) -> None:
        """Keep `client` under `key`, in place of the one that was there."""
        with self._lock:
            dropped = self._clients.pop(key, None), self._put(key, client)
        del dropped  # they close outside of the lock: that may take a moment

    def shared(self, key: str, make: Callable[[], T]) -> T:
        """The client kept under `key`, made if there is none; it stays in the pool."""
        with self._lock:
            client = self._clients.pop(key, None)
            if client is None:
                client = make()
            dropped = self._put(key, client)
        del dropped
        return client

    def _put(self, key: str, client: T) -> list[T]:
        self._clients[key] = client
        oldest = list(self._clients)[: max(0, len(self._clients) - KEPT_MAX)]
        return [self._clients.pop(old) for old in oldest]


_consumers = ClientPool[Consumer]()


def reader(client: Mapping[str, Any], group: str, start: str = "earliest", isolation: str = "read_committed") -> Consumer:
    """A consumer of partitions that it is assigned: it never joins `group`, which librdkafka wants to know."""
    return Consumer(
        {
            **client,
            "logger": CLIENT_LOG,
            "group.id": group,
            "isolation.level": isolation,  # if committed, a group's positions are read with require_stable
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": start,
            "fetch.wait.max.ms": 5,  # it fetches while it is behind only: that it is at the end must be heard soon
        }
    )


def received(consumer: Consumer, most: int) -> list[Any]:
    """What has come, waiting a little for the first: asking for many at once waits until there are so many."""
    first = consumer.consume(1, timeout=0.2)
    return first + consumer.consume(most, timeout=0) if first else first


def consumer_of(client: Mapping[str, Any], group: str) -> Consumer:
    """This process's consumer of a group: it only knows its name and asks for its positions."""
    return _consumers.shared(kept_key(client, group), lambda: reader(client, group, "error"))


def new_producer(
    client: Mapping[str, Any], transactional: str | None, timeout_ms: int, errors: list[KafkaError] | None = None
) -> Producer:
    """A producer that keeps the order of what it sends. `errors` gathers what librdkafka reports on the way. A time that
    `client` has for a message or a request is cut to `timeout_ms`, that of a transaction; a shorter one is kept."""
    settings: dict[str, Any] = {
        "linger.ms": 5,
        "batch.size": BATCH_BYTES,
        "message.max.bytes": RECORD_BYTES_MAX + 1_000_000,  # what a topic takes, the topic says
        "queue.buffering.max.messages": 500_000,
        "queue.buffering.max.kbytes": 512 * 1024,
        "retry.backoff.ms": 20,
        "retry.backoff.max.ms": 200,
        "compression.type": "lz4",
        "allow.auto.create.topics": False,
        **client,
        "logger": CLIENT_LOG,
        "enable.idempotence": True,
        "acks": "all",
        "delivery.report.only.error": True,
        "topic.metadata.propagation.max.ms": UNKNOWN_MS,
    }
    if transactional is not None:
        given = {name: str(settings[name]) for name in _IN_TRANSACTION if name in settings}
        settings |= {name: min(int(text), timeout_ms) for name, text in given.items() if text.isdigit()}
        settings |= {"transactional.id": transactional, "transaction.timeout.ms": timeout_ms}
    if errors is not None:
        settings["error_cb"] = lambda error: errors.append(error) if error.fatal() else None
    try:
        return Producer(settings)
    except KafkaException as error:
        raise ConfigError(
            f"the kafka.* settings are refused: {error.args[0].str()}",
            "by librdkafka, which writes; a transaction and its records end after kafka.transaction.timeout.ms",
        ) from None


def take_id(producer: Producer, bound_s: float) -> None:
    """Take the producer's transactional id: its previous owner is fenced when this returns. librdkafka drops its first
    connection as soon as it knows the broker by its number, and asks for the coordinator again only after 500 ms if it does
    so just then. A client that has made two other requests has a connection that stays."""
    try:
        for _ in range(2):
            producer.list_topics(_ASKED_FOR, timeout=min(bound_s, 1.0))
    except KafkaException:
        pass  # what is wrong is said by what follows
    producer.init_transactions(bound_s)


def produce_all(producer: Producer, topic: str, messages: Iterable[Message], errors: list[KafkaError], bound_s: float) -> None:
    """Hand messages over, in order; on a full queue poll and continue, for at most `bound_s`. Timestamp 0 is now. All
    arguments go by their places, and delivery is reported of what fails alone: a round may write a million of them. One
    argument by its name takes as long as all the rest of a call, and so do headers that may be left out of a message. (The
    callback has two places, for its two names.)"""

    def delivered(error: KafkaError | None, message: Any) -> None:
        if error is not None:
            errors.append(error)

    deadline_s = time.monotonic() + bound_s
    produce = producer.produce
    for value, key, partition, time_ms, headers in messages:
        while True:
            try:
                produce(topic, value, key, partition, delivered, delivered, time_ms, headers)
                break
            except BufferError:
                if time.monotonic() > deadline_s:
                    raise RoundFailedError(
                        f"topic {topic!r} took no more records for {bound_s:.0f} s", "is the broker up?"
                    ) from None
                producer.poll(0.05)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._UNKNOWN_PARTITION or not _comes_to_know(producer, topic, partition):
                    raise
    producer.poll(0)


def _comes_to_know(producer: Producer, topic: str, partition: int) -> bool:
    """Have a producer ask for a topic's partitions: one that knows the topic would hear of new ones after minutes only."""
    deadline_s = time.monotonic() + GROWN_S
    while time.monotonic() < deadline_s:
        try:
            if partition in producer.list_topics(topic, timeout=GROWN_S).topics[topic].partitions:
                return True
        except KafkaException:
            pass  # the record will not be delivered either, and that says why
        time.sleep(0.05)
    return False


def send_offsets(
    producer: Producer,
    client: Mapping[str, Any],
    group: str,
    offsets: Sequence[TopicPartition],
    deadline: Deadline | None = None,
) -> None:
    """Have positions of `group` join the transaction, in as many requests as a broker needs them to be. `KafkaException` where
    that takes longer than `OFFSETS_S`. librdkafka does not keep to a time limit here, and where the broker went away and came
    back it may wait for ever: so it is called in a thread that is left behind then. Its producer is not to be used again."""
    answer: list[Exception | None] = []
    metadata = consumer_of(client, group).consumer_group_metadata()

    def send() -> None:
        try:
            for some in in_requests(offsets, len(group)):
                retried(producer.send_offsets_to_transaction, some, metadata, OFFSETS_S, bound_s=OFFSETS_S)
            answer.append(None)
        except Exception as error:
            answer.append(error)

    thread = threading.Thread(target=send, name="headrace-offsets", daemon=True)
    began_s, deadline = time.monotonic(), deadline or Deadline()
    thread.start()
    while thread.is_alive() and (left_s := deadline.left_s(began_s, OFFSETS_S)) > 0:
        thread.join(min(left_s, _LOOK_S))
    if not answer:
        text = f"the positions of group {group!r} were not taken within {OFFSETS_S:g} s"
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, text))
    if answer[0] is not None:
        raise answer[0]


def in_requests(offsets: Sequence[TopicPartition], group_bytes: int) -> Iterator[list[TopicPartition]]:
    """`offsets`, in their order, by requests: a broker writes the positions of one as one batch, which its `message.max.bytes`
    bounds (1 MB by default)."""
    some, size = list[TopicPartition](), 0
    for offset in offsets:
        own = POSITION_BYTES + group_bytes + len(offset.topic) + len((offset.metadata or "").encode())
        if some and size + own > OFFSETS_BYTES:
            yield some
            some, size = [], 0
        some.append(offset)
        size += own
    if some:
        yield some


def retried(function: Callable[..., Any], *arguments: Any, bound_s: float = 60.0) -> Any:
    """Call a transactional function, again where librdkafka says that this may help."""
    return retried_in_pieces(lambda _: function(*arguments), bound_s, Deadline())


def retried_in_pieces(
    function: Callable[[float], Any], bound_s: float, deadline: Deadline, more: Collection[int] = frozenset()
) -> Any:
    """`retried`, also for the codes `more`, of a function that is given how long it may take. That is a part of `bound_s`,
    so that `deadline` is heard."""
    began_s = time.monotonic()
    while True:
        try:
            return function(deadline.piece_s(began_s, bound_s))
        except KafkaException as error:
            may_help = error.args[0].retriable() or error.args[0].code() in more
            if not may_help or deadline.left_s(began_s, bound_s) <= 0:
                raise
            time.sleep(0.05)


def error_text(error: KafkaException) -> str:
    cause = error.args[0]
    return f"{cause.name()}: {cause.str()}"
