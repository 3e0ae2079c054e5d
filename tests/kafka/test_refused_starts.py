"""What a start refuses in words of ours: settings that Kafka's client or the cluster does not take; and what it does not."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.driver.planning.plan_job import create
from headrace.errors import ConfigError, StreamExistsError
from headrace.model.streams import StreamDescription
from headrace.testing import KafkaServer
from support.world import started

pytestmark = pytest.mark.timeout(120)


def start(kafka_server: KafkaServer, folder: Path, **kafka: str) -> Any:
    url, name = f"kafka://{kafka_server.bootstrap}", f"refused-{uuid.uuid4().hex[:8]}"
    with hr.open_system(url) as system:
        system.create_stream(f"{name}-in", 1)
    app = hr.App(name, url, local_store_dir=str(folder), kafka=kafka)
    app.stream(f"{name}-in").to(f"{name}-out")
    return started(app, "caught-up")


def test_what_only_a_producer_refuses(kafka_server: KafkaServer, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"kafka\.\* settings are refused(.|\n)*linger\.ms(.|\n)*transaction\.timeout\.ms"):
        start(kafka_server, tmp_path, **{"linger.ms": "60000"})


def test_a_lingering_that_fits_in_a_transaction_is_taken(kafka_server: KafkaServer, tmp_path: Path) -> None:
    job = start(kafka_server, tmp_path, **{"linger.ms": "20000"})
    job.wait(60)
    assert job.status()["sub_topologies"]["source"]["lag"] == 0


def test_more_replicas_than_brokers(kafka_server: KafkaServer, tmp_path: Path) -> None:
    words = r"cannot be created: .*factor of 3(.|\n)*there is 1 broker(.|\n)*kafka\.replication\.factor to at most 1"
    with pytest.raises(ConfigError, match=words):
        start(kafka_server, tmp_path, **{"replication.factor": "3"})


class Raced:
    """A system in which another start has made the stream since we looked."""

    def __init__(self, found: StreamDescription) -> None:
        self.found = found

    def create_stream(self, name: str, partitions: int, *, internal_of: str | None = None) -> StreamDescription:
        raise StreamExistsError(f"topic {name!r} exists already")

    def describe_stream(self, name: str) -> StreamDescription:
        return self.found


def test_a_stream_that_another_start_was_quicker_to_make_is_used_where_it_is_as_it_should_be() -> None:
    found = StreamDescription("out", 4, "id", None)
    system: Any = Raced(found)
    assert create(system, "out", 4, None) == found
    for count, owner in ((3, None), (4, "app")):
        with pytest.raises(StreamExistsError):
            create(system, "out", count, owner)
