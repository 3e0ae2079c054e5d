"""What happens behind an open transaction in the metadata, as one of a leader that was killed, or of who put dead letters back:
values in pieces are whole, requests are heard, and the driver's heartbeat continues."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.adapters.kafka import application_topics, compacted, names
from headrace.adapters.kafka.clients import new_producer, take_id
from headrace.adapters.kafka.held_job import HeldJob
from headrace.adapters.kafka.system import open_system
from headrace.codec.job_records import DEAD_LETTERS, SCALES, STOPS
from headrace.errors import UnavailableError
from headrace.model.commits import DriverLease
from headrace.testing import KafkaServer
from support.broker import read_topic
from support.fixtures import place_on
from support.world import World, waited


@contextmanager
def held_back(system: Any, application: str) -> Iterator[None]:
    """A mark of a dead letter is in a transaction that stays open, as one of a `dead-letters retry` that was killed."""
    blocking = new_producer(system.client, names.dead_letters_id(application), 60_000)
    take_id(blocking, 30.0)
    blocking.begin_transaction()
    blocking.produce(names.metadata_topic(application), key=names.entry_key(DEAD_LETTERS, "0:1"), value=b"retried", partition=0)
    assert blocking.flush(10) == 0
    try:
        yield
    finally:
        blocking.abort_transaction()


@pytest.mark.parametrize("again", [False, True], ids=["by one process", "by one after the other"])
def test_each_write_is_whole_for_who_reads_in_between(
    kafka_server: KafkaServer, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    for module in (names, application_topics):
        monkeypatch.setattr(module, "PIECE_BYTES", 2)
    name, values = f"pieces-{uuid.uuid4().hex[:8]}", [b"aaaa", b"bbbb", b"c", b"dddddd", b"eeee"]
    url = f"kafka://{kafka_server.bootstrap}"
    with open_system(url) as system, open_system(url) as other:
        system.own_topics.ensure(name)
        system.own_topics.write(name, "status", {"1": values[0]})
        with held_back(system, name):
            for number, value in enumerate(values[1:]):
                writer: Any = other if again and number >= 2 else system
                writer.own_topics.write(name, "status", {"1": value})
        rows = read_topic({"bootstrap.servers": kafka_server.bootstrap}, names.metadata_topic(name))
    seen, stored = set[bytes](), dict[bytes, bytes]()
    for row in rows:
        stored.pop(row["key"], None)
        if row["value"] is not None:
            stored[row["key"]] = row["value"]
        seen |= set(names.entries_of(stored, "status").values())
    assert seen == set(values)


def test_a_driver_hears_requests_and_waits_for_no_transaction_of_others(
    kafka_server: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compacted, "READ_S", 1.0)  # a wait for the transaction is an error
    name, url = f"heard-{uuid.uuid4().hex[:8]}", f"kafka://{kafka_server.bootstrap}"
    with open_system(url) as driving, open_system(url) as command:
        store, requests = driving.job_store(name), driving.metadata_store(name)
        epoch = store.acquire(DriverLease("run-1", "host-1", 17, "1@1", "boot", 0), 0)
        first = command.metadata_store(name).request(STOPS, b"1")
        assert requests.requests(STOPS) == {first: b"1"}
        with held_back(command, name):
            second = command.metadata_store(name).request(STOPS, b"2")
            assert requests.requests(STOPS) == {first: b"1", second: b"2"}
            store.write_metadata(epoch, STOPS, {}, done=[first])
            assert requests.requests(STOPS) == {second: b"2"}
        assert requests.requests(STOPS) == {second: b"2"}
        store.release(epoch)


def test_a_start_that_fails_drives_nothing_so_that_its_process_waits_for_no_transaction_either(
    kafka_server: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compacted, "READ_S", 1.0)  # a wait for the transaction is an error
    name, lease = f"failed-{uuid.uuid4().hex[:8]}", DriverLease("run-1", "host-1", 17, "1@1", "boot", 0)
    with open_system(f"kafka://{kafka_server.bootstrap}") as system:
        store, values = system.job_store(name), system.metadata_store(name)

        def fails(_: object) -> int:
            raise UnavailableError("no broker answers", "it is tried again")

        with monkeypatch.context() as patch:
            patch.setattr(HeldJob, "numbers_used", fails)
            with pytest.raises(UnavailableError, match="no broker answers"):
                store.acquire(lease, 0)
        system.own_topics.write(name, "status", {"1": b"1"})
        with held_back(system, name):
            assert values.all("status") == {"1": b"1"}
        store.release(store.acquire(lease, 0))


def test_a_drivers_heartbeat_waits_for_nothing_that_the_driver_reads(kafka_server: KafkaServer, tmp_path: Path) -> None:
    with World(tmp_path, place_on(kafka_server)) as world:
        world.system.create_stream(world.stream("in"), 1)
        app = world.app()
        app.stream(world.stream("in"), key=hr.Bytes(), value=hr.Bytes()).to(world.stream("out"))
        with world.running(app) as job:
            reader = world.system.job_reader(world.name)
            with held_back(world.system, world.name):
                world.system.metadata_store(world.name).request(SCALES, b"of no version")  # what is stored of scales is read
                began_us = reader.holder().heartbeat_us
                waited(lambda: reader.holder().heartbeat_us > began_us + 5_000_000, job, 20)  # in µs: several of them
