"""Startpoints with `state=rewind`, written, taken up and deleted in any order, in the world of `core/test_rewinds.py`: however
tasks went back, and whatever of it was undone, every store has counted each record once in the end."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from core.planned_startpoints import entry
from core.test_rewinds import LINE, SHAPES, RewindModel, Step, run_some
from headrace.codec.documents import decode, encode
from headrace.core.job_plan.apply_rewinds import StateHistory, StateRewinds
from headrace.core.job_plan.apply_startpoints import apply_startpoints
from headrace.core.job_plan.startpoint_requests import StartpointRequests
from headrace.core.rewind.consistent_cuts import SubTopologyEdges
from headrace.core.rewind.rewinds import Rewind
from headrace.core.rewind.startpoint_rules import offset_of
from headrace.core.rewind.state_history import StateVersion, by_task
from headrace.errors import OffsetOutOfRangeError, StateError
from headrace.model.startpoint import (
    Startpoint,
    StartpointEntry,
    StartpointRecord,
    StartpointRequest,
    StartpointStatus,
    StatePolicy,
)
from headrace.model.streams import SSP


class _Consumer:
    def __init__(self, world: RewindModel) -> None:
        self._world = world

    def register(self, ssp: SSP, startpoint: Startpoint) -> int:
        return offset_of(startpoint, ssp, self._world.beginnings[ssp], len(self._world.streams[ssp]), lambda _: 0)

    def high_watermarks(self, stream: str) -> dict[int, int]:
        return {place.partition: len(known) for place, known in self._world.streams.items() if place.stream == stream}


class Planned(RewindModel):
    """A world whose tasks go back for startpoints, as a driver has them do."""

    def __init__(self, flows: tuple[SubTopologyEdges, ...]) -> None:
        super().__init__(flows)
        self.asked: list[StartpointEntry] = []
        self.deleted: list[str] = []
        self.records: dict[str, StartpointRecord] = {}
        self.number = 0

    def ask(self, sub: int, partition: int, share: float) -> None:
        """For a position that was read before, so that nothing is skipped on purpose."""
        task = self.tasks(self.flows[sub])[partition]
        ((place, position),) = self.checkpoints[task].positions.items()
        low = self.beginnings[place]
        self.number += 1
        at = low + int(share * (position - low))
        one = entry(f"{self.number}", place, at, None, self.number)
        self.asked.append(replace(one, state=StatePolicy.REWIND))

    def plan(self) -> None:
        self.us += 1
        consumer = _Consumer(self)
        kept = StateHistory(self.versions, self.cuts, tuple(self.rewinds.values()))
        rewinds = StateRewinds(kept, self.flows, consumer, self.us)
        asked = StartpointRequests({f"{self.us}": StartpointRequest(tuple(self.asked), tuple(self.deleted))}, self.records)
        self.asked, self.deleted = [], []
        try:
            taken = apply_startpoints(asked, self.checkpoints, self.checkpoints, rewinds)
        except (StateError, OffsetOutOfRangeError):
            return  # nothing has changed; whoever asked deletes it
        in_force = rewinds.in_force(taken.checkpoints)
        changes = rewinds.changes(in_force)
        stored = {one.key: one for kept in self.versions.values() for one in kept}
        stored |= {key: decode(StateVersion, encode(one), key) for key, one in changes.versions.items() if one}
        self.versions = {task: by_task(stored.values()).get(task, ()) for task in self.checkpoints}
        self.rewinds |= {key: decode(Rewind, encode(one), key) for key, one in changes.rewinds.items() if one}
        for key in [key for key, one in changes.rewinds.items() if one is None]:
            del self.rewinds[key]
        assert tuple(self.rewinds[key] for key in sorted(self.rewinds)) == in_force
        before = self.checkpoints
        self.checkpoints, self.records = dict(taken.checkpoints), dict(taken.records)
        moved = {task.sub_topology for task, one in before.items() if one.positions != self.checkpoints[task].positions}
        self.went += len(moved) > 1


def test_one_that_is_deleted_when_another_task_has_gone_on_stays() -> None:
    """Each partition has a startpoint of its own; the tasks went back together, and can only be put back together."""
    world = Planned(LINE)
    run_some(world)
    for partition in range(2):
        world.ask(0, partition, 0.5)
    world.plan()
    world.read(LINE[0], 5, 0b1001)  # the second task is in the round, and reads nothing
    world.deleted += ["1", "2"]
    world.plan()
    assert [world.records[id_].status for id_ in ("1", "2")] == [StartpointStatus.APPLIED, StartpointStatus.PENDING]
    world.finish()
    world.judge()


SUBS = st.integers(0, 2)
STEPS = st.one_of(
    st.tuples(st.just("feed"), st.integers(0, 1), st.integers(1, 12)),
    st.tuples(st.just("read"), SUBS, st.integers(1, 9), st.integers(1, 15)),
    st.tuples(st.just("read"), SUBS, st.integers(1, 30), st.just(3)),
    st.tuples(st.just("keep"), SUBS),
    st.tuples(st.just("purge")),
    st.tuples(st.just("ask"), SUBS, st.integers(0, 1), st.floats(0, 1)),
    st.tuples(st.just("delete"), st.integers(0, 5)),
    st.tuples(st.just("plan")),
)


@settings(max_examples=400, deadline=None)
@given(SHAPES, st.lists(STEPS, min_size=20, max_size=80))
def test_whatever_is_asked_for_and_deleted_each_record_counts_once(
    flows: tuple[SubTopologyEdges, ...], steps: list[Step]
) -> None:
    world = Planned(flows)
    for what, *args in steps:
        match what, args:
            case "ask", [int(sub), int(partition), float(share)]:
                world.ask(sub, partition, share)
            case "delete", [int(back)]:
                if back < world.number:
                    world.deleted.append(f"{world.number - back}")
            case "plan", []:
                world.plan()
            case _:
                world.do(what, *args)
    world.plan()
    world.finish()
    world.judge()
    assert all(record.status is not StartpointStatus.PENDING or record.resolutions for record in world.records.values())
