"""Any sequence of factors, expansions whose producers learn of them late, startpoints for streams and for single virtual tasks,
inputs that are taken out and put back, rewinds, edits of the configuration and restarts in the midst of all that, against a
model that counts.

The model reads the streams and knows, for each startpoint, which records it makes the job read again. It knows nothing of
tasks but which keys a bucket has.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest
import xxhash

import headrace as hr
from elasticity.stepping import checkpoints, replan, rounds
from headrace.testing import Driver

FACTORS = (1, 2, 4, 8)
KEYS = [f"k{number}" for number in range(12)]
TEXT, JSON, LONG = hr.String(), hr.Json(), hr.Long()
PARTITIONS_MAX = 8
STEPS = ("send", "send", "work", "set_factor", "set_factor", "set_factor", "expand", "restart", "edit", "set_back")


class Counting(hr.Processor[Any, Any, Any, Any]):
    """A count by key, given with each record's stream and number."""

    stores: ClassVar = [hr.KeyValueStore("seen", value=LONG)]

    def process(self, record: Any) -> None:
        store = self.context.store("seen")
        store.put((store.get() or 0) + 1)
        self.context.forward(value=[store.get(), *record.value])


def app_of(inputs: tuple[str, ...], factor: int) -> hr.App:
    app = hr.App("histories", elasticity_factor=factor)
    rows = app.stream(inputs[0], key=TEXT, value=JSON)
    for other in inputs[1:]:
        rows = rows.merge(app.stream(other, key=TEXT, value=JSON))
    rows.process(Counting, name="counting", value=JSON).to("out")
    rows.group_by_key().count(store="counts")
    return app


