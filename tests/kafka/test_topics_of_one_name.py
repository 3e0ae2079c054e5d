"""Two applications whose repartition topics have one name: `flight` with `delays-by-carrier`, `flight-delays` with
`by-carrier`. The topic is that of who made it, wherever the other one was, or was killed."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace.adapters.kafka import application_topics
from headrace.adapters.kafka.names import INTERNAL
from headrace.adapters.kafka.system import KafkaSystem
from headrace.cli.commands import application
from headrace.driver.planning.job_planner import create
from headrace.errors import ConfigError, IncompatibleChangeError, StreamExistsError
from headrace.model.commits import DriverLease
from support.fixtures import only_on
from support.world import World, caught_up

pytestmark = pytest.mark.timeout(120)


class Killed(BaseException):
    """The process ends here."""


class Flights(World):
    """`name` is the application with the short name, `other` has the longer one; `topic` is the repartition topic of both."""

    STREAMS: ClassVar = {"in": 1}
    KEYS: ClassVar = {"trigger_interval_ms": 10}

    @property
    def other(self) -> str:
        return f"{self.name}-delays"

    @property
    def topic(self) -> str:
        return f"{self.name}-delays-by-carrier-repartition"

    def start(self, name: str, repartitions: bool = True) -> None:
        app = self.app(name)
        rows = app.stream(self.stream("in"), key=hr.String(), value=hr.String())
        if repartitions:
            own = "delays-by-carrier" if name == self.name else "by-carrier"
            rows = rows.repartition(hr.Repartitioned(name=own, number_of_partitions=2))
        rows.to(f"{name}-out", value=hr.String())
        caught_up(app)

    def on_record(self, name: str) -> dict[str, bytes]:
        with hr.open_system(self.url) as system:
            found: dict[str, bytes] = system.metadata_store(name).all(INTERNAL)
            return found

    def with_id(self) -> dict[str, bytes]:
        """What its application has on record, where all is well."""
        return {self.topic: f"2@{self.system.describe_stream(self.topic).id}".encode()}

    def owner(self) -> str | None:
        with hr.open_system(self.url) as system:
            listed = {one.name: one.internal_of for one in system.streams()}
            assert listed[self.topic] == system.describe_stream(self.topic).internal_of
            return listed[self.topic]

    def write(self, name: str, value: bytes) -> None:
        """As an older version has written it, or a process that was killed."""
        self.system.own_topics.ensure(name)
        self.system.own_topics.write(name, INTERNAL, {self.topic: value})

    def reset(self, name: str) -> None:
        folders = [f"local_store_dir={self.folder}/stores", f"state_uri={self.folder}/state"]
        given = [part for one in folders for part in ("--set", one)]
        result = CliRunner().invoke(application, ["reset", "--application", name, "--system", self.url, *given, "--yes"])
        assert result.exit_code == 0, result.output
        assert self.topic not in result.output


WORLD, place = Flights, only_on("kafka")


@pytest.mark.parametrize("is_old", [False, True], ids=["with its id", "without, by an older version"])
def test_one_that_was_deleted_and_made_by_another_is_the_others(world: Flights, is_old: bool) -> None:
    world.start(world.name)
    assert world.on_record(world.name) == world.with_id()
    if is_old:
        world.write(world.name, b"2")
    world.start(world.name, repartitions=False)
    world.system.delete_stream(world.topic)
    world.start(world.other)
    assert world.owner() == world.other
    world.reset(world.name)
    assert world.on_record(world.name) == {}
    assert world.on_record(world.other) == world.with_id()
    world.start(world.other)
    with pytest.raises(IncompatibleChangeError, match=f"it belongs to '{world.other}'"):
        world.start(world.name)


def test_of_two_that_start_at_once_one_has_the_topic_and_the_other_is_refused(
    world: Flights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application_topics, "MADE_S", 0.0)
    with hr.open_system(world.url) as first, hr.open_system(world.url) as second:
        behind(second, lambda: create(first, world.topic, 2, world.name))
        with pytest.raises(StreamExistsError, match=world.topic):
            create(second, world.topic, 2, world.other)
    assert (world.owner(), world.on_record(world.other)) == (world.name, {world.topic: b"2"})
    with pytest.raises(IncompatibleChangeError, match=f"it belongs to '{world.name}'"):
        world.start(world.other)


def behind(system: Any, act: Any) -> None:
    """Have `act` done once this system has found that there is no such topic."""
    find = system._topics.find

    def late(name: str) -> Any:
        found = find(name)
        if name.endswith("-repartition") and found is None:
            system._topics.find = find
            act()
        return found

    system._topics.find = late


@pytest.mark.parametrize("is_slow", [False, True], ids=["its id is overwritten", "its id is not written yet"])
def test_one_that_another_start_of_the_application_has_made_is_its_own(
    world: Flights, is_slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hr.open_system(world.url) as first, hr.open_system(world.url) as second:
        if is_slow:
            write, pause = first.own_topics.write, second.deadline.pause
            waiting: list[Any] = []

            def late(name: str, namespace: str, entries: Any) -> None:
                if any(b"@" in (value or b"") for value in entries.values()):
                    waiting.append(lambda: write(name, namespace, entries))
                else:
                    write(name, namespace, entries)

            monkeypatch.setattr(first.own_topics, "write", late)
            monkeypatch.setattr(second.deadline, "pause", lambda s: (waiting.pop()() if waiting else None, pause(s))[1])
        behind(second, lambda: create(first, world.topic, 2, world.other))
        found = create(second, world.topic, 2, world.other)
        assert not is_slow or not waiting
    assert found == world.system.describe_stream(world.topic) and found.internal_of == world.other
    assert world.on_record(world.other) == world.with_id()


def test_one_that_could_not_be_made_is_made_by_the_next_start_or_is_anothers(world: Flights) -> None:
    world.system.own_topics.ensure(world.other)
    refused = pytest.raises(ConfigError, match=world.topic)
    with hr.open_system(world.url, kafka={"replication.factor": "3"}) as system, refused:
        system.create_stream(world.topic, 2, internal_of=world.other)
    world.start(world.name)
    assert world.owner() == world.name
    with pytest.raises(IncompatibleChangeError, match=f"it belongs to '{world.name}'"):
        world.start(world.other)
    world.start(world.name, repartitions=False)
    world.system.delete_stream(world.topic)
    world.start(world.other)
    assert (world.owner(), world.on_record(world.other)) == (world.other, world.with_id())


def test_one_whose_creation_was_not_answered_is_its_applications(world: Flights, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next start does not see it yet, and the brokers carry out the first request before the second one."""
    monkeypatch.setattr(application_topics, "MADE_S", 0.0)
    world.write(world.other, b"2")
    with hr.open_system(world.url) as first, hr.open_system(world.url) as second:
        behind(second, lambda: first._made(world.topic, 2, {}))
        assert create(second, world.topic, 2, world.other).internal_of == world.other
    for _ in range(2):
        world.start(world.other)
        assert (world.owner(), world.on_record(world.other)) == (world.other, world.with_id())


