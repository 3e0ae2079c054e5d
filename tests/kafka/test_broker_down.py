"""A broker that is down: at the start it is waited for, with a word; in the middle of a job the job goes on when it is back."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

import headrace as hr
from headrace.adapters.kafka import coordinator
from headrace.adapters.kafka.system import open_system
from headrace.driver import system_wait
from headrace.errors import UnavailableError
from headrace.testing import KafkaServer
from support.fixtures import place_on
from support.world import World, started, waited

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaServer]:
    """One of its own: it is killed."""
    with KafkaServer() as kafka:
        yield kafka


class Copying(World):
    STREAMS: ClassVar = {"in": 2}
    KEYS: ClassVar = {"trigger_interval_ms": 20}

    def __init__(self, folder: Path, broker: KafkaServer, spark: Any = None) -> None:
        super().__init__(folder, place_on(broker))
        self.close()  # what is done to the broker meets no client but the one that a test has for it
        self.spark, self.sent = spark, 0

    def send(self, count: int) -> None:
        with hr.open_system(self.url) as system:
            system.produce(f"{self.name}-in", [(b"k%d" % (n % 7), b"%d" % n) for n in range(self.sent, self.sent + count)])
        self.sent += count

    def start(self, until: str | None = None, **kafka: str) -> Any:
        app = self.app(spark=self.spark, kafka=kafka)
        rows = app.stream(f"{self.name}-in")
        rows.to(f"{self.name}-copy")
        rows.group_by_key().count(store="counts").to_stream().to(f"{self.name}-counts", value=hr.Long())
        return app.start(until) if self.spark is not None else started(app, until)

    def copies(self) -> list[int]:
        with hr.open_system(self.url) as system:
            return sorted(int(record.value) for record in system.consume(f"{self.name}-copy"))

    def wait_for_copies(self, job: Any) -> None:
        waited(lambda: self.copies() == list(range(self.sent)), job, 120)


def test_at_the_start_it_is_waited_for_with_a_word(
    broker: KafkaServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = Copying(tmp_path, broker)
    world.send(10)
    broker.kill()
    try:
        began_s = time.monotonic()
        with pytest.raises(UnavailableError, match=r"is the broker at 127\.0\.0\.1:"):
            world.start(**{"wait.s": "2"})
        assert time.monotonic() - began_s < 25
        later = threading.Timer(8.0, broker.restart)
        later.start()
        job = world.start("caught-up")
    finally:
        later.join()
    job.wait(60)
    assert world.copies() == list(range(10))
    assert any(record.message.startswith("waiting to ") for record in caplog.records)


def test_a_start_goes_on_whose_broker_dies_in_the_transaction_of_its_first_plan(
    broker: KafkaServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Copying(tmp_path, broker)
    world.send(10)
    right, later = coordinator.send_offsets, list[threading.Timer]()

    def send_offsets(*given: Any, **named: Any) -> None:
        if not later and b"current" in [key.rpartition(b"/")[2] for key in written]:
            broker.kill()
            later.append(threading.Timer(3.0, broker.restart))
            later[0].start()
        right(*given, **named)

    produce, written = coordinator.Coordinator.transact, list[bytes]()

    def transact(self: Any, records: Any, positions: Any = None) -> None:
        given = list(records)
        written[:] = [key for _, key, _ in given]
        produce(self, given, positions)

    monkeypatch.setattr(coordinator, "START_TRIES", 1)  # else the store itself may come through
    monkeypatch.setattr(coordinator, "send_offsets", send_offsets)
    monkeypatch.setattr(coordinator.Coordinator, "transact", transact)
    job = world.start("caught-up")
    later[0].join()
    job.wait(60)
    assert world.copies() == list(range(10))
    assert "waiting for the system, to make the first job model" in caplog.text


def test_a_start_waits_once_for_a_broker_that_does_not_come(
    broker: KafkaServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = Copying(tmp_path, broker)
    broker.kill()
    try:
        began_s = time.monotonic()
        with pytest.raises(UnavailableError, match=r"cannot reach Kafka at 127\.0\.0\.1:\d+: connection refused"):
            world.start(**{"wait.s": "6"})
        assert 5 < time.monotonic() - began_s < 11, "it waited twice"
    finally:
        broker.restart()
    assert sum(record.message.startswith("waiting to ") for record in caplog.records) == 1


def test_whoever_asks_hears_that_it_cannot_be_reached(broker: KafkaServer) -> None:
    """librdkafka says so once, as long as nothing changes."""
    with open_system(f"kafka://{broker.bootstrap}", {"wait.s": "1"}) as system:
        system.create_stream("asked", 1)
        broker.kill()
        try:
            for ask in (system.end_offsets, system.describe_stream, system.end_offsets):
                with pytest.raises(UnavailableError, match=r"cannot reach Kafka at 127\.0\.0\.1:\d+: connection refused"):
                    ask("asked")
        finally:
            broker.restart()


def test_a_job_whose_broker_is_dead_stops_soon_and_cleanly(broker: KafkaServer, tmp_path: Path) -> None:
    world = Copying(tmp_path, broker)
    world.send(50)
    job = world.start()
    world.wait_for_copies(job)
    broker.kill()
    try:
        time.sleep(3.0)  # all its threads are in the middle of waiting
        began_s = time.monotonic()
        job.stop()
        assert time.monotonic() - began_s < 20, "it waited for the broker"
        job.wait(0)  # and no error
    finally:
        broker.restart()
    again = world.start("caught-up")
    again.wait(60)
    assert world.copies() == list(range(50))


def test_a_job_gives_up_within_its_bound_and_has_lost_nothing(
    broker: KafkaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound_s = 4.0
    monkeypatch.setattr(system_wait, "SYSTEM_WAIT_S", bound_s)
    world = Copying(tmp_path, broker)
    world.send(50)
    job = world.start(**{"wait.s": "2"})
    world.wait_for_copies(job)
    broker.kill()
    began_s = time.monotonic()
    try:
        with pytest.raises(UnavailableError, match=r"Kafka at 127\.0\.0\.1:\d+"):
            job.wait(120)
        assert bound_s < time.monotonic() - began_s < 60
        assert not job.is_running
    finally:
        broker.restart()
    world.send(20)
    world.start("caught-up").wait(60)
    assert world.copies() == list(range(70))


@pytest.mark.spark
def test_in_the_middle_the_job_goes_on_when_it_is_back(
    broker: KafkaServer, tmp_path: Path, spark: Any, caplog: pytest.LogCaptureFixture
) -> None:
    world = Copying(tmp_path, broker, spark)
    world.send(1_000)
    job = world.start(**{"wait.s": "5"})
    world.wait_for_copies(job)
    world.send(2_000)
    broker.kill()
    time.sleep(7.0)  # longer than a request waits
    broker.restart()
    world.wait_for_copies(job)
    # which of the two depends on whether the round was under way when the broker went
    assert "waiting for the system" in caplog.text or "trying again in" in caplog.text
    job.stop()
    with hr.open_system(world.url) as system:
        counts = system.consume(f"{world.name}-counts", key=hr.String(), value=hr.Long())
        last = {record.key: record.value for record in counts}
    assert sum(last.values()) == world.sent
