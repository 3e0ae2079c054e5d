"""On Kafka: versions of the state are on record from run to run, old heads open, and a task goes back to one of them."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import headrace as hr
from headrace.codec.job_records import STATE_VERSIONS
from headrace.core.rewind.state_history import StateVersion, on_the_line, usable, version_for
from headrace.model.checkpoint import Checkpoint
from headrace.model.streams import SSP
from support.fixtures import only_on
from support.world import World, waited
from versions.going_back import files_named, files_on_disk, go_back, recorded, values_of

KEYS = "abcab"


class Counting(World):
    """A topic of one partition, and a job that counts its keys, run until it is caught up, time after time."""

    STREAMS: ClassVar = {"in": 1}
    KEYS: ClassVar = {
        "keep_state_versions": 4, "keep_state_versions_s": 0, "state_version_interval_s": 0, "trigger_interval_ms": 20
    }

    def run(self) -> Any:
        """Until it is caught up; what the run began with is on record before it ends."""
        app, store, metadata = self.app(), self.system.job_store(self.name), self.system.metadata_store(self.name)
        rows = app.stream(self.stream("in"), key=hr.String(), value=hr.String())
        rows.group_by_key().count(store="counts").to_stream().to(self.stream("out"))
        begun = {StateVersion(one, 0).key for one in store.checkpoints().values()}
        ends = list(self.system.end_offsets(self.stream("in")).values())

        def is_done() -> bool:
            kept = metadata.all(STATE_VERSIONS).keys()
            (checkpoint,) = store.checkpoints().values()
            return list(checkpoint.positions.values()) == ends and bool(kept) and kept >= begun

        with self.running(app) as job:
            waited(is_done, job, 60)
            return job


WORLD, place = Counting, only_on("kafka")


def test_versions_are_kept_from_run_to_run_and_gone_back_to(world: Counting) -> None:
    system, state = world.system, world.folder / "state"
    ssp = SSP("kafka", world.stream("in"), 0)
    for number, key in enumerate(KEYS):
        world.produce_to("in", [(key, "x")], value=hr.String())
        job = world.run()
        program = next(iter(job.plan.programs.values()))
        kept = recorded(system, world.name)
        held = [values_of(one.checkpoint, program, "counts", state) for one in kept]
        assert held == [dict(Counter(KEYS[:count])) for count in range(number + 1)][-3:]
        assert files_named(system, world.name) <= files_on_disk(state, world.name)
    target = kept[-2].checkpoint.positions[ssp]

    def not_after(versions: Any, checkpoint: Checkpoint) -> StateVersion:
        found = version_for(usable(versions, checkpoint, {ssp: 0}), {ssp: target})
        assert found is not None
        return found

    go_back(world.url, world.name, not_after)
    (back,) = system.job_store(world.name).checkpoints().values()
    assert back.positions == {ssp: target}
    assert values_of(back, program, "counts", state) == held[-2]
    world.run()
    (now,) = system.job_store(world.name).checkpoints().values()
    assert values_of(now, program, "counts", state) == dict(Counter(KEYS))
    written = [(r.key, r.value) for r in world.read("out")]
    assert written == [("a", 1), ("b", 1), ("c", 1), ("a", 2), ("b", 2), *[("a", 2), ("b", 2)]]
    assert len(on_the_line(recorded(system, world.name))) <= 3
    assert files_named(system, world.name) <= files_on_disk(state, world.name)
