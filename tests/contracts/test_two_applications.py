"""Two applications that differ only in their names, at work at the same time on one system and in the same folders."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import pytest
from confluent_kafka.admin import AdminClient

import headrace as hr
from headrace.driver import job as jobs
from support.world import WAIT_S, Place, World, started, waited

KEYS = [f"k{number}" for number in range(9)]


class Shared(World):
    """One input, on which applications are run that are all alike but for their names."""

    STREAMS: ClassVar = {"in": 2}
    # What others of its versions would read again is not purged.
    KEYS: ClassVar = {"max_records_per_round": 25, "trigger_interval_ms": 1, "containers": 2, "keep_state_versions": 1}

    def __init__(self, folder: Path, place: Place) -> None:
        super().__init__(folder, place)
        self.sent: list[str] = []

    def counting(self, name: str) -> hr.App:
        """Two repartition streams, stores, timers of windows that close; all outputs begin with the name."""
        app = self.app(name)
        rows = app.stream(f"{self.name}-in", key=hr.String(), value=hr.Long())
        rows.group_by_key().count(store="n")
        again = rows.repartition(hr.Repartitioned.with_("again", 2))
        again.group_by_key().count(store="m").to_stream(emit="each").to(f"{name}-counts")
        others = rows.group_by(lambda r: r.key[-1], hr.Repartitioned.with_("by.again", 3), key=hr.String())
        windows = others.windowed_by(hr.Tumbling("10 ms", grace="0 seconds"))
        windows.count(store="windows").to_stream(emit="closed").to(f"{name}-closed")
        return app

    def send(self, count: int) -> None:
        start = len(self.sent)
        keys = [KEYS[number % len(KEYS)] for number in range(start, start + count)]
        time_us = 1_700_000_000_000_000
        records = [hr.Record(key, start + at, time_us + (start + at) * 1000) for at, key in enumerate(keys)]
        self.produce_to("in", records)
        self.sent += keys

    def start(self, name: str, until: str | None = None) -> Any:
        return started(self.counting(name), until)

    def counts_of(self, name: str) -> dict[str, list[int]]:
        """What an application has written, by key."""
        found: dict[str, list[int]] = {}
        for record in self.system.consume(f"{name}-counts", key=hr.String(), value=hr.Long()):
            found.setdefault(record.key, []).append(record.value)
        return found

    def closed_of(self, name: str) -> Counter[str]:
        """How many records the windows had that have closed."""
        found: Counter[str] = Counter()
        for record in self.system.consume(f"{name}-closed", key=hr.Windowed(hr.String()), value=hr.Long()):
            found[record.key.key] += record.value
        return found

    def expected(self) -> dict[str, list[int]]:
        return {key: list(range(1, count + 1)) for key, count in Counter(self.sent).items()}

    def internal(self, name: str) -> set[str]:
        return {f"{name}-{short}-repartition" for short in ("again", "by.again")}

    def purged(self, name: str) -> bool:
        """Whether records of an application's repartition streams have gone."""
        return all(any(self.system.beginning_offsets(stream).values()) for stream in self.internal(name))

    def stored(self, name: str) -> dict[str, Any]:
        """What an application keeps, as committed."""
        app = self.counting(name)
        table = app.state("n").to_arrow()
        counts = dict(zip(table.column("key").to_pylist(), table.column("value").to_pylist(), strict=True))
        return {"n": counts, "m": {key: app.state("m").get(key) for key in KEYS}}


WORLD = Shared


