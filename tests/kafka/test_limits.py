"""What topics take: records that they would refuse are named or set aside, whatever brokers do by default."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

import headrace as hr
from headrace.adapters.kafka.system import KafkaSystem
from headrace.errors import ConfigError, HeadraceError, RecordError
from headrace.testing import KafkaServer
from kafka.clients import QUIET, WAIT_S
from support.fixtures import only_on, place_on
from support.world import Place, World, waited

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(200)]
HOUR_US = 3_600_000_000
RANDOM = Random(7)
LARGE = RANDOM.randbytes(5000)


class Limited(World):
    """An application's topics on a broker, made by the test with settings of their own."""

    KEYS: ClassVar = {}

    def __init__(self, folder: Path, place: Place) -> None:
        super().__init__(folder, place)
        self.admin = AdminClient({**self.settings, **QUIET})

    def make(self, suffix: str, **settings: str) -> str:
        topic = f"{self.name}-{suffix}"
        config = {name.replace("_", "."): value for name, value in settings.items()}
        self.admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(WAIT_S)
        waited(lambda: topic in [one.name for one in self.system.streams()])  # that it is made may be known a moment later
        return topic

    def copied(self, dead: str | None = None, **options: Any) -> None:
        """Run a job that copies `in` to `out`."""
        app = self.app(dead_letter_stream=dead, **options)
        app.stream(f"{self.name}-in", key=hr.Bytes(), value=hr.Bytes()).to(f"{self.name}-out")
        self.run(app)

    def read(self, part: str) -> list[hr.Record]:
        return super().read(part, hr.Bytes(), hr.Bytes())


WORLD, place = Limited, only_on("kafka")


def now_us() -> int:
    return time.time_ns() // 1000


def test_records_keep_their_times_where_brokers_would_give_them_others(tmp_path: Path) -> None:
    defaults = {"log.message.timestamp.type": "LogAppendTime", "log.message.timestamp.before.max.ms": "3600000"}
    with KafkaServer(properties=defaults) as server, Limited(tmp_path, place_on(server)) as world:
        world.system.create_stream(f"{world.name}-in", 1)
        begin_us = now_us() // (24 * HOUR_US) * 24 * HOUR_US - 48 * HOUR_US
        sent = [hr.Record(b"%d" % (i % 3), b"v", begin_us + i % 4 * HOUR_US) for i in range(40)]
        world.system.produce(f"{world.name}-in", sent)
        app = world.app()
        rows = app.stream(f"{world.name}-in", key=hr.String(), value=hr.Bytes()).repartition(hr.Repartitioned(name="again"))
        rows.to(f"{world.name}-out")
        world.run(app)
        assert [r.timestamp_us for r in world.read("out")] == [record.timestamp_us for record in sent]


def test_a_repartition_topic_that_times_records_anew_is_refused(world: Limited) -> None:
    world.make("in")
    app = world.app()
    rows = app.stream(f"{world.name}-in", key=hr.Bytes(), value=hr.Bytes()).repartition(hr.Repartitioned(name="again"))
    rows.to(f"{world.name}-out")
    world.run(app)
    place = ConfigResource(ResourceType.TOPIC, f"{world.name}-again-repartition")
    entry = ConfigEntry("message.timestamp.type", "LogAppendTime", incremental_operation=AlterConfigOpType.SET)
    place.add_incremental_config(entry)
    world.admin.incremental_alter_configs([place])[place].result(WAIT_S)
    with pytest.raises(ConfigError, match="again-repartition' does not keep the timestamps of records"):
        world.run(app)


@pytest.mark.parametrize("repartitioned", [False, True])
def test_a_time_before_1970_is_no_time_on_kafka(world: Limited, repartitioned: bool) -> None:
    topic = world.make("in")
    world.system.produce(topic, [(b"k", b"-5"), (b"k", b"5000")])

    def run(dead: str | None) -> None:
        app = world.app(dead_letter_stream=dead)
        rows = app.stream(topic, key=hr.Bytes(), value=hr.Bytes(), timestamp=lambda r: int(r.value))
        (rows.repartition(hr.Repartitioned(name="again")) if repartitioned else rows).to(f"{world.name}-out")
        world.run(app)

    with pytest.raises(RecordError, match=r"timestamp -5: stream '.*' keeps no times before 0"):
        run(None)
    run(f"{world.name}-dead")
    assert [(r.value, r.timestamp_us) for r in world.read("out")] == [(b"5000", 5000)]
    (letter,) = world.read("dead")
    assert letter.value == b"-5"
    assert dict(letter.headers)["headrace.error-class"] == b"OutOfRangeError"


