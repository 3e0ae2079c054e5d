"""The pytest fixture `kafka_server`, a Kafka of their own for tests; the public name `KafkaServer` is given on. Name it in a
`conftest.py`: `pytest_plugins = ["headrace.testing.kafka_server"]`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.wiring.kafka_server import KafkaServer

__all__ = ["KafkaServer", "kafka_server"]


@pytest.fixture(scope="session")
def kafka_server() -> Iterator[KafkaServer]:
    """One broker for all tests of a run; it starts with the first test that asks for it. Give topics names of their own."""
    with KafkaServer() as server:
        yield server
