"""A writer whose transactional id another has taken says so, whenever it notices."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest

from headrace.adapters.kafka.records import TransactionalWriter
from headrace.core.secrets import Secrets
from headrace.errors import FencedError
from headrace.testing import KafkaServer
from kafka.clients import make_topic

MESSAGES: list[Any] = [(b"v", b"k", 0, 0, None)]


@pytest.mark.parametrize("pause_s", [0.0, 0.5])
def test_it_is_fenced_and_no_broker_is_blamed(kafka_server: KafkaServer, pause_s: float) -> None:
    """With a pause its producer has heard of it, and writes no more: then it gives no reason by itself."""
    settings = kafka_server.client_settings()
    topic, id_ = make_topic(settings, partitions=1), f"writer-{uuid.uuid4().hex}"
    first, second = (TransactionalWriter(settings, id_, Secrets()) for _ in range(2))
    first.write(topic, MESSAGES)
    first.commit(topic)
    first.write(topic, MESSAGES)
    second.take()

    def write_on() -> None:
        for _ in range(100):
            first.write(topic, MESSAGES)
            time.sleep(pause_s)
        first.commit(topic)

    with pytest.raises(FencedError, match="somebody else writes under transactional id"):
        write_on()
