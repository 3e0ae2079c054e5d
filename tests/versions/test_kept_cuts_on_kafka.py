"""On Kafka, where each container commits by itself: what a cut says was written lies before it, and all the rest behind."""

from __future__ import annotations

import pytest

from headrace.driver import job as jobs
from support.fixtures import only_on
from support.world import World, waited
from versions.checked_cuts import Checker, application, cuts_on_record, value_of

place = only_on("kafka")


def test_between_rounds_whose_containers_commit_by_themselves_and_when_nothing_runs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All versions are kept, so nothing is purged, and the checker sees everything."""
    monkeypatch.setattr(jobs, "TIDY_S", 0.1)
    name, system, stream = world.name, world.system, world.stream("in")
    every = {"keep_state_versions": 1000, "keep_state_versions_s": 0, "state_version_interval_s": 0}
    places = {"local_store_dir": str(world.folder / "stores"), "state_uri": str(world.folder / "state")}
    often = {"trigger_interval_ms": 10, "max_records_per_round": 12, "containers": 2}
    app = application(name, stream, system=world.url, **often, **places, **every)
    system.create_stream(stream, 2)
    system.produce(stream, [(b"k%d" % n, value_of(n).encode()) for n in range(120)])
    ends = {(stream, partition): end for partition, end in system.end_offsets(stream).items()}

    def is_done() -> bool:
        """The source has read all, and what is behind it what came of that, and cuts of both are on record."""
        cuts = {cut.sub_topology: cut for cut in cuts_on_record(system, name)}  # of each the last
        if cuts.keys() != {None, "first"} or cuts[None].positions != ends:
            return False
        return all(cuts["first"].positions[place] >= end for place, end in cuts[None].ends.items())

    with world.running(app) as job:
        waited(is_done, job, 120)
    checker, cuts = Checker(system), cuts_on_record(system, name)
    assert len([cut for cut in cuts if cut.sub_topology is None]) >= 5
    for cut in cuts:
        checker.judge(cut)