@pytest.mark.parametrize("more", ["-by", ".by"])  # the one name is a prefix of the other
def test_they_share_nothing_at_work_at_the_same_time(world: Shared, more: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "TIDY_S", 0.05)
    running, other = names = world.name, world.name + more
    world.send(40)
    job = world.start(running)
    try:
        for _ in range(2):  # each start fences what was there before: its own, and nobody else's
            world.send(20)
            world.start(other, "caught-up").wait(WAIT_S)
        assert job.is_running
        expected = world.expected()
        waited(lambda: world.counts_of(running) == expected)
        waited(lambda: world.purged(running))
    finally:
        job.stop()
    world.start(running, "caught-up").wait(WAIT_S)
    assert world.counts_of(other) == world.counts_of(running) == expected
    assert world.closed_of(running) == world.closed_of(other) and world.closed_of(other)
    counts = {key: len(found) for key, found in expected.items()}
    assert world.stored(running) == world.stored(other) == {"n": counts, "m": counts}
    for name in names:
        assert {s.name for s in world.system.streams() if s.internal_of == name} == world.internal(name)
    assert world.internal(running).isdisjoint(world.internal(other))
    folders = [{path for path in (world.folder / root).iterdir() if path.is_dir()} for root in ("state", "stores")]
    assert [{path.name for path in found} >= set(names) for found in folders] == [True, True]


def test_what_the_one_does_to_its_own_things_leaves_the_other_s_alone(
    world: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "TIDY_S", 0.05)
    one, other = names = world.name, f"{world.name}-by"
    world.send(30)
    for name in names:
        world.start(name, "caught-up").wait(WAIT_S)
    before = {stream: world.system.beginning_offsets(stream) for stream in world.internal(other)}
    stored = world.stored(other)
    plan = world.system.job_store(other).job_model()
    metadata = {name: world.system.metadata_store(name) for name in names}
    metadata[one].request("wishes", b"of the one")
    assert metadata[other].requests("wishes") == {}
    world.send(30)
    job = world.start(one)
    try:
        waited(lambda: world.counts_of(one) == world.expected())
        waited(lambda: world.purged(one))
    finally:
        job.stop()
    assert {stream: world.system.beginning_offsets(stream) for stream in world.internal(other)} == before
    assert world.stored(other) == stored
    assert world.system.job_store(other).job_model() == plan
    world.start(other, "caught-up").wait(WAIT_S)
    assert world.counts_of(other) == world.expected()


def test_on_kafka_groups_and_transactions_have_the_name_of_their_application(
    tmp_path: Path, on_kafka: Place
) -> None:
    with Shared(tmp_path, on_kafka) as world:
        names = world.name, f"{world.name}.by"
        world.send(10)
        groups_after = []
        for name in names:
            world.start(name, "caught-up").wait(WAIT_S)
            admin = AdminClient(world.settings)
            listed = admin.list_consumer_groups().result(WAIT_S).valid
            groups_after.append({group.group_id for group in listed if group.group_id.startswith(world.name)})
        expected = [{f"{name}.{part}" for part in ("coordinator", "source", "again", "by%2Eagain")} for name in names]
        assert groups_after == [expected[0], expected[0] | expected[1]]
        assert not expected[0] & expected[1], '"a" with "by.again" and "a.by" with "again"'


def test_a_stream_that_is_the_other_s_is_not_taken(world: Shared) -> None:
    """`a` with `b-c` and `a-b` with `c` would have one stream: the second to start is refused, and nothing is done."""

    def app(name: str) -> hr.App:
        made = world.app(name)
        rows = made.stream(f"{world.name}-in", key=hr.String(), value=hr.Long())
        for short in ("c", "b-c"):
            rows.repartition(name=short).group_by_key().count(store=f"{short}-n")
        return made

    world.send(20)
    world.run(app(world.name))
    before = {stream.name for stream in world.system.streams()}
    with pytest.raises(hr.IncompatibleChangeError) as error:
        world.run(app(f"{world.name}-b"))
    shared = f"{world.name}-b-c-repartition"
    assert f"stream {shared!r} exists, but is not a repartition stream of application '{world.name}-b'" in str(error.value)
    assert f"(it belongs to '{world.name}')" in str(error.value)
    assert {stream.name for stream in world.system.streams()} == before
    world.run(app(world.name))
