"""The producers do what they are there for: they are stale for as long as they are told, and their ledgers are true."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.testing import KafkaServer
from kafka.clients import make_topic
from kafka_expansion import checker
from kafka_expansion.producers import Load, merged, read_ledger, running
from support.broker import read_topic

STALE_S = 1.5


def wait_until(ledger: str, count: int) -> None:
    deadline_s = time.monotonic() + 30
    while count not in dict(read_ledger(ledger).learned):
        assert time.monotonic() < deadline_s, f"{ledger}: {count} partitions were not learned of"
        time.sleep(0.05)


@pytest.fixture
def settings(kafka_server: KafkaServer) -> dict[str, Any]:
    return kafka_server.client_settings()


def load(kafka_server: KafkaServer, topic: str, name: str, folder: Path, **changes: Any) -> Load:
    return Load(kafka_server.bootstrap, topic, name, str(folder / name), **{"rate_per_s": 200, "keys": 20} | changes)


def test_each_learns_of_a_growth_in_its_own_time(kafka_server: KafkaServer, settings: dict[str, Any], tmp_path: Path) -> None:
    topic = make_topic(settings, partitions=2)
    quick = load(kafka_server, topic, "quick", tmp_path)
    stale = load(kafka_server, topic, "stale", tmp_path, stale_s=STALE_S)
    with running(quick, stale) as producers:
        grown = []
        for count in (4, 8):
            with hr.open_system(f"kafka://{kafka_server.bootstrap}") as system:
                system.expand_stream(topic, count)
            grown.append(time.time_ns() // 1_000_000)
            time.sleep(0.6)
        for producer in producers:
            wait_until(producer.ledger, 8)
    ledgers = [read_ledger(producer.ledger) for producer in producers]
    assert all(ledger.stopped and ledger.written == ledger.tried for ledger in ledgers)
    for ledger, least_ms in zip(ledgers, (0, STALE_S * 1000), strict=True):
        assert [count for count, _ in ledger.learned] == [4, 8]
        assert all(at_ms - grown_ms >= least_ms - 600 for (_, at_ms), grown_ms in zip(ledger.learned, grown, strict=True))
    rows = read_topic(settings, topic)
    assert checker.as_written(rows, merged(ledgers)) == checker.partitions_by_belief(rows) == len(rows)
    late = [row for row in rows if row["key"].startswith(b"stale")]
    assert checker.stale_rows(late, grown[0], before=2) > 0
    assert checker.stale_rows(late, grown[1], before=4) > 0
    assert checker.moved_keys(rows)


def test_of_one_that_is_killed_all_that_was_acknowledged_is_there(
    kafka_server: KafkaServer, settings: dict[str, Any], tmp_path: Path
) -> None:
    topic = make_topic(settings, partitions=2)
    with running(load(kafka_server, topic, "killed", tmp_path, rate_per_s=2000)) as producer:
        time.sleep(0.3)
        ledger = producer.kill()
    assert not ledger.stopped
    assert checker.as_written(read_topic(settings, topic), ledger) >= sum(ledger.written.values()) > 0


def test_one_that_has_a_number_to_write_ends_by_itself(
    kafka_server: KafkaServer, settings: dict[str, Any], tmp_path: Path
) -> None:
    topic = make_topic(settings, partitions=1)
    with running(load(kafka_server, topic, "p", tmp_path, records_max=40)) as producer:
        assert producer.process.wait(30) == 0
    rows = read_topic(settings, topic)
    assert checker.once_and_in_order(rows, read_ledger(producer.ledger)) == 40
    again = running(load(kafka_server, topic, "p", tmp_path, records_max=40))
    with pytest.raises(AssertionError, match="its ledger is there already"):
        again.__enter__()
