"""`for_each_round` on Kafka under SIGKILL: the same id comes with the same records, and a sink that replaces by id has each
record once; between two containers of a round, between the function and the commit, and of a worker."""

from __future__ import annotations

import json
import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import headrace as hr
from kafka_faults.family import ended, family_of
from kafka_faults.for_each_child import Run
from support.children import Children, sprung

pytestmark = [pytest.mark.chaos, pytest.mark.spark, pytest.mark.timeout(900)]
SCRIPT = Path(__file__).with_name("for_each_child.py")
RECORDS = 70
WAIT_S = 240


class World:
    """A topic of two partitions with records, written in pieces so that transaction markers lie between them."""

    def __init__(self, url: str, system: Any, folder: Path, children: Children) -> None:
        self.servers, self.system, self.folder, self.children = url.removeprefix("kafka://"), system, folder, children
        self.name = f"sink-{uuid.uuid4().hex[:8]}"
        system.create_stream(f"{self.name}-in", 2)
        for start in range(0, RECORDS, 14):
            records = [(f"k{i}", {"id": i}) for i in range(start, start + 14)]
            system.produce(f"{self.name}-in", records, key=hr.String(), value=hr.Json())

    def run_of(self, **options: Any) -> Run:
        return Run(self.name, self.servers, str(self.folder), **self.children.files(), **options)

    def written(self) -> list[int]:
        """What the output beside the sink has got."""
        return sorted(r.value["id"] for r in self.system.consume(f"{self.name}-out", hr.String(), hr.Json()))

    def calls(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]


@contextmanager
def killed(children: Children, driver: int) -> Iterator[None]:
    """Kill a driver in the end, and what is left of its processes: a worker that is stopped does not end by itself."""
    try:
        yield
    finally:
        below = family_of(driver).below
        os.kill(driver, signal.SIGKILL)
        code = children.wait(driver)
        ended(below, 5)
    assert code == -signal.SIGKILL, f"the driver ended with {code} before it was killed"


def wait_until(condition: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s, "it took too long"
        time.sleep(0.1)


def said(run: Run) -> str:
    return Path(f"{run.report}.said").read_text()[-3000:]


def test_an_id_has_the_same_records_and_none_is_lost_whoever_is_killed(tmp_path: Path, kafka_server: Any) -> None:
    url = f"kafka://{kafka_server.bootstrap}"
    with hr.open_system(url) as system, Children(tmp_path, SCRIPT) as children:
        world = World(url, system, tmp_path, children)
        # one container of the first round has committed, the other has not: its worker stands still before it writes
        run = world.run_of(traps=f"stop:kafka:4:2@{tmp_path / 'stopped'}")
        with killed(children, children.start(run)):
            wait_until(lambda: sprung(run) and world.written())
        halves = world.written()
        assert [call["round"] for call in world.calls()] == [0]
        assert 0 < len(halves) < len(world.calls()[0]["rows"])
        # the function has written, and nothing is committed
        run = world.run_of(kill_at=3)
        assert children.finish(run) == -signal.SIGKILL, said(run)
        # a worker that has committed and dies before it can say so: Spark runs its task again
        run = world.run_of(traps=f"kill:kafka:10:1@{tmp_path / 'committed'}")
        assert children.finish(run) == 0, said(run)
        calls = world.calls()
        by_id: dict[int, list[Any]] = {}
        for call in calls:
            by_id.setdefault(call["round"], []).append(call["rows"])
        assert [call["round"] for call in calls][:4] == [0, 1, 2, 2], "again only where nothing was committed"
        for number, rows in by_id.items():
            assert all(one == rows[0] for one in rows), f"the id {number} came with other records"
        assert list(by_id) == list(range(len(by_id)))
        handed = sorted(row[2] for rows in by_id.values() for row in rows[0])
        files = sorted((tmp_path / "out").glob("round=*/*.parquet"))
        stored = sorted(number for file in files for number in pq.read_table(file).column("id").to_pylist())
        assert handed == stored == world.written() == list(range(RECORDS))
