"""An output topic that is deleted, or made anew with fewer partitions, while a job runs: the job ends soon, and names it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

import headrace as hr
from headrace.adapters.kafka.clients import UNKNOWN_MS, new_producer, take_id
from headrace.adapters.kafka.container_transaction import Lane, LaneTransaction
from headrace.errors import HeadraceError, IncompatibleChangeError, RoundFailedError, StreamNotFoundError
from headrace.testing import KafkaServer
from support.fixtures import only_on
from support.world import World, started, waited

pytestmark = pytest.mark.timeout(200)
SENT = 40


class Copying(World):
    STREAMS: ClassVar = {"in": 4}
    KEYS: ClassVar = {"trigger_interval_ms": 20, "kafka": {"transaction.timeout.ms": "10000"}}

    def send(self) -> None:
        self.system.produce(self.stream("in"), [(b"k%d" % n, b"v") for n in range(SENT)])


WORLD, place = Copying, only_on("kafka")


@pytest.fixture(params=["exactly_once", "at_least_once"])
def running(request: pytest.FixtureRequest, world: Copying) -> Iterator[Any]:
    """A job that has copied some records."""
    app = world.app(processing_guarantee=request.param)
    app.stream(world.stream("in")).to(world.stream("out"))
    world.send()
    job = started(app)
    waited(lambda: len(world.read("out", hr.Bytes())) >= SENT, job)
    yield job
    if job.is_running:
        job.stop()


def ended(job: Any, kind: type[HeadraceError], words: str) -> None:
    began_s = time.monotonic()
    with pytest.raises(kind, match=words) as caught:
        job.wait(120)
    assert "_INCONSISTENT" not in str(caught.value) and "_STATE" not in str(caught.value)
    assert time.monotonic() - began_s < 60, "it tried again and again"


def test_a_topic_that_is_gone_is_named(world: Copying, running: Any) -> None:
    world.system.delete_stream(world.stream("out"))
    world.send()
    ended(running, StreamNotFoundError, rf"output stream '{world.name}-out' was deleted(.|\n)*with 4 partitions")


def test_a_topic_with_fewer_partitions_is_named(world: Copying, running: Any) -> None:
    world.system.delete_stream(world.stream("out"))
    world.system.create_stream(world.stream("out"), 1)
    world.send()
    ended(running, IncompatibleChangeError, rf"output stream '{world.name}-out' has fewer partitions(.|\n)*: 1, not 4")


def test_a_record_that_a_topic_does_not_take_fails_its_round_with_the_topic_named(kafka_server: KafkaServer) -> None:
    """Also where the client says no more of a commit than that some delivery failed."""
    client, id_ = kafka_server.client_settings(), f"lost-{uuid.uuid4().hex[:8]}"
    timeout_ms = 2 * UNKNOWN_MS  # else the record may be given up before its topic is
    transaction = LaneTransaction(Lane("lost", "source", 0, 1, "1-source-1", client, timeout_ms))
    transaction._producer = new_producer(client, id_, timeout_ms)
    take_id(transaction._producer, 30.0)
    transaction.begin()
    transaction.produce(f"{id_}-gone", [(b"v", b"k", 0, 1, None)])
    with pytest.raises(RoundFailedError, match=rf"topic '{id_}-gone' does not take a record: _?UNKNOWN_TOPIC"):
        transaction.commit([], [], "not-written")
