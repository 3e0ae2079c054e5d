"""What a sub-topology passes over is not counted: as read, as its lag, or as what its writers have to wait for."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

import headrace as hr
from headrace.core.topology.sub_topologies import sub_topologies_of
from headrace.driver.rounds.task_positions import TaskPositions
from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.job_model import ContainerModel, SubTopologyModel, TaskModel
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName

TASK = TaskName.parse("by/Partition_0")
PLACE = SSP("k", "app-by-repartition", 0)


class Written:
    name = "k"
    end: int | None = None  # up to where it can be read, where it is held back

    def held_back_by(self, stream: str) -> dict[int, tuple[int, str]]:
        return {} if self.end is None else {0: (self.end, "a transaction")}

    def end_offsets(self, stream: str) -> dict[int, int]:
        return {0: 240}


def at(position: int) -> Checkpoint:
    return Checkpoint(TASK, RoundId(1, "by", 1), 1, {PLACE: position})


def test_what_is_passed_over_is_not_counted() -> None:
    app = hr.App("app")
    app.stream("in").group_by(lambda record: record.key, hr.Repartitioned.as_("by"), key=hr.Bytes()).count()
    sub = next(sub for sub in sub_topologies_of(app.topology()) if sub.name == "by")
    model = SubTopologyModel("by", (ContainerModel(0, (TaskModel(TASK, (PLACE,)),)),))
    written: Any = Written()
    here = TaskPositions(sub, model, {TASK: at(80)}, written, {PLACE: ((100, 230),)})
    assert (here.lag({PLACE: 240}), here.unread(PLACE.stream)) == (30, 30)
    assert here.lag({PLACE: 150}) == 20
    assert here.move_to([at(100)]) == 20
    assert here.move_to([at(235)]) == 5
    assert (here.lag({PLACE: 240}), here.unread(PLACE.stream)) == (5, 5)


def test_how_far_a_task_is_behind_the_clock_is_known_while_it_lags() -> None:
    app = hr.App("app")
    app.stream("in").group_by(lambda record: record.key, hr.Repartitioned.as_("by"), key=hr.Bytes()).count()
    sub = next(sub for sub in sub_topologies_of(app.topology()) if sub.name == "by")
    model = SubTopologyModel("by", (ContainerModel(0, (TaskModel(TASK, (PLACE,)),)),))
    written: Any = Written()
    checkpoint = replace(at(80), watermarks={PLACE: 5_000})
    here = TaskPositions(sub, model, {TASK: checkpoint}, written)
    assert here.time_lags_us({PLACE: 240}, 12_000) == {TASK: 7_000}
    assert here.time_lags_us({PLACE: 80}, 12_000) == {TASK: 0}
    assert here.time_lags_us({PLACE: 240}, 4_000) == {TASK: 0}, "times of the future"
    assert (here.slowest_watermark_us(set()), here.slowest_watermark_us({PLACE})) == (5_000, 5_000)
    assert TaskPositions(sub, model, {TASK: at(80)}, written).slowest_watermark_us(set()) is None


def test_a_transaction_is_named_only_where_it_has_been_in_the_way_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer that commits all the time has one open at each look, and holds nothing back."""
    app = hr.App("app")
    app.stream("in").group_by(lambda record: record.key, hr.Repartitioned.as_("by"), key=hr.Bytes()).count()
    sub = next(sub for sub in sub_topologies_of(app.topology()) if sub.name == "by")
    model = SubTopologyModel("by", (ContainerModel(0, (TaskModel(TASK, (PLACE,)),)),))
    written: Any = Written()
    here = TaskPositions(sub, model, {TASK: at(80)}, written)
    clock = iter(range(0, 100, 2))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    assert [here.held_back_by() for written.end in (100, 103, 106, 109, 112)] == [""] * 5
    assert [here.held_back_by() for _ in range(3)] == ["", "", f"{PLACE.stream} partition 0: a transaction"]
    written.end = None
    assert here.held_back_by() == ""
    written.end = 112
    assert here.held_back_by() == ""
