"""`for_each_round` under SIGKILL: the same id comes with the same records, and a sink that replaces by id has each record
once; between two containers of a round, between the function and the commit, and of a worker."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import headrace as hr
from chaos.for_each_child import Run
from kafka_faults.family import ended, family_of, is_at_rest
from support.children import Children, sprung
from support.forking import said_by
from support.log_states import stored_count
from support.world import Place, World, waited

pytestmark = [pytest.mark.chaos, pytest.mark.spark, pytest.mark.timeout(900)]
SCRIPT = Path(__file__).with_name("for_each_child.py")
RECORDS = 70
WAIT_S = 240


class Sinking(World):
    """An input with records, written in pieces so that on Kafka transaction markers lie between them."""

    def fill(self, partitions: int, records: int) -> None:
        self.system.create_stream(self.stream("in"), partitions)
        for start in range(0, records, 14):
            rows = [(f"k{i}", {"id": i}) for i in range(start, min(start + 14, records))]
            self.produce_to("in", rows, value=hr.Json())

    def run_of(self, **options: Any) -> Run:
        return Run(self.name, self.url, str(self.folder), **self.children.files(), **options)

    def written(self) -> list[int]:
        """What the output beside the sink has got."""
        return sorted(row.value["id"] for row in self.read("out", hr.Json()))

    def calls(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]

    def rescale(self, factors: Sequence[int]) -> None:
        with hr.elasticity(self.name, self.url) as scales:
            for factor in factors:
                scales.set(factor)

    def tasks(self) -> list[str]:
        """Those that have checkpoints."""
        return [task.rpartition("/")[2] for task in self.checkpoints()]

    def stored(self) -> list[int]:
        """What the sink holds."""
        files = sorted((self.folder / "out").glob("round=*/*.parquet"))
        return sorted(number for file in files for number in pq.read_table(file).column("id").to_pylist())

    def judge(self) -> None:
        """Each id has come with the same records, no record under two ids, and all that there is has been counted once."""
        calls = self.calls()
        by_id: dict[int, list[Any]] = {}
        for call in calls:
            by_id.setdefault(call["round"], []).append(call["rows"])
        assert [call["round"] for call in calls][:4] == [0, 1, 2, 2], "again only where nothing was committed"
        for number, rows in by_id.items():
            assert all(one == rows[0] for one in rows), f"the id {number} came with other records"
        assert list(by_id) == list(range(len(by_id)))
        handed = sorted(row[2] for rows in by_id.values() for row in rows[0])
        assert handed == self.stored() == self.written() == list(range(RECORDS))
        counts = {key: stored_count(value) for (key, _), value in self.state("counts").items()}
        assert counts == {f"k{number}".encode(): 1 for number in range(RECORDS)}


@pytest.fixture
def sink_children(tmp_path: Path) -> Iterator[Children]:
    with Children(tmp_path, SCRIPT) as children:
        yield children


@pytest.mark.soak
def test_a_sink_that_replaces_by_id_has_each_record_once_though_the_driver_was_killed(
    tmp_path: Path, sink_children: Children
) -> None:
    with Sinking(tmp_path, Place(), sink_children) as world:
        world.fill(1, 27)
        for kill_at, code in ((2, -signal.SIGKILL), (0, 0)):
            run = world.run_of(kill_at=kill_at, round_records=10)
            assert sink_children.finish(run) == code, said(run)
        calls = world.calls()
        assert [call["round"] for call in calls] == [0, 1, 1, 2]
        assert calls[1] == calls[2], "the same id came with other records"
        assert world.stored() == world.written() == list(range(27))


@contextmanager
def standing_still(children: Children, driver: int) -> Iterator[None]:
    """Kill a driver as the context begins, while its JVM and its workers stand still, as if their machine did: they end with
    the context. (By themselves they would end when they find out.)"""
    below = family_of(driver).below
    try:
        for pid in below:
            os.kill(pid, signal.SIGSTOP)
        os.kill(driver, signal.SIGKILL)
        assert children.wait(driver) == -signal.SIGKILL
        yield
    finally:
        ended(below, 0)


def stopped_by(run: Run) -> int:
    """The process that stands still at the run's trap."""
    return int(Path(run.steps_log).read_text().split()[-1])


def said(run: Run) -> str:
    return said_by(run).read_text()[-3000:]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("stopped_at", "factors"),
    [(4, ()), (4, (4, 2)), (9, (4, 1))],
)
def test_an_id_has_the_same_records_and_none_is_lost_whoever_is_killed(
    tmp_path: Path, on_kafka: Place, sink_children: Children, stopped_at: int, factors: tuple[int, ...]
) -> None:
    """Where `factors` are given, one is set before each start. A worker of the first driver goes on only in the end: in a
    round whose tasks may no longer be there, before or after it has committed it."""
    children = sink_children
    with Sinking(tmp_path, on_kafka, children) as world:
        world.fill(2, RECORDS)
        # one container of the first round has committed; the worker of the other stands still, before it writes or after
        first = world.run_of(traps=f"stop:kafka:{stopped_at}:2@{tmp_path / 'stopped'}")
        driver = children.start(first)
        waited(lambda: sprung(first) and world.written(), wait_s=WAIT_S)
        with standing_still(children, driver):
            halves = world.written()
            assert [call["round"] for call in world.calls()] == [0]
            assert (0 < len(halves) < len(world.calls()[0]["rows"])) == (stopped_at == 4)
            world.rescale(factors[:1])
            # the function has written, and nothing is committed
            run = world.run_of(kill_at=3)
            assert children.finish(run) == -signal.SIGKILL, said(run)
            world.rescale(factors[1:])
            # a worker that has committed and dies before it can say so: Spark runs its task again
            run = world.run_of(traps=f"kill:kafka:10:1@{tmp_path / 'committed'}")
            assert children.finish(run) == 0, said(run)
            os.kill(stopped_by(first), signal.SIGCONT)
            waited(lambda: is_at_rest(stopped_by(first)), otherwise="the worker that was woken is not done")
        world.judge()
        assert {len(task.split("-")) for task in world.tasks()} == ({3} if factors[1:] == (2,) else {1})
