"""What a start refuses in words of ours: settings that Kafka's client or the cluster does not take; and what it does not."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

import headrace as hr
from headrace.driver.planning.job_planner import create
from headrace.errors import ConfigError, InvalidNameError, StreamExistsError
from headrace.model.streams import StreamDescription
from support.fixtures import only_on
from support.world import World, source_of, started

pytestmark = pytest.mark.timeout(120)


class Copying(World):
    STREAMS: ClassVar = {"in": 1}
    KEYS: ClassVar = {}

    def app(self, **kafka: str) -> hr.App:
        app = super().app(kafka=kafka)
        app.stream(self.stream("in")).to(self.stream("out"))
        return app


WORLD, place = Copying, only_on("kafka")


def test_what_only_a_producer_refuses(world: Copying) -> None:
    with pytest.raises(ConfigError, match=r"kafka\.\* settings are refused(.|\n)*linger\.ms(.|\n)*transaction\.timeout\.ms"):
        started(world.app(**{"linger.ms": "60000"}), "caught-up")


def test_a_lingering_that_fits_in_a_transaction_is_taken(world: Copying) -> None:
    assert source_of(world.run(world.app(**{"linger.ms": "20000"})))["lag"] == 0


def test_more_replicas_than_brokers(world: Copying) -> None:
    words = r"cannot be created: .*factor of 3(.|\n)*there is 1 broker(.|\n)*kafka\.replication\.factor to at most 1"
    with pytest.raises(ConfigError, match=words):
        started(world.app(**{"replication.factor": "3"}), "caught-up")


@pytest.mark.parametrize("suffix", ["metadata", "checkpoints"])
@pytest.mark.parametrize("of", ["output", "dead letters"])
def test_an_applications_own_bookkeeping_is_no_stream_to_write_to(world: Copying, suffix: str, of: str) -> None:
    own = world.stream(suffix)
    app = World.app(world, **({"dead_letter_stream": own} if of == "dead letters" else {}))
    app.stream(world.stream("in")).filter(lambda record: True).to(own if of == "output" else world.stream("out"))
    for _ in range(2):
        with pytest.raises(StreamExistsError, match=f"topic '{own}' is the bookkeeping of application") as raised:
            started(app, "caught-up")
        assert raised.value.hint == "choose another name"


def test_names_that_are_one_to_kafka_are_refused_with_what_to_do(world: Copying) -> None:
    for name in (f"{world.name}.b", f"{world.name}_b"):
        app = World.app(world, name)
        app.stream(world.stream("in")).to(world.stream("out"))
        if name.endswith(".b"):
            world.run(app)
            continue
        with pytest.raises(InvalidNameError, match=f"topic '{name}-metadata' cannot be created: .*collides") as raised:
            started(app, "caught-up")
        assert "choose another name for the application" in (raised.value.hint or "")


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
