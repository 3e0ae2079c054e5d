"""Async functions in Python workers of Spark: many at once, in a loop that outlives rounds, and none of a round that ended."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, ClassVar

import pytest

import headrace as hr
from support.world import waited

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


class Enrich(hr.Processor[str, Any, str, Any]):
    """Asks a client that belongs to the loop of its worker process, and counts per key."""

    stores: ClassVar = [hr.KeyValueStore("counts", value=hr.Long())]

    async def process(self, record: hr.Record) -> None:
        loop = self.context.resource(asyncio.get_running_loop)
        assert loop is asyncio.get_running_loop()
        counts = self.context.store("counts")
        count = counts.get(0) + 1
        await asyncio.sleep(record.value % 3 / 1_000)
        counts.put(count)
        self.context.forward(value=[record.value, count])


def test_rounds_cut_and_stopped_lose_no_call_and_repeat_none(world: Any, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    async def slow(record: hr.Record) -> int:
        if record.value >= 60 and not gate.exists():
            (tmp_path / f"began-{record.value}").touch()
            try:
                await asyncio.sleep(60)
            finally:
                (tmp_path / f"ended-{record.value}-{os.getpid()}").touch()
        await asyncio.sleep(0.005)
        return int(record.value)

    def application() -> hr.App:
        app = world.app(max_records_per_round=20)
        rows = app.stream("in", key=hr.String(), value=hr.Json()).map_values(slow, value=hr.Json())
        rows.to("out")
        rows.process(Enrich, name="enrich", value=hr.Json()).to("counts")
        return app  # type: ignore[no-any-return]

    world.produce(list(range(80)))
    job = application().start()
    waited(lambda: len(list(tmp_path.glob("began-*"))) >= 2, job)
    job.stop()
    began = {file.name.split("-")[1] for file in tmp_path.glob("began-*")}
    waited(lambda: {file.name.split("-")[1] for file in tmp_path.glob("ended-*")} == began)
    assert all(value < 60 for value in world.values("out"))
    gate.touch()
    world.run(application())
    assert sorted(world.values("out")) == list(range(80))
    found = [(r.key, r.value) for r in world.read("counts", hr.Json())]
    for number in range(5):
        mine = [value for key, value in found if key == f"k{number}"]
        values = list(range(number, 80, 5))
        assert sorted(value for value, _ in mine) == values  # of a key, which is in one partition, in its order
        assert [count for _, count in mine] == list(range(1, 17))
