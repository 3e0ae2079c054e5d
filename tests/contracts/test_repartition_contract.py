"""What a job makes of its repartition streams, on every system: partitions as counted, and as partitioners say."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

import headrace as hr
from headrace.core.keys.hashing import partition_of
from support.world import World

RECORDS = [(f"k{i % 7}", i) for i in range(60)]


class Regrouping(World):
    """One input of 2 partitions, and a job on it."""

    STREAMS: ClassVar = {"in": 2}
    KEYS: ClassVar = {}

    def app(self, build: Callable[[hr.KStream], object]) -> hr.App:
        app = super().app()
        build(app.stream(self.stream("in"), key=hr.String(), value=hr.Long()))
        return app

    def run(self, build: Callable[[hr.KStream], object]) -> list[str]:
        """Run until caught up; what the job said."""
        said: list[str] = []
        super().run(self.app(build), log=said.append)
        return said

    def internal(self, short: str) -> str:
        return f"{self.name}-{short}-repartition"

    def produce(self) -> None:
        self.produce_to("in", RECORDS)

    def streams(self) -> dict[str, int]:
        """The streams of this test to the number of their partitions, but for the input."""
        mine = {s.name: s.partitions for s in self.system.streams() if s.name.startswith(f"{self.name}-")}
        del mine[self.stream("in")]
        return mine


WORLD = Regrouping


def explicit(count: int) -> Callable[[hr.KStream], object]:
    def build(stream: hr.KStream) -> None:
        stream.repartition(hr.Repartitioned.with_("again", count)).group_by_key().count(store="n").to_stream().to(
            f"{stream.app.name}-out"
        )

    return build


def hinted(count: int | None) -> Callable[[hr.KStream], object]:
    options = hr.Repartitioned(name="again", number_of_partitions=count)

    def build(stream: hr.KStream) -> None:
        stream.group_by(lambda r: r.key, options, key=hr.String()).count(store="n")

    return build


def test_an_existing_stream_with_another_count_than_asked_for_stops_the_start_before_anything_happens(
    world: Regrouping,
) -> None:
    stream = world.internal("again")
    world.system.create_stream(stream, 6, internal_of=world.name)
    world.produce()
    before = world.streams()
    with pytest.raises(hr.IncompatibleChangeError) as error:
        world.run(explicit(4))
    text = str(error.value)
    assert f"repartition stream {stream!r} exists with 6 partitions, but the application requests 4" in text
    for way in ("request 6", "leave the number out", "another name", "delete it"):
        assert way in text
    assert world.streams() == before
    job_store = world.system.job_store(world.name)
    assert (job_store.job_model(), job_store.checkpoints()) == (None, {})
    assert not any(world.system.end_offsets(stream).values())
    world.run(explicit(6))
    assert {r.key: r.value for r in world.read("out")} == Counter(key for key, _ in RECORDS)


def test_a_hint_counts_for_a_new_stream(world: Regrouping) -> None:
    said = world.run(hinted(5))
    assert world.streams()[world.internal("again")] == 5
    assert not [text for text in said if "hint" in text]


def test_of_an_existing_stream_a_hint_takes_the_partitions_there_are_and_says_both_counts(world: Regrouping) -> None:
    stream = world.internal("again")
    world.produce()
    world.run(hinted(None))
    assert world.streams()[stream] == 2  # inherited
    said = world.run(hinted(5))
    assert world.streams()[stream] == 2
    assert [text for text in said if "hint" in text] == [
        f"repartition stream {stream} has 2 partitions, not the 5 of its grouping's hint: that is for a new stream"
    ]


def odd_out(record: hr.Record, partitions: int) -> int | list[int] | None:
    """Multiples of 3 to none, of 5 to two partitions, of 7 by their key, the others by their value."""
    if record.value % 3 == 0:
        return []
    if record.value % 7 == 0:
        return None
    return [0, partitions - 1] if record.value % 5 == 0 else record.value % partitions


def test_a_partitioner_says_where_records_go_and_state_is_found_there(world: Regrouping) -> None:
    def build(stream: hr.KStream) -> None:
        again = stream.repartition(hr.Repartitioned(name="again", number_of_partitions=4, partitioner=odd_out))
        again.map_values(lambda r: r.value * 10 + r.partition, value=hr.Long()).to(
            f"{stream.app.name}-out", partitioner=lambda r, n: r.value % 10
        )
        again.group_by_key().count(store="n")

    world.produce()
    world.run(build)
    chosen = {value: odd_out(hr.Record(value=value), 4) for _, value in RECORDS}
    assert None in chosen.values()
    by_key = {value: partition_of(key.encode(), 4) for key, value in RECORDS}
    lists = {v: [by_key[v]] if one is None else one if isinstance(one, list) else [one] for v, one in chosen.items()}
    expected = [(key, value, p) for key, value in RECORDS for p in lists[value]]
    found = [(r.key, r.value // 10, r.partition) for r in world.read("out")]
    assert sorted(found) == sorted(expected)
    by_key_and_place = Counter((key, p) for key, _, p in expected)
    state = world.app(build).state("n")
    for key in {key for key, _ in RECORDS}:
        entries = {entry.task: entry.value for entry in state.entries(key)}
        assert entries == {f"again/Partition_{p}": n for (k, p), n in by_key_and_place.items() if k == key}


def test_state_is_not_carried_over_to_another_way_of_partitioning(world: Regrouping) -> None:
    def partitioned(partitioner: Any) -> Callable[[hr.KStream], object]:
        options = hr.Repartitioned(name="again", partitioner=partitioner)
        return lambda stream: stream.repartition(options).group_by_key().count(store="n")

    world.produce()
    world.run(partitioned(None))
    with pytest.raises(hr.IncompatibleChangeError, match=rf"'{world.internal('again')}' was written by the key, and is now"):
        world.run(partitioned(lambda r, n: 0))
    world.run(partitioned(None))


def test_by_default_records_land_where_any_producer_would_put_them(world: Regrouping) -> None:
    world.produce()
    world.run(lambda stream: stream.repartition(hr.Repartitioned.with_("again", 5)).to(f"{stream.app.name}-out"))
    found = world.read("out")
    assert {(r.key, r.partition) for r in found} == {(key, partition_of(key.encode(), 5)) for key, _ in RECORDS}
    for key in {key for key, _ in RECORDS}:  # of one key in the order in which they were read
        assert [r.value for r in found if r.key == key] == [value for k, value in RECORDS if k == key]


class Summing(hr.Processor[str, int, str, dict]):
    """What `aggregate(n=hr.count(), total=hr.sum("value"), last=hr.last("offset"))` gives with every update."""

    stores = (hr.KeyValueStore("own", value=hr.Json()),)

    def process(self, record: hr.Record) -> None:
        before = self.context.store("own").get(default={"n": 0, "total": 0})
        after = {"n": before["n"] + 1, "total": before["total"] + record.value, "last": record.offset}
        self.context.store("own").put(after)
        self.context.forward(value=after)


def test_a_processor_behind_a_repartition_is_record_for_record_an_aggregation(world: Regrouping) -> None:
    """The motivation of KIP-221, over several runs, the local stores deleted in between."""

    def build(stream: hr.KStream) -> None:
        app, group = stream.app, hr.Repartitioned(name="again", key_serde=hr.String(), number_of_partitions=3)
        again = stream.repartition(lambda r: str(r.value % 5), group)
        again.process(Summing, name="summing", value=hr.Json()).to(f"{app.name}-own")
        named = {"n": hr.count(), "total": hr.sum("value"), "last": hr.last("offset")}
        again.group_by_key().aggregate(store="ours", **named).to_stream(emit="each").to(f"{app.name}-ours")

    for _ in range(3):
        world.produce()
        world.run(build)
        shutil.rmtree(world.folder / "stores")
    found = {part: list(world.system.consume(f"{world.name}-{part}", hr.String(), hr.Json())) for part in ("own", "ours")}
    own, ours = (
        {key: [(r.partition, r.value, r.timestamp_us) for r in records if r.key == key] for key in "01234"}
        for records in found.values()
    )
    assert own == ours
    values = [value for _, value in RECORDS]
    for key in "01234":
        mine = [value for value in values if str(value % 5) == key]
        assert [value["n"] for _, value, _ in own[key]] == list(range(1, 3 * len(mine) + 1))
        assert own[key][-1][1]["total"] == 3 * sum(mine)
        assert world.app(build).state("own").get(key) == world.app(build).state("ours").get(key) == own[key][-1][1]
