"""A stream that a job writes to gets more partitions while it runs: from the next plan on its records go by the new count."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from support.world import waited

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]
WAIT_S = 100.0


def keys_of(world: Any, stream: str, partition: int) -> set[str]:
    return {record.key for record in world.system.consume(stream, key=hr.String(), partitions=[partition])}


def test_records_go_to_all_partitions_of_a_stream_that_grew(world: Any) -> None:
    world.system.create_stream("out", 1)
    world.system.create_stream("as-others-write", 4)
    before, after = ([(f"{when}-{n}", n) for n in range(20)] for when in ("before", "after"))
    app = world.app(partition_check_interval_s=0.1)
    app.stream("in", key=hr.String(), value=hr.Json()).filter(lambda record: True).to("out")
    job = app.start()
    try:
        world.system.produce("in", before, key=hr.String(), value=hr.Json())
        waited(lambda: len(world.read("out")) == len(before), wait_s=WAIT_S, otherwise="no output")
        world.system.expand_stream("out", 4)
        counts = lambda: job.plan.programs[None].partition_counts["out"]  # noqa: E731
        waited(lambda: counts() == 4, wait_s=WAIT_S, otherwise="no new plan")
        for stream in ("in", "as-others-write"):
            world.system.produce(stream, after, key=hr.String(), value=hr.Json())
        waited(lambda: len(world.read("out")) == len(before) + len(after), wait_s=WAIT_S, otherwise="no output")
    finally:
        job.stop()
    found = {number: keys_of(world, "out", number) for number in range(4)}
    found[0] -= {key for key, _ in before}
    assert found == {number: keys_of(world, "as-others-write", number) for number in range(4)}
