"""From Kafka to Kafka on Spark while processes of every kind are killed; nothing is lost or doubled. `make soak` does it with a
million records and 200 kills."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.testing.kafka_server import KafkaServer
from kafka_faults.storm import BROKER_HEAP_MB, all_landed, kinds_of, storm
from kafka_faults.storm_verdict import Input, by_source, same_sequences

pytestmark = [pytest.mark.chaos, pytest.mark.spark]
SEED, KILLS, RECORDS = 20275, 5, 150_000


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaServer]:
    """One of its own: it is killed."""
    with KafkaServer(heap_mb=BROKER_HEAP_MB) as server:
        yield server


@pytest.mark.soak
@pytest.mark.timeout(1800)  # minutes where nothing else runs
def test_nothing_is_lost_or_doubled_while_processes_of_every_kind_are_killed(tmp_path: Path, broker: KafkaServer) -> None:
    report = storm(tmp_path, SEED, broker, KILLS, RECORDS)
    print(report)
    report.verify()
    all_landed(report, KILLS)


SEQUENCES = {b"a": [1, 2, 3, 4], b"b": [5, 6]}


def test_sequences_that_are_the_same_are_counted() -> None:
    assert same_sequences({key: list(values) for key, values in SEQUENCES.items()}, SEQUENCES) == 6


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ({b"a": [1, 2, 4], b"b": [5, 6]}, "1 lost, 0 doubled, 0 that were never due, 0 keys out of order only"),
        ({b"a": [1, 2, 3, 4]}, "2 lost, 0 doubled, 0 that were never due, 0 keys out of order only"),
        ({b"a": [1, 2, 3, 4, 4], b"b": [5, 6]}, "0 lost, 1 doubled, 0 that were never due, 0 keys out of order only"),
        ({b"a": [1, 3, 2, 4], b"b": [5, 6]}, "0 lost, 0 doubled, 0 that were never due, 1 keys out of order only"),
        ({b"a": [1, 2, 3, 4, 6], b"b": [5]}, "1 lost, 0 doubled, 1 that were never due, 0 keys out of order only"),
        ({**SEQUENCES, b"c": [7]}, "0 lost, 0 doubled, 1 that were never due, 0 keys out of order only"),
    ],
)
def test_what_is_lost_doubled_or_moved_is_told(found: dict[bytes, list[int]], told: str) -> None:
    with pytest.raises(AssertionError) as caught:
        same_sequences(found, SEQUENCES)
    assert str(caught.value).startswith(told)


def test_records_out_of_order_behind_a_repartition_are_seen() -> None:
    given = Input([b"k0", b"k3"], [0, 1, 0, 1], [7, 7, 7, 7])  # all of one group, of two keys
    between = {b"g7": [1, 0, 3, 2]}  # any order between keys is right
    assert same_sequences(*by_source(between, given)) == 4
    with pytest.raises(AssertionError, match="0 lost, 0 doubled"):
        same_sequences(*by_source({b"g7": [2, 0, 1, 3]}, given))


def test_each_kind_of_process_is_killed_by_its_share() -> None:
    assert Counter(kinds_of(30)) == {"worker": 9, "driver": 8, "JVM": 7, "broker": 6}
    assert len(kinds_of(200)) == 200
