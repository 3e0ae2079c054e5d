"""The topics that a job makes: their settings, what of them a user sets, and that what was read of them is purged."""

from __future__ import annotations

from typing import ClassVar

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

import headrace as hr
from headrace.driver import job as jobs
from headrace.errors import ConfigError
from kafka.clients import QUIET
from support.fixtures import only_on
from support.world import World, started, waited


class Counting(World):
    STREAMS: ClassVar = {"in": 2}
    KEYS: ClassVar = {"keep_state_versions": 1}  # what is kept keeps what follows it

    def app(self, **kafka: str) -> hr.App:
        app = super().app(kafka=kafka)
        rows = app.stream(self.stream("in"), key=hr.String(), value=hr.String())
        again = rows.repartition(hr.Repartitioned(name="again"))
        again.group_by_key().count(store="counts").to_stream().to(self.stream("out"))
        return app

    def settings_of(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        admin = AdminClient({**self.settings, **QUIET})  # it has to live until the answer is there
        found = admin.describe_configs([resource])[resource].result(30)
        return {name: entry.value for name, entry in found.items()}


WORLD, place = Counting, only_on("kafka")


def test_settings_of_the_topics_and_those_that_users_set(world: Counting) -> None:
    given = {"topic.max.message.bytes": "2000000", "topic.cleanup.policy": "delete", "topic.retention.ms": "60000"}
    world.run(world.app(**given, **{"replication.factor": "1"}))
    own = ("cleanup.policy", "retention.ms", "max.message.bytes")
    for part, expected in {
        "metadata": ("compact", "60000", "2000000"),
        "checkpoints": ("compact", "60000", "2000000"),
        "again-repartition": ("delete", "-1", "2000000"),
        "out": ("delete", "60000", "2000000"),
    }.items():
        found = world.settings_of(world.stream(part))
        assert tuple(found[key] for key in own) == expected, part


def test_more_replicas_than_brokers_are_refused_by_name(world: Counting) -> None:
    with pytest.raises(ConfigError, match=rf"topic '{world.name}-\w+' cannot be created: .*[Rr]eplication factor"):
        started(world.app(**{"replication.factor": "3"}), "caught-up")


@pytest.mark.parametrize(("suffix", "policy"), [("metadata", "delete"), ("checkpoints", "compact,delete")])
def test_own_topics_that_lose_records_by_age_are_refused_with_the_line_that_changes_them(
    world: Counting, suffix: str, policy: str
) -> None:
    """Such as ones that were made by who runs the cluster, with the cluster's defaults."""
    topic, admin = world.stream(suffix), AdminClient({**world.settings, **QUIET})
    admin.create_topics([NewTopic(topic, 1, 1, config={"cleanup.policy": policy})])[topic].result(30)
    with pytest.raises(ConfigError, match=f"topic '{topic}' has cleanup.policy={policy}, expected compact") as raised:
        started(world.app(), "caught-up")
    assert f"--entity-name {topic} --add-config cleanup.policy=compact" in (raised.value.hint or "")
    change = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
    admin.incremental_alter_configs([resource])[resource].result(30)
    world.run(world.app())


def test_what_was_read_of_a_repartition_topic_is_purged_while_the_job_runs(
    world: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "TIDY_S", 0.2)
    world.produce_to("in", [(f"k{i % 9}", "v") for i in range(200)], value=hr.String())
    system, topic = world.system, world.stream("again-repartition")
    with world.running(world.app()) as job:
        waited(lambda: any(system.end_offsets(topic).values()), job)
        waited(lambda: system.beginning_offsets(topic) == system.end_offsets(topic), job)
    assert sum(system.beginning_offsets(world.stream("in")).values()) == 0  # what others wrote is theirs to purge
    assert sum({r.key: r.value for r in world.read("out")}.values()) == 200
