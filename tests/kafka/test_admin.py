"""Asking a broker: every wait has a bound and says what it waits for; what is wrong for good is said at once."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, Producer, TopicPartition

import headrace as hr
from headrace.adapters.kafka import broker_requests, known_topics
from headrace.adapters.kafka import records as kafka_records
from headrace.adapters.kafka.admin import Admin, Topic
from headrace.adapters.kafka.connection import connection_of
from headrace.adapters.kafka.system import KafkaSystem, open_system
from headrace.errors import ConfigError, IncompatibleChangeError, OffsetOutOfRangeError, StorageError, StreamExistsError
from headrace.testing.kafka_server import KafkaServer
from kafka.clients import QUIET
from support.world import waited


@pytest.fixture
def admin(kafka_server: KafkaServer) -> Admin:
    return Admin(connection_of(f"kafka://{kafka_server.bootstrap}", {"wait.s": "20"}))


@pytest.fixture
def system(kafka_server: KafkaServer) -> Iterator[KafkaSystem]:
    with open_system(f"kafka://{kafka_server.bootstrap}") as opened:
        yield opened


@pytest.fixture
def name() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"


def failing(*codes: int) -> Callable[[], str]:
    """Asked, it fails with one code after the other, then answers."""
    left = list(codes)

    def ask() -> str:
        if left:
            raise KafkaException(KafkaError(left.pop(0), "canary is why"))
        return "answer"

    return ask


class TestWaiting:
    """Without a broker: what comes back is given."""

    @pytest.fixture
    def nobody(self, monkeypatch: pytest.MonkeyPatch) -> Admin:
        monkeypatch.setattr(broker_requests, "REQUEST_S", 0.2)
        settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "scott"}
        return Admin(connection_of("kafka://127.0.0.1:1", {**settings, "sasl.password": "canary", "wait.s": "1"}))

    def test_what_passes_is_asked_again(self, nobody: Admin) -> None:
        codes = [KafkaError._TRANSPORT, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_OR_PART]
        assert nobody.answer("ask", failing(*codes)) == "answer"

    @pytest.mark.parametrize("code", [KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED])
    def test_a_missing_right_is_said_at_once(self, nobody: Admin, code: int) -> None:
        words = r"cannot list the topics: \w+_AUTHORIZATION_FAILED(.|\n)*not the right to"
        with pytest.raises(StorageError, match=words) as raised:
            nobody.answer("list the topics", failing(code, KafkaError._TRANSPORT))
        assert "canary" not in str(raised.value)

    def test_what_nobody_knows_is_an_error_at_once(self, nobody: Admin) -> None:
        with pytest.raises(StorageError, match="cannot ask: INVALID_REQUEST"):
            nobody.answer("ask", failing(KafkaError.INVALID_REQUEST, KafkaError._TRANSPORT))

    def test_a_wait_says_what_for_and_ends(
        self, nobody: Admin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(broker_requests, "SAY_S", 0.0)
        words = r"cannot reach Kafka at 127.0.0.1:1: connection refused \(tried for \d+ s, to list the topics\)"
        with pytest.raises(StorageError, match=words) as raised:
            nobody.names()
        assert "127.0.0.1:1" in str(raised.value)
        assert "waiting to list the topics, for up to 1 s: cannot reach Kafka at 127.0.0.1:1: connection" in caplog.text
        assert "canary" not in caplog.text + str(raised.value)

    def test_an_offset_that_no_broker_told_is_asked_for_again(self, nobody: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
        answers = [[7, OFFSET_INVALID], [OFFSET_INVALID, 0], [7, 0]]

        class Answering:
            """Answers as librdkafka does of a broker that has just come back: an offset that it has not, and no error."""

            def list_offsets(self, wanted: dict[TopicPartition, Any], **_: Any) -> dict[TopicPartition, Future[Any]]:
                futures: dict[TopicPartition, Future[Any]] = {place: Future() for place in wanted}
                for future, offset in zip(futures.values(), answers.pop(0), strict=True):
                    future.set_result(SimpleNamespace(offset=offset))
                return futures

            def poll(self, timeout: float) -> int:
                return 0

        monkeypatch.setattr(nobody, "_kept", Answering())
        assert nobody.ends(Topic("t", 2, "id")) == {0: 7, 1: 0}
        assert not answers


def relay(listening: socket.socket, host: str, port: int) -> None:
    """Pass on what comes, one thread per direction, until the listening socket is closed."""

    def pump(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            pass

    while True:
        try:
            client, _ = listening.accept()
        except OSError:
            return
        server = socket.create_connection((host, port))
        for pair in ((client, server), (server, client)):
            threading.Thread(target=pump, args=pair, daemon=True).start()


def test_a_broker_that_comes_late_is_waited_for(
    kafka_server: KafkaServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(broker_requests, "SAY_S", 0.0)
    monkeypatch.setattr(broker_requests, "REQUEST_S", 1.0)
    host, port = kafka_server.bootstrap.split(":")
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))  # nobody listens there yet: connections are refused
        begin = threading.Timer(1.5, lambda: (listening.listen(), relay(listening, host, int(port))))
        begin.daemon = True
        begin.start()
        with caplog.at_level(logging.WARNING), open_system(f"kafka://127.0.0.1:{listening.getsockname()[1]}") as system:
            assert isinstance(system.streams(), list)
        listening.shutdown(socket.SHUT_RDWR)
    assert "waiting to list the topics, for up to 30 s: " in caplog.text


def test_a_request_is_answered_though_another_thread_takes_a_new_client_meanwhile(
    admin: Admin, name: str, kafka_server: KafkaServer
) -> None:
    """As it does where a broker that came back says that what is known of it is stale."""
    told: list[dict[str, Topic]] = []
    admin.topics([name])  # there is a connection
    thread = threading.Thread(target=lambda: told.append(admin.topics([name])), daemon=True)
    kafka_server.pause()
    try:
        thread.start()
        time.sleep(0.5)  # it asks
        admin._kept = admin._connected()
    finally:
        kafka_server.resume()
    thread.join(20)
    assert told == [{}], "the request was never answered"


class TestTopics:
    def test_those_that_exist(self, admin: Admin, name: str) -> None:
        made = admin.create(name, 3, {"retention.ms": "600000"})
        assert made.partitions == 3
        assert admin.topics([name, "t-never"]) == {name: made}
        assert admin.topics([]) == {}
        assert name in admin.names()
        assert not [one for one in admin.names() if one.startswith("__")]
        admin.delete(name)
        admin.delete(name)  # gone already: as asked for
        assert admin.topics([name]) == {}

    def test_mistakes_are_named(self, admin: Admin, name: str) -> None:
        admin.create(name, 1, {})
        with pytest.raises(StreamExistsError, match=name):
            admin.create(name, 1, {})
        with pytest.raises(ConfigError, match=r"cannot be created: (.|\n)*nonsense"):
            admin.create(f"{name}-b", 1, {"nonsense": "1"})

    def test_brokers_that_the_controller_has_not_heard_of_are_waited_for(
        self, admin: Admin, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As on a machine that is overloaded: they are listed, and there are enough."""
        requested, fenced = Admin._requested, failing(KafkaError.INVALID_REPLICATION_FACTOR)

        def answered(self: Admin, request: Callable[[Any], Any]) -> Any:
            fenced()
            return requested(self, request)

        monkeypatch.setattr(Admin, "_requested", answered)
        assert admin.create(name, 1, {}).partitions == 1

    def test_an_unknown_topic_is_not_waited_for_long(
        self, admin: Admin, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(broker_requests, "SETTLE_S", 0.5)
        with pytest.raises(StorageError, match=f"cannot read the offsets of topic '{name}'"):
            admin.ends(Topic(name, 1, "id"))

    def test_offsets_and_purging(self, admin: Admin, system: KafkaSystem, name: str) -> None:
        topic = admin.create(name, 2, {})
        assert system.produce(name, [hr.Record(b"k", b"v", partition=1)] * 4) == 4
        ends = admin.ends(topic)
        assert (admin.beginnings(topic), ends) == ({0: 0, 1: 0}, {0: 0, 1: 5})  # four, and the transaction's marker
        admin.purge(name, {1: 3})
        assert admin.beginnings(topic) == {0: 0, 1: 3}
        with pytest.raises(OffsetOutOfRangeError, match=f"'{name}' partition 1: 9 lies beyond its end"):
            admin.purge(name, {1: 9})

    def test_settings_of_a_broker(self, admin: Admin) -> None:
        assert int(admin.broker_setting("transaction.max.timeout.ms") or 0) > 0
        assert admin.broker_setting("no.such.setting") is None


class TestSystem:
    def test_nobody_reads_what_is_not_committed_and_who_waits_for_it_is_told(
        self, kafka_server: KafkaServer, system: KafkaSystem, name: str, monkeypatch: pytest.MonkeyPatch, caplog: Any
    ) -> None:
        system.create_stream(name, 1)
        other = Producer({**kafka_server.client_settings(), **QUIET, "transactional.id": f"tx-{name}"})
        other.init_transactions(30)
        other.begin_transaction()
        other.produce(name, b"open", partition=0)
        other.flush(30)
        monkeypatch.setattr(kafka_records, "READABLE_S", 0.2)
        assert system.produce(name, [(b"k", b"v")]) == 1  # it is written
        assert f"stream '{name}': the records are written, but those of partition 0 cannot be read yet" in caplog.text
        assert (system.end_offsets(name), system.high_watermarks(name)) == ({0: 0}, {0: 3})
        assert list(system.held_back_by(name)) == [0]
        assert list(system.consume(name)) == []
        other.commit_transaction(30)
        waited(lambda: not system.held_back_by(name))
        assert [record.value for record in system.consume(name)] == [b"open", b"v"]

    def test_a_pinned_stream_is_that_one_and_no_other_of_its_name(
        self, kafka_server: KafkaServer, system: KafkaSystem, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(broker_requests, "SETTLE_S", 0.3)
        monkeypatch.setattr(known_topics, "ABSENT_S", 0.3)
        system.pin({name: system.create_stream(name, 1).id}, {name: 1})
        assert system.end_offsets(name) == {0: 0}
        with open_system(f"kafka://{kafka_server.bootstrap}") as another:
            another.delete_stream(name)
            with pytest.raises(IncompatibleChangeError, match=f"stream '{name}' was deleted while the application runs"):
                system.end_offsets(name)
            another.create_stream(name, 1)
        with pytest.raises(IncompatibleChangeError, match=f"stream '{name}' was deleted and recreated while"):
            system.end_offsets(name)

    def test_a_time_that_the_broker_does_not_take_is_named(
        self, kafka_server: KafkaServer, system: KafkaSystem, name: str
    ) -> None:
        one_hour = {"topic.message.timestamp.after.max.ms": "3600000"}
        with open_system(f"kafka://{kafka_server.bootstrap}", one_hour) as maker:
            maker.create_stream(name, 1)
        with pytest.raises(StorageError, match=r"INVALID_TIMESTAMP(.|\n)*message.timestamp.after.max.ms"):
            system.produce(name, [hr.Record(b"k", b"v", 2**61)])
        assert system.produce(name, [hr.Record(b"k", b"v", -7)]) == 1  # the producer begins anew; and that is 1970
        assert [record.timestamp_us for record in system.consume(name)] == [1000]

    def test_a_repartition_topic_takes_any_time_and_forgets_nothing_by_age(self, system: KafkaSystem, name: str) -> None:
        system.create_stream(f"{name}-again", 1, internal_of=name)
        times = [1_000, 2**61 // 1000 * 1000]
        system.produce(f"{name}-again", [hr.Record(b"k", b"v", time) for time in times])
        assert [record.timestamp_us for record in system.consume(f"{name}-again")] == times

    def test_a_record_that_the_topic_refuses_for_its_size_is_named(self, system: KafkaSystem, name: str) -> None:
        system.create_stream(name, 1)
        with pytest.raises(hr.errors.RecordTooLargeError, match=r"raise max.message.bytes of the topic"):
            system.produce(name, [(b"k", b"small"), (b"k", os.urandom(5_000_000))])
        assert list(system.consume(name)) == []
