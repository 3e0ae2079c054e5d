"""A container's transaction: outputs, positions and checkpoint records of one round, all or nothing.

protocol.md 8 and 9. The transactional id has no epoch in it: the next owner of the lane fences the one before,
and only THEN reads the epoch and the positions. So an attempt that slept through its successor finds another epoch or
other positions, and one that had read them before cannot commit any more.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from headrace.adapters.kafka.client_log import CLIENT_LOG
from headrace.adapters.kafka.client_pool import ClientPool
from headrace.adapters.kafka.deadline import Deadline
from headrace.adapters.kafka.limits import BATCH_BYTES
from headrace.adapters.kafka.names import coordinator_group, metadata_topic, transactional_id
from headrace.adapters.kafka.refusals import undelivered
from headrace.core.rounds.stream_limits import RECORD_BYTES_MAX
from headrace.errors import ConfigError, RoundFailedError

if TYPE_CHECKING:  # it imports Arrow, which commands that read no records do without
    from headrace.adapters.kafka.messages import Message

POSITION_METADATA_BYTES_MAX = 4096  # a broker's default offset.metadata.max.bytes
ANSWER_S = 30.0
OFFSETS_S = 10.0
UNKNOWN_MS = 10_000  # for this long a topic that brokers do not know may be one that was just made
GROWN_S = 3.0  # for this long a broker may not have heard of partitions that others report
Reached = Callable[[str, int], None]
_LOOK_S = 0.25  # how often a wait for a thread looks whether it is to end
_ASKED_FOR = "__transaction_state"  # a topic's name keeps the answer short; it does not matter whether it is there
_tokens: dict[int, str] = {}  # by pid: a forked copy of this process gets one of its own


def process_token() -> str:
    """Names this process, and no other that ever was."""
    pid = os.getpid()
    if pid not in _tokens:
        _tokens[pid] = f"{socket.gethostname()}:{pid}:{uuid.uuid4().hex}"
    return _tokens[pid]


class PositionNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """The metadata of a position in the group: which round committed it, under which plan, with which state."""

    r: str  # round id
    v: int  # job model version
    h: str = ""  # version and checksum of the state's head
    s: tuple[str, ...] = ()  # ids of startpoints that it spent


_NOTE = msgspec.json.Decoder(PositionNote)


def encode_note(note: PositionNote) -> str:
    text = msgspec.json.encode(note).decode()
    if len(text) > POSITION_METADATA_BYTES_MAX:
        raise RoundFailedError(
            f"the metadata of a position takes {len(text)} bytes, more than the {POSITION_METADATA_BYTES_MAX} that a "
            "broker keeps",
            "delete startpoints that are not needed any more",
        )
    return text


def decode_note(text: str | None) -> PositionNote | None:
    """None for a position that somebody else wrote."""
    try:
        return _NOTE.decode(text or "")
    except msgspec.DecodeError:
        return None


@dataclass(frozen=True, slots=True)
class Position:
    """One position of a group: `group`, topic and partition, the offset, and its note."""

    group: str
    topic: str
    partition: int
    offset: int
    note: PositionNote


class Verdict(Enum):
    WORK = "work"
    DONE = "this round has committed before"


@dataclass(frozen=True, slots=True)
class Lane:
    """One lane of one sub-topology in one round. `client` are librdkafka's settings; `producer_of` the token of the
    process that made the lane's last commit, whose producer is used again; `timeout_ms` bounds a transaction."""

    application: str
    sub_topology: str
    lane: int
    epoch: int
    round_id: str
    client: Mapping[str, Any] = field(repr=False)  # there may be passwords in it
    timeout_ms: int
    producer_of: str | None = None

    @property
    def transactional_id(self) -> str:
        return transactional_id(self.application, self.sub_topology, self.lane)


_producers = ClientPool[Producer]()
_consumers = ClientPool[Consumer]()


