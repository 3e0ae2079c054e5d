"""`until="caught-up"` ends though the wall clock makes something due again before each round has ended."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from support.world import caught_up

TEXT, NUMBER = hr.String(), hr.Long()


class Ticking(hr.Processor[str, int, str, int]):
    """Forwards records, and one more for each punctuation."""

    def init(self, context: Any) -> None:
        self.context = context
        context.schedule("1 ms", self.tick, clock="wall")

    def tick(self, at_us: int) -> None:
        self.context.forward(key="tick", value=1)

    def process(self, record: Any) -> None:
        self.context.forward(value=record.value)


class Waking(hr.Processor[str, int, str, int]):
    """Forwards records, and one more for each timer, which sets itself again."""

    def process(self, record: Any) -> None:
        self.context.forward(value=record.value)
        self.context.timer("again", after="1 ms", clock="wall")

    def on_timer(self, timer: Any) -> None:
        self.context.forward(value=1)
        self.context.timer("again", after="1 ms", clock="wall")


@pytest.mark.parametrize("processor", [Ticking, Waking])
def test_what_the_wall_clock_makes_due_does_not_keep_a_job_from_its_end(processor: Any, tmp_path: Path) -> None:
    url = f"log:{tmp_path / 'log'}"
    with hr.open_system(url) as system:
        system.create_stream("in", 2)
        system.create_stream("out", 1)
        system.produce("in", [hr.Record(f"k{n}", 0, 0) for n in range(20)], key=TEXT, value=NUMBER)
    app = hr.App("ticking", url, state_uri=str(tmp_path / "state"), local_store_dir=str(tmp_path / "stores"))
    read = app.stream("in", key=TEXT, value=NUMBER)
    ticked = read.process(processor, key=TEXT, value=NUMBER)
    ticked.repartition(hr.Repartitioned(name="ticked")).process(processor, key=TEXT, value=NUMBER, name="again").to("out")
    for _ in range(2):  # the second run begins with what is due, and reads nothing else
        job = caught_up(app)
        with hr.open_system(url) as system:
            found = Counter(r.value for r in system.consume("out", key=TEXT, value=NUMBER))
        assert found[0] == 20
        assert [sub["lag"] for sub in job.status()["sub_topologies"].values()] == [0, 0]
    assert found[1] > 0