@pytest.mark.parametrize("place_of_kill", ["before the topic is made", "before its id is on record"])
def test_a_start_that_was_killed_in_between_is_made_up_for_by_the_next(
    world: Flights, place_of_kill: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = KafkaSystem._made

    def killed(system: KafkaSystem, *given: Any) -> Any:
        if place_of_kill == "before its id is on record":
            made(system, *given)
        raise Killed

    with monkeypatch.context() as patch, hr.open_system(world.url) as system:
        patch.setattr(KafkaSystem, "_made", killed)
        with pytest.raises(Killed):
            system.create_stream(world.topic, 2, internal_of=world.other)
    assert world.on_record(world.other) == {world.topic: b"2"}
    for _ in range(2):
        world.start(world.other)
        assert (world.owner(), world.on_record(world.other)) == (world.other, world.with_id())


def test_a_start_that_was_killed_before_another_application_made_the_topic_is_refused(world: Flights) -> None:
    world.write(world.other, b"2")
    world.start(world.name)
    assert world.owner() == world.name
    with pytest.raises(IncompatibleChangeError, match=f"it belongs to '{world.name}'"):
        world.start(world.other)
    store = world.system.job_store(world.other)
    store.forget(store.acquire(DriverLease("run-1", "host-1", 17, "1@1", "boot", 0), 0))
    store.close()
    assert world.owner() == world.name and world.on_record(world.other) == {}


def test_one_of_an_older_version_is_its_applications_by_the_name_and_gets_its_id_with_the_next_plan(world: Flights) -> None:
    world.start(world.name)
    world.write(world.name, b"2")
    assert world.owner() == world.name
    world.start(world.name)
    assert world.on_record(world.name) == world.with_id()