class LaneTransaction:
    """The transaction of one lane in one round. Not thread-safe. Any error ends its producer for good."""

    def __init__(self, lane: Lane, reached: Reached) -> None:
        self._lane, self._reached = lane, reached
        self._producer: Producer | None = None
        self._errors: list[KafkaError] = []  # of the producer itself
        self._undelivered: dict[str, list[KafkaError]] = {}  # by topic
        self._open = False

    def check(self, base: Sequence[Position]) -> Verdict:
        """Take the lane, then see whether the round may still be worked: `RoundFailedError` if not.

        `base` is what the round builds on. In this order: a successor that has taken the lane by now fences us; one that
        takes it later makes our commit fail.
        """
        lane = self._lane
        self._reached("kafka", 1)
        key = f"{process_token()}/{lane.client.get('bootstrap.servers')}/{lane.transactional_id}"
        kept = _producers.take(key)
        if kept is not None and lane.producer_of == process_token():
            self._producer = kept
        else:
            self._producer = new_producer(lane.client, lane.transactional_id, lane.timeout_ms, self._errors)
            self._call(take_id, self._producer, ANSWER_S)
        self._reached("kafka", 2)
        self._check_epoch()
        return self._verdict(base)

    def _check_epoch(self) -> None:
        lane, epoch = self._lane, self._epoch()
        if epoch != lane.epoch:
            self.give_up()
            raise RoundFailedError(
                f"round {lane.round_id}: application {lane.application!r} is in epoch {epoch}, the round is of {lane.epoch}",
                "another driver took over",
            )

    def _epoch(self) -> int:
        lane = self._lane
        found = _committed(lane.client, coordinator_group(lane.application), [(metadata_topic(lane.application), 0)])
        return found[0].offset

    def _verdict(self, base: Sequence[Position]) -> Verdict:
        by_group: dict[str, list[Position]] = {}
        for position in base:
            by_group.setdefault(position.group, []).append(position)
        rounds: set[str] = set()
        for group, positions in by_group.items():
            found = _committed(self._lane.client, group, [(p.topic, p.partition) for p in positions])
            for position, now in zip(positions, found, strict=True):
                note = decode_note(now.metadata)
                rounds.add(note.r if note is not None else "")
                if note is not None and note.r == self._lane.round_id:
                    continue
                if now.offset != position.offset or note is None or (note.r, note.v) != (position.note.r, position.note.v):
                    self.give_up()
                    stands = f"{now.offset} of {note}" if now.offset >= 0 else "no committed offset"
                    raise RoundFailedError(
                        f"round {self._lane.round_id}: it builds on {position.topic}-{position.partition} at "
                        f"{position.offset} of round {position.note.r}, but group {group!r} has {stands}",
                        "it is planned again from what is committed",
                    )
        if rounds == {self._lane.round_id}:
            return Verdict.DONE
        return Verdict.WORK

    def begin(self) -> None:
        assert self._producer is not None
        self._reached("kafka", 3)
        self._call(self._producer.begin_transaction)
        self._open = True

    def produce(self, topic: str, messages: Iterable[Message]) -> None:
        """Send records."""
        assert self._producer is not None
        failed = self._undelivered.setdefault(topic, [])
        try:
            produce_all(self._producer, topic, messages, failed, self._lane.timeout_ms / 1000)
        except KafkaException as error:  # the client itself takes no record that large
            raise undelivered(self._lane.round_id, topic, error.args[0]) from None

    def commit(self, positions: Sequence[Position], checkpoints: Iterable[tuple[bytes, bytes]], topic: str) -> None:
        """Positions and checkpoint records join the outputs, and all of it is committed."""
        producer = self._producer
        assert producer is not None
        self._reached("kafka", 7)
        self.produce(topic, [(value, key, 0, 0, None) for key, value in checkpoints])
        by_group: dict[str, list[TopicPartition]] = {}
        for p in positions:
            by_group.setdefault(p.group, []).append(
                TopicPartition(p.topic, p.partition, p.offset, metadata=encode_note(p.note))
            )
        for group, offsets in by_group.items():
            self._call(send_offsets, producer, self._lane.client, group, offsets)
        self._reached("kafka", 8)
        self._call(producer.commit_transaction, self._lane.timeout_ms / 1000)
        self._open = False
        self._reached("kafka", 9)
        if self._errors or self._refusal() is not None:
            # protocol.md 11: what was seen on the way ends the producer, whatever the commit said
            self._producer = None
            return
        key = f"{process_token()}/{self._lane.client.get('bootstrap.servers')}/{self._lane.transactional_id}"
        _producers.keep(key, producer)
        self._producer = None

    def give_up(self) -> None:
        """Abort what is open. The lane's next owner would do so too: an error here is no matter."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        if self._open:
            self._open = False
            try:
                producer.purge(in_queue=True, in_flight=False)
                producer.abort_transaction(5.0)
            except KafkaException:
                pass

    def _refusal(self) -> tuple[str, KafkaError] | None:
        """The topic of a record that could not be delivered, and why: the first that says more than that others failed."""
        if self._producer is not None:
            self._producer.poll(0)  # what was reported and not heard yet
        failed = [(topic, error) for topic, errors in self._undelivered.items() for error in errors]
        telling = [one for one in failed if one[1].code() not in _FOLLOWS]
        return next(iter(telling or failed), None)

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return retried(function, *arguments)
        except KafkaException as error:
            refusal = self._refusal()
            self._open = False
            self._producer = None
            if refusal is not None:
                raise undelivered(self._lane.round_id, *refusal) from None
            raise RoundFailedError(
                f"round {self._lane.round_id}, lane {self._lane.transactional_id!r}: {_text(error)}",
                "it is planned again from what is committed",
            ) from None


# What befalls a record because of another: its producer was given up, or purged.
_FOLLOWS = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._FATAL, KafkaError._STATE})


def new_producer(
    client: Mapping[str, Any], transactional: str | None, timeout_ms: int, errors: list[KafkaError] | None = None
) -> Producer:
    """A producer that keeps the order of what it sends. `errors` gathers what librdkafka reports on the way."""
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
    """Take the producer's transactional id: its previous owner is fenced when this returns.

    librdkafka drops its first connection as soon as it knows the broker by its number, and asks for the coordinator again
    only after 500 ms if it does so just then. A client that has made two other requests has a connection that stays.
    """
    try:
        for _ in range(2):
            producer.list_topics(_ASKED_FOR, timeout=min(bound_s, 1.0))
    except KafkaException:
        pass  # what is wrong is said by what follows
    producer.init_transactions(bound_s)


def produce_all(
    producer: Producer,
    topic: str,
    messages: Iterable[Message],
    errors: list[KafkaError],
    bound_s: float,
) -> None:
    """Hand messages over, in order; on a full queue poll and continue, for at most `bound_s`. Timestamp 0 is now.

    All arguments go by their places, and delivery is reported of what fails alone: a round may write a million of them.
    One argument by its name takes as long as all the rest of a call, and so do headers that may be left out of a message.
    (The callback has two places, for its two names.)
    """

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
    bound_s: float = OFFSETS_S,
    patience: Deadline | None = None,
) -> None:
    """Have positions of `group` join the transaction. `KafkaException` where that takes longer than `bound_s`.

    librdkafka does not keep to a time limit here, and where the broker went away and came back it may wait for ever: so
    it is called in a thread that is left behind then. Its producer is not to be used again.
    """
    answer: list[Exception | None] = []
    metadata = consumer_of(client, group).consumer_group_metadata()

    def send() -> None:
        try:
            retried(producer.send_offsets_to_transaction, list(offsets), metadata, bound_s, bound_s=bound_s)
            answer.append(None)
        except Exception as error:
            answer.append(error)

    thread = threading.Thread(target=send, name="headrace-offsets", daemon=True)
    began_s, patience = time.monotonic(), patience or Deadline()
    thread.start()
    while thread.is_alive() and (left_s := patience.left_s(began_s, bound_s)) > 0:
        thread.join(min(left_s, _LOOK_S))
    if not answer:
        text = f"the positions of group {group!r} were not taken within {bound_s:g} s"
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, text))
    if answer[0] is not None:
        raise answer[0]


# A group's coordinator is being made (the first group of a new broker), or moves: only of reading is this no doubt.
_MOVING = frozenset(
    {
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError._TIMED_OUT,  # of one piece of the wait
    }
)


def retried(
    function: Callable[..., Any],
    *arguments: Any,
    bound_s: float = 60.0,
    more: Collection[int] = frozenset(),
    patience: Deadline | None = None,
) -> Any:
    """Call a transactional function, again where librdkafka says that this may help, or for the codes `more`."""
    began_s, patience = time.monotonic(), patience or Deadline()
    while True:
        try:
            return function(*arguments)
        except KafkaException as error:
            may_help = error.args[0].retriable() or error.args[0].code() in more
            if not may_help or patience.left_s(began_s, bound_s) <= 0:
                raise
            time.sleep(0.05)


def retried_in_pieces(
    function: Callable[[float], Any], bound_s: float, patience: Deadline, more: Collection[int] = frozenset()
) -> Any:
    """`retried`, of a function that is given how long it may take: a part of `bound_s`, so that `patience` is heard."""
    began_s = time.monotonic()
    return retried(lambda: function(patience.piece_s(began_s, bound_s)), bound_s=bound_s, more=more, patience=patience)


def consumer_of(client: Mapping[str, Any], group: str) -> Consumer:
    """This process's consumer of a group: it never joins it, it only knows its name and asks for its positions."""
    key = f"{process_token()}/{client.get('bootstrap.servers')}/{group}"
    settings = {
        **client,
        "logger": CLIENT_LOG,
        "group.id": group,
        "isolation.level": "read_committed",  # and so positions are read with require_stable
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
    }
    return _consumers.shared(key, lambda: Consumer(settings))


