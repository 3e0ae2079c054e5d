"""What a start refuses in words of ours: settings that Kafka's client or the cluster does not take; and what it does not."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

import headrace as hr
from headrace.adapters.kafka import clients, records
from headrace.adapters.kafka.clients import new_producer
from headrace.adapters.kafka.coordinator import TIMEOUT_MS
from headrace.adapters.kafka.names import metadata_topic
from headrace.adapters.kafka.system import PUT_BACK_MS, open_system
from headrace.driver.planning.job_planner import create
from headrace.errors import ConfigError, InvalidNameError, StorageError, StreamExistsError, UnavailableError
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


TIMES = ("message.timeout.ms", "delivery.timeout.ms", "socket.timeout.ms")


@pytest.mark.parametrize("name", TIMES)
@pytest.mark.parametrize("timeout_ms", [60_000, TIMEOUT_MS, PUT_BACK_MS])
def test_a_time_of_messages_or_requests_is_cut_to_that_of_each_transaction(
    monkeypatch: pytest.MonkeyPatch, name: str, timeout_ms: int
) -> None:
    made = list[dict[str, Any]]()
    producer = clients.Producer
    monkeypatch.setattr(clients, "Producer", lambda settings: (made.append(settings), producer(settings))[1])
    for text in ("60000", "30000", "5000", "300000"):
        new_producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, name: text}, "id", timeout_ms)
        assert int(made[-1][name]) == min(int(text), timeout_ms), text
    with pytest.raises(ConfigError, match=r"(message|socket)\.timeout\.ms"):  # as the client calls it
        new_producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, name: "soon"}, "id", timeout_ms)


def test_a_job_runs_with_the_times_that_kafkas_client_has_by_default_or_shorter_ones(world: Copying) -> None:
    app = world.app(**{"message.timeout.ms": "30000", "socket.timeout.ms": "60000"})
    assert source_of(world.run(app))["lag"] == 0


@pytest.mark.parametrize(("given", "made"), [({}, [60_000, PUT_BACK_MS]), ({"transaction.timeout.ms": "5000"}, [5000, 5000])])
def test_who_writes_records_takes_no_more_time_than_a_transaction_may(
    world: Copying, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], made: list[int]
) -> None:
    """A broker may allow no more than is set. And a lingering is none of a transaction that is to be short."""
    asked = list[int]()

    def producer(client: Any, id_: str | None, timeout_ms: int, errors: Any) -> Any:
        asked.append(timeout_ms)
        return new_producer(client, id_, timeout_ms, errors)

    monkeypatch.setattr(records, "new_producer", producer)
    linger = {"linger.ms": "4000" if given else "20000"}
    with open_system(f"kafka://{world.system.connection.servers}", {**given, **linger}) as system:
        assert system.produce(world.stream("in"), [("a", b"1")], key=hr.String(), value=hr.Bytes()) == 1
        system.own_topics.ensure(world.name)
        system.put_back(world.name, {}, {"0:1": b"done"})
    assert asked == made


def test_bookkeeping_topics_that_take_small_records_only(world: Copying) -> None:
    words = r"topic '[^']*': MSG_SIZE_TOO_LARGE(.|\n)*raise max\.message\.bytes of the topic"
    with pytest.raises(StorageError, match=words) as error:
        started(world.app(**{"topic.max.message.bytes": "300"}), "caught-up").wait()
    assert not isinstance(error.value, UnavailableError), "it is not tried again"


def test_a_status_that_a_bookkeeping_topic_does_not_take_says_what_to_raise(world: Copying) -> None:
    with open_system(f"kafka://{world.system.connection.servers}", {"topic.max.message.bytes": "300"}) as system:
        system.own_topics.ensure(world.name)
        assert system._topics.get(metadata_topic(world.name)).partitions == 1
        with pytest.raises(StorageError, match=r"status 'source' could not be written(.|\n)*raise max\.message\.bytes"):
            system.own_topics.write(world.name, "status", {"source": bytes(range(256)) * 4})


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
