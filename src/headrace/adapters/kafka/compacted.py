"""Reading a compacted topic of one partition: the newest value of every key, as one read after the other finds it."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from headrace.adapters.kafka.clients import reader, received
from headrace.adapters.kafka.deadline import Deadline
from headrace.errors import StorageError, UnavailableError

_BATCH = 1000
BROKER_WAIT_S = 20.0  # for a broker that does not answer
READ_S = 120.0  # an open transaction ends at its timeout (60 s unless set otherwise), which brokers look for every 10 s
LOOK_S = 1.0  # for this long a look waits for an open transaction: where who began it lives, it ends sooner
UNKNOWN_S = 5.0  # for this long a topic that is not known may be one that was just made
# Behind a longer pause all is read again: brokers keep a deletion for `delete.retention.ms` (24 h unless set otherwise), and
# who comes later does not hear of it.
PAUSE_S_MAX = 3600.0
_UNKNOWN = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC})


class OpenTransactionError(StorageError):
    """Records cannot be read yet, as a transaction is open in front of them."""


class CompactedTopic:
    """The newest value of every key of partition 0 of `topic`, by committed records. Threads may share it. It holds all of
    the topic in memory, and each `refresh` reads only the records since the last, or all behind `PAUSE_S_MAX`.
    `deadline` makes its waits shorter. With `uncommitted` records count as soon as they are written, and nothing is waited
    for."""

    def __init__(
        self, client: Mapping[str, Any], topic: str, deadline: Deadline | None = None, *, uncommitted: bool = False
    ) -> None:
        self.topic = topic
        self._isolation = "read_uncommitted" if uncommitted else "read_committed"
        self._deadline = deadline or Deadline()
        self._client = dict(client)
        self._lock = threading.Lock()
        self._values: dict[bytes, bytes] = {}
        self._consumer: Consumer | None = None
        self._latest: Consumer | None = None
        self._ahead: CompactedTopic | None = None
        self._next = 0  # the offset up to which committed records were read
        self._read_at = _moment()  # when that was the end
        self._again: tuple[dict[bytes, bytes], int, tuple[float, float]] | None = None  # see `_read_again`: values, next, when
        self._waited_at = -1  # where a look has waited for a transaction that stayed open

    def refresh(self, *, wait: bool = True, within_s: float | None = None) -> dict[bytes, bytes]:
        """What the topic holds now, by key. With `wait` up to all that is written now, open transactions included: they are
        waited for, `OpenTransactionError` after `within_s` (None: `READ_S`). Without, only what is committed by now. Of
        `within_s` another thread that reads may take all but `LOOK_S`."""
        began_s = time.monotonic()
        if not self._lock.acquire(timeout=-1 if within_s is None else within_s):
            raise OpenTransactionError(
                f"topic {self.topic!r}: another thread reads it, and has not come to its end within {within_s:.0f} s",
                "a transaction is open there, which ends at its timeout; or the broker does not answer",
            )
        try:
            left_s = READ_S if within_s is None else max(LOOK_S, began_s + within_s - time.monotonic())
            self._refresh(left_s if wait else 0.0)
            return dict(self._values)
        finally:
            self._lock.release()

    def written(self) -> dict[bytes, bytes]:
        """The newest values until now, by key, committed or not; nothing is waited for. As `refresh` has them, and behind
        that those of a transaction that is open, which may come to nothing, or was committed behind an open one."""
        with self._lock:
            self._refresh(0.0)
            self._ahead = self._ahead or CompactedTopic(self._client, self.topic, self._deadline, uncommitted=True)
            return self._ahead._behind(self)

    def _behind(self, other: CompactedTopic) -> dict[bytes, bytes]:
        """Read on from what another has read."""
        self._values, self._next, self._read_at = dict(other._values), other._next, other._read_at
        self._refresh(0.0)
        return self._values

    def look(self) -> dict[bytes, bytes]:
        """As `refresh`, but a transaction that stays open is left out: that of a killed process ends at its timeout only."""
        with self._lock:
            self._look()
            return dict(self._values)

    def looked_to(self) -> int:
        """Read as `look` does: the offset up to which was read."""
        with self._lock:
            self._look()
            return self._next

    def _look(self) -> None:
        self._refresh(0.0)
        if self._next == self._waited_at:
            return
        try:
            self._refresh(LOOK_S)
        except OpenTransactionError:
            self._waited_at = self._next

    def _refresh(self, wait_s: float) -> None:
        """`wait_s`: for how long open transactions are waited for; 0: not at all."""
        began_s = time.monotonic()
        while True:
            try:
                now = _moment()
                read = self._read_again if self._next and _is_long(self._read_at, now) else self._read_to
                read(self._end(committed_only=not wait_s), wait_s or READ_S)
                self._read_at = now
                return
            except KafkaException as error:
                # Consumers may keep using what they knew of a broker that went away: new ones read on from here.
                self._close()
                if self._deadline.left_s(began_s, BROKER_WAIT_S) <= 0:
                    raise UnavailableError(
                        f"topic {self.topic!r} cannot be read: {error.args[0].str()}", "is the broker up, and may we read it?"
                    ) from None
                self._deadline.pause(0.2)

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        for consumer in (self._consumer, self._latest):
            if consumer is not None:
                consumer.close()
        if self._ahead is not None:
            self._ahead._close()
        self._consumer = self._latest = self._ahead = None

    def _end(self, committed_only: bool) -> int:
        group = f"{self.topic}-readers"
        self._consumer = asked = self._consumer or reader(self._client, group, isolation=self._isolation)
        if not committed_only:
            self._latest = asked = self._latest or reader(self._client, group, isolation="read_uncommitted")
        end = self._watermark(asked)
        if end < self._next:
            raise StorageError(
                f"topic {self.topic!r} ends at offset {end}, but was read up to {self._next}: it was recreated or truncated",
                "its records are lost; run the application under another name, or from the beginning",
            )
        return end

    def _watermark(self, asked: Consumer) -> int:
        began_s = time.monotonic()
        while True:
            try:
                timeout_s = self._deadline.piece_s(began_s, BROKER_WAIT_S)
                return int(asked.get_watermark_offsets(TopicPartition(self.topic, 0), timeout=timeout_s)[1])
            except KafkaException as error:
                code = error.args[0].code()
                bound_s = UNKNOWN_S if code in _UNKNOWN else BROKER_WAIT_S if code == KafkaError._TIMED_OUT else 0.0
                if self._deadline.left_s(began_s, bound_s) <= 0:
                    raise
                time.sleep(0.02)

    def _read_again(self, end: int, within_s: float) -> None:
        """`_read_to`, from the beginning; where it raises, what was known stays so, and the next try reads on from where this
        one came to. A value that is what it was is the very one, so that who compares them sees nothing new."""
        known, reached, now = self._values, self._next, _moment()
        is_of_late = self._again is not None and not _is_long(self._again[2], now)
        self._values, self._next, _ = self._again if self._again is not None and is_of_late else ({}, 0, now)
        try:
            self._read_to(end, within_s)
        except BaseException:
            self._again = self._values, self._next, now
            self._values, self._next = known, reached
            raise
        self._again = None
        self._values |= {key: value for key, value in known.items() if self._values.get(key) == value}

    def _read_to(self, end: int, within_s: float) -> None:
        """Fetch until all that is committed before `end` was read; between two reads nothing is fetched."""
        assert self._consumer is not None
        if self._next >= end:
            return
        self._consumer.assign([TopicPartition(self.topic, 0, self._next)])
        try:
            self._fetch_to(self._consumer, end, within_s)
        finally:
            self._consumer.unassign()

    def _fetch_to(self, consumer: Consumer, end: int, within_s: float) -> None:
        began_s = time.monotonic()
        while self._next < end:
            for message in received(consumer, _BATCH):
                error = message.error()
                if error is None:
                    self._take(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    # Past markers of transactions and holes of compaction, where no record tells that we are.
                    self._next = max(self._next, int(message.offset() or 0))
                else:
                    raise KafkaException(error)
            if self._deadline.left_s(began_s, within_s) <= 0:
                if self._deadline.is_expedited:
                    raise UnavailableError(
                        f"topic {self.topic!r}: the job ends, and offset {end} could not be read yet",
                        "nothing is lost: the next start reads on from what is committed",
                    )
                raise OpenTransactionError(
                    f"topic {self.topic!r}: offset {end} was written, but only those before {self._next} can be read after "
                    f"{within_s:.0f} s",
                    "a transaction is open there; it ends at its timeout",
                )

    def _take(self, message: Any) -> None:
        self._next = message.offset() + 1
        key, value = message.key(), message.value()
        if value is not None and key is not None:
            self._values[key] = value
        else:
            self._values.pop(key, None)


def _moment() -> tuple[float, float]:
    """Now in seconds, by two clocks: one may not count while the machine is suspended, the other one may be set back."""
    return time.monotonic(), time.time()


def _is_long(since: tuple[float, float], now: tuple[float, float]) -> bool:
    """Whether more than `PAUSE_S_MAX` lies between, by any of the clocks."""
    return any(after - before > PAUSE_S_MAX for before, after in zip(since, now, strict=True))
