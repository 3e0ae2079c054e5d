"""Taking up startpoints, over any history: held against a second implementation that knows nothing of records.

A history is what people write and delete, with clocks that differ, and what a driver does: plan (and maybe die before it has
removed the requests), commit rounds that move some positions or none, note what was spent, start again with other tasks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.planned_startpoints import Consumer, Owners, Stored, entry
from headrace.core.job_plan import apply_startpoints
from headrace.core.rewind.startpoint_rules import TaskPartition
from headrace.model.startpoint import PositionType, StartpointEntry, StartpointStatus
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName

SSPS = [SSP("k", "x", 0), SSP("k", "x", 1), SSP("k", "y", 0)]
X0, X1, Y0 = SSPS
PER_PARTITION = [TaskName.parse(f"Partition_{number}") for number in range(2)]
PER_SSP = [TaskName.parse(f"SystemStreamPartition_[k,{ssp.stream},{ssp.partition}]") for ssp in SSPS]
BY_PARTITION: Owners = {X0: [PER_PARTITION[0]], X1: [PER_PARTITION[1]], Y0: [PER_PARTITION[0]]}
BY_SSP: Owners = dict(zip(SSPS, ([task] for task in PER_SSP), strict=True))
BROADCAST: Owners = {X0: PER_PARTITION, X1: [PER_PARTITION[1]], Y0: PER_PARTITION}
END, BEGUN_AT = 1000, 500
PLACES: list[int | PositionType] = [3, 7, PositionType.EARLIEST, PositionType.LATEST, PositionType.BOOTSTRAP]


@dataclass
class Dumb:
    """What there should be. A layer is a startpoint that has set the position of a place: (id, offset); `bases`: where each
    place was before the lowest of its layers that is not spent."""

    consumer: Consumer
    owners: Owners
    positions: dict[TaskPartition, int]
    asked: list[tuple[str, StartpointEntry]] = field(default_factory=list)  # in the order of asking
    deletions: list[str] = field(default_factory=list)
    seen: dict[str, StartpointEntry] = field(default_factory=dict)
    fate: dict[str, StartpointStatus] = field(default_factory=dict)
    layers: dict[TaskPartition, list[tuple[str, int]]] = field(default_factory=dict)
    bases: dict[TaskPartition, int] = field(default_factory=dict)

    def plan(self) -> None:
        for id_ in self.deletions:
            self._delete(id_)
        self.deletions = []
        new = [one for _, one in self.asked if one.id not in self.seen]
        self.asked = []
        for one in new:
            self.seen[one.id] = one
        unspent = sorted((self.seen[id_] for id_ in self._pending()), key=lambda one: one.written_at_us)
        for place in sorted(self.positions):
            best: StartpointEntry | None = None
            for one in [*unspent, *new]:
                if place in self._places(one) and (best is None or _counts_over(one, best)):
                    best = one
            if best in new:
                assert best is not None
                self._set(place, best)
        for one in new:
            self.fate[one.id] = StartpointStatus.PENDING if self._barriers(one.id) else StartpointStatus.SUPERSEDED
        for id_ in self._pending():
            if not self._barriers(id_):
                self.fate[id_] = StartpointStatus.SUPERSEDED

    def commit(self, task: TaskName, moves: dict[SSP, int]) -> None:
        for ssp, count in moves.items():
            place = (task, ssp)
            if count == 0:
                continue
            self.positions[place] += count
            if self.layers.get(place):
                self._spend(self.layers[place][-1][0])

    def regroup(self, owners: Owners) -> None:
        """Each SSP has one reader before and after."""
        of = {ssp: place for place in self.positions for ssp in [place[1]]}
        for what in (self.positions, self.layers, self.bases):
            moved = {(tasks[0], ssp): what[of[ssp]] for ssp, tasks in owners.items() if of[ssp] in what}  # type: ignore[index]
            what.clear()
            what.update(moved)  # type: ignore[arg-type]
        self.owners = owners

    def _set(self, place: TaskPartition, one: StartpointEntry) -> None:
        layers = self.layers.setdefault(place, [])
        if not any(self.fate.get(id_) is StartpointStatus.PENDING for id_, _ in layers[-1:]):
            self.bases[place] = self.positions[place]
        offset = self.consumer.register(place[1], one.startpoint)
        layers.append((one.id, offset))
        self.positions[place] = offset

    def _delete(self, id_: str) -> None:
        entries = {one.id: one for _, one in self.asked} | self.seen
        if id_ not in entries:
            return
        if id_ not in self.seen:
            self.seen[id_] = entries[id_]
            self.fate[id_] = StartpointStatus.DELETED
        if self.fate[id_] is not StartpointStatus.PENDING:
            return
        self.fate[id_] = StartpointStatus.DELETED
        for place, layers in self.layers.items():
            mine = [layer for layer in layers if layer[0] == id_]
            if mine and layers[-1] == mine[0]:
                layers.pop()
                is_pending = bool(layers) and self.fate[layers[-1][0]] is StartpointStatus.PENDING
                self.positions[place] = layers[-1][1] if is_pending else self.bases[place]
            elif mine:
                layers.remove(mine[0])

    def _spend(self, id_: str) -> None:
        if self.fate[id_] is StartpointStatus.PENDING:
            self.fate[id_] = StartpointStatus.APPLIED

    def _pending(self) -> list[str]:
        return [id_ for id_, fate in self.fate.items() if fate is StartpointStatus.PENDING]

    def _barriers(self, id_: str) -> bool:
        return any(layers and layers[-1][0] == id_ for layers in self.layers.values())

    def _places(self, one: StartpointEntry) -> list[TaskPartition]:
        reading = self.owners.get(one.key.ssp, ())
        named = [task for task in reading if task == one.key.task]
        return [(task, one.key.ssp) for task in named or reading]


def _counts_over(one: StartpointEntry, other: StartpointEntry) -> bool:
    if one.written_at_us != other.written_at_us:
        return one.written_at_us > other.written_at_us
    return one.key.task is not None or other.key.task is None


class History:
    """Does to both what happens, and compares."""

    def __init__(self, owners: Owners) -> None:
        self.stored = Stored(owners, dict.fromkeys(SSPS, END), BEGUN_AT)
        self.dumb = Dumb(self.stored.consumer, owners, dict(self.stored.positions))
        self.ids: list[str] = []
        self.owners = owners

    def write(self, data: st.DataObject) -> None:
        """One request of one or more startpoints, by somebody whose clock may be wrong; for tasks that there are, or not."""
        entries = []
        for _ in range(data.draw(st.integers(1, 3), "how many")):
            ssp = data.draw(st.sampled_from([X0, X0, X1, Y0]), "ssp")
            task = data.draw(st.sampled_from([None, None, None, *PER_PARTITION, PER_SSP[0]]), "task")
            at = data.draw(st.sampled_from(PLACES), "at")
            self.ids.append(f"{data.draw(st.integers(0, 99), 'id')}-{len(self.ids)}")
            entries.append(entry(self.ids[-1], ssp, at, task, data.draw(st.integers(0, 3), "written at")))
        id_ = self.stored.ask(*entries)
        self.dumb.asked += [(id_, one) for one in entries]

    def delete(self, data: st.DataObject) -> None:
        if self.ids:
            id_ = data.draw(st.sampled_from(self.ids[-3:]), "deleted")
            self.stored.ask(delete=[id_])
            self.dumb.deletions.append(id_)

    def plan(self, data: st.DataObject) -> None:
        """At a start or a change of a running job; the clock is that of any machine."""
        now_us = data.draw(st.integers(1, 5), "clock") * 1_000
        self.stored.plan(removes=data.draw(st.booleans(), "removes its requests"), now_us=now_us)
        self.dumb.plan()

    def regroup(self, data: st.DataObject) -> None:
        if all(len(tasks) == 1 for tasks in self.owners.values()):
            self.owners = data.draw(st.sampled_from([BY_PARTITION, BY_SSP]), "tasks")
            self.stored.plan(self.owners)
            self.dumb.regroup(self.owners)
            self.dumb.plan()

    def commit(self, data: st.DataObject) -> None:
        task = data.draw(st.sampled_from(sorted(self.stored.checkpoints)), "task")
        ssps = sorted(self.stored.checkpoints[task].positions)
        moves = {ssp: data.draw(st.integers(0, 2), f"moves {ssp}") for ssp in ssps}
        for ssp, count in moves.items():
            ends = self.stored.consumer.ends
            ends[ssp] = max(ends[ssp], self.stored.positions[task, ssp] + count)
        self.stored.commit(task, moves)
        self.dumb.commit(task, moves)

    def settle(self, data: st.DataObject) -> None:
        self.stored.settle()

    def check(self) -> None:
        assert self.stored.positions == self.dumb.positions

    def check_fates(self) -> None:
        """At the end of a plan, which knows of all that was spent."""
        self.stored.plan()
        self.dumb.plan()
        self.check()
        fates = self.dumb.fate
        assert self.stored.status == {id_: fates[id_] for id_ in self.stored.records}
        assert {id_ for id_, status in fates.items() if status is StartpointStatus.PENDING} <= self.stored.records.keys()
        running = self.stored.running
        pending = {(task, ssp): found for task in self.stored.checkpoints for ssp, found in running.pending_of(task).items()}
        assert pending == {
            place: layers[-1]
            for place, layers in self.dumb.layers.items()
            if layers and self.dumb.fate[layers[-1][0]] is StartpointStatus.PENDING
        }


STEPS = [History.write, History.delete, History.plan, History.plan, History.commit, History.settle, History.regroup]


@pytest.mark.parametrize("owners", [BY_PARTITION, BROADCAST], ids=["one-reader", "broadcast"])
@pytest.mark.parametrize("finished_max", [1000, 1])
@given(data=st.data())
@settings(max_examples=150)
def test_positions_and_fates_are_those_of_the_dumb_implementation(
    owners: Owners, finished_max: int, data: st.DataObject
) -> None:
    history = History(owners)
    with mock.patch.object(apply_startpoints, "FINISHED_MAX", finished_max):
        for step in data.draw(st.lists(st.sampled_from(STEPS), max_size=30), "steps"):
            step(history, data)
            history.check()
        history.check_fates()
