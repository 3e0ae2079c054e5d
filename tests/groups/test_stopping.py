"""Processors that are stopped in order while what they work with does not answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from groups.group import Group, group_on
from headrace.testing import KafkaServer

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]


@pytest.fixture
def broker() -> Iterator[KafkaServer]:
    """One of its own: it is killed."""
    with KafkaServer() as kafka:
        yield kafka


@pytest.fixture
def group(broker: KafkaServer, real_zookeeper: Any, tmp_path: Path) -> Iterator[Group]:
    with group_on(broker, f"zookeeper://{real_zookeeper.server.address}/headrace", tmp_path) as made:
        yield made


def test_they_stop_while_kafka_does_not_answer(broker: KafkaServer, group: Group) -> None:
    """Each call that waits for Kafka is cut short: a stop takes no longer than `RunningJob.stop` waits for it."""
    for id_ in "ab":
        group.start(id_)
    group.await_shares(*"ab")
    group.send(40)
    group.await_all()
    broker.kill()
    group.until(lambda: all("refused" in group.told(group.pids[id_]) for id_ in "ab"))
    group.stop_all()
    broker.restart()
    for id_ in "ab":
        group.start(id_)
    group.send(40)
    group.await_all()
    group.stop_all()
    assert group.check() >= 160
