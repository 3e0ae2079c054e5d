"""A container's commit where a record may be processed again (`processing_guarantee` = at_least_once).

No transaction: outputs are written and flushed, then the checkpoint record, then the group's positions. However the
attempt ends in between, positions are never ahead of outputs; a reader may see outputs of a round that is processed again.
Each task's state and positions still move together, in its one checkpoint record. Nothing fences an attempt that sleeps
past its successor, so the epoch is read once more right before anything counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from confluent_kafka import KafkaException, Producer, TopicPartition

from headrace.adapters.kafka.client_pool import ClientPool
from headrace.adapters.kafka.container_transaction import (
    ANSWER_S,
    LaneTransaction,
    Position,
    Verdict,
    consumer_of,
    encode_note,
    new_producer,
    process_token,
    retried,
)
from headrace.adapters.kafka.refusals import undelivered
from headrace.errors import RoundFailedError

_producers = ClientPool[Producer]()  # by process, broker and size of batches: it belongs to no lane


class FlushedLane(LaneTransaction):
    """`LaneTransaction` without the transaction. Not thread-safe. An error ends the process's producer."""

    def check(self, base: Sequence[Position]) -> Verdict:
        """See whether the round may still be worked: `RoundFailedError` if not. No lane is taken."""
        self._reached("kafka", 1)
        self._reached("kafka", 2)
        self._check_epoch()
        return self._verdict(base)

    def begin(self) -> None:
        self._reached("kafka", 3)
        self._producer = _producers.take(self._key) or new_producer(self._lane.client, None, 0)

    def commit(self, positions: Sequence[Position], checkpoints: Iterable[tuple[bytes, bytes]], topic: str) -> None:
        """Flush the outputs, then write the checkpoint records, then the positions."""
        self._flush("its outputs")
        self._reached("kafka", 7)
        self._check_epoch()
        self.produce(topic, [(value, key, 0, 0, None) for key, value in checkpoints])
        self._flush("its checkpoints")
        self._reached("kafka", 8)
        by_group: dict[str, list[TopicPartition]] = {}
        for p in positions:
            by_group.setdefault(p.group, []).append(
                TopicPartition(p.topic, p.partition, p.offset, metadata=encode_note(p.note))
            )
        for group, offsets in by_group.items():
            consumer = consumer_of(self._lane.client, group)
            self._call(partial(consumer.commit, offsets=offsets, asynchronous=False))
        self._reached("kafka", 9)
        if self._producer is not None and not self._errors and self._refusal() is None:
            _producers.keep(self._key, self._producer)
        self._producer = None

    def give_up(self) -> None:
        """Nothing can be taken back: records that were sent are processed again."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge(in_queue=True, in_flight=False)

    @property
    def _key(self) -> str:
        client = self._lane.client  # who writes other topics may send other amounts at once
        return f"{process_token()}/{client.get('bootstrap.servers')}/{client.get('batch.size')}"

    def _flush(self, what: str) -> None:
        assert self._producer is not None
        left = self._producer.flush(max(ANSWER_S, self._lane.timeout_ms / 1000))
        refusal = self._refusal()
        if refusal is not None:
            raise undelivered(self._lane.round_id, *refusal)
        if left or self._errors:
            said = self._errors[0].str() if self._errors else f"{left} records had no answer"
            raise RoundFailedError(f"round {self._lane.round_id}: {what} could not be written: {said}", "is the broker up?")

    def _call(self, function: Any, *arguments: Any) -> Any:
        try:
            for one in retried(function, *arguments):
                if one.error is not None:
                    raise KafkaException(one.error)
        except KafkaException as error:
            cause = error.args[0]
            raise RoundFailedError(
                f"round {self._lane.round_id}: its positions could not be written: {cause.name()}: {cause.str()}",
                "it is planned again from what is committed",
            ) from None
