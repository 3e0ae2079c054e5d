"""A user's topics may be named as an application's bookkeeping is: they are told apart by what is in them."""

from __future__ import annotations

import uuid

import pytest

import headrace as hr
from headrace.adapters.kafka.compacted import CompactedTopic
from headrace.errors import IncompatibleChangeError
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
