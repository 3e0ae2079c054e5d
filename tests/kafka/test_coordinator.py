"""The coordinator's transactions: where the client says in the middle that they are another driver's now, and where a plan has
more records than the client holds at once, or more positions than a broker takes at once; and why a transaction has failed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from headrace.adapters.kafka.clients import OFFSETS_BYTES, in_requests
from headrace.adapters.kafka.coordinator import START_TRIES, Coordinator, taken_over, tried
from headrace.errors import FencedError, StorageError, UnavailableError


class Client:
    """A producer that fails at its second record, in one call or in the other that comes with it."""

    def __init__(self, code: int, call: str) -> None:
        self._code, self._call, self.produced = code, call, 0

    def begin_transaction(self) -> None: ...

    def poll(self, timeout_s: float) -> None:
        self._fail("poll")

    def produce(self, topic: str, **_: Any) -> None:
        self.produced += 1
        self._fail("produce")

    def _fail(self, call: str) -> None:
        if self.produced == 2 and call == self._call:
            raise KafkaException(KafkaError(self._code, "Failed to add partitions to transaction", True))


def taken() -> None:
    raise taken_over("delays")


def ours() -> None: ...


@pytest.mark.parametrize("call", ["produce", "poll"])
@pytest.mark.parametrize(
    ("code", "still_ours", "raised"),
    [
        (KafkaError._FENCED, taken, FencedError),
        (KafkaError._FENCED, ours, UnavailableError),  # a broker has ended the transaction, at its timeout
        (KafkaError.INVALID_PRODUCER_EPOCH, ours, UnavailableError),
        (KafkaError._FATAL, ours, UnavailableError),
    ],
)
def test_what_a_record_is_refused_for_says_whether_another_driver_has_taken_over(
    code: int, still_ours: Callable[[], None], raised: type[Exception], call: str
) -> None:
    coordinator, client = Coordinator({}, "delays", still_ours), Client(code, call)
    coordinator._producer = client  # type: ignore[assignment]
    with pytest.raises(raised, match="'delays'"):
        coordinator.transact([("delays-metadata", b"k", b"v")] * 3)
    assert client.produced == 2
    assert not coordinator.has_id, "it is taken again before the next one"


class FullClient:
    """A producer that holds two records, until it is polled."""

    def __init__(self) -> None:
        self.held, self.produced, self.is_committed = 0, list[bytes](), False

    def begin_transaction(self) -> None: ...

    def commit_transaction(self, _: float) -> None:
        self.is_committed = True

    def poll(self, timeout_s: float) -> None:
        if timeout_s > 0:
            self.held = 0

    def produce(self, topic: str, *, key: bytes, **_: Any) -> None:
        if self.held == 2:
            raise BufferError("Local: Queue full")
        self.held += 1
        self.produced.append(key)


def test_a_plan_with_more_records_than_the_client_holds_is_written_in_order() -> None:
    coordinator, client = Coordinator({}, "delays", lambda: None), FullClient()
    coordinator._producer = client  # type: ignore[assignment]
    keys = [b"%d" % number for number in range(7)]
    coordinator.transact([("delays-checkpoints", key, b"v") for key in keys])
    assert client.produced == keys
    assert client.is_committed


class Message:
    def topic(self) -> str:
        return "delays-metadata"


class RefusingClient:
    """A producer that hears why its transaction has failed after the call that fails for it: by the report of a record, when it
    is polled, or by what it answers to who would begin another transaction."""

    def __init__(self, failed: int, reported: int | None, told: int | None) -> None:
        self._failed, self._reported, self._told = failed, reported, told
        self._delivered: Callable[[KafkaError | None, Message], None] | None = None

    def begin_transaction(self) -> None:
        if self._delivered is not None and self._told is not None:
            raise KafkaException(KafkaError(self._told, "why it is at its end"))

    def produce(self, topic: str, *, on_delivery: Callable[[KafkaError | None, Message], None], **_: Any) -> None:
        self._delivered = on_delivery

    def commit_transaction(self, _: float) -> None:
        self._failed, failed = 0, self._failed
        raise KafkaException(KafkaError(failed, "cannot be made now"))

    def poll(self, timeout_s: float) -> None:
        if not self._failed and self._reported is not None and self._delivered is not None:
            self._delivered(KafkaError(self._reported, "why it was refused"), Message())


SIZE, PURGED, STATE = KafkaError.MSG_SIZE_TOO_LARGE, KafkaError._PURGE_QUEUE, KafkaError._STATE
NO_RIGHT, NO_ANSWER = KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._TIMED_OUT


@pytest.mark.parametrize(
    ("failed", "reported", "told", "raised", "words"),
    [
        (STATE, SIZE, None, StorageError, r"topic 'delays-metadata': MSG_SIZE_TOO_LARGE(.|\n)*raise max\.message\.bytes"),
        (NO_ANSWER, SIZE, None, StorageError, r"topic 'delays-metadata': MSG_SIZE_TOO_LARGE: why it was refused"),
        (SIZE, None, None, StorageError, r"MSG_SIZE_TOO_LARGE(.|\n)*raise max\.message\.bytes"),
        (STATE, None, NO_RIGHT, StorageError, r"TOPIC_AUTHORIZATION_FAILED: why(.|\n)*has not the right to(.|\n)*kafka\.md"),
        (STATE, PURGED, NO_RIGHT, StorageError, r"refused: TOPIC_AUTHORIZATION_FAILED: why it is at its end"),
        (NO_RIGHT, None, None, StorageError, r"refused: TOPIC_AUTHORIZATION_FAILED(.|\n)*has not the right to"),
        (STATE, PURGED, None, UnavailableError, r"failed: _STATE: cannot be made now"),
        (STATE, NO_ANSWER, None, UnavailableError, r"failed: topic 'delays-metadata': _TIMED_OUT: why it was refused"),
        (NO_ANSWER, PURGED, NO_RIGHT, UnavailableError, r"failed: _TIMED_OUT: cannot be made now"),
        (STATE, KafkaError._FENCED, None, FencedError, "another driver has taken over"),
    ],
)
def test_why_a_transaction_has_failed_is_said_and_what_will_stay_so_is_not_tried_again(
    failed: int, reported: int | None, told: int | None, raised: type[Exception], words: str
) -> None:
    coordinator = Coordinator({}, "delays", taken)
    coordinator._producer = RefusingClient(failed, reported, told)  # type: ignore[assignment]
    with pytest.raises(StorageError if raised is UnavailableError else raised, match=words) as error:
        coordinator.transact([("delays-metadata", b"k", b"v")])
    assert type(error.value) is raised
    assert not coordinator.has_id


@pytest.mark.parametrize(("error", "tries"), [(UnavailableError("no answer"), START_TRIES), (StorageError("no right"), 1)])
def test_what_may_pass_is_tried_again_and_what_stays_is_not(error: StorageError, tries: int) -> None:
    made = list[int]()

    def write() -> None:
        made.append(1)
        raise error

    with pytest.raises(type(error)):
        tried(write)
    assert len(made) == tries


@given(st.lists(st.integers(0, 4_096), max_size=400))
def test_positions_go_in_requests_that_a_broker_takes_each_once_and_in_order(notes: list[int]) -> None:
    offsets = [TopicPartition("s" * 40, number, number, metadata="x" * length) for number, length in enumerate(notes)]
    requests = list(in_requests(offsets, 60))
    assert [one.partition for some in requests for one in some] == list(range(len(notes)))

    def size(some: list[TopicPartition]) -> int:
        return sum(len(one.metadata or "") + 100 for one in some)  # at least

    for some in requests:
        assert 0 < size(some) <= OFFSETS_BYTES
    for some, after in pairwise(requests):
        assert size([*some, after[0]]) > OFFSETS_BYTES * 0.9, "as few as can be"
