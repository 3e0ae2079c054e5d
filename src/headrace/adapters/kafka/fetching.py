"""Reading exact offsets of one partition in a worker: what the engine does not read, and single records again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from headrace.adapters.kafka.clients import ClientPool, kept_key, reader, received
from headrace.adapters.kafka.messages import batch_of
from headrace.errors import OffsetOutOfRangeError, RoundFailedError, StorageError

FETCH_S = 60.0
_TOPIC_S = 5.0
_BATCH = 10_000
# What a consumer tells and gets over by itself, as soon as the broker is there again.
UNREACHABLE = frozenset({KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE, KafkaError._TIMED_OUT})


class _Reader:
    """A consumer, and the partitions that it knows the brokers of."""

    def __init__(self, client: Mapping[str, Any]) -> None:
        self.consumer = reader(client, "headrace-readers", "error")
        self._known: set[tuple[str, int]] = set()

    def assign(self, starts: Mapping[tuple[str, int], int]) -> None:
        """Read from there on, and nothing else. librdkafka waits up to 500 ms before it reads what it does not know the
        broker of; if its topic was requested, it knows, in some milliseconds. Brokers that cannot be asked now: what is
        wrong is said by what follows."""
        for topic in sorted({place[0] for place in starts.keys() - self._known}):
            try:
                found = self.consumer.list_topics(topic, timeout=_TOPIC_S).topics
            except KafkaException:
                continue
            self._known.update((name, number) for name, topic_ in found.items() for number in topic_.partitions)
        self.consumer.assign([TopicPartition(*place, start) for place, start in starts.items()])


_readers = ClientPool[_Reader]()


@contextmanager
def _reader(client: Mapping[str, Any], keep: bool = True) -> Iterator[_Reader]:
    """With `keep` one that the process keeps, if no error ends its use."""
    key = kept_key(client, sorted(client.items()))
    found = (_readers.take(key) if keep else None) or _Reader(client)
    ended = False
    try:
        yield found
        ended = True
    finally:
        if keep and ended:
            found.consumer.unassign()
            _readers.keep(key, found)
        else:
            found.consumer.close()


def fetched(
    client: Mapping[str, Any], topic: str, partition: int, start: int, end: int, *, keep: bool = False
) -> Iterator[tuple[Any, pa.RecordBatch]]:
    """(offsets, rows) of the committed records start <= offset < end, in order. With `keep` the process keeps its consumer
    for the next call: to make one takes longer than to read some records. `OffsetOutOfRangeError` if the partition does not
    hold `start` any more, `RoundFailedError` if nothing comes for `FETCH_S`."""
    with _reader(client, keep) as reading_by:
        reading = _Reading(reading_by, {(topic, partition): (start, end)})
        while reading.left:
            rows = [message for _, message in reading.next_messages()]
            if rows:
                yield _rows(rows)


def fetched_together(
    client: Mapping[str, Any], pieces: Sequence[tuple[str, int, int, int]]
) -> dict[tuple[str, int], list[tuple[Any, pa.RecordBatch]]]:
    """Of several pieces (topic, partition, start, end), of different partitions, what `fetched` gives of each. All is held
    in memory: it is for pieces of few records. To ask for each alone takes a request's time, and there may be a thousand.
    Errors as for `fetched`."""
    ranges = {(topic, partition): (start, end) for topic, partition, start, end in pieces}
    rows: dict[tuple[str, int], list[Any]] = {place: [] for place in ranges}
    with _reader(client) as reading_by:
        reading = _Reading(reading_by, ranges)
        while reading.left:
            for place, message in reading.next_messages():
                rows[place].append(message)
    return {place: [_rows(own)] if own else [] for place, own in rows.items()}


def _rows(messages: list[Any]) -> tuple[Any, pa.RecordBatch]:
    return np.array([message.offset() for message in messages], np.int64), batch_of(messages)


class _Reading:
    """What a consumer has still to read of some partitions. `left`: up to where each was read, and its end."""

    def __init__(self, reader: _Reader, ranges: Mapping[tuple[str, int], tuple[int, int]]) -> None:
        self._consumer = reader.consumer
        self.left = {place: [start, end] for place, (start, end) in ranges.items() if start < end}
        self._answered_s = time.monotonic()
        self._asked(lambda: reader.assign({place: start for place, (start, _) in self.left.items()}))

    def next_messages(self) -> Iterator[tuple[tuple[str, int], Any]]:
        """What has come of committed records, waiting a little for the first."""
        for message in self._asked(lambda: received(self._consumer, _BATCH)):
            if self._advance(message):
                yield (message.topic(), message.partition()), message
        if self.left and time.monotonic() - self._answered_s > FETCH_S:
            (topic, partition), (done, end) = min(self.left.items())
            raise RoundFailedError(
                f"topic {topic!r} partition {partition}: nothing came from offset {done} on for {FETCH_S:.0f} s, "
                f"expected records up to {end}",
                "is the broker up?",
            )

    def _advance(self, message: Any) -> bool:
        """Note how far it brings us; whether it is a record that is wanted."""
        error = message.error()
        place = (message.topic(), message.partition()) if message.topic() else min(self.left)
        if error is not None and error.code() in UNREACHABLE:
            return False
        if error is not None and error.code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
            done = self.left.get(place, [message.offset()])[0]
            raise OffsetOutOfRangeError(
                f"topic {place[0]!r} partition {place[1]}: offset {done} is not there any more",
                "retention has removed it; set on_lost_offsets, or a startpoint",
            )
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise RoundFailedError(f"topic {place[0]!r} partition {place[1]}: {error.str()}", "is the broker up?")
        self._answered_s = time.monotonic()
        if place not in self.left:  # beyond its end, while others are read
            return False
        done, end = self.left[place]
        offset = int(message.offset() or 0)
        self.left[place][0] = max(done, offset if error is not None else offset + 1)
        if self.left[place][0] >= end:
            del self.left[place]
            if self.left:  # what lies behind the end must not crowd out the others
                self._asked(lambda: self._consumer.incremental_unassign([TopicPartition(*place)]))
        return error is None and offset < end

    def _asked(self, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except KafkaException as error:
            (topic, partition), _ = min(self.left.items())
            text = f"topic {topic!r} partition {partition}: {error.args[0].str()}"
            raise RoundFailedError(text, "is the broker up?") from None


def fetched_at(
    client: Mapping[str, Any], topic: str, partition: int, offsets: Sequence[int]
) -> dict[int, tuple[bytes | None, bytes | None, int, Any]]:
    """Single records again, by offset: key, value, timestamp in µs, headers."""
    found: dict[int, tuple[bytes | None, bytes | None, int, Any]] = {}
    wanted = set(offsets)
    while wanted:
        start = min(wanted)
        for numbers, batch in fetched(client, topic, partition, start, max(wanted) + 1):
            for offset, row in zip(numbers.tolist(), batch.to_pylist(), strict=True):
                if offset in wanted:
                    found[offset] = (row["key"], row["value"], row["timestamp_us"], row["headers"])
        wanted -= set(found)
        if start in wanted:
            raise StorageError(f"topic {topic!r} partition {partition}: record {start} was deleted", "run it again")
    return found
