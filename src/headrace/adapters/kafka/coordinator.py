"""The coordinator's transactions: the one producer that writes an application's plan (protocol.md 6).

Its id is the application's alone: a new driver's `init` fences the one before it, whose next transaction then fails.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from headrace.adapters.kafka.broker_requests import lasting_hint
from headrace.adapters.kafka.clients import ANSWER_S, FENCED, FOLLOWS, new_producer, retried_in_pieces, send_offsets, take_id
from headrace.adapters.kafka.compacted import OpenTransactionError
from headrace.adapters.kafka.deadline import Deadline
from headrace.adapters.kafka.names import coordinator_id
from headrace.errors import FencedError, StorageError, UnavailableError

LOG = logging.getLogger("headrace.kafka")
START_TRIES = 3
TIMEOUT_MS = 15_000
BATCH_BYTES = 16_000  # or one record: most topics whose max.message.bytes is small take that


class Coordinator:
    """Transactions under the coordinator's id. Threads may share it. `still_ours` raises `FencedError` where another driver has
    come in the meantime. It is asked before and after the id is taken again, and where the id is lost: to another driver, or to
    a broker that has ended a transaction at its timeout."""

    def __init__(
        self, client: Mapping[str, Any], application: str, still_ours: Callable[[], object], deadline: Deadline | None = None
    ) -> None:
        self._client, self._application, self._still_ours = client, application, still_ours
        self._deadline = deadline or Deadline()
        self._lock = threading.RLock()
        self._producer: Producer | None = None
        self._undelivered: list[tuple[str, KafkaError]] = []  # of the last transaction, with their topics

    @property
    def has_id(self) -> bool:
        """Whether it can transact. If not, the outcome of its last transaction may not be known: who takes the id again decides
        it."""
        return self._producer is not None

    def take(self) -> None:
        """Fence the previous owner of the id."""
        with self._lock:
            self._undelivered = []
            # A transaction is written at once; a long linger would not fit in its time.
            settings = {**self._client, "batch.size": BATCH_BYTES, "linger.ms": 0}
            self._producer = new_producer(settings, coordinator_id(self._application), TIMEOUT_MS)
            producer = self._producer
            self._guarded(lambda piece_s: take_id(producer, piece_s))

    def transact(
        self,
        records: Iterable[tuple[str, bytes, bytes | None]],
        positions: Mapping[str, Sequence[TopicPartition]] | None = None,
    ) -> None:
        """Write `records` (topic, key, value) to partition 0, and per group its positions, all or nothing, under the id that it
        has. `FencedError` if another driver took over; `UnavailableError` where it cannot be known to have been written;
        another `StorageError` where it was not, nor will be: the user lacks a right, or a topic takes no record that large.
        After each the id is to be taken again."""
        with self._lock:
            producer = self._producer
            assert producer is not None, "the coordinator's id is not taken"
            failed = self._undelivered = []
            self._guarded(lambda _: producer.begin_transaction())

            def delivered(error: KafkaError | None, message: Any) -> None:
                if error is not None:
                    failed.append((message.topic(), error))

            def produce(record: tuple[str, bytes, bytes | None], _: float) -> None:
                topic, key, value = record
                began_s = time.monotonic()
                while True:
                    try:
                        return producer.produce(topic, key=key, value=value, partition=0, on_delivery=delivered)
                    except BufferError:  # as many are on their way as the client holds
                        if self._deadline.left_s(began_s, ANSWER_S) <= 0:
                            raise KafkaException(KafkaError(KafkaError._QUEUE_FULL, "no record was taken")) from None
                        producer.poll(0.05)

            def send(group: str, offsets: Sequence[TopicPartition], _: float) -> None:
                send_offsets(producer, self._client, group, offsets, deadline=self._deadline)

            for record in records:
                # the client may learn between two records that another driver has its id: then one of these calls raises it
                self._guarded(partial(produce, record))
                self._guarded(lambda _: producer.poll(0))
            for group, offsets in (positions or {}).items():
                self._guarded(partial(send, group, offsets))
            self._guarded(producer.commit_transaction)
            if failed:
                self._producer = None

    def take_again(self) -> None:
        """A transaction under the id is committed, or will never be, when this returns. Whether it is still ours is asked
        before, so as not to fence a successor; and after, as one may have come in between: only from our init on can no other
        driver write."""
        with self._lock:
            self._still_ours()
            self.take()
            try:
                self._still_ours()
            except BaseException:
                self._producer = None
                raise

    def _guarded(self, function: Callable[[float], Any]) -> None:
        """Call `function` with how long it may take, again while that may help."""
        try:
            retried_in_pieces(function, ANSWER_S, self._deadline)
        except KafkaException as error:
            topic, cause = self._cause_of(error.args[0])
            self._producer = None  # its outcome is not known, or it is fenced: it never transacts again
            text = f"{topic}{cause.name()}: {cause.str()}"
            if cause.code() in FENCED:
                self._still_ours()
                raise UnavailableError(
                    f"application {self._application!r}: a broker has ended the coordinator's transaction: {text}",
                    f"it is tried again; was this process suspended for {TIMEOUT_MS // 1000} s, or is the machine overloaded?",
                ) from None
            hint = lasting_hint(cause)
            if hint is not None:
                said = f"application {self._application!r}: the coordinator's transaction is refused: {text}"
                raise StorageError(said, hint) from None
            raise UnavailableError(
                f"application {self._application!r}: the coordinator's transaction failed: {text}",
                "nothing of it counts unless it was committed after all; it is read again before anything is built on it",
            ) from None

    def _cause_of(self, error: KafkaError) -> tuple[str, KafkaError]:
        """Why a call has failed, behind a topic's name where one has refused a record. The client may hear of that between two
        calls, and the next one then says only that it cannot be made now."""
        producer = self._producer
        if producer is None or error.code() in FENCED:
            return "", error
        with suppress(KafkaException, SystemError):
            producer.poll(0)  # what was reported and not heard yet
        telling = [one for one in self._undelivered if one[1].code() not in FOLLOWS]
        if telling:
            topic, cause = telling[0]
            return f"topic {topic!r}: ", cause
        if error.code() in FOLLOWS:
            try:
                producer.begin_transaction()  # it answers what has ended the last one
            except KafkaException as answer:
                return "", answer.args[0]
        return "", error

    def close(self) -> None:
        """Write no more until the id is taken again."""
        with self._lock:
            self._producer = None


def taken_over(application: str) -> FencedError:
    text = f"another driver has taken over application {application!r}"
    return FencedError(text, "this one ends; it has changed nothing since")


def tried(write: Callable[[], None]) -> None:
    """Call `write`, up to `START_TRIES` times where its outcome is not known, or what it reads is not decided yet."""
    for left in reversed(range(START_TRIES)):
        try:
            write()
            return
        except (UnavailableError, OpenTransactionError) as error:
            if not left:
                raise
            LOG.warning("once more: %s", error.message)
