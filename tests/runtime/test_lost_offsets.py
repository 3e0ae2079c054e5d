"""Records that are gone before they were read: named and refused, or passed over, counted and noted. On both systems."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import wiring
from headrace.core.rounds.lost_offsets import described, lost_offsets
from headrace.core.rounds.offset_ranges import OffsetRange
from headrace.driver.rounds import round_planner
from headrace.errors import OffsetOutOfRangeError
from headrace.model.streams import SSP
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine

A, B = SSP("log", "in", 0), SSP("log", "in", 1)


def test_what_is_passed_over_follows_from_positions_and_beginnings() -> None:
    positions, beginnings, ends = {A: 3, B: 8}, {A: 5, B: 8}, {A: 9, B: 9}
    assert lost_offsets(positions, beginnings, ends, "earliest") == (OffsetRange(A, 3, 5),)
    assert lost_offsets(positions, beginnings, ends, "latest") == (OffsetRange(A, 3, 9),)
    assert lost_offsets({A: 5, B: 8}, beginnings, ends, "fail") == ()
    with pytest.raises(OffsetOutOfRangeError, match=r"'in' partition 0: .* 2 offsets were deleted .* \(3 to 4\)"):
        lost_offsets(positions, beginnings, ends, "fail")
    with pytest.raises(OffsetOutOfRangeError, match="3 to 4"):
        lost_offsets(positions, beginnings, ends, "earliest", internal={A})


def test_ends_that_are_older_than_beginnings_do_not_send_it_back() -> None:
    for policy in ("earliest", "latest"):
        assert lost_offsets({A: 3}, {A: 9}, {A: 4}, policy) == (OffsetRange(A, 3, 9),)


def test_partitions_without_a_known_beginning_are_whole() -> None:
    assert lost_offsets({A: 3}, {}, {A: 9}, "fail") == ()


class World:
    """One stream of one partition, in a log or on the broker, and an application that copies it."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder, self.name = url, folder, f"lost-{uuid.uuid4().hex[:8]}"
        self.stream, self.out = f"{self.name}-in", f"{self.name}-out"
        self.system = hr.open_system(url)
        self.system.create_stream(self.stream, 1)

    def send(self, *values: str) -> None:
        """One transaction, and on Kafka one offset more, for its marker."""
        self.system.produce(self.stream, [(value.encode(), value.encode()) for value in values])

    def end(self) -> int:
        return int(self.system.end_offsets(self.stream)[0])

    def start(self, until: str | None = "caught-up", **keys: Any) -> Any:
        app = hr.App(self.name, self.url, local_store_dir=str(self.folder / "stores"), trigger_interval_ms=20, **keys)
        app.stream(self.stream).map_values(lambda r: r.value, value=hr.Bytes()).to(self.out)
        return wiring.start(app, until, engine=InlineEngine(run_container))

    def run(self, **keys: Any) -> dict[str, Any]:
        job = self.start(**keys)
        job.wait(60)
        found: dict[str, Any] = job.status()["sub_topologies"]["source"]
        return found

    def read(self) -> list[bytes]:
        return [record.value for record in self.system.consume(self.out)]


@pytest.fixture(params=["kafka", "log"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    url = f"log:{tmp_path / 'data'}"
    if request.param == "kafka":
        url = f"kafka://{request.getfixturevalue('kafka_server').bootstrap}"
    made = World(url, tmp_path)
    yield made
    made.system.close()


def test_by_default_it_is_refused_at_the_start_with_the_range_and_the_ways_out(world: World) -> None:
    world.send("a")
    world.run()
    position = world.end()
    world.send("b", "c", "d")
    world.system.purge(world.stream, {0: position + 2})
    with pytest.raises(OffsetOutOfRangeError) as refused:
        world.run()
    assert f"{world.stream!r} partition 0" in str(refused.value)
    assert f"2 offsets were deleted before they were processed ({position} to {position + 1})" in str(refused.value)
    assert "on_lost_offsets=earliest" in str(refused.value)
    assert world.read() == [b"a"]
    with pytest.raises(OffsetOutOfRangeError):  # nothing was stored by the refusal
        world.run()


@pytest.mark.parametrize(("policy", "read"), [("earliest", [b"a", b"d", b"e"]), ("latest", [b"a", b"e"])])
def test_it_goes_on_behind_what_is_gone_counts_it_and_says_so(world: World, policy: str, read: list[bytes]) -> None:
    world.send("a")
    world.run()
    position = world.end()
    world.send("b", "c", "d")
    world.system.purge(world.stream, {0: position + 2})
    status = world.run(on_lost_offsets=policy)
    passed_over = (position + 2 if policy == "earliest" else world.end()) - position
    assert status["counters"]["lost_offsets"] == passed_over
    assert status["notes"] == [described(OffsetRange(SSP("x", world.stream, 0), position, position + passed_over), policy)]
    world.send("e")
    status = world.run(on_lost_offsets=policy)
    assert "lost_offsets" not in status["counters"]
    assert world.read() == read


def test_a_stream_that_is_empty_now_is_passed_over_too(world: World) -> None:
    world.send("a")
    world.run()
    position = world.end()
    world.send("b", "c")
    world.system.purge(world.stream, {0: world.end()})
    status = world.run(on_lost_offsets="earliest")
    assert status["counters"]["lost_offsets"] == world.end() - position
    assert status["lag"] == 0
    assert "lost_offsets" not in world.run(on_lost_offsets="fail")["counters"]  # its position has moved past


@pytest.mark.parametrize("policy", ["fail", "earliest"])
def test_what_goes_while_the_job_runs_is_met_by_the_round_or_the_next_look(
    world: World, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the plan and the reading: the plan has asked for the beginnings, and they have moved since."""
    world.send("a")
    job = world.start(None, on_lost_offsets=policy)
    while not world.read():
        assert job.is_running
    position, planned = world.end(), round_planner.RoundPlanner._planned

    def purged_before(self: Any, *arguments: Any) -> Any:
        monkeypatch.setattr(round_planner.RoundPlanner, "_planned", planned)
        world.send("b", "c", "d")
        world.system.purge(world.stream, {0: position + 2})
        return planned(self, *arguments)

    monkeypatch.setattr(round_planner.RoundPlanner, "_planned", purged_before)
    if policy == "fail":
        with pytest.raises(OffsetOutOfRangeError, match=rf"were deleted before .* \({position} to {position + 1}\)"):
            job.wait(60)
        assert world.read() == [b"a"]
        return
    def counted() -> int:
        return job.status()["sub_topologies"]["source"]["counters"].get("lost_offsets", 0)

    while world.read() != [b"a", b"d"] or not counted():  # which is counted when the commit that is read has returned
        assert job.is_running
    assert counted() == 2
    job.stop()
