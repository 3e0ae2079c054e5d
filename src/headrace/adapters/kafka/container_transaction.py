"""A container's transaction: outputs, positions and checkpoint records of one round, all or nothing.

protocol.md 8 and 9. The transactional id has no epoch in it: the next owner of the lane fences the one before,
and only THEN reads the epoch and the positions. So an attempt that slept through its successor finds another epoch or
other positions, and one that had read them before cannot commit any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer

from headrace.adapters.kafka.clients import (
    ANSWER_S,
    FOLLOWS,
    ClientPool,
    consumer_of,
    error_text,
    kept_key,
    new_producer,
    process_token,
    produce_all,
    retried,
    send_offsets,
    take_id,
)
from headrace.adapters.kafka.names import lane_id
from headrace.adapters.kafka.positions import (
    Position,
    PositionsUnreadError,
    by_group,
    committed_in_force,
    committed_positions,
    offsets_by_group,
)
from headrace.errors import HeadraceError, RecordTooLargeError, RoundFailedError, StorageError
from headrace.exchange.fault_injection import reached

if TYPE_CHECKING:  # it imports Arrow, which commands that read no records do without
    from headrace.adapters.kafka.messages import Message


KEPT_S = 1.0  # for this long a kept producer waits for positions that an open transaction holds back: not its own is open


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
        return lane_id(self.application, self.sub_topology, self.lane)


class _Kept(NamedTuple):
    """A producer, and what librdkafka has reported of it in whichever transaction."""

    producer: Producer
    errors: list[KafkaError]


_producers = ClientPool[_Kept]()


class LaneTransaction:
    """The transaction of one lane in one round. Not thread-safe. Any error ends its producer for good."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._producer: Producer | None = None
        self._errors: list[KafkaError] = []  # of the producer itself; kept with it
        self._undelivered: dict[str, list[KafkaError]] = {}  # by topic
        self._open = False

    @property
    def _key(self) -> str:
        """What this process keeps the producer under."""
        return kept_key(self._lane.client, self._lane.transactional_id)

    def check(self, base: Sequence[Position]) -> Verdict:
        """Take the lane, then see whether the round may still be worked: `RoundFailedError` if not. `base` is what the round
        builds on. In this order: a successor that has taken the lane by now fences us; one that takes it later makes our
        commit fail."""
        lane = self._lane
        reached("kafka", 1)
        kept = _producers.take(self._key)
        if kept is not None and lane.producer_of == process_token():
            self._producer, self._errors = kept
            reached("kafka", 2)
            self._check_epoch()
            # An attempt in another process may have taken the lane since: where it died, its transaction is open.
            with suppress(PositionsUnreadError):
                return self._verdict(base, KEPT_S)
        self._errors = []
        self._producer = new_producer(lane.client, lane.transactional_id, lane.timeout_ms, self._errors)
        self._call(take_id, self._producer, ANSWER_S)
        reached("kafka", 2)
        self._check_epoch()
        return self._verdict(base)

    def _check_epoch(self) -> None:
        lane = self._lane
        in_force = committed_in_force(lane.client, lane.application)
        if in_force.allows(lane.epoch):
            return
        self.give_up()
        if in_force.grants is None:
            found, why = f"is in epoch {in_force.epoch}, the round is of {lane.epoch}", "another driver took over"
        else:
            found = f"has a group under epoch {in_force.epoch}, in which grant {lane.epoch} is not in force"
            why = "its containers were given to another processor, or to another incarnation of this one"
        raise RoundFailedError(f"round {lane.round_id}: application {lane.application!r} {found}", why)

    def _verdict(self, base: Sequence[Position], within_s: float = ANSWER_S) -> Verdict:
        rounds: set[str] = set()
        for group, positions in by_group(base).items():
            places = [(p.topic, p.partition) for p in positions]
            found = committed_positions(self._lane.client, group, places, within_s=within_s)
            for position in positions:
                offset, note = found.get((position.topic, position.partition), (-1, None))
                rounds.add(note.r if note is not None else "")
                if note is not None and note.r == self._lane.round_id:
                    continue
                if offset != position.offset or note is None or (note.r, note.v) != (position.note.r, position.note.v):
                    self.give_up()
                    stored = f"{offset} of {note}" if offset >= 0 else "no committed offset"
                    raise RoundFailedError(
                        f"round {self._lane.round_id}: it builds on {position.topic}-{position.partition} at "
                        f"{position.offset} of round {position.note.r}, but group {group!r} has {stored}",
                        "it is planned again from what is committed",
                    )
        return Verdict.DONE if rounds == {self._lane.round_id} else Verdict.WORK

    def begin(self) -> None:
        assert self._producer is not None
        reached("kafka", 3)
        self._call(self._producer.begin_transaction)
        self._open = True

    def produce(self, topic: str, messages: Iterable[Message]) -> None:
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
        reached("kafka", 7)
        self.produce(topic, [(value, key, 0, 0, None) for key, value in checkpoints])
        for group, offsets in offsets_by_group(positions).items():
            self._call(send_offsets, producer, self._lane.client, group, offsets)
        reached("kafka", 8)
        self._call(producer.commit_transaction, self._lane.timeout_ms / 1000)
        self._open = False
        reached("kafka", 9)
        if self._errors or self._refusal() is not None:
            # protocol.md 11: what was seen on the way ends the producer, whatever the commit said
            self._producer = None
            return
        _producers.keep(self._key, _Kept(producer, self._errors))
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
            with suppress(KafkaException):  # it has failed as a whole, which the call that asks here says
                self._producer.poll(0)  # what was reported and not heard yet
        failed = [(topic, error) for topic, errors in self._undelivered.items() for error in errors]
        telling = [one for one in failed if one[1].code() not in FOLLOWS]
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
                f"round {self._lane.round_id}, transactional id {self._lane.transactional_id!r}: {error_text(error)}",
                "it is planned again from what is committed",
            ) from None


