"""A value in pieces that is written again and again behind an open transaction, as one of a leader that was killed."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from headrace.adapters.kafka import application_topics, names
from headrace.adapters.kafka.clients import new_producer, take_id
from headrace.adapters.kafka.system import open_system
from headrace.testing import KafkaServer
from support.broker import read_topic


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
        blocking = new_producer(system.client, f"{name}/blocking", 60_000)
        take_id(blocking, 30.0)
        blocking.begin_transaction()
        blocking.produce(names.metadata_topic(name), key=b"job/nothing", value=b"1", partition=0)
        blocking.flush(10)
        for number, value in enumerate(values[1:]):
            writer: Any = other if again and number >= 2 else system
            writer.own_topics.write(name, "status", {"1": value})
        blocking.abort_transaction()
        rows = read_topic({"bootstrap.servers": kafka_server.bootstrap}, names.metadata_topic(name))
    seen, stored = set[bytes](), dict[bytes, bytes]()
    for row in rows:
        stored.pop(row["key"], None)
        if row["value"] is not None:
            stored[row["key"]] = row["value"]
        seen |= set(names.entries_of(stored, "status").values())
    assert seen == set(values)
