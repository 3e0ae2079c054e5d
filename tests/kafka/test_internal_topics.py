"""The topics that a job makes: their settings, what of them a user sets, and that what was read of them is purged."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

import headrace as hr
from headrace.driver import job as jobs
from headrace.errors import ConfigError
from headrace.testing import KafkaServer
from kafka.clients import QUIET
from support.world import started


def settings_of(server: KafkaServer, topic: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({**server.client_settings(), **QUIET})  # it has to live until the answer is there
    found = admin.describe_configs([resource])[resource].result(30)
    return {name: entry.value for name, entry in found.items()}


def job_of(server: KafkaServer, name: str, folder: Path, until: str | None = None, **kafka: str) -> Any:
    places = {"local_store_dir": str(folder / "stores"), "keep_state_versions": 1}  # what is kept keeps what follows it
    app = hr.App(name, f"kafka://{server.bootstrap}", **places, kafka=kafka)
    rows = app.stream(f"{name}-in", key=hr.String(), value=hr.String()).repartition(hr.Repartitioned(name="again"))
    rows.group_by_key().count(store="counts").to_stream().to(f"{name}-out")
    return started(app, until)


def test_settings_of_the_topics_and_those_that_users_set(kafka_server: KafkaServer, tmp_path: Path) -> None:
    name = f"topics-{uuid.uuid4().hex[:8]}"
    with hr.open_system(f"kafka://{kafka_server.bootstrap}") as system:
        system.create_stream(f"{name}-in", 1)
    given = {"topic.max.message.bytes": "2000000", "topic.cleanup.policy": "delete", "topic.retention.ms": "60000"}
    job_of(kafka_server, name, tmp_path, "caught-up", **given, **{"replication.factor": "1"}).wait(60)
    own = ("cleanup.policy", "retention.ms", "max.message.bytes")
    for topic, expected in {
        f"{name}-metadata": ("compact", "60000", "2000000"),
        f"{name}-checkpoints": ("compact", "60000", "2000000"),
        f"{name}-again-repartition": ("delete", "-1", "2000000"),
        f"{name}-out": ("delete", "60000", "2000000"),
    }.items():
        found = settings_of(kafka_server, topic)
        assert tuple(found[key] for key in own) == expected, topic


def test_more_replicas_than_brokers_are_refused_by_name(kafka_server: KafkaServer, tmp_path: Path) -> None:
    name = f"topics-{uuid.uuid4().hex[:8]}"
    with hr.open_system(f"kafka://{kafka_server.bootstrap}") as system:
        system.create_stream(f"{name}-in", 1)
    with pytest.raises(ConfigError, match=rf"topic '{name}-\w+' cannot be created: .*[Rr]eplication factor"):
        job_of(kafka_server, name, tmp_path, "caught-up", **{"replication.factor": "3"})


def test_what_was_read_of_a_repartition_topic_is_purged_while_the_job_runs(
    kafka_server: KafkaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "TIDY_S", 0.2)
    name = f"topics-{uuid.uuid4().hex[:8]}"
    with hr.open_system(f"kafka://{kafka_server.bootstrap}") as system:
        system.create_stream(f"{name}-in", 2)
        system.produce(f"{name}-in", [(f"k{i % 9}", "v") for i in range(200)], key=hr.String(), value=hr.String())
        job = job_of(kafka_server, name, tmp_path)
        deadline_s = time.monotonic() + 60
        topic = f"{name}-again-repartition"
        while not any(system.end_offsets(topic).values()) or system.beginning_offsets(topic) != system.end_offsets(topic):
            assert job.is_running, job.wait(0)
            assert time.monotonic() < deadline_s, (system.beginning_offsets(topic), system.end_offsets(topic))
            time.sleep(0.1)
        job.stop()
        assert sum(system.beginning_offsets(f"{name}-in").values()) == 0  # what others wrote is theirs to purge
        counts = {r.key: r.value for r in system.consume(f"{name}-out", key=hr.String(), value=hr.Long())}
    assert sum(counts.values()) == 200