class FlushedLane(LaneTransaction):
    """A container's commit where a record may be processed again (`processing_guarantee` = at_least_once).

    No transaction: outputs are written and flushed, then the checkpoint record, then the group's positions. However the
    attempt ends in between, positions are never ahead of outputs; a reader may see outputs of a round that is processed
    again. Each task's state and positions still move together, in its one checkpoint record. Nothing fences an attempt
    that sleeps past its successor, so the epoch is read once more right before anything counts.

    Not thread-safe. An error ends the process's producer.
    """

    def check(self, base: Sequence[Position]) -> Verdict:
        """See whether the round may still be worked: `RoundFailedError` if not. No lane is taken."""
        reached("kafka", 1)
        reached("kafka", 2)
        self._check_epoch()
        return self._verdict(base)

    def begin(self) -> None:
        reached("kafka", 3)
        kept = _producers.take(self._key)
        if kept is None:
            errors = list[KafkaError]()
            kept = _Kept(new_producer(self._lane.client, None, 0, errors), errors)
        self._producer, self._errors = kept

    def commit(self, positions: Sequence[Position], checkpoints: Iterable[tuple[bytes, bytes]], topic: str) -> None:
        """Flush the outputs, then write the checkpoint records, then the positions."""
        self._flush("its outputs")
        reached("kafka", 7)
        self._check_epoch()
        self.produce(topic, [(value, key, 0, 0, None) for key, value in checkpoints])
        self._flush("its checkpoints")
        reached("kafka", 8)
        for group, offsets in offsets_by_group(positions).items():
            consumer = consumer_of(self._lane.client, group)
            self._call(partial(consumer.commit, offsets=offsets, asynchronous=False))
        reached("kafka", 9)
        if self._producer is not None and not self._errors and self._refusal() is None:
            _producers.keep(self._key, _Kept(self._producer, self._errors))
        self._producer = None

    def give_up(self) -> None:
        """Nothing can be taken back: records that were sent are processed again."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge(in_queue=True, in_flight=False)

    @property
    def _key(self) -> str:
        return kept_key(self._lane.client, self._lane.client.get("batch.size"))  # of no lane: of the size of batches

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
            raise RoundFailedError(
                f"round {self._lane.round_id}: its positions could not be written: {error_text(error)}",
                "it is planned again from what is committed",
            ) from None


_SIZE = "let the topic take larger ones (its max.message.bytes, and kafka.message.max.bytes here), or write smaller records"
# By what brokers answer as long as the record and the topic's settings are what they are.
_FOR_GOOD = {
    KafkaError.MSG_SIZE_TOO_LARGE: _SIZE,
    KafkaError.RECORD_LIST_TOO_LARGE: _SIZE,
    KafkaError.INVALID_TIMESTAMP: "give records other times (timestamp=), or the topic another "
    "message.timestamp.before.max.ms or message.timestamp.after.max.ms",
    KafkaError.INVALID_RECORD: "a compacted topic takes no record without a key",
}
_RIGHT = "with the right DESCRIBE_CONFIGS on the topic, the record is named, or goes to the dead letters"


def undelivered(round_id: str, topic: str, error: KafkaError) -> HeadraceError:
    """That `topic` did not take a record: an error that ends the job, where the next try would meet the same."""
    said = f"{error.name()}: {error.str()}"
    hint = _FOR_GOOD.get(error.code())
    if hint is None:
        return RoundFailedError(
            f"round {round_id}: topic {topic!r} does not take a record: {said}",
            "nothing of the round is committed; it is planned again from what is committed",
        )
    kind = RecordTooLargeError if hint is _SIZE else StorageError
    return kind(f"round {round_id}: topic {topic!r} refuses a record: {said}", f"{hint}; {_RIGHT}")
