"""Where brokers make a topic that a client names, as they do by default, one that its owner has deleted stays deleted: nothing
that Headrace does with a topic makes one."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from headrace.adapters.kafka import compacted, fetching
from headrace.adapters.kafka.admin import LATEST, Topic
from headrace.adapters.kafka.clients import new_producer, produce_all
from headrace.adapters.kafka.compacted import CompactedTopic
from headrace.adapters.kafka.connection import connection_of
from headrace.adapters.kafka.fetching import fetched
from headrace.adapters.kafka.system import KafkaSystem, open_system
from headrace.adapters.kafka.topic_expansion import expanded
from headrace.errors import HeadraceError
from headrace.exchange.engine import InputSlice
from headrace.testing import KafkaServer
from kafka.clients import make_topic

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(200)]
PATIENT = {"wait.s": "1"}


@pytest.fixture(scope="module")
def server() -> Iterator[KafkaServer]:
    with KafkaServer(properties={"auto.create.topics.enable": "true"}) as started:
        yield started


@pytest.fixture(scope="module")
def system(server: KafkaServer) -> Iterator[KafkaSystem]:
    with open_system(f"kafka://{server.bootstrap}", PATIENT) as opened:
        yield opened


def deleted(system: KafkaSystem) -> Topic:
    """A topic that was there a moment ago."""
    name = f"deleted-{uuid.uuid4().hex[:8]}"
    system.create_stream(name, 1)
    topic = system._topics.get(name)
    system.delete_stream(name)
    return topic


def written(system: KafkaSystem, topic: str) -> None:
    producer = new_producer(system.client | {"message.timeout.ms": "1500"}, None, 1000)
    produce_all(producer, topic, [(b"v", b"k", 0, 0, None)], [], 1.0)
    producer.flush(3)


USES: dict[str, Callable[[KafkaSystem, Topic], Any]] = {
    "offsets": lambda system, topic: system._admin.offsets(topic, LATEST),
    "unmade partitions": lambda system, topic: system._admin.unmade(topic, [0]),
    "leaders": lambda system, topic: system._admin.listed(topic.name),
    "settings": lambda system, topic: system.limits([topic.name]),
    "a purge": lambda system, topic: system._admin.purge(topic.name, {0: 0}),
    "a look at its owner": lambda system, topic: system.own_topics._owners.whose([topic]),
    "an expansion": lambda system, topic: expanded(system._admin, topic, 2),
    "a compacted topic": lambda system, topic: CompactedTopic(system.client, topic.name).refresh(within_s=1.0),
    "a fetch": lambda system, topic: list(fetched(system.client, topic.name, 0, 0, 5)),
    "a record": lambda system, topic: written(system, topic.name),
}


def is_there(system: KafkaSystem, topic: str) -> bool:
    """Whether it is, once the cluster has made what was requested before this."""
    system.create_stream(f"later-{uuid.uuid4().hex[:8]}", 1)
    return topic in system._admin.names()


@pytest.mark.parametrize("use", USES)
def test_no_use_of_a_topic_makes_it_again(system: KafkaSystem, use: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compacted, "BROKER_WAIT_S", 1.0)
    monkeypatch.setattr(fetching, "FETCH_S", 1.0)
    topic = deleted(system)
    with suppress(HeadraceError):
        USES[use](system, topic)
    assert not is_there(system, topic.name)


@pytest.mark.spark
def test_spark_that_reads_a_topic_does_not_make_it_again(server: KafkaServer, system: KafkaSystem, spark: Any) -> None:
    from py4j.protocol import Py4JJavaError

    from headrace.adapters.artifacts.connector import connector_jars
    from headrace.adapters.spark import session
    from headrace.adapters.spark.kafka_rows import rows_of

    session.add_jars(spark, connector_jars(session.settings_of(spark), None, lambda _: None))
    topic = make_topic(server.client_settings())
    soon = {"kafka.default.api.timeout.ms": "2000", "kafka.request.timeout.ms": "1500", "kafkaConsumer.pollTimeoutMs": "1000"}
    options = {**connection_of(f"kafka://{server.bootstrap}", {}).spark_options, **soon}
    rows = rows_of(spark, options, [InputSlice(0, topic, 0, 0, 10)])._jdf.queryExecution().toRdd()
    assert rows.getNumPartitions() == 1  # the driver has asked for the topic: what follows is the executors'
    system.delete_stream(topic)
    with pytest.raises(Py4JJavaError, match=r"TimeoutException|UnknownTopic|data may have been lost"):
        rows.count()
    assert not is_there(system, topic)