def test_a_record_too_large_for_its_stream_is_named_or_set_aside(world: Limited) -> None:
    world.make("in")
    world.make("out", max_message_bytes="2000")
    world.make("dead", max_message_bytes="1500")
    values = [b"small", LARGE, bytes(5000), b"last"]  # of zeros little is left when they are packed
    world.system.produce(f"{world.name}-in", [(b"k", value) for value in values])
    with pytest.raises(RecordError, match=r"offset 1\n.*RecordTooLargeError: .* bytes, stream '.*-out' takes .* at most 1,900"):
        world.copied()
    world.copied(f"{world.name}-dead")
    assert [record.value for record in world.read("out")] == [b"small", bytes(5000), b"last"]
    (letter,) = world.read("dead")
    headers = dict(letter.headers)
    assert LARGE.startswith(letter.value)
    assert headers["headrace.cut"] == b"value: its first %d of 5000 bytes" % len(letter.value)
    assert headers["headrace.offset"] == b"1"


def test_a_record_larger_than_clients_take_by_default_goes_where_the_topic_takes_it(world: Limited) -> None:
    large = RANDOM.randbytes(3_000_000)
    world.make("in", max_message_bytes="10000000")
    world.make("out", max_message_bytes="10000000")
    world.system.produce(f"{world.name}-in", [(b"k", large)])
    world.copied()
    assert [record.value for record in world.read("out")] == [large]


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_batches_are_as_large_as_the_topic_takes(world: Limited, guarantee: str) -> None:
    world.make("in")
    world.make("out", max_message_bytes="20000")
    values = [RANDOM.randbytes(1000) for _ in range(300)]
    world.system.produce(f"{world.name}-in", [(b"k", value) for value in values])
    world.copied(processing_guarantee=guarantee)
    assert [record.value for record in world.read("out")] == values


def test_what_is_produced_comes_in_batches_that_the_topic_takes(world: Limited) -> None:
    world.make("any")
    world.system.produce(f"{world.name}-any", [(b"k", b"v")])
    topic = world.make("small", max_message_bytes="20000")
    values = [RANDOM.randbytes(1000) for _ in range(300)]
    assert world.system.produce(topic, [(b"k", value) for value in values]) == 300
    assert [record.value for record in world.read("small")] == values


def test_a_time_that_the_topic_refuses_is_named_or_set_aside(world: Limited) -> None:
    world.make("in")
    window = {"message_timestamp_before_max_ms": "3600000", "message_timestamp_after_max_ms": "3600000"}
    world.make("out", **window)
    world.make("dead", **window)
    old_us = now_us() // 1000 * 1000 - 24 * HOUR_US
    world.system.produce(f"{world.name}-in", [hr.Record(b"k", b"old", old_us), (b"k", b"new")])
    with pytest.raises(RecordError, match=r"offset 0\n.*it is 86,4\d\d s old, and stream '.*-out' takes at most 3,600 s"):
        world.copied()
    world.copied(f"{world.name}-dead")
    assert [record.value for record in world.read("out")] == [b"new"]
    (letter,) = world.read("dead")
    assert letter.value == b"old"
    assert dict(letter.headers)["headrace.timestamp-us"] == b"%d" % old_us


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"max_message_bytes": "2000"}, "MSG_SIZE_TOO_LARGE"),
        ({"message_timestamp_before_max_ms": "3600000"}, "INVALID_TIMESTAMP"),
    ],
)
def test_what_is_refused_all_the_same_ends_the_job_at_once(
    world: Limited, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], reason: str, guarantee: str
) -> None:
    monkeypatch.setattr(KafkaSystem, "limits", lambda system, streams: {})  # as for a user who may not ask
    world.make("in")
    world.make("out", **settings)
    world.system.produce(f"{world.name}-in", [hr.Record(b"k", LARGE, now_us() // 1000 * 1000 - 24 * HOUR_US)])
    with pytest.raises(HeadraceError, match=f"topic '{world.name}-out' refuses a record: {reason}") as raised:
        world.copied(processing_guarantee=guarantee)
    assert "Traceback" not in str(raised.value)
    assert "failed" not in raised.value.message  # "failed 5 times"
