"""A life of a cluster, by a seed: processors and whole locations come and go, and plans are made as a job makes them.

What a job knows is followed here by hand: the containers of its last plan, and where each task has run. It is played by
`core.affinity` in virtual time; what came of it is kept as plain mappings, for predicates that share nothing with that.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count

from affinity.judge import Owners, owners_of
from headrace.core.affinity.cluster import members_of
from headrace.core.affinity.lived import Lived
from headrace.core.affinity.locations import LocationId
from headrace.core.affinity.members import Member, TaskHistory, assigned
from headrace.core.affinity.sightings import Sightings
from headrace.model.job_model import ContainerModel, TaskModel
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName

RETURN_S, SETTLE_S, LOOK_S = 10.0, 2.0, 0.5
EVENTS = ("one joins", "one leaves", "a location crashes", "one is back", "all are back", RESTARTED := "all are restarted")
AS_BEFORE = "all that were there are back"
BACK_IN_TIME = "away for a moment", "all were away", RESTARTED


@dataclass(frozen=True, slots=True)
class Phase:
    """What was so after an event and the quiet that followed. `homes`: where each task had run last when that began; `lived`:
    where it ran when all were there that are there now, of a life in which these were away since, and no others came."""

    event: str
    processors: Mapping[str, str]
    before: Owners
    after: Owners
    homes: Mapping[str, str]
    lived: Mapping[str, str] = field(default_factory=dict)


class Ran(dict[str, Lived]):
    """Where each task has run."""

    def last(self) -> dict[str, str]:
        return {task: one.last for task, one in self.items()}

    def run(self, task: str, place: str, now_us: int) -> None:
        before = self.get(task)
        self[task] = Lived(LocationId(place)) if before is None else before.moved_to(LocationId(place), now_us)

    def history(self, containers: tuple[ContainerModel, ...]) -> TaskHistory:
        last = {TaskName.parse(task): one.last for task, one in self.items()}
        return TaskHistory(containers, last, {}, {TaskName.parse(task): one.former for task, one in self.items()})


def tasks_of(number: int) -> list[TaskModel]:
    return [TaskModel(TaskName.parse(f"Partition_{p}"), (SSP("k", "in", p),)) for p in range(number)]


@dataclass(slots=True)
class Group:
    """A group whose processors have ids of their own, which are other ones after some returns."""

    tasks: int
    draw: random.Random
    locations: int
    most: int  # processors at once
    there: dict[str, str] = field(default_factory=dict)  # processor to its location
    gone: dict[str, str] = field(default_factory=dict)
    containers: tuple[ContainerModel, ...] = ()
    ran: Ran = field(default_factory=Ran)
    ids: Iterator[int] = field(default_factory=count)
    plans: Iterator[int] = field(default_factory=lambda: count(1))

    def life(self, events: int) -> Iterator[Phase]:
        for _ in range(self.draw.randint(2, min(6, self.most))):
            self._join()
        yield self._planned("the start")
        for _ in range(events):
            yield self._planned(self._happened(self.draw.choice(EVENTS)))
        self._back(list(self.gone))
        yield self._planned("all are back")

    def outages(self, number: int) -> Iterator[Phase]:
        """One location after the other is away, for longer than it is waited for, and back; before that some have joined, so
        that not all tasks are where they were at first."""
        for joining in (4, 3):
            for _ in range(joining):
                self._join()
            yield self._planned("some join")
        lived = self.ran.last()
        for _ in range(number):
            yield self._planned(self._happened("a location crashes"))
            self._back(list(self.gone))
            yield replace(self._planned(AS_BEFORE), lived=lived)

    def _join(self) -> None:
        if len(self.there) + len(self.gone) < self.most:
            self.there[f"p{next(self.ids)}"] = f"host-{self.draw.randrange(self.locations)}"

    def _happened(self, event: str) -> str:
        match event:
            case "one joins":
                self._join()
            case "a location crashes":
                place = self.draw.choice(sorted(self.there.values()))
                self._go([one for one in self.there if self.there[one] == place])
            case "one is back":
                self._back(self.draw.sample(sorted(self.gone), min(1, len(self.gone))))
            case "all are back":
                self._back(list(self.gone))
            case "all are restarted":
                lost, self.gone = self.gone, self.there
                self.there = {}
                self._back(list(self.gone))
                self.gone = lost
            case _:
                self._go([self.draw.choice(sorted(self.there))])
        return event

    def _go(self, names: Iterable[str]) -> None:
        for name in sorted(names):
            if len(self.there) > 1:
                self.gone[name] = self.there.pop(name)

    def _back(self, names: Iterable[str]) -> None:
        """Some with another id, as a process without one of its own has after each start."""
        for name in sorted(names):
            self.there[name if self.draw.random() < 0.5 else f"p{next(self.ids)}"] = self.gone.pop(name)

    def _planned(self, event: str) -> Phase:
        history = self.ran.history(self.containers)
        members = [Member(*one) for one in self.there.items()]
        self.draw.shuffle(members)
        before, homes = owners_of(self.containers), self.ran.last()
        self.containers = assigned(tasks_of(self.tasks), members, history)
        after, now_us = owners_of(self.containers), next(self.plans)
        for task, processor in after.items():
            self.ran.run(task, self.there[processor], now_us)
        return Phase(event, dict(self.there), before, after, homes)


@dataclass(slots=True)
class Executors:
    """A Spark cluster: slots at locations, seen twice a second, and planned with as `Sightings` says. What is away for a while
    may come back before anything is planned; where all is away nothing is."""

    tasks: int
    draw: random.Random
    locations: Mapping[str, int]  # with all their slots
    now_s: float = 0.0
    there: dict[str, int] = field(default_factory=dict)
    planned: dict[str, int] = field(default_factory=dict)
    containers: tuple[ContainerModel, ...] = ()
    ran: Ran = field(default_factory=Ran)
    sightings: Sightings = field(default_factory=lambda: Sightings(RETURN_S, SETTLE_S))
    plans: int = 0

    def life(self, events: int) -> Iterator[Phase]:
        self.there = dict(self.locations)
        yield self._quiet("the start")
        for _ in range(events):
            yield self._quiet(self._happened())
        self.there = dict(self.locations)
        yield self._quiet("all are back")

    def outages(self, number: int) -> Iterator[Phase]:
        """One location after the other is lost, or has fewer slots, and is back."""
        self.there = dict(self.locations)
        yield self._quiet("the start")
        lived = self.ran.last()
        for _ in range(number):
            name = self.draw.choice(sorted(self.locations))
            slots = self.draw.randrange(self.locations[name])
            self.there = self.there | {name: slots} if slots else {one: at for one, at in self.there.items() if one != name}
            yield self._quiet("a location is lost, or slots of it")
            self.there = dict(self.locations)
            yield replace(self._quiet(AS_BEFORE), lived=lived)

    def _happened(self) -> str:
        match self.draw.randrange(4):
            case 0:  # for a moment: a machine that is started again, or all of them
                away = self.draw.sample(sorted(self.there), self.draw.randint(1, len(self.there)))
                before, self.there = self.there, {name: slots for name, slots in self.there.items() if name not in away}
                self._pass(self.draw.uniform(1.0, RETURN_S - 1.0))
                self.there = before
                return "away for a moment"
            case 1 if len(self.there) > 1:
                del self.there[self.draw.choice(sorted(self.there))]
                return "a location is lost"
            case 2:  # they come back one after the other
                before, self.there = self.there, {}
                self._pass(self.draw.uniform(1.0, 5 * RETURN_S))
                for name in self.draw.sample(sorted(before), len(before)):
                    self.there[name] = before[name]
                    self._pass(self.draw.uniform(0.0, 0.9 * RETURN_S / len(before)))
                return "all were away"
            case _:
                missing = sorted(name for name in self.locations if self.there.get(name) != self.locations[name])
                if missing:
                    name = self.draw.choice(missing)
                    self.there[name] = self.locations[name]
                    return "a location is back"
                name = self.draw.choice(sorted(self.there))
                self.there[name] = max(1, self.there[name] - 1)
                return "a slot is lost"

    def _pass(self, seconds: float) -> None:
        """Look at the cluster for a while, and plan where a plan is due."""
        for _ in range(int(seconds / LOOK_S)):
            self.now_s += LOOK_S
            self.sightings = self.sightings.with_look(self.there, self.now_s)
            if self.there and (not self.containers or self.sightings.change_due(self.planned, self.now_s)):
                self._plan()

    def _plan(self) -> None:
        self.planned, self.plans = self.sightings.counted, self.plans + 1
        self.containers = assigned(tasks_of(self.tasks), members_of(self.planned), self.ran.history(self.containers))
        for container in self.containers:
            assert container.location_id is not None
            if container.location_id in self.there:
                for task in container.tasks:
                    self.ran.run(str(task.name), container.location_id, int(self.now_s * 1e6))

    def _quiet(self, event: str) -> Phase:
        before, homes = owners_of(self.containers), self.ran.last()
        self._pass(RETURN_S + SETTLE_S + 1)
        processors = {f"{name}#{slot}": name for name, slots in self.there.items() for slot in range(slots)}
        return Phase(event, processors, before, owners_of(self.containers), homes)


def group_of(seed: int, *, small: bool = False) -> Group:
    draw = random.Random(seed)
    return Group(draw.randint(2, 7), draw, 3, 4) if small else Group(draw.randint(64, 1_000), draw, 6, 20)


def executors_of(seed: int) -> Executors:
    draw = random.Random(seed)
    locations = {f"host-{number}": draw.randint(1, 3) for number in range(draw.randint(2, 6))}
    return Executors(draw.randint(64, 1_000), draw, locations)


if __name__ == "__main__":  # what `test_equal_inputs_give_equal_output_in_any_process` compares
    for phase in (*group_of(1).life(12), *executors_of(2).life(8)):
        print(phase.event, list(phase.after.items()))
