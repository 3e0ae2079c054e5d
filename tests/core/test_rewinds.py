"""Going back as a whole, in a world of streams and states that are plain lists: every store counts each record once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.rewind.consistent_cuts import ConsistentCut, SubTopologyEdges, cut_of, going_by_cuts, thinned_cuts
from headrace.core.rewind.rewinds import (
    Rewind,
    may_be_undone,
    needed_rewinds,
    rewind_of,
    rewind_target_of,
    skipped_ranges_of,
    undone_with,
)
from headrace.core.rewind.skipped_ranges import before_skipped, beyond_skipped
from headrace.core.rewind.state_history import (
    RetentionPolicy,
    StateVersion,
    abandoned_version,
    before_rewind,
    new_versions,
    rewound,
    thinned,
    undo_rewind,
)
from headrace.errors import StateError
from headrace.model.checkpoint import Checkpoint, Head, RoundId, StateFile, StateFileKind, identity_of
from headrace.model.streams import SSP
from headrace.model.tasks import PartitionGroup, TaskName

PARTITIONS = 2
SOURCE = SubTopologyEdges(None, ("in",), ("a",), has_state=False)
MIDDLE = SubTopologyEdges("a", ("a",), ("b",), has_state=True)
LAST = SubTopologyEdges("b", ("b",), (), has_state=True)
LINE = (SOURCE, MIDDLE, LAST)
KEEPING = RetentionPolicy(3, None, 0)


def test_those_with_state_behind_them_go_back_together() -> None:
    assert going_by_cuts(LINE) == {None, "a"}
    assert going_by_cuts((SOURCE, replace(MIDDLE, has_state=False), LAST)) == {None, "a"}
    assert going_by_cuts((SOURCE, replace(MIDDLE, writes=()))) == {None}
    assert going_by_cuts((SOURCE, replace(MIDDLE, has_state=False, writes=()))) == frozenset()
    assert going_by_cuts((replace(SOURCE, writes=(), has_state=True),)) == frozenset()


def ssp(stream: str, partition: int) -> SSP:
    return SSP("log", stream, partition)


class RewindModel:
    """Three sub-topologies in a row; each passes every record on. A state is the records that it has seen, as a bag."""

    def __init__(self, flows: tuple[SubTopologyEdges, ...] = LINE) -> None:
        self.flows, self.us, self.rounds = flows, 0, 0
        self.streams: dict[SSP, list[tuple[str, int]]] = {}
        self.beginnings: dict[SSP, int] = {}
        self.checkpoints: dict[TaskName, Checkpoint] = {}
        self.deltas: dict[str, tuple[str, list[tuple[str, int]]]] = {}  # by state: the one before it, and what came to that
        self.versions: dict[TaskName, tuple[StateVersion, ...]] = {}
        self.cuts: list[ConsistentCut] = []
        self.rewinds: dict[str, Rewind] = {}
        self.went = 0
        for flow in flows:
            for partition in range(PARTITIONS):
                task = TaskName(PartitionGroup(partition), flow.name)
                place = ssp(flow.reads[0], partition)
                self.streams[place], self.beginnings[place] = [], 0
                self.checkpoints[task] = Checkpoint(task, RoundId(1, flow.name, 0), 1, {place: 0})
                self.versions[task] = ()

    def tasks(self, flow: SubTopologyEdges) -> list[TaskName]:
        return [task for task in self.checkpoints if task.sub_topology == flow.name]

    def feed(self, partition: int, count: int) -> None:
        stream = self.streams[ssp("in", partition)]
        stream += [(f"p{partition}", len(stream) + n) for n in range(count)]

    def read(self, flow: SubTopologyEdges, count: int, who: int = 3) -> None:
        """A round of some of the tasks (bits of `who`), which reads at most `count` records of each. Others may be in it that
        read nothing, as where it is cut short (the bits behind these)."""
        self.rounds += 1
        for task in self.tasks(flow):
            bits = who >> int(str(task).rpartition("_")[2])
            before = self.checkpoints[task]
            if not bits & 1:
                if bits & (1 << PARTITIONS):
                    self.checkpoints[task] = replace(before, round_id=RoundId(1, flow.name, self.rounds))
                continue
            (place,) = before.positions
            skipped_ranges, ends = skipped_ranges_of(self.rewinds.values()), {place: len(self.streams[place])}
            start = {**before.positions, **beyond_skipped(before.positions, skipped_ranges)}
            end = min(start[place] + count, before_skipped(start, ends, skipped_ranges)[place])
            if end == before.positions[place]:
                continue
            assert start[place] >= self.beginnings[place], "what it reads is gone"
            records = self.streams[place][start[place] : end]
            name = f"{task}-{self.rounds}"
            head = before.head
            if flow.has_state:
                head = Head(self.rounds, (StateFile(name, StateFileKind.SNAPSHOT, 1, 1, "c", self.rounds),))
                self.deltas[head.identity] = identity_of(before.head), records
            self.checkpoints[task] = replace(
                before, round_id=RoundId(1, flow.name, self.rounds), positions={place: end}, head=head
            )
            for record in records if flow.writes else ():
                self.streams[ssp(flow.writes[0], record[1] % PARTITIONS)].append(record)

    def keep(self, flow: SubTopologyEdges) -> None:
        """Versions of all tasks, where their sub-topology goes by cuts with a cut; what is too much goes."""
        self.us += 1
        tasks = self.tasks(flow)
        mine = {task: self.versions[task] for task in tasks}
        for version in new_versions(mine, [self.checkpoints[task] for task in tasks], self.us):
            mine[version.checkpoint.task] = (*mine[version.checkpoint.task], version)
        if flow.name in going_by_cuts(self.flows):
            written = {place: len(stream) for place, stream in self.streams.items() if place.stream in flow.writes}
            cut = cut_of(flow.name, [self.checkpoints[task] for task in tasks], mine, written, self.us)
            if cut is not None and not may_be_undone(tasks, self.rewinds.values(), self.checkpoints):
                self.cuts.append(cut)
            own = [cut for cut in self.cuts if cut.sub_topology == flow.name]
            kept, cuts = thinned_cuts(mine, own, self.us, KEEPING)
            self.cuts = [cut for cut in self.cuts if cut.sub_topology != flow.name] + list(cuts)
            self.versions |= kept
        else:
            self.versions |= {task: thinned(kept, self.us, KEEPING) for task, kept in mine.items()}

    def purge(self) -> None:
        for place in self.streams:
            needed = [
                one.positions[place]
                for task, now in self.checkpoints.items()
                for one in (now, *(version.checkpoint for version in self.versions[task]))
                if place in one.positions
            ]
            if place.stream != "in":
                self.beginnings[place] = min(needed)
        needed_now = needed_rewinds(self.rewinds.values(), self.checkpoints, self.beginnings.__getitem__)
        self.rewinds = {one.key: one for one in needed_now}

    def go_back(self, targets: Mapping[TaskName, Mapping[SSP, int]]) -> None:
        self.us += 1
        past = rewind_target_of(
            self.flows,
            self.checkpoints,
            targets,
            self.versions,
            self.cuts,
            self.beginnings.__getitem__,
            lambda place: len(self.streams[place]),
        )
        before = dict(self.checkpoints)
        for task, version in past.versions.items():
            left = abandoned_version(self.versions[task], before[task], version, self.us)
            others = [one for one in self.versions[task] if one.key != left.key]
            self.versions[task] = tuple(sorted([*others, left], key=lambda one: one.order))
            self.checkpoints[task] = rewound(before[task], version)
        rewind = rewind_of(past, before, self.us)
        self.rewinds[rewind.key] = rewind
        self.went += len({task.sub_topology for task in past.versions}) > 1

    def undo(self, task: TaskName) -> bool:
        """Put a task that went back, and all that went back with it, where it was."""
        if before_rewind(self.versions[task], self.checkpoints[task]) is None:
            return False
        tasks, undone = undone_with([task], self.rewinds.values(), self.checkpoints)
        for other in tasks:
            versions, self.checkpoints[other] = undo_rewind(self.versions[other], self.checkpoints[other])
            self.versions[other] = versions
        for one in undone:
            del self.rewinds[one.key]
        return bool(tasks)

    def do(self, what: str, *args: object) -> None:
        """A step of those that every history has."""
        match what, args:
            case "feed", [int(partition), int(count)]:
                self.feed(partition, count)
            case "read", [int(sub), int(count), int(who)]:
                self.read(self.flows[sub], count, who)
            case "keep", [int(sub)]:
                self.keep(self.flows[sub])
            case "purge", []:
                self.purge()
            case "undo", [int(sub), int(partition)]:
                self.undo(self.tasks(self.flows[sub])[partition])
            case _:
                raise AssertionError(f"no such step: {what} {args}")

    def finish(self) -> None:
        for _ in range(3 + len(self.rewinds)):
            for flow in self.flows:
                self.read(flow, 10_000)
                self.read(flow, 10_000)

    def judge(self) -> None:
        fed = Counter(record for place, stream in self.streams.items() if place.stream == "in" for record in stream)
        for flow in self.flows:
            if flow.has_state:
                held = Counter(record for task in self.tasks(flow) for record in self.state(self.checkpoints[task].head))
                assert held == fed, f"{flow.name}: what is counted is not what was fed"

    def state(self, head: Head | None) -> Iterator[tuple[str, int]]:
        """The records that a state has seen."""
        identity = identity_of(head)
        while identity in self.deltas:
            identity, records = self.deltas[identity]
            yield from records


def run_some(world: RewindModel) -> None:
    for _ in range(4):
        for partition in range(PARTITIONS):
            world.feed(partition, 10)
        for flow in world.flows:
            world.read(flow, 10)
            world.keep(flow)


def test_what_is_behind_a_repartition_stream_goes_back_with_what_writes_it() -> None:
    world = RewindModel()
    run_some(world)
    task = TaskName(PartitionGroup(0))
    world.go_back({task: {ssp("in", 0): 35}})
    positions = {str(name): next(iter(one.positions.values())) for name, one in world.checkpoints.items()}
    assert {positions[str(name)] for name in world.tasks(SOURCE)} == {30}, "both, to the newest cut that is not after 35"
    assert world.went == 1
    world.finish()
    world.judge()


def test_a_target_that_is_not_behind_the_task_takes_nothing_back() -> None:
    world = RewindModel()
    run_some(world)
    world.go_back({TaskName(PartitionGroup(0)): {ssp("in", 0): 40}})
    assert world.went == 0 and not skipped_ranges_of(world.rewinds.values())


def test_before_all_cuts_everything_begins_anew() -> None:
    world = RewindModel()
    run_some(world)
    world.beginnings |= {ssp(stream, partition): 5 for stream in "ab" for partition in range(PARTITIONS)}  # it is written again
    world.go_back({TaskName(PartitionGroup(1)): {ssp("in", 1): 0}})
    assert all(not any(one.positions.values()) and one.head is None for one in world.checkpoints.values())
    world.finish()
    world.judge()


def test_before_all_cuts_where_the_input_is_gone_nothing_goes_back() -> None:
    world = RewindModel()
    run_some(world)
    world.beginnings[ssp("in", 1)] = 1
    with pytest.raises(StateError, match=r"sub-topology 'source'.* there is no consistent cut at or before log\.in\.0 5"):
        world.go_back({TaskName(PartitionGroup(0)): {ssp("in", 0): 5}})
    assert not world.rewinds and world.checkpoints[TaskName(PartitionGroup(0))].positions == {ssp("in", 0): 40}


def test_the_task_is_named_that_has_no_version_which_is_old_enough() -> None:
    world = RewindModel()
    run_some(world)
    world.beginnings[ssp("in", 1)] = 1
    first, second = world.tasks(SOURCE)
    with pytest.raises(StateError, match=r"task Partition_1: no kept version.* before log\.in\.1 5; the oldest is .*1 20"):
        world.go_back({first: {ssp("in", 0): 35}, second: {ssp("in", 1): 5}})


def test_one_that_is_undone_was_never_there() -> None:
    world = RewindModel()
    run_some(world)
    before = dict(world.checkpoints)
    task = TaskName(PartitionGroup(0))
    world.go_back({task: {ssp("in", 0): 25}})
    world.go_back({task: {ssp("in", 0): 5}})
    assert world.undo(task)
    assert world.checkpoints == before and not world.rewinds


def test_one_that_a_task_has_gone_on_from_is_not_undone() -> None:
    world = RewindModel()
    run_some(world)
    task = TaskName(PartitionGroup(0))
    world.go_back({task: {ssp("in", 0): 25}})
    world.read(LAST, 1)
    world.read(SOURCE, 1, who=2)
    there = dict(world.checkpoints)
    assert not world.undo(task)
    assert world.checkpoints == there and world.rewinds
    world.finish()
    world.judge()


Step = tuple[Any, ...]  # what is done, and with what
SUBS = st.integers(0, 2)
STEPS = st.one_of(
    st.tuples(st.just("feed"), st.integers(0, 1), st.integers(1, 12)),
    st.tuples(st.just("read"), SUBS, st.integers(1, 9), st.integers(1, 15)),
    st.tuples(st.just("read"), SUBS, st.integers(1, 30), st.just(3)),
    st.tuples(st.just("keep"), SUBS),
    st.tuples(st.just("purge")),
    st.tuples(st.just("back"), SUBS, st.integers(0, 1), st.floats(0, 1)),
    st.tuples(st.just("undo"), SUBS, st.integers(0, 1)),
)
SHAPES = st.sampled_from([LINE, (SOURCE, replace(MIDDLE, has_state=False), LAST), (replace(SOURCE, has_state=True), *LINE[1:])])


@settings(max_examples=400, deadline=None)
@given(SHAPES, st.lists(STEPS, min_size=20, max_size=80))
def test_whatever_goes_back_when_each_record_counts_once(flows: tuple[SubTopologyEdges, ...], steps: list[Step]) -> None:
    world = RewindModel(flows)
    for what, *args in steps:
        match what, args:
            case "back", [int(sub), int(partition), float(share)]:
                task = world.tasks(flows[sub])[partition]
                (place,) = world.checkpoints[task].positions
                low, high = world.beginnings[place], len(world.streams[place])
                with suppress(StateError):
                    world.go_back({task: {place: low + int(share * (high - low))}})
            case _:
                world.do(what, *args)
    world.finish()
    world.judge()


@settings(max_examples=200, deadline=None)
@given(SHAPES, st.lists(STEPS, min_size=20, max_size=80))
def test_where_the_input_is_there_it_can_always_be_gone_back_to(flows: tuple[SubTopologyEdges, ...], steps: list[Step]) -> None:
    """No `StateError`: at last everything begins anew."""
    world = RewindModel(flows)
    for what, *args in steps:
        match what, args:
            case "back", [int(_), int(partition), float(share)]:
                task, place = world.tasks(flows[0])[partition], ssp("in", partition)
                asked = int(share * len(world.streams[place]))
                world.go_back({task: {place: asked}})
                assert world.checkpoints[task].positions[place] <= asked
            case _:
                world.do(what, *args)
    world.finish()
    world.judge()
