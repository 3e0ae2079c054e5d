"""An output topic that is deleted, or made anew with fewer partitions, while a job runs: the job ends soon, and names it."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import wiring
from headrace.adapters.kafka.clients import new_producer, take_id
from headrace.adapters.kafka.container_transaction import Lane, LaneTransaction
from headrace.errors import HeadraceError, IncompatibleChangeError, RoundFailedError, StreamNotFoundError
from headrace.testing import KafkaServer
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine

pytestmark = pytest.mark.timeout(200)
SENT = 40


@pytest.fixture(params=["exactly_once", "at_least_once"])
def running(request: pytest.FixtureRequest, kafka_server: KafkaServer, tmp_path: Path) -> Any:
    """A job that has copied some records, its system, and its name."""
    url, name = f"kafka://{kafka_server.bootstrap}", f"lost-{uuid.uuid4().hex[:8]}"
    app = hr.App(
        name,
        url,
        local_store_dir=str(tmp_path),
        trigger_interval_ms=20,
        processing_guarantee=request.param,
        kafka={"transaction.timeout.ms": "10000"},
    )
    app.stream(f"{name}-in").to(f"{name}-out")
    with hr.open_system(url) as system:
        system.create_stream(f"{name}-in", 4)
        send(system, name)
        job = wiring.start(app, engine=InlineEngine(run_container))
        deadline_s = time.monotonic() + 60
        while sum(1 for _ in system.consume(f"{name}-out")) < SENT:
            assert time.monotonic() < deadline_s and job.is_running
            time.sleep(0.1)
        yield job, system, name
        if job.is_running:
            job.stop()


def send(system: Any, name: str) -> None:
    system.produce(f"{name}-in", [(b"k%d" % n, b"v") for n in range(SENT)])


def ended(job: Any, kind: type[HeadraceError], words: str) -> None:
    began_s = time.monotonic()
    with pytest.raises(kind, match=words) as caught:
        job.wait(120)
    assert "_INCONSISTENT" not in str(caught.value) and "_STATE" not in str(caught.value)
    assert time.monotonic() - began_s < 60, "it tried again and again"


def test_a_topic_that_is_gone_is_named(running: Any) -> None:
    job, system, name = running
    system.delete_stream(f"{name}-out")
    send(system, name)
    ended(job, StreamNotFoundError, rf"output stream '{name}-out' was deleted(.|\n)*with 4 partitions")


def test_a_topic_with_fewer_partitions_is_named(running: Any) -> None:
    job, system, name = running
    system.delete_stream(f"{name}-out")
    system.create_stream(f"{name}-out", 1)
    send(system, name)
    ended(job, IncompatibleChangeError, rf"output stream '{name}-out' has fewer partitions(.|\n)*: 1, not 4")


def test_a_record_that_a_topic_does_not_take_fails_its_round_with_the_topic_named(kafka_server: KafkaServer) -> None:
    """Also where the client says no more of a commit than that some delivery failed."""
    client, id_ = kafka_server.client_settings(), f"lost-{uuid.uuid4().hex[:8]}"
    transaction = LaneTransaction(Lane("lost", "source", 0, 1, "1-source-1", client, 10_000))
    transaction._producer = new_producer(client, id_, 10_000)
    take_id(transaction._producer, 30.0)
    transaction.begin()
    transaction.produce(f"{id_}-gone", [(b"v", b"k", 0, 1, None)])
    with pytest.raises(RoundFailedError, match=rf"topic '{id_}-gone' does not take a record: _?UNKNOWN_TOPIC"):
        transaction.commit([], [], "not-written")
