"""Reading a compacted topic to its end: whatever stands at the end, it neither hangs nor takes what does not count."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from headrace.adapters.kafka import compacted
from headrace.adapters.kafka.compacted import CompactedTopic
from headrace.errors import StorageError
from headrace.testing.kafka_server import KafkaServer
from kafka.clients import QUIET, read, write
from support.world import waited

Transactional = Callable[..., Any]


@pytest.fixture
def admin(kafka_server: KafkaServer) -> AdminClient:
    return AdminClient({**kafka_server.client_settings(), **QUIET})


@pytest.fixture
def name(admin: AdminClient) -> str:
    """A topic that is compacted as soon as the broker gets to it."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    settings = {"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0.01"}
    admin.create_topics([NewTopic(name, 1, 1, config=settings)])[name].result(30)
    return name


@pytest.fixture
def topic(kafka_server: KafkaServer, name: str) -> Iterator[CompactedTopic]:
    topic = CompactedTopic(kafka_server.client_settings(), name)
    yield topic
    topic.close()


@pytest.fixture
def begun(kafka_server: KafkaServer) -> Transactional:
    """`begun(topic, key, value)`: a producer with a transaction open, in which that was sent."""
    producers: list[Producer] = []

    def begin(topic: str, key: bytes, value: bytes | None) -> Producer:
        id_ = f"tx-{uuid.uuid4().hex}"
        producer = Producer({**kafka_server.client_settings(), **QUIET, "transactional.id": id_})
        producers.append(producer)
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, value, key, 0)
        producer.flush(30)
        return producer

    return begin


def commit(producer: Producer) -> None:
    producer.commit_transaction(30)


def test_the_newest_value_of_each_key_as_one_read_after_the_other_finds_it(
    topic: CompactedTopic, begun: Transactional
) -> None:
    assert topic.refresh() == {}
    for key, value in [(b"a", b"1"), (b"b", b"1"), (b"a", b"2")]:
        commit(begun(topic.topic, key, value))
    assert topic.refresh() == {b"a": b"2", b"b": b"1"}
    commit(begun(topic.topic, b"b", None))
    assert topic.refresh() == {b"a": b"2"}
    assert topic.refresh() == topic.refresh(wait=False) == {b"a": b"2"}


def test_what_was_aborted_does_not_count_also_where_nothing_follows(topic: CompactedTopic, begun: Transactional) -> None:
    commit(begun(topic.topic, b"a", b"1"))
    for _ in range(3):
        begun(topic.topic, b"a", b"never").abort_transaction(30)
    assert topic.refresh() == {b"a": b"1"}
    begun(topic.topic, b"b", b"never").abort_transaction(30)
    assert topic.refresh() == {b"a": b"1"}


def test_a_record_without_key_is_nobodys(kafka_server: KafkaServer, topic: CompactedTopic, name: str) -> None:
    """A compacted topic refuses them; one that was not always compacted may hold some."""
    admin = AdminClient({**kafka_server.client_settings(), **QUIET})
    plain = f"{name}-plain"
    admin.create_topics([NewTopic(plain, 1, 1)])[plain].result(30)
    write(kafka_server.client_settings(), plain, b"x")
    other = CompactedTopic(kafka_server.client_settings(), plain)
    assert other.refresh() == {}
    other.close()


def test_an_open_transaction_is_waited_for_or_left_out(topic: CompactedTopic, begun: Transactional) -> None:
    commit(begun(topic.topic, b"a", b"1"))
    open_one = begun(topic.topic, b"a", b"2")
    assert topic.refresh(wait=False) == {b"a": b"1"}
    ending = threading.Timer(0.3, commit, [open_one])
    ending.start()
    assert topic.refresh() == {b"a": b"2"}
    ending.join()


def test_what_is_written_is_there_before_it_is_committed(topic: CompactedTopic, begun: Transactional) -> None:
    open_ = begun(topic.topic, b"a", b"1")
    assert topic.written() == {b"a": b"1"}
    begun(topic.topic, b"b", b"2").commit_transaction(30)
    assert topic.written() == {b"a": b"1", b"b": b"2"} and topic.refresh(wait=False) == {}
    begun(topic.topic, b"b", None)
    assert topic.written() == {b"a": b"1"}
    open_.abort_transaction(30)
    waited(lambda: topic.refresh(wait=False) == {b"b": b"2"})
    assert topic.written() == {}


