"""`produce` and `consume` of a topic: records in transactions to the broker, and back."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
from confluent_kafka import KafkaError, KafkaException, Producer

from headrace.adapters.common.dead_letter_marks import refuse_marked
from headrace.adapters.kafka.admin import UNCOMMITTED, Admin, Topic
from headrace.adapters.kafka.broker_requests import LOG
from headrace.adapters.kafka.clients import ANSWER_S, FENCED, error_text, new_producer, produce_all, retried, take_id
from headrace.adapters.kafka.compacted import CompactedTopic
from headrace.adapters.kafka.fetching import fetched
from headrace.adapters.kafka.limits import BATCH_BYTES
from headrace.adapters.kafka.messages import Message, messages_of
from headrace.adapters.kafka.names import entries_of
from headrace.adapters.kafka.names import records_of as entry_records
from headrace.codec.job_records import DEAD_LETTERS
from headrace.codec.record_batches import ProducedBatches, records_of, refuse_too_large
from headrace.core.secrets import Secrets
from headrace.errors import FencedError, HeadraceError, RecordTooLargeError, StorageError
from headrace.model.serde import Serde
from headrace.record import Record

COMMIT_RECORDS = 100_000  # one transaction, all or nothing
TIMEOUT_MS = 60_000
READABLE_S = 10.0  # for this long `produce` waits until its records can be read
_HINTS = {
    KafkaError.INVALID_TIMESTAMP: "the broker takes no timestamps that are far ahead of its clock; raise "
    "message.timestamp.after.max.ms of the topic",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "this user may not write there",
}


class TransactionalWriter:
    """Writes in transactions under an id of its own; after an error it starts over. Not thread-safe."""

    def __init__(self, client: Mapping[str, Any], id_: str, secrets: Secrets, timeout_ms: int = TIMEOUT_MS) -> None:
        self._client: dict[str, Any] = dict(client)
        self._id, self._timeout_ms = id_, timeout_ms
        self._secrets = secrets
        self.turns: dict[str, int] = {}  # per topic the partition for the next null key, before it is reduced
        self._producer: Producer | None = None
        self._is_open = False
        self._errors: list[KafkaError] = []

    def send_at_once(self, most_bytes: int) -> None:
        """From the next transaction on send no more than this at once: a topic takes no more."""
        if most_bytes < int(self._client.get("batch.size", BATCH_BYTES)):
            self._client["batch.size"], self._producer = most_bytes, None

    def take(self) -> None:
        """Take its id, if that is not its own yet: who had it before commits nothing any more."""
        if self._producer is None:
            self._errors.clear()
            producer = new_producer(self._client, self._id, self._timeout_ms, self._errors)
            self._call(take_id, producer, ANSWER_S)
            self._producer = producer

    def write(self, topic: str, messages: Iterable[Message]) -> None:
        self.take()
        assert self._producer is not None
        if not self._is_open:
            self._is_open = True
            self._call(self._producer.begin_transaction)
        try:
            produce_all(self._producer, topic, messages, self._errors, ANSWER_S)
        except KafkaException as error:
            raise self._failed(topic, self._cause_of(error.args[0])) from None

    def _cause_of(self, error: KafkaError) -> KafkaError:
        """A producer that has met its end says only that it has: why, it has told by then, or tells when it is asked."""
        if error.code() != KafkaError._FATAL or self._producer is None:
            return error
        try:
            self._producer.poll(0)
        except (KafkaException, SystemError) as told:
            return _error_in(told)
        return next((one for one in self._errors if one.code() != KafkaError._FATAL), error)

    def commit(self, topic: str) -> None:
        assert self._producer is not None
        try:
            self._producer.flush(ANSWER_S)
        except (KafkaException, SystemError) as error:
            raise self._failed(topic, _error_in(error)) from None
        if self._errors:
            raise self._failed(topic, self._errors[0])
        self._call(self._producer.commit_transaction, ANSWER_S)
        self._is_open = False

    def abort(self) -> None:
        """Take back the records since the last commit."""
        if not self._is_open:
            return
        producer, self._producer, self._is_open = self._producer, None, False
        if producer is not None:
            try:
                producer.purge(in_queue=True, in_flight=False)
                producer.abort_transaction(5.0)
            except KafkaException:
                pass  # its timeout ends it

    def _call(self, function: Any, *arguments: Any) -> None:
        try:
            retried(function, *arguments, bound_s=ANSWER_S)
        except KafkaException as error:
            text = self._secrets.cleaned(error_text(error))
            if error.args[0].code() in FENCED:
                raise self._fenced(text) from None
            raise StorageError(f"the records could not be written: {text}", "is the broker up?") from None

    def _fenced(self, text: str) -> FencedError:
        return FencedError(f"somebody else writes under transactional id {self._id!r}: {text}", "try again")

    def _failed(self, topic: str, error: KafkaError) -> HeadraceError:
        text = self._secrets.cleaned(f"{error.name()}: {error.str()}")
        if error.code() in FENCED:
            return self._fenced(text)
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            return RecordTooLargeError(
                f"topic {topic!r} refuses a record as too large: {text}", "raise max.message.bytes of the topic"
            )
        hint = _HINTS.get(error.code(), "is the broker up?")
        return StorageError(f"topic {topic!r}: a record could not be written: {text}", hint)


def _error_in(raised: KafkaException | SystemError) -> KafkaError:
    """Of who was fenced: then the client calls us with an exception set."""
    cause = raised.__cause__ if isinstance(raised, SystemError) else raised
    if not isinstance(cause, KafkaException):
        raise raised
    error: KafkaError = cause.args[0]
    return error


def produce(
    writer: TransactionalWriter,
    topic: str,
    partitions_now: Callable[[], int],
    records: Iterable[Any],
    key: Serde | None,
    value: Serde | None,
) -> dict[int, int]:
    """Append `records`; partition to the number written. When a transaction fails, those before it stay. `partitions_now`
    asks how many the topic has: for each transaction, as a call may last while the topic grows."""
    counts: dict[int, int] = {}
    batches, rest = ProducedBatches(key, value, writer.turns.get(topic, time.time_ns())), iter(records)
    for first in rest:
        try:
            for batch, partitions in batches.of(chain([first], islice(rest, COMMIT_RECORDS - 1)), partitions_now()):
                refuse_too_large(batch, repr(topic), sum(counts.values()))
                writer.write(topic, messages_of(batch, partitions))
                for partition, records_there in zip(*np.unique(partitions, return_counts=True), strict=True):
                    counts[int(partition)] = counts.get(int(partition), 0) + int(records_there)
            writer.commit(topic)
        except BaseException:
            writer.abort()
            raise
        writer.turns[topic] = batches.round_robin
    return counts


def put_back(
    writer: TransactionalWriter,
    records: Mapping[Topic, Sequence[Record]],
    metadata: CompactedTopic,
    marks: Mapping[str, bytes | None],
) -> dict[str, dict[int, int]]:
    """Append encoded records, and set marks of dead letters in the `metadata` of their application, in one transaction; by
    topic and partition how many. Once the writer has its id no other process can set some, and what is set can be read."""
    counts: dict[str, dict[int, int]] = {}
    try:
        writer.take()
        stored = metadata.refresh()
        refuse_marked(marks, entries_of(stored, DEAD_LETTERS), metadata.topic)
        entries = [one for name, mark in marks.items() for one in entry_records(DEAD_LETTERS, name, mark, stored)]
        for topic, mine in records.items():
            there = counts.setdefault(topic.name, {})
            for batch, partitions in ProducedBatches(None, None, time.time_ns()).of(iter(mine), topic.partitions):
                refuse_too_large(batch, repr(topic.name), 0)
                writer.write(topic.name, messages_of(batch, partitions))
                for partition in map(int, partitions):
                    there[partition] = there.get(partition, 0) + 1
        writer.write(metadata.topic, [(value, key, 0, 0, None) for key, value in entries])
        writer.commit(metadata.topic)
    except BaseException:
        writer.abort()
        raise
    return counts


def await_readable(admin: Admin, topic: Topic, partitions: Collection[int]) -> None:
    """A commit returns before its records can be read. For a bounded time: more cannot be done about it here."""
    written = admin.ends(topic, UNCOMMITTED)
    deadline_s = time.monotonic() + READABLE_S
    while True:
        ends = admin.ends(topic)
        behind = [partition for partition in partitions if ends[partition] < written[partition]]
        if not behind:
            return
        if time.monotonic() > deadline_s:
            LOG.warning(
                "stream %r: the records are written, but those of partition %d cannot be read yet after %.0f s: "
                "an open transaction holds them back",
                topic.name,
                behind[0],
                READABLE_S,
            )
            return
        time.sleep(0.005)


def first_not_older(client: Mapping[str, Any], topic: str, partition: int, start: int, end: int, time_us: int) -> int:
    """The offset of the first committed record from `start` on that is not older; `end` if there is none before it."""
    for offsets, batch in fetched(client, topic, partition, start, end):
        found = np.flatnonzero(batch.column("timestamp_us").to_numpy() >= time_us)
        if len(found):
            return int(offsets[found[0]])
    return end


def consume(
    client: Mapping[str, Any], topic: str, ranges: Sequence[tuple[int, int, int]], key: Serde | None, value: Serde | None
) -> Iterator[Record]:
    """The committed records of `ranges`, partition after partition."""
    for partition, start, end in ranges:
        if start < end:
            for offsets, batch in fetched(client, topic, partition, start, end):
                yield from records_of(batch, topic, partition, offsets.tolist(), key, value)
