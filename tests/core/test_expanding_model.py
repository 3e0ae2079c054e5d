"""Any history of expansions, inputs that come and go, and elasticity factors, against a model that is as dumb as can be.

The model keeps one number per stream, the partitions that it had when it was first read, and knows by it for every hash what
the task of its keys is called. It shares nothing with the code but how a name is written.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.core.job_plan.assignment import Assignment, assignment_of, merged, tasks_of
from headrace.core.job_plan.containers import containers_of, next_job_model
from headrace.core.job_plan.groupers import GroupByPartition, GroupBySystemStreamPartition
from headrace.core.topology.sub_topologies import SubTopology, sub_topologies_of
from headrace.model.job_model import JobModel, SubTopologyModel, TaskModel
from headrace.model.streams import SSP

STREAMS = ("a", "b", "c")
TABLE = "t"  # broadcast; it is kept in every task, so what has it has state
COUNT_MAX = 36
GROUPERS = {"partition": GroupByPartition, "ssp": GroupBySystemStreamPartition}


@dataclass(frozen=True)
class Step:
    """What happens: a stream grows (read or not), is taken out or put back, or grows while it is out; or the elasticity
    factor changes."""

    what: str
    stream: str = "a"
    number: int = 1


steps = st.one_of(
    st.builds(Step, st.just("grow"), st.sampled_from([*STREAMS, TABLE]), st.integers(2, 4)),
    st.builds(Step, st.just("toggle"), st.sampled_from(STREAMS)),
    st.builds(Step, st.just("away"), st.sampled_from(STREAMS), st.integers(2, 4)),
    st.builds(Step, st.just("factor"), number=st.sampled_from([1, 2, 4, 8])),
)
histories = st.tuples(
    st.fixed_dictionaries({stream: st.integers(1, 5) for stream in (*STREAMS, TABLE)}),
    st.lists(steps, max_size=8),
)


def sub_of(streams: Iterable[str], state: bool) -> SubTopology:
    app = hr.App("app")
    first, *others = (app.stream(stream, key=hr.String()) for stream in sorted(streams))
    for other in others:
        first = first.merge(other)
    if state:
        app.global_table(TABLE, key=hr.String(), store="table")
        first.group_by_key().count(store="kept")
    else:
        first.to("out")
    return sub_topologies_of(app.topology())[0]


SUBS = {
    (streams, state): sub_of(streams, state)
    for streams in (frozenset(s for s in STREAMS if s in letters) for letters in ("a", "b", "c", "ab", "ac", "bc", "abc"))
    for state in (True, False)
}


class GrowthModel:
    """The streams as they are, and what a job has made of them so far."""

    def __init__(self, counts: dict[str, int], grouper: str, state: bool, seed: int = 0) -> None:
        self.counts = dict(counts)
        self.read = {"a", "b"}
        self.to_all = [TABLE] if state else []
        self.factor = 1
        self.state = state
        self.grouper = grouper
        self.random = Random(seed)
        self.stored: Assignment = {}
        self.model: JobModel | None = None
        self.first_counts: dict[str, int] = {}  # what the dumb model knows
        self.plan()

    @property
    def tasks(self) -> list[TaskModel]:
        assert self.model is not None
        return list(self.model.tasks)

    def take(self, step: Step) -> bool:
        """Whether the step was one that can be taken."""
        if step.what == "grow":
            if self.counts[step.stream] * step.number > COUNT_MAX:
                return False
            self.counts[step.stream] *= step.number
        elif step.what == "away":
            toggle, grow = Step("toggle", step.stream), Step("grow", step.stream, step.number)
            return all([self.take(toggle), self.take(grow), self.take(toggle)])
        elif step.what == "toggle":
            if self.read == {step.stream}:
                return False
            self.read ^= {step.stream}
        else:
            self.factor = step.number
        self.plan()
        return True

    def plan(self) -> None:
        ssps = [SSP("k", name, p) for name in (*sorted(self.read), *self.to_all) for p in range(self.counts[name])]
        self.random.shuffle(ssps)
        stored = list(self.stored.items())
        self.random.shuffle(stored)
        sub = SUBS[frozenset(self.read), self.state]
        tasks = tasks_of(sub, ssps, dict(stored), GROUPERS[self.grouper](), self.factor)
        subs = (SubTopologyModel(None, containers_of(tasks, 3), self.factor),)
        self.model = next_job_model(self.model, JobModel("app", 1, subs, {name: self.counts[name] for name in self.read}))
        self.stored = merged(self.stored, assignment_of(self.model))
        for stream in self.read:
            self.first_counts.setdefault(stream, self.counts[stream])

    def expected_task(self, stream: str, number: int) -> str:
        """The name of the task of the keys of `stream` with the hash `number`."""
        partition = number % self.first_counts[stream]
        name = f"Partition_{partition}" if self.grouper == "partition" else f"SystemStreamPartition_[k,{stream},{partition}]"
        return name if self.factor == 1 else f"{name}-{bucket_of(number, self.factor)}-{self.factor}"

    def readers(self) -> dict[tuple[str, int, int | None], list[str]]:
        found: dict[tuple[str, int, int | None], list[str]] = {}
        for task in self.tasks:
            for ssp in task.ssps:
                found.setdefault((ssp.stream, ssp.partition, ssp.key_bucket), []).append(str(task.name))
        return found


def bucket_of(number: int, factor: int) -> int:
    """Some bucket of a hash that has nothing to do with the partition, and falls into halves as the real one does."""
    return (number * 2654435761 >> 7) % factor


def every_key_is_with_its_task(world: GrowthModel) -> bool:
    readers = world.readers()
    return all(
        readers[stream, number % world.counts[stream], None if world.factor == 1 else bucket_of(number, world.factor)]
        == [world.expected_task(stream, number)]
        for stream in world.read
        for number in range(3 * COUNT_MAX)
    )


def every_ssp_is_owned_once(world: GrowthModel) -> bool:
    buckets = [None] if world.factor == 1 else list(range(world.factor))
    owned = {(stream, p, b) for stream in world.read for p in range(world.counts[stream]) for b in buckets}
    to_all = {(stream, p, None) for stream in world.to_all for p in range(world.counts[stream])}
    readers = world.readers()
    every = sorted(str(task.name) for task in world.tasks)
    return (
        readers.keys() == owned | to_all
        and all(len(readers[ssp]) == 1 for ssp in owned)
        and all(sorted(readers[ssp]) == every for ssp in to_all)
    )


@pytest.mark.parametrize("grouper", GROUPERS)
@given(histories)
def test_with_state_a_key_stays_with_its_task_through_everything(
    grouper: str, history: tuple[dict[str, int], list[Step]]
) -> None:
    counts, steps = history
    world = GrowthModel(counts, grouper, state=True)
    assert every_ssp_is_owned_once(world)
    for step in steps:
        before = [task.name for task in world.tasks]
        if world.take(step):
            assert every_ssp_is_owned_once(world), step
            assert every_key_is_with_its_task(world), step
            if step.what == "grow":
                assert [task.name for task in world.tasks] == before, step


@pytest.mark.parametrize("grouper", GROUPERS)
@given(histories)
def test_without_state_the_tasks_are_those_of_a_first_run(
    grouper: str, history: tuple[dict[str, int], list[Step]]
) -> None:
    counts, steps = history
    world = GrowthModel(counts, grouper, state=False)
    for step in steps:
        if world.take(step):
            assert every_ssp_is_owned_once(world), step
            numbers = Counter(p for stream in world.read for p in range(world.counts[stream]))
            whole = len(numbers) if grouper == "partition" else numbers.total()
            assert len(world.tasks) == whole * world.factor, step


@given(histories, st.integers(0, 9))
def test_where_nothing_changes_the_model_and_its_version_stay(
    history: tuple[dict[str, int], list[Step]], seed: int
) -> None:
    counts, steps = history
    world = GrowthModel(counts, "partition", True, seed)
    for step in steps:
        world.take(step)
    model, stored = world.model, world.stored
    world.plan()
    assert (world.model, list(world.stored.items())) == (model, list(stored.items()))


def some_models(seed: int) -> str:
    """The models and assignments of random histories: the same text for the same seed, in any process."""
    random = Random(seed)
    lines = []
    for number in range(12):
        counts = {stream: random.randint(1, 5) for stream in (*STREAMS, TABLE)}
        world = GrowthModel(counts, random.choice(sorted(GROUPERS)), state=number % 3 > 0, seed=os.getpid())
        for _ in range(6):
            step = random.choice(
                [
                    Step("grow", random.choice([*STREAMS, TABLE]), random.randint(2, 4)),
                    Step("toggle", random.choice(STREAMS)),
                    Step("factor", number=random.choice([1, 2, 4])),
                ]
            )
            world.take(step)
            lines.append(f"{world.model}\n{world.stored}")
    return "\n".join(lines)


def test_any_process_makes_the_same_models() -> None:
    printed = {
        subprocess.run(
            [sys.executable, __file__],
            env={"PYTHONPATH": str(Path(hr.__file__).parents[1]), "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert printed == {some_models(7)}


if __name__ == "__main__":
    sys.stdout.write(some_models(7))
