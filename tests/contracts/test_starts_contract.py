"""`app.stream(start=...)`: every way of saying where a job begins, on every system and under the test driver."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest

import headrace as hr
from headrace.testing import Driver
from support.world import Place, World, waited

T = 1_700_000_000_000_000  # µs, whole ms: Kafka keeps no more
SECOND = 1_000_000
KINDS = hr.PositionType
COUNT = 10  # records in partition 0, a second apart; partition 1 holds three


def at(number: int) -> int:
    return T + number * SECOND


STARTS: list[tuple[Any, list[int], list[int]]] = [
    ("earliest", list(range(10)), [0, 1, 2]),
    (hr.Startpoint(KINDS.EARLIEST), list(range(10)), [0, 1, 2]),
    ("latest", [], []),
    (hr.Startpoint(KINDS.LATEST), [], []),
    (7, [7, 8, 9], []),
    (hr.Startpoint(KINDS.SPECIFIC_OFFSET, 7), [7, 8, 9], []),
    (hr.Startpoint(KINDS.SPECIFIC_OFFSET, 0), list(range(10)), [0, 1, 2]),
    (hr.Startpoint(KINDS.SPECIFIC_OFFSET, 10), [], []),
    (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at(2)), list(range(2, 10)), [2]),
    (hr.Startpoint(KINDS.TIMESTAMP, at(2)), list(range(2, 10)), [2]),
    (hr.Startpoint(KINDS.TIMESTAMP, at(1) + 1000), list(range(2, 10)), [2]),
    (hr.Startpoint(KINDS.TIMESTAMP, at(99)), [], []),
    (hr.Startpoint(KINDS.TIMESTAMP, -(2**63)), list(range(10)), [0, 1, 2]),
    (hr.Startpoint(KINDS.TIMESTAMP, 2**63 - 1), [], []),
    ("bootstrap", list(range(10)), [0, 1, 2]),
    (hr.Startpoint(KINDS.BOOTSTRAP), list(range(10)), [0, 1, 2]),
]


class Passing(World):
    """Streams of two partitions, and an application that passes on what it reads of them."""

    KEYS: ClassVar = {}

    def __init__(self, folder: Path, place: Place) -> None:
        super().__init__(folder, place)
        self.said: list[str] = []

    def fill(self, *streams: str) -> None:
        for stream in streams:
            self.system.create_stream(f"{self.name}-{stream}", 2)
            for partition, count in ((0, COUNT), (1, 3)):
                self.send(stream, partition, *range(count))

    def send(self, stream: str, partition: int, *numbers: int) -> None:
        records = [hr.Record(b"k", f"{stream}/{partition}/{n}".encode(), at(n), partition=partition) for n in numbers]
        self.system.produce(f"{self.name}-{stream}", records)
        self.wait_until_shown(f"{self.name}-{stream}")

    def wait_until_shown(self, stream: str) -> None:
        """On Kafka a commit returns before its records can be read."""
        waited(lambda: self.system.end_offsets(stream) == self.system.high_watermarks(stream))

    def app(self, starts: dict[str, Any], reset_offset: bool = False, **keys: Any) -> hr.App:
        app = super().app(**keys)
        first, *others = [
            app.stream(f"{self.name}-{stream}", start=start, reset_offset=reset_offset) for stream, start in starts.items()
        ]
        for other in others:
            first = first.merge(other)
        first.to(f"{self.name}-out", partitioner=lambda record, n: 0)
        return app

    def run(self, app: hr.App) -> list[str]:
        """Run until caught up; what has been passed on so far, in order."""
        super().run(app, log=self.said.append)
        return self.out()

    def out(self) -> list[str]:
        self.wait_until_shown(f"{self.name}-out")
        return [record.value.decode() for record in self.system.consume(f"{self.name}-out")]


WORLD = Passing


@pytest.mark.parametrize(("start", "of_0", "of_1"), STARTS, ids=[str(start).replace(" ", "") for start, *_ in STARTS])
def test_a_start_is_what_it_says_and_counts_once(world: Passing, start: Any, of_0: list[int], of_1: list[int]) -> None:
    world.fill("in")
    expected = [f"in/{p}/{n}" for p, numbers in ((0, of_0), (1, of_1)) for n in numbers]
    assert sorted(world.run(world.app({"in": start}))) == sorted(expected)
    world.send("in", 0, 10)
    world.send("in", 1, 3)
    new = ["in/0/10", "in/1/3"]  # from then on the stored position counts
    assert sorted(world.run(world.app({"in": start}))) == sorted([*expected, *new])


@pytest.mark.parametrize(("start", "of_0", "of_1"), STARTS, ids=[str(start).replace(" ", "") for start, *_ in STARTS])
def test_a_start_is_the_same_under_the_test_driver(tmp_path: Path, start: Any, of_0: list[int], of_1: list[int]) -> None:
    def passing(name: str, begin: Any) -> hr.App:
        app = hr.App(name)
        app.stream("in", key=hr.String(), value=hr.String(), start=begin).to(f"{name}-out")
        return app

    with Driver(passing("before", "earliest"), partitions=2, directory=tmp_path) as driver:
        for partition, count in ((0, COUNT), (1, 3)):
            for number in range(count):
                driver.send("in", "k", f"{partition}/{number}", at=at(number), partition=partition)
    with Driver(passing("after", start), partitions=2, directory=tmp_path) as driver:
        driver.run()
        found = [record.value for record in driver.read("after-out")]
        assert sorted(found) == sorted(f"{p}/{n}" for p, numbers in ((0, of_0), (1, of_1)) for n in numbers)
        driver.send("in", "k", "new", partition=1)
        driver.run()
        assert [record.value for record in driver.read("after-out")] == ["new"]


def test_an_offset_that_is_not_there_is_the_nearest_and_said(world: Passing) -> None:
    world.fill("in")
    world.run(world.app({"in": hr.Startpoint(KINDS.SPECIFIC_OFFSET, 7)}))
    (said,) = [line for line in world.said if "begins at offset" in line]
    end = world.system.end_offsets(f"{world.name}-in")[1]  # on Kafka behind the marker of a transaction
    where = f"stream '{world.name}-in' partition 1 begins at offset {end}, the nearest to start=7"
    assert said == f"{where}: it holds offsets 0 to {end - 1}"


@pytest.mark.parametrize("start", ["bootstrap", hr.Startpoint(KINDS.BOOTSTRAP)])
@pytest.mark.parametrize("reset_offset", [False, True])
def test_what_is_bootstrapped_is_read_before_any_other_stream(world: Passing, start: Any, reset_offset: bool) -> None:
    world.fill("other", "rules")
    app = world.app({"other": "earliest", "rules": start}, reset_offset, max_records_per_round=2, containers=1)
    found = world.run(app)
    assert rules_first(found)
    again = world.run(app)[len(found) :]
    assert rules_first(again) if reset_offset else again == []


def rules_first(found: list[str]) -> bool:
    """Whether each task, which reads one partition of each, has read all of the one stream, then all of the other."""
    mine = [[text.split("/")[0] for text in found if text.split("/")[1] == str(partition)] for partition in (0, 1)]
    return mine == [["rules"] * count + ["other"] * count for count in (COUNT, 3)]


def test_a_bootstrap_start_is_listed_as_a_startpoint_and_a_users_own_beats_it(world: Passing) -> None:
    world.fill("other", "rules")
    app = world.app({"other": "earliest", "rules": "bootstrap"}, containers=1)
    world.run(app)
    with hr.startpoints(app) as points:
        kinds = [(one.entry.key.ssp.partition, one.entry.startpoint.position_type, one.status) for one in points.list()]
        assert sorted(kinds) == [(0, KINDS.BOOTSTRAP, "applied"), (1, KINDS.BOOTSTRAP, "applied")]
        points.set(f"{world.name}-rules", "latest", partition=0)
    world.send("rules", 1, 3)
    assert world.run(app)[26:] == ["rules/1/3"]


def test_an_empty_stream_holds_nothing_back(world: Passing) -> None:
    world.fill("other")
    world.system.create_stream(f"{world.name}-rules", 2)
    app = world.app({"other": "earliest", "rules": "bootstrap"}, containers=1)
    assert len(world.run(app)) == COUNT + 3
    with hr.startpoints(app) as points:
        assert points.list() == ()


def test_partitions_that_are_born_later_begin_at_their_first_record(world: Passing) -> None:
    world.fill("in")
    app = world.app({"in": hr.Startpoint(KINDS.LATEST)}, settle_time_s=0)
    assert world.run(app) == []
    world.system.expand_stream(f"{world.name}-in", 4)
    world.send("in", 3, 0, 1)
    assert world.run(app) == ["in/3/0", "in/3/1"]


def test_all_forms_are_described(tmp_path: Path) -> None:
    with Passing(tmp_path, Place()) as world:

        def described(start: Any) -> Any:
            return world.app({"in": start}).describe("dict")["sub_topologies"][0]["operators"][0]["start"]

        assert [described(start) for start, *_ in STARTS[:6]] == ["earliest", "earliest", "latest", "latest", 7, 7]
        assert described(hr.Startpoint(KINDS.TIMESTAMP, 5)) == "TIMESTAMP 5"
        assert described("bootstrap") == described(hr.Startpoint(KINDS.BOOTSTRAP)) == "bootstrap"