def _committed(
    client: Mapping[str, Any], group: str, partitions: Sequence[tuple[str, int]], patience: Deadline | None = None
) -> list[TopicPartition]:
    """The committed positions of a group, in the order of the request; waits while a transaction holds them back."""
    consumer = consumer_of(client, group)
    wanted = [TopicPartition(topic, partition) for topic, partition in partitions]
    try:
        found = retried_in_pieces(
            lambda piece_s: consumer.committed(wanted, timeout=piece_s), ANSWER_S, patience or Deadline(), _MOVING
        )
    except KafkaException as error:
        raise RoundFailedError(
            f"the positions of group {group!r} cannot be read: {_text(error)}",
            "is the broker up, and may this user read that group? (a missing right shows as a timeout here)",
        ) from None
    by_partition = {(one.topic, one.partition): one for one in found}
    return [by_partition[pair] for pair in partitions]


def committed_positions(
    client: Mapping[str, Any], group: str, partitions: Sequence[tuple[str, int]], patience: Deadline | None = None
) -> dict[tuple[str, int], tuple[int, PositionNote | None]]:
    """(topic, partition) to (offset, note) of the positions that a group has; without those that it has not."""
    return {
        (one.topic, one.partition): (one.offset, decode_note(one.metadata))
        for one in _committed(client, group, partitions, patience)
        if one.offset >= 0
    }


def _text(error: KafkaException) -> str:
    cause = error.args[0]
    return f"{cause.name()}: {cause.str()}"
