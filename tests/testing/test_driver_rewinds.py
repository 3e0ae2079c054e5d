"""Seeded histories of an application with two repartition streams that goes back again and again: each store counts each record
once, and every plan begins where the preview said. A history that fails is named with its seed and its steps."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

import headrace as hr
from headrace.client.startpoints import Startpoints
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName
from headrace.testing import Driver

WORDS = ("w", "word", "words", "a word")


def by_value(source_has_state: bool) -> Any:
    app = hr.App("words")
    stream = app.stream("words", key=hr.String(), value=hr.String())
    if source_has_state:
        stream.group_by_key().count(store="keys")
    values = stream.select_key(lambda r: r.value, key=hr.String()).repartition(name="by-value")
    values.group_by_key().count(store="values")
    lengths = values.select_key(lambda r: str(len(r.key)), key=hr.String()).repartition(name="by-length")
    lengths.group_by_key().count(store="lengths")
    return app


def positions(driver: Driver) -> dict[TaskName, dict[SSP, int]]:
    return {task: dict(one.positions) for rounds in driver._prepared.runners for task, one in rounds.checkpoints.items()}


class History:
    """One application, and what was done to it. `drawn` decides everything."""

    def __init__(self, driver: Driver, drawn: random.Random) -> None:
        self.driver, self.drawn = driver, drawn
        self.sent: Counter[str] = Counter()
        self.steps: list[str] = []
        self.rewinds = 0

    def send(self) -> None:
        for _ in range(self.drawn.randint(1, 6)):
            word = self.drawn.choice(WORDS)
            self.driver.send("words", f"key-{self.drawn.randint(0, 4)}", word, partition=self.drawn.randint(0, 1))
            self.sent[word] += 1
        self.driver._flush()

    def run_some(self) -> None:
        """Rounds of any sub-topology, so that the others lag behind it."""
        driver = self.driver
        for _ in range(self.drawn.randint(1, 6)):
            rounds = self.drawn.choice(driver._prepared.runners)
            planned = driver._scheduler.next(rounds, driver.now_us / 1e6, driver.now_us)
            if planned is not None:
                driver._run_round(rounds, planned)
        driver._requests.settle_startpoints(driver.now_us)
        driver._prepared.maintenance.keep()

    def run(self) -> None:
        self.driver.run()

    def tidy(self) -> None:
        self.driver._prepared.maintenance.tidy()

    def plan_anew(self) -> None:
        self.driver._replan()

    def delete(self) -> None:
        with self.startpoints() as points:
            ids = [known.entry.id for known in points.deletable_in("words")]
            if ids:
                points.delete(*ids)
        self.driver._replan()

    def rewind(self) -> None:
        partition = self.drawn.choice([None, 0, 1])
        ends = self.driver._system.end_offsets("words")
        offset = self.drawn.randint(0, min(ends.values()) if partition is None else ends[partition])
        before = positions(self.driver)
        with self.startpoints() as points:
            preview = points.preview("words", offset, partition=partition, state="rewind")
            if any(move.skipped for move in preview.moves):
                return  # it would not be counted
            points.write(preview)
        self.driver._replan()
        self.rewinds += 1
        if any(note.startswith("takes the place of") for note in preview.notes):
            return  # what is undone first is said, not counted
        for move in preview.moves:
            assert move.task is not None
            before[move.task][move.ssp] = move.after
        assert positions(self.driver) == before, "the plan begins where the preview says"

    def startpoints(self) -> Startpoints:
        topology = self.driver.app.topology() if self.drawn.random() < 0.5 else None  # else from what is stored
        return Startpoints("words", self.driver._config(), topology, self.driver._system)

    def judge(self) -> None:
        lengths: Counter[str] = Counter()
        for word, count in self.sent.items():
            lengths[str(len(word))] += count
        assert self.driver.store("values").all() == dict(self.sent)
        assert self.driver.store("lengths").all() == dict(lengths)


@pytest.mark.parametrize("first", range(0, 24, 4))
def test_each_record_is_counted_once_whatever_goes_back(first: int) -> None:
    rewinds = 0
    for seed in range(first, first + 4):
        drawn = random.Random(seed)
        overrides = [
            "state_version_interval_s=0",
            f"max_records_per_round={drawn.choice([1, 3, 7, 100])}",
            f"keep_state_versions={drawn.choice([1, 3, 9])}",
        ]
        with Driver(by_value(drawn.random() < 0.5), partitions=2, overrides=overrides) as driver:
            history = History(driver, drawn)
            weighted = [*["send"] * 7, *["run"] * 3, *["run_some"] * 5, *["rewind"] * 6, "tidy", "plan_anew", *["delete"] * 2]
            try:
                for _ in range(drawn.randint(8, 16)):
                    history.steps.append(drawn.choice(weighted))
                    driver.now_us += drawn.choice([0, 1])
                    getattr(history, history.steps[-1])()
                driver.run()
                history.judge()
            except BaseException as error:
                error.add_note(f"seed {seed}, {overrides}: {', '.join(history.steps)}")
                raise
            rewinds += history.rewinds
    assert rewinds > 2