def test_one_that_stays_open_is_an_error_that_says_so(
    topic: CompactedTopic, begun: Transactional, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compacted, "READ_S", 0.5)
    open_one = begun(topic.topic, b"a", b"2")
    with pytest.raises(StorageError, match=r"only those before 0 can be read(.|\n)*a transaction is open"):
        topic.refresh()
    commit(open_one)
    monkeypatch.setattr(compacted, "READ_S", 30.0)
    assert topic.refresh() == {b"a": b"2"}


def test_a_look_waits_a_moment_for_an_open_transaction_and_once(
    topic: CompactedTopic, begun: Transactional, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(begun(topic.topic, b"a", b"1"))
    dead = begun(topic.topic, b"a", b"never")
    monkeypatch.setattr(compacted, "LOOK_S", 0.3)
    assert topic.look() == {b"a": b"1"}
    monkeypatch.setattr(compacted, "LOOK_S", 1000.0)
    assert topic.look() == {b"a": b"1"}
    dead.abort_transaction(30)
    assert topic.look() == {b"a": b"1"}
    ending = threading.Timer(0.3, commit, [begun(topic.topic, b"a", b"2")])
    ending.start()
    assert topic.look() == {b"a": b"2"}
    assert topic.looked_to() == topic.looked_to()
    ending.join()


def test_holes_of_compaction_are_passed(
    kafka_server: KafkaServer, admin: AdminClient, topic: CompactedTopic, begun: Transactional
) -> None:
    broker = ConfigResource(ResourceType.BROKER, "1")
    broker.add_incremental_config(
        ConfigEntry("log.cleaner.backoff.ms", "100", incremental_operation=AlterConfigOpType.SET)
    )
    admin.incremental_alter_configs([broker])[broker].result(30)
    for number in range(5):
        commit(begun(topic.topic, b"a", b"%d" % number))
        time.sleep(0.005)  # the next one begins a segment
    begun(topic.topic, b"a", b"never").abort_transaction(30)
    assert topic.refresh() == {b"a": b"4"}
    settings = kafka_server.client_settings()
    waited(lambda: read(settings, topic.topic, 1) != [b"0"], otherwise="the broker does not compact")
    late = CompactedTopic(kafka_server.client_settings(), topic.topic)
    commit(begun(topic.topic, b"b", b"1"))
    assert late.refresh() == topic.refresh() == {b"a": b"4", b"b": b"1"}
    late.close()


@pytest.fixture
def trimmed(kafka_server: KafkaServer, admin: AdminClient) -> Iterator[CompactedTopic]:
    """A topic whose oldest records are deleted, as compaction deletes what was deleted long ago: read to its end before."""
    name, settings = f"t-{uuid.uuid4().hex[:12]}", kafka_server.client_settings()
    admin.create_topics([NewTopic(name, 1, 1, config={"cleanup.policy": "compact,delete"})])[name].result(30)
    topic = CompactedTopic(settings, name)
    for key, value in [(b"gone", b"1"), (b"kept", b"1"), (b"new", b"1")]:
        put(settings, name, key, value)
    assert sorted(topic.refresh()) == [b"gone", b"kept", b"new"] and sorted(topic.written()) == [b"gone", b"kept", b"new"]
    for key, value in [(b"gone", None), (b"kept", b"1"), (b"new", b"2")]:
        put(settings, name, key, value)
    admin.delete_records([TopicPartition(name, 0, 4)])[TopicPartition(name, 0)].result(30)
    yield topic
    topic.close()


def put(settings: dict[str, str], topic: str, key: bytes, value: bytes | None) -> None:
    producer = Producer({**settings, **QUIET})
    producer.produce(topic, value, key, 0)
    assert producer.flush(30) == 0


@pytest.mark.parametrize("clock", [0, 1], ids=["of this machine", "of the wall"])
def test_behind_a_long_pause_all_is_read_again(
    trimmed: CompactedTopic, monkeypatch: pytest.MonkeyPatch, clock: int
) -> None:
    assert b"gone" in trimmed.refresh(), "its deletion was not there to be read"
    before = trimmed.refresh()
    now = compacted._moment()
    later = (now[0] + 3_700.0, now[1] - 3_700.0) if clock == 0 else (now[0], now[1] + 3_700.0)
    monkeypatch.setattr(compacted, "_moment", lambda: later)
    assert trimmed.written() == trimmed.refresh() == {b"kept": b"1", b"new": b"2"}
    assert before == {b"gone": b"1", b"kept": b"1", b"new": b"2"}, "who has it has what it was given"
    assert trimmed.refresh()[b"kept"] is before[b"kept"], "a value that is what it was is no news"


def test_a_reading_from_the_beginning_that_fails_is_made_once_more(
    kafka_server: KafkaServer, trimmed: CompactedTopic, begun: Transactional, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, position = trimmed.refresh(), trimmed.looked_to()
    open_one = begun(trimmed.topic, b"other", b"1")
    now = compacted._moment()
    monkeypatch.setattr(compacted, "_moment", lambda: (now[0] + 3_700.0, now[1]))
    with pytest.raises(StorageError, match="a transaction is open"):
        trimmed.refresh(within_s=0.3)
    assert trimmed._values == before and trimmed._next == position
    assert trimmed.look() == trimmed.refresh(wait=False) == {b"kept": b"1", b"new": b"2"}
    assert trimmed.looked_to() == position
    commit(open_one)
    assert trimmed.refresh() == {b"kept": b"1", b"new": b"2", b"other": b"1"}


def test_a_reading_from_the_beginning_comes_to_its_end_in_several_tries(
    kafka_server: KafkaServer, trimmed: CompactedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However little each of them may read: of a large topic a group has a few seconds."""
    for number in range(4):
        put(kafka_server.client_settings(), trimmed.topic, b"more", b"%d" % number)
    before, now = trimmed.refresh(), compacted._moment()
    received, most = compacted.received, [0]

    def few(consumer: Any, _: int) -> Iterator[Any]:
        most[0] -= 1
        return iter(received(consumer, 1)) if most[0] >= 0 else iter(())

    monkeypatch.setattr(compacted, "received", few)
    monkeypatch.setattr(compacted, "_moment", lambda: (now[0] + 3_700.0, now[1]))
    monkeypatch.setattr(compacted, "LOOK_S", 0.05)
    reached = list[int]()
    for _ in range(20):
        most[0] = 1
        try:
            trimmed.refresh(within_s=0.05)
            break
        except StorageError:
            assert trimmed._values == before and trimmed._again is not None
            reached.append(trimmed._again[1])
    assert len(set(reached)) > 1 and reached == sorted(reached)
    assert trimmed.refresh() == {b"kept": b"1", b"new": b"2", b"more": b"3"} and trimmed._again is None


def test_a_topic_that_was_recreated_is_an_error_behind_a_long_pause_too(
    trimmed: CompactedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    trimmed._next += 100
    now = compacted._moment()
    monkeypatch.setattr(compacted, "_moment", lambda: (now[0] + 3_700.0, now[1]))
    with pytest.raises(StorageError, match="it was recreated or truncated"):
        trimmed.refresh()


def test_threads_and_readers_agree(kafka_server: KafkaServer, topic: CompactedTopic, begun: Transactional) -> None:
    other = CompactedTopic(kafka_server.client_settings(), topic.topic)
    for number in range(3):
        commit(begun(topic.topic, b"a", b"%d" % number))
        with ThreadPoolExecutor(3) as pool:
            found = list(pool.map(CompactedTopic.refresh, (topic, topic, other)))
        assert found == [{b"a": b"%d" % number}] * 3
    other.close()


def test_a_topic_made_anew_is_an_error_and_not_what_it_held(
    admin: AdminClient, topic: CompactedTopic, begun: Transactional
) -> None:
    commit(begun(topic.topic, b"a", b"1"))
    assert topic.refresh() == {b"a": b"1"}
    admin.delete_topics([topic.topic], operation_timeout=20)[topic.topic].result(30)
    waited(lambda: topic.topic not in admin.list_topics(timeout=10).topics)
    admin.create_topics([NewTopic(topic.topic, 1, 1)], operation_timeout=20)[topic.topic].result(30)
    with pytest.raises(StorageError, match=r"ends at offset 0, but was read up to [12]: it was recreated"):
        topic.refresh()
