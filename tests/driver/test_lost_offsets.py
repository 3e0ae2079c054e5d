"""Records that are gone before they were read: named and refused, or passed over, counted and noted. On both systems."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

import headrace as hr
from headrace.core.rounds.lost_offsets import described, lost_offsets
from headrace.core.rounds.offset_ranges import OffsetRange
from headrace.driver.rounds import round_planner
from headrace.errors import OffsetOutOfRangeError
from headrace.model.streams import SSP
from support.world import Place, World, source_of, started

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


class Copying(World):
    """One stream of one partition, and an application that copies it."""

    STREAMS: ClassVar = {"in": 1}
    KEYS: ClassVar = {"trigger_interval_ms": 20}

    def __init__(self, folder: Path, place: Place) -> None:
        super().__init__(folder, place)
        self.input = self.stream("in")

    def send(self, *values: str) -> None:
        """One transaction, and on Kafka one offset more, for its marker."""
        self.system.produce(self.input, [(value.encode(), value.encode()) for value in values])

    def end(self) -> int:
        return int(self.system.end_offsets(self.input)[0])

    def app(self, **keys: Any) -> hr.App:
        app = super().app(**keys)
        app.stream(self.input).map_values(lambda r: r.value, value=hr.Bytes()).to(self.stream("out"))
        return app

    def run(self, **keys: Any) -> dict[str, Any]:
        return source_of(super().run(self.app(**keys)))

    def read(self) -> list[bytes]:
        return [record.value for record in super().read("out", hr.Bytes(), hr.Bytes())]


WORLD = Copying


def test_by_default_it_is_refused_at_the_start_with_the_range_and_the_ways_out(world: Copying) -> None:
    world.send("a")
    world.run()
    position = world.end()
    world.send("b", "c", "d")
    world.system.purge(world.input, {0: position + 2})
    with pytest.raises(OffsetOutOfRangeError) as refused:
        world.run()
    assert f"{world.input!r} partition 0" in str(refused.value)
    assert f"2 offsets were deleted before they were processed ({position} to {position + 1})" in str(refused.value)
    assert "on_lost_offsets=earliest" in str(refused.value)
    assert world.read() == [b"a"]
    with pytest.raises(OffsetOutOfRangeError):  # nothing was stored by the refusal
        world.run()


@pytest.mark.parametrize(("policy", "read"), [("earliest", [b"a", b"d", b"e"]), ("latest", [b"a", b"e"])])
def test_it_goes_on_behind_what_is_gone_counts_it_and_says_so(world: Copying, policy: str, read: list[bytes]) -> None:
    world.send("a")
    world.run()
    position = world.end()
    world.send("b", "c", "d")
    world.system.purge(world.input, {0: position + 2})
    status = world.run(on_lost_offsets=policy)
    passed_over = (position + 2 if policy == "earliest" else world.end()) - position
    assert status["counters"]["lost_offsets"] == passed_over
    assert status["notes"] == [described(OffsetRange(SSP("x", world.input, 0), position, position + passed_over), policy)]
    world.send("e")
    status = world.run(on_lost_offsets=policy)
    assert "lost_offsets" not in status["counters"]
    assert world.read() == read


def test_a_stream_that_is_empty_now_is_passed_over_too(world: Copying) -> None:
    world.send("a")
    world.run()
    position = world.end()
    world.send("b", "c")
    world.system.purge(world.input, {0: world.end()})
    status = world.run(on_lost_offsets="earliest")
    assert status["counters"]["lost_offsets"] == world.end() - position
    assert status["lag"] == 0
    assert "lost_offsets" not in world.run(on_lost_offsets="fail")["counters"]  # its position has moved past


@pytest.mark.parametrize("policy", ["fail", "earliest"])
def test_what_goes_while_the_job_runs_is_met_by_the_round_or_the_next_look(
    world: Copying, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the plan and the reading: the plan has asked for the beginnings, and they have moved since."""
    world.send("a")
    job = started(world.app(on_lost_offsets=policy))
    while not world.read():
        assert job.is_running
    position, planned = world.end(), round_planner.RoundPlanner._planned

    def purged_before(self: Any, *arguments: Any) -> Any:
        monkeypatch.setattr(round_planner.RoundPlanner, "_planned", planned)
        world.send("b", "c", "d")
        world.system.purge(world.input, {0: position + 2})
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
