"""A loop on Kafka: `until="caught-up"` ends once nothing of the job's own is left to be read, markers left out."""

from __future__ import annotations

import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from support.world import caught_up

TEXT, NUMBER = hr.String(), hr.Long()


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_a_loop_is_read_to_its_fixed_point(kafka_server: Any, tmp_path: Path, guarantee: str) -> None:
    name = f"loop-{uuid.uuid4().hex[:6]}"
    url, stream = f"kafka://{kafka_server.bootstrap}", f"{name}-numbers"
    app = hr.App(name, url, state_uri=f"{tmp_path}/state", local_store_dir=f"{tmp_path}/stores", processing_guarantee=guarantee)
    numbers = app.stream(stream, key=TEXT, value=NUMBER).filter(lambda r: r.value > 0).repartition(name="across")
    numbers.map_values(lambda r: r.value - 1, value=NUMBER).to(stream, feedback=True)
    with hr.open_system(url) as system:
        system.create_stream(stream, 2)
        system.produce(stream, [("a", 3), ("b", 0), ("c", 1)], TEXT, NUMBER)
        caught_up(app)
        found = Counter((r.key, r.value) for r in system.consume(stream, TEXT, NUMBER))
        assert found == Counter([("a", 3), ("a", 2), ("a", 1), ("a", 0), ("b", 0), ("c", 1), ("c", 0)])


class Ticking(hr.Processor[str, int, str, int]):
    def init(self, context: Any) -> None:
        self.context = context
        context.schedule("1 ms", lambda at_us: context.forward(key="tick", value=-1), clock="wall")

    def process(self, record: Any) -> None:
        self.context.forward(value=record.value)


def test_punctuations_by_the_wall_clock_do_not_keep_it_from_its_end(kafka_server: Any, tmp_path: Path) -> None:
    name = f"ticking-{uuid.uuid4().hex[:6]}"
    url, stream = f"kafka://{kafka_server.bootstrap}", f"{name}-numbers"
    app = hr.App(name, url, state_uri=f"{tmp_path}/state", local_store_dir=f"{tmp_path}/stores")
    ticked = app.stream(stream, key=TEXT, value=NUMBER).process(Ticking, key=TEXT, value=NUMBER).repartition(name="across")
    ticked.process(Ticking, key=TEXT, value=NUMBER, name="again").to(f"{name}-out")
    with hr.open_system(url) as system:
        system.create_stream(stream, 2)
        system.create_stream(f"{name}-out", 1)
        system.produce(stream, [("a", 3), ("b", 0), ("c", 1)], TEXT, NUMBER)
        for _ in range(2):
            job = caught_up(app)
            assert [sub["lag"] for sub in job.status()["sub_topologies"].values()] == [0, 0]
        found = Counter(r.value for r in system.consume(f"{name}-out", TEXT, NUMBER))
        assert found[-1] > 0 and [found[value] for value in (3, 0, 1)] == [1, 1, 1]