class History:
    """A job, and what it should have made of what it was told. `again`: how often records of a key were to be read again.
    `rewinds`: state is set back together with the positions, so that each record counts once all the same."""

    def __init__(self, folder: Path, draw: Random, *, rewinds: bool) -> None:
        self.folder, self.draw, self.rewinds = folder, draw, rewinds
        self.inputs: tuple[str, ...] = ("in", "more")
        self.configured = self.factor = draw.choice(FACTORS)
        self.partitions = {"in": 1 + draw.randrange(2)}
        self.partitions["more"] = self.partitions["in"]
        self.tasks = self.partitions["in"]
        self.again, self.number = Counter[str](), 0
        self.late: dict[tuple[str, str], int] = {}  # of keys whose producers know an old number of partitions, where they write
        self.driver = self.opened(hr.testing.driver.START)

    def opened(self, start: Any) -> Driver:
        overrides = ["max_records_per_round=7", "keep_state_versions=20", "state_version_interval_s=0"]
        app = app_of(self.inputs, self.configured)
        return Driver(app, start, directory=self.folder, partitions=dict(self.partitions), overrides=overrides).open()

    # --- steps ------------------------------------------------------------------------------------------------------

    def send(self) -> None:
        if self.draw.random() < 0.5:
            self.late = {}
        for _ in range(self.draw.randrange(5, 40)):
            self.number += 1
            stream, key = self.draw.choice(self.inputs), self.draw.choice(KEYS)
            self.driver.send(stream, key, [stream, self.number], partition=self.late.get((stream, key)))

    def work(self) -> None:
        self.driver._flush()
        rounds(self.driver, self.draw.randrange(1, 4))

    def set_factor(self) -> None:
        self.factor = self.draw.choice(FACTORS)
        self.driver.elasticity(self.factor)
        if self.draw.random() < 0.5:
            replan(self.driver)

    def expand(self) -> None:
        stream = self.draw.choice(self.inputs)
        if self.partitions[stream] < PARTITIONS_MAX:
            self.driver._flush()
            there = {key: partition for partition, keys in self.records(stream).items() for key in keys}
            late = self.draw.sample(sorted(there), len(there) // 2)
            self.late |= {(stream, key): self.late.get((stream, key), there[key]) for key in late}
            self.partitions[stream] *= 2
            self.driver.expand(stream, self.partitions[stream])

    def restart(self) -> None:
        self.driver.close()
        self.driver = self.opened(self.driver.now_us)

    def toggle(self) -> None:
        self.drained()  # positions of an input that is out, in tasks that are apart, refuse a merge
        self.inputs = ("in",) if len(self.inputs) == 2 else ("in", "more")
        self.restart()

    def edit(self) -> None:
        self.drained()  # so that no request is open that would be told apart from the edit by its time only
        if (edited := self.draw.choice(FACTORS)) != self.configured:
            self.configured = self.factor = edited
        self.restart()

    def set_back(self) -> None:
        """Set some of what has been read back, and do not read it yet."""
        self.drained()
        self.late = {}  # they have learnt of it before the time that a job waits for them
        stream = self.draw.choice(self.inputs)
        found = self.records(stream)
        partition = self.draw.choice(sorted(found))
        self.driver.advance("2 minutes")
        if not found[partition]:
            return
        offset, task = self.draw.randrange(len(found[partition])), None
        if self.rewinds:
            self.driver.startpoint(stream, offset, partition, state="rewind")
            return
        mine = found[partition][offset:]
        if self.factor > 1 and self.draw.random() < 0.5:
            bucket = self.draw.randrange(self.factor)
            task = f"Partition_{partition % self.tasks}-{bucket}-{self.factor}"
            mine = [key for key in mine if xxhash.xxh64(key.encode(), seed=42).intdigest() % self.factor == bucket]
        self.driver.startpoint(stream, offset, partition, task=task)
        self.again.update(mine)
        if task is not None or self.draw.random() < 0.5:  # one that is not applied yet is for all tasks that have its keys then
            replan(self.driver)
            rounds(self.driver, self.draw.randrange(3))

    # --- judging ----------------------------------------------------------------------------------------------------

    def records(self, stream: str) -> dict[int, list[str]]:
        """By partition the keys of all its records."""
        found: dict[int, list[str]] = {partition: [] for partition in range(self.partitions[stream])}
        for record in self.driver._system.consume(stream, key=TEXT, value=JSON):
            found[record.partition].append(record.key)
        return found

    def drained(self) -> None:
        self.driver.run()
        sent = Counter(key for stream in ("in", "more") for keys in self.records(stream).values() for key in keys)
        expected = dict(sent) if self.rewinds else dict(sent + self.again)
        assert dict(self.driver.store("counts").all()) == expected
        assert dict(self.driver.store("seen").all()) == expected
        assert len(checkpoints(self.driver)) == self.tasks * self.factor
        if not self.rewinds:
            self.judge_outputs(expected)

    def judge_outputs(self, expected: dict[str, int]) -> None:
        given: dict[str, list[Any]] = {}
        for record in self.driver.read("out", from_start=True):
            given.setdefault(record.key, []).append(record.value)
        assert {key: [value[0] for value in values] for key, values in given.items()} == {
            key: list(range(1, count + 1)) for key, count in expected.items()
        }
        if not self.again:
            for values in given.values():
                for stream in ("in", "more"):
                    numbers = [number for _, of, number in values if of == stream]
                    assert numbers == sorted(numbers), "in the order of the stream"

    def play(self, number: int) -> None:
        steps = STEPS if self.rewinds else (*STEPS, "toggle")  # what came of an input that is out cannot be taken back
        try:
            for _ in range(number):
                getattr(self, self.draw.choice(steps))()
            self.drained()
        finally:
            self.driver.close()


@pytest.mark.parametrize("rewinds", [False, True], ids=["startpoints", "rewinds"])
@pytest.mark.parametrize("seed", range(8))
def test_each_record_counts_once_and_what_was_set_back_once_more(tmp_path: Path, seed: int, rewinds: bool) -> None:
    History(tmp_path, Random(1_000 * rewinds + seed), rewinds=rewinds).play(24)
