"""Whose repartition topics are: what other applications do, and how many there are, ends no look at the streams."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from headrace.adapters.kafka import topic_owners
from headrace.adapters.kafka.admin import Admin
from headrace.adapters.kafka.names import checkpoint_topic, metadata_topic
from headrace.adapters.kafka.system import open_system
from headrace.errors import UnavailableError
from headrace.model.commits import DriverLease
from headrace.testing import KafkaServer
from kafka.test_open_metadata import held_back
from support.world import waited

LEASE = DriverLease("run-1", "host-1", 17, "1@1", "boot", 0)


@pytest.fixture
def url(kafka_server: KafkaServer) -> str:
    return f"kafka://{kafka_server.bootstrap}"


@pytest.fixture
def looking(url: str) -> Iterator[Any]:
    """The system of a process that runs for weeks."""
    with open_system(url) as system:
        yield system


def name_of_its_own() -> str:
    return f"owner-{uuid.uuid4().hex[:8]}"


def run(url: str, name: str, beats: int = 0) -> None:
    """An application with a repartition topic runs for so many heartbeats, elsewhere."""
    with open_system(url) as system:
        store = system.job_store(name)
        epoch = store.acquire(LEASE, 0)
        if system.own_topics._find(f"{name}-a-repartition") is None:
            system.create_stream(f"{name}-a-repartition", 1, internal_of=name)
        for number in range(beats):
            store.heartbeat(epoch, number)
        store.release(epoch)


def owners(system: Any, *names: str) -> dict[str, str | None]:
    """As all of its streams are listed."""
    found = {one.name: one.internal_of for one in system.streams()}
    return {name: found.get(f"{name}-a-repartition") for name in names}


def topics_of(system: Any, *names: str) -> list[Any]:
    return list(system._admin.topics(names).values())


def test_an_application_that_was_deleted_and_recreated_is_read_from_its_beginning(url: str, looking: Any) -> None:
    name = name_of_its_own()
    run(url, name, beats=20)
    assert owners(looking, name) == {name: name}
    values = looking.metadata_store(name)
    assert values.all("internal-topics").keys() == {f"{name}-a-repartition"}
    with open_system(url) as other:
        for topic in (metadata_topic(name), checkpoint_topic(name), f"{name}-a-repartition"):
            other.delete_stream(topic)
    assert owners(looking, name) == {name: None}
    run(url, name)
    assert waited(lambda: owners(looking, name) == {name: name})
    assert looking.describe_stream(f"{name}-a-repartition").internal_of == name
    assert values.all("internal-topics").keys() == {f"{name}-a-repartition"}


def test_a_look_at_all_streams_takes_one_client_however_many_applications_there_are(url: str, looking: Any) -> None:
    names = [name_of_its_own() for _ in range(10)]
    looking.streams()
    with open_system(url) as other:
        for name in names:
            other.create_stream(f"{name}-a-repartition", 1, internal_of=name)
    before = len(os.listdir("/proc/self/task"))
    for _ in range(2):
        assert owners(looking, *names) == {name: name for name in names}
    assert len(os.listdir("/proc/self/task")) - before < len(names)


def test_an_application_whose_metadata_cannot_be_read_is_skipped_and_another_is_not(
    url: str, looking: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One whose topic has lost its leader, before it was read and after; and one whose topic is deleted just now."""
    led, lost, known = (name_of_its_own() for _ in range(3))
    for name in (led, known):
        run(url, name)
    with open_system(url) as other:
        assert owners(other, known) == {known: known}
        run(url, lost)
        topics = Admin.topics

        def unled(admin: Admin, names: Any) -> Any:
            without = {metadata_topic(lost), metadata_topic(known)}
            return {name: replace(one, is_led=name not in without) for name, one in topics(admin, names).items()}

        monkeypatch.setattr(Admin, "topics", unled)
        with caplog.at_level(logging.WARNING, "headrace.kafka"):
            for _ in range(2):
                assert owners(other, led, lost, known) == {led: led, lost: None, known: known}
        assert {metadata_topic(one) for one in (lost, known)}.isdisjoint(one.name for one in other.streams())
        said = [record.message for record in caplog.records if "cannot be read" in record.message]
        assert sorted(one for name in (lost, known) for one in said if name in one) == sorted(said) and len(said) == 2
        monkeypatch.setattr(topic_owners, "OTHERS_S", 2.0)
        own = other.own_topics
        there = own.found()
        missing = {"missing": replace(there[led], name=metadata_topic(f"{led}-missing"), id="missing")}
        topics = topics_of(other, f"{led}-a-repartition")
        assert own.owners({led: there[led], **missing}, topics) == {f"{led}-a-repartition": led}
        with pytest.raises(UnavailableError, match="missing"):
            own.owners(missing, topics)


def test_a_transaction_that_is_open_in_anothers_metadata_is_not_waited_for(
    url: str, looking: Any, caplog: pytest.LogCaptureFixture
) -> None:
    name = name_of_its_own()
    run(url, name)
    with caplog.at_level(logging.WARNING, "headrace.kafka"), held_back(looking, name):
        for _ in range(2):
            assert owners(looking, name) == {name: name}
    assert [record.message for record in caplog.records if name in record.message] == []
