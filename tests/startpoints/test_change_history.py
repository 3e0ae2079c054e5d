"""The history of a job: what has changed its plan, on either system; and requests that cannot be done while it runs."""

from __future__ import annotations

from pathlib import Path

from headrace.codec.job_records import PARTITION_CHECKS, expansion_request, history_of
from headrace.model.change import Change, ChangeKind, Outcome
from headrace.model.startpoint import PositionType, StartpointStatus
from startpoints.world import PassingWorld
from support.world import waited

HOUR_S = 3600.0


def entries(world: PassingWorld) -> list[Change]:
    return list(history_of(world.system.metadata_store(world.name)).values())


def test_a_startpoint_that_cannot_be_done_is_refused_on_record_and_the_job_keeps_running(world: PassingWorld) -> None:
    world.create(2)
    world.send(10)
    with world.running(world.passing()) as job:
        waited(world.is_at_its_end, job)
        bad, good = world.ask(
            world.entry(PositionType.SPECIFIC_OFFSET, 0, 1_000_000), world.entry(PositionType.EARLIEST, 1)
        )
        waited(lambda: world.status(bad) is StartpointStatus.REFUSED and world.status(good) is not None, job)
        waited(lambda: len(world.processed_by_place()[world.input, 1]) == 20, job)
        world.send(5)
        waited(lambda: world.is_at_its_end() and world.requests() == 0, job)
        refused = [one for one in entries(world) if one.outcome is Outcome.REFUSED]
    assert [(one.kind, one.requested_by) for one in refused] == [(ChangeKind.STARTPOINT, "a tester")]
    assert bad in refused[0].what and "1000000" in refused[0].why
    applied = [one for one in entries(world) if good in one.what]
    assert [(one.outcome, one.requested_by) for one in applied] == [(Outcome.APPLIED, "a tester")]
    assert len(world.processed()) == 10 + 10 + 10 + 5 + 5


def test_the_history_says_who_expanded_a_stream_from_what_to_what_and_how_long_the_pause_was(world: PassingWorld) -> None:
    world.create(2)
    world.send(10)
    with world.running(world.passing(partition_check_interval_s=HOUR_S)) as job:
        waited(world.is_at_its_end, job)
        world.system.expand_stream(world.input, 4)
        request = expansion_request(world.input, 4, "ann@desk")
        world.system.metadata_store(world.name).request(PARTITION_CHECKS, request)
        waited(lambda: entries(world)[-1].pause_us is not None, job)
        world.send(10)
        waited(world.is_at_its_end, job)
    start, expansion = entries(world)
    assert (start.kind, start.after, start.pause_us) == (ChangeKind.START, "job model 1", None)
    assert (expansion.kind, expansion.what, expansion.outcome) == (
        ChangeKind.EXPANSION,
        f"stream {world.input}",
        Outcome.APPLIED,
    )
    assert (expansion.before, expansion.after, expansion.requested_by) == ("2 partitions", "4 partitions", "ann@desk")
    assert expansion.pause_us is not None and 0 < expansion.pause_us < 60_000_000
    assert expansion.at_us >= start.at_us and expansion.job_model == 2
    assert len(world.processed()) == 20 + 40


def test_a_startpoint_that_a_later_one_replaces_is_superseded(world: PassingWorld) -> None:
    world.create(2)
    world.send(10)
    world.run(world.passing())
    (early,) = world.ask(world.entry(PositionType.SPECIFIC_OFFSET, 0, 3))
    (late,) = world.ask(world.entry(PositionType.EARLIEST, 0))
    world.run(world.passing())
    outcomes = {one.what.split()[1]: one.outcome for one in entries(world) if one.kind is ChangeKind.STARTPOINT}
    assert outcomes == {early: Outcome.SUPERSEDED, late: Outcome.APPLIED}


def test_who_has_expanded_a_stream_is_known_at_a_start_and_is_not_blamed_for_another_growth(world: PassingWorld) -> None:
    world.create(2)
    world.send(5)
    world.run(world.passing())
    metadata = world.system.metadata_store(world.name)
    for partitions, who in ((4, "ann@desk"), (8, "")):
        world.system.expand_stream(world.input, partitions)
        metadata.request(PARTITION_CHECKS, expansion_request(world.input, 4, "ann@desk"))
        world.run(world.passing())
        assert (entries(world)[-1].after, entries(world)[-1].requested_by) == (f"{partitions} partitions", who)


def test_an_entry_survives_the_driver_that_wrote_it(world: PassingWorld, tmp_path: Path) -> None:
    world.create(2)
    world.send(3)
    world.run(world.passing())
    before = entries(world)
    world.run(world.passing())
    assert entries(world) == before, "nothing has changed: no entry is added"
    assert [one.what for one in before] == ["first start"]
