"""A user's topics may be named as an application's bookkeeping is: they are told apart by what is in them."""

from __future__ import annotations

import ast
import uuid

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import headrace as hr
from headrace.adapters.kafka.compacted import CompactedTopic
from headrace.adapters.kafka.deadline import Deadline
from headrace.adapters.kafka.names import checkpoint_topic, entry_key, is_own_key, metadata_topic, name_of
from headrace.adapters.kafka.topic_owners import TopicOwner, TopicOwners
from headrace.codec import job_records
from headrace.codec.job_records import NAMESPACES, PARTITION_CHECKS, SCALES, STOPS
from headrace.errors import IncompatibleChangeError
from headrace.model.commits import DriverLease
from kafka.clients import QUIET, WAIT_S
from project.test_structure import TREES
from support.broker import read_topic
from support.fixtures import only_on
from support.world import World, caught_up

pytestmark = pytest.mark.timeout(120)
place = only_on("kafka")


def test_a_users_own_topics_with_such_names_are_streams_like_any_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    system, name, user = world.system, world.name, f"user-{uuid.uuid4().hex[:8]}"
    read: list[str] = []
    refresh = CompactedTopic.refresh
    monkeypatch.setattr(
        CompactedTopic, "refresh", lambda topic, **options: (read.append(topic.topic), refresh(topic, **options))[1]
    )

    def run(application: str) -> None:
        app = world.app(application)
        rows = app.stream(f"{user}-metadata", key=hr.Bytes(), value=hr.Bytes())
        rows.repartition(hr.Repartitioned(name="again")).to(f"{application}-out")
        caught_up(app)

    for suffix in ("metadata", "checkpoints"):
        system.create_stream(f"{user}-{suffix}", 1)
        system.produce(f"{user}-{suffix}", [(b"a/b", b"theirs")] * 3)
    run(name)
    run(name)
    there = {stream.name: stream.internal_of for stream in system.streams()}
    assert {one for one in there if one.startswith(user)} == {f"{user}-metadata", f"{user}-checkpoints"}
    assert there[f"{name}-again-repartition"] == name
    assert f"{name}-metadata" not in there
    assert name in system.applications()
    assert user not in system.applications()
    assert len(list(system.consume(f"{name}-out"))) == 3
    assert f"{user}-metadata" not in read
    with pytest.raises(IncompatibleChangeError, match=f"topic '{user}-metadata' exists, and is not the bookkeeping"):
        run(user)
    assert system.describe_stream(f"{user}-metadata").internal_of is None


def counting(world: World, application: str) -> hr.App:
    app = world.app(application)
    app.stream(world.stream("in"), key=hr.String()).group_by_key().count(store="counts").to_stream().to(f"{application}-out")
    return app


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_users_topic_that_is_named_as_checkpoints_are_is_refused_and_stays_as_it_is(world: World, partitions: int) -> None:
    theirs = checkpoint_topic(world.name)
    world.system.create_stream(world.stream("in"), 1)
    world.system.create_stream(theirs, partitions)
    world.system.produce(theirs, [(b"model-%d" % number, b"weights") for number in range(20)])
    before = read_topic(world.settings, theirs)
    with pytest.raises(IncompatibleChangeError, match=f"topic '{theirs}' exists, and is not the bookkeeping"):
        caught_up(counting(world, world.name))
    with pytest.raises(IncompatibleChangeError, match=f"topic '{theirs}' exists"):
        world.system.metadata_store(world.name).request(STOPS, b"{}")
    assert read_topic(world.settings, theirs) == before
    assert metadata_topic(world.name) not in {stream.name for stream in world.system.streams()}


@pytest.mark.parametrize("suffix", ["metadata", "checkpoints"])
def test_the_topics_of_a_start_that_was_killed_while_it_made_them_are_used(world: World, suffix: str) -> None:
    world.system.create_stream(world.stream("in"), 1)
    admin = AdminClient({**world.settings, **QUIET})
    topic = NewTopic(f"{world.name}-{suffix}", 1, 1, config={"cleanup.policy": "compact"})
    admin.create_topics([topic])[topic.topic].result(WAIT_S)
    caught_up(counting(world, world.name))
    caught_up(counting(world, world.name))
    assert world.checkpoints()


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_own_checkpoints_are_known_after_runs_and_after_a_reset(world: World, guarantee: str) -> None:
    """More of them than are looked at: what a reset leaves are their deletions."""
    world.system.create_stream(world.stream("in"), 120)

    def run() -> None:
        app = world.app(processing_guarantee=guarantee)
        app.stream(world.stream("in"), key=hr.String()).to(world.stream("out"))
        caught_up(app)
        topics = {own: world.system._topics.find(own) for own in (metadata_topic(world.name), checkpoint_topic(world.name))}
        owners = TopicOwners(world.system._admin, Deadline()).whose(list(topics.values()))
        assert set(owners.values()) == {TopicOwner.OURS}

    run()
    run()
    store = world.system.job_store(world.name)
    epoch = store.acquire(DriverLease("run-1", "host-1", 17, "1@1", "boot", 0), 0)
    store.forget(epoch)
    store.release(epoch)
    run()


