"""On Kafka: versions of the state are on record from run to run, old heads open, and a task goes back to one of them."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import headrace as hr
from headrace import wiring
from headrace.core.rewind.state_history import StateVersion, on_the_line, usable, version_for
from headrace.driver.maintenance.state_versions import STATE_VERSIONS
from headrace.model.checkpoint import Checkpoint
from headrace.model.streams import SSP
from headrace.testing import KafkaServer
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine
from versions.going_back import files_named, files_on_disk, go_back, recorded, values_of

KEYS = "abcab"


class World:
    """A topic of one partition, and a job that counts its keys, run until it is caught up, time after time."""

    def __init__(self, server: KafkaServer, folder: Path) -> None:
        self.url, self.name = f"kafka://{server.bootstrap}", f"versions-{uuid.uuid4().hex[:8]}"
        self.state = folder / "state"
        self.app = hr.App(
            self.name,
            self.url,
            local_store_dir=str(folder / "stores"),
            state_uri=str(self.state),
            keep_state_versions=4,
            keep_state_versions_s=0,
            state_version_interval_s=0,
            trigger_interval_ms=20,
        )
        rows = self.app.stream(f"{self.name}-in", key=hr.String(), value=hr.String())
        rows.group_by_key().count(store="counts").to_stream().to(f"{self.name}-out")

    def run(self, system: Any) -> Any:
        """Until it is caught up; what the run began with is on record before it ends."""
        begun = {StateVersion(one, 0).key for one in system.job_store(self.name).checkpoints().values()}
        ends = list(system.end_offsets(f"{self.name}-in").values())
        job = wiring.start(self.app, engine=InlineEngine(run_container))
        try:
            deadline_s = time.monotonic() + 60
            while time.monotonic() < deadline_s:
                kept = system.metadata_store(self.name).all(STATE_VERSIONS).keys()
                (checkpoint,) = system.job_store(self.name).checkpoints().values()
                if list(checkpoint.positions.values()) == ends and kept and kept >= begun:
                    return job
                assert job.is_running, job.wait(0)
                time.sleep(0.05)
            raise AssertionError(f"not caught up: {checkpoint.positions}, {ends}, {kept}, {begun}")
        finally:
            job.stop()


def test_versions_are_kept_from_run_to_run_and_gone_back_to(kafka_server: KafkaServer, tmp_path: Path) -> None:
    world = World(kafka_server, tmp_path)
    ssp = SSP("kafka", f"{world.name}-in", 0)
    with hr.open_system(world.url) as system:
        system.create_stream(f"{world.name}-in", 1)
        for number, key in enumerate(KEYS):
            system.produce(f"{world.name}-in", [(key, "x")], key=hr.String(), value=hr.String())
            job = world.run(system)
            program = next(iter(job.plan.programs.values()))
            kept = recorded(system, world.name)
            held = [values_of(one.checkpoint, program, "counts", world.state) for one in kept]
            assert held == [dict(Counter(KEYS[:count])) for count in range(number + 1)][-3:]
            assert files_named(system, world.name) <= files_on_disk(world.state, world.name)
        target = kept[-2].checkpoint.positions[ssp]

        def not_after(versions: Any, checkpoint: Checkpoint) -> StateVersion:
            found = version_for(usable(versions, checkpoint, {ssp: 0}), {ssp: target})
            assert found is not None
            return found

        go_back(world.url, world.name, not_after)
        (back,) = system.job_store(world.name).checkpoints().values()
        assert back.positions == {ssp: target}
        assert values_of(back, program, "counts", world.state) == held[-2]
        world.run(system)
        (now,) = system.job_store(world.name).checkpoints().values()
        assert values_of(now, program, "counts", world.state) == dict(Counter(KEYS))
        written = [(r.key, r.value) for r in system.consume(f"{world.name}-out", key=hr.String(), value=hr.Long())]
        assert written == [("a", 1), ("b", 1), ("c", 1), ("a", 2), ("b", 2), *[("a", 2), ("b", 2)]]
        assert len(on_the_line(recorded(system, world.name))) <= 3
        assert files_named(system, world.name) <= files_on_disk(world.state, world.name)