def written_first(world: World, part: str, keys: list[bytes]) -> str:
    """An application whose metadata begins with these, as compaction may leave it: what is rewritten moves to the end."""
    name = f"{world.name}-{part}"
    for topic in (metadata_topic(name), checkpoint_topic(name)):
        world.system.create_stream(topic, 1)
    world.system.produce(metadata_topic(name), [(key, b"1") for key in keys], key=hr.Bytes(), value=hr.Bytes())
    return name


def test_an_application_is_known_by_any_of_its_records_wherever_compaction_leaves_them(world: World) -> None:
    spaces = {"ssps": "ssp-assignment", "pieces": "job-models/other-pieces", "requests": "stops/requests", "newer": "unknown"}
    heartbeat = [entry_key("job", "holder")]
    names = [
        written_first(world, part, [entry_key(space, f"one/{number}") for number in range(150)] + heartbeat)
        for part, space in spaces.items()
    ]
    strange = written_first(world, "strange", [b"job-%d" % number for number in range(150)])
    assert [one for one in world.system.applications() if one.startswith(world.name)] == sorted(names)
    assert [world.system.has_run(name) for name in (*names, strange)] == [True] * len(names) + [False]


def test_bookkeeping_that_somebody_gave_more_partitions_is_the_applications_still(world: World) -> None:
    """What is in the first one counts. None of ours begins with several, so one of several with nothing there is a user's."""
    source = world.stream("in")
    world.system.create_stream(source, 1)
    for _ in range(2):
        world.system.produce(source, [("a", b"1")], key=hr.String(), value=hr.Bytes())
        app = world.app()
        app.stream(source).repartition(hr.Repartitioned(name="again")).to(world.stream("out"))
        caught_up(app)
        if world.system._admin.topics([metadata_topic(world.name)])[metadata_topic(world.name)].partitions == 1:
            for topic in (metadata_topic(world.name), checkpoint_topic(world.name)):
                world.system._admin.add_partitions(topic, 2)
    with hr.open_system(world.url) as other:
        assert world.name in other.applications()
        assert {one.internal_of for one in other.streams() if one.name.startswith(world.name)} == {None, world.name}
    assert len(list(world.system.consume(world.stream("out")))) == 2
    own = checkpoint_topic(world.name)
    world.system.delete_stream(own)
    world.system._admin.create(own, 2, {"cleanup.policy": "compact"})
    with hr.open_system(world.url) as other:  # as compaction leaves them behind a reset, in the end
        other.job_store(world.name).acquire(DriverLease("run-2", "host-1", 17, "1@2", "boot", 0), 0)
    user = written_first(world, "user", [])
    world.system._admin.add_partitions(metadata_topic(user), 3)
    refused = pytest.raises(IncompatibleChangeError, match=f"topic '{user}-metadata' exists, and is not the bookkeeping")
    with hr.open_system(world.url) as other, refused:
        other.own_topics.is_initialized(user)


def test_every_namespace_that_is_written_is_known_so_that_its_records_say_whose_a_topic_is(world: World) -> None:
    """An application that has done most of what one can do."""
    source, dead = world.stream("in"), world.stream("dead")
    for stream, partitions in {source: 2, dead: 1}.items():
        world.system.create_stream(stream, partitions)
    world.system.produce(source, [("a", b"1"), ("b", b"x")] * 5, key=hr.String(), value=hr.Bytes())
    keys = {"dead_letter_stream": dead, "state_version_interval_s": 0, "keep_state_versions": 4}
    app = world.app(**keys)
    rows = app.stream(source, key=hr.String(), value=hr.Bytes())
    numbers = rows.map_values(lambda record: int(record.value), value=hr.Long())
    numbers.repartition(hr.Repartitioned(name="again")).group_by_key().count(store="counts").to_stream().to(world.stream("out"))
    caught_up(app)
    with hr.dead_letters(app) as letters:
        assert letters.discard(letters.list()) == 5
    for namespace in (STOPS, SCALES, PARTITION_CHECKS):
        world.system.metadata_store(world.name).request(namespace, b"{}")
    world.system.expand_stream(source, 4)
    caught_up(app)
    found = [row["key"] for row in read_topic(world.settings, metadata_topic(world.name))]
    assert len({name_of(key)[0] for key in found}) > 15, "it has not done as much as it should"
    assert [key for key in found if not is_own_key(key)] == []


def test_a_namespace_is_named_where_all_are() -> None:
    """By its constant: what is written under a text of its own would not be among those that are known."""
    calls = [
        (module, node.args[position])
        for module, _, tree in TREES
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        for position in [{"write_metadata": 1, "request_all": 0, "requests": 0, "withdraw": 0}.get(node.func.attr, 9)]
        if len(node.args) > position
    ]
    names = {argument.id for _, argument in calls if isinstance(argument, ast.Name)}
    assert [(module, ast.unparse(one)) for module, one in calls if isinstance(one, ast.Constant)] == []
    constants = {name for name in names if name.isupper()}
    assert len(constants) > 5 and {name for name in constants if getattr(job_records, name, None) not in NAMESPACES} == set()
