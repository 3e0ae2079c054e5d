"""The search: every interleaving of a model's steps, breadth first, and the shortest way to a broken state.

It knows nothing of what is modelled. A protocol is a `Model`: initial states, labelled steps, invariants. The embedded
log's is `log_model.LogModel`, Kafka's `kafka_model.KafkaModel`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

State = TypeVar("State", bound=Hashable)

STATES_MAX = 1_000_000


class Model(Protocol[State]):
    """A protocol as a graph of states. States are immutable and hashable; equal states have equal futures."""

    def initial(self) -> Iterable[State]: ...

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Each step that may be taken next, in a fixed order: its label and the state after it."""

    def broken(self, state: State) -> str | None:
        """Which invariant does not hold in `state`, in words; None if all do."""

    def finished(self, state: State) -> bool:
        """Whether all input is processed: what must be reachable."""


@dataclass(frozen=True, slots=True)
class Counterexample:
    """A shortest schedule that breaks an invariant: the labels of its steps, and what they broke."""

    steps: tuple[str, ...]
    violation: str

    def __str__(self) -> str:
        lines = [f"{number:3}. {label}" for number, label in enumerate(self.steps, 1)]
        return "\n".join([*lines, f"  => {self.violation}"])


@dataclass(frozen=True, slots=True)
class Exploration:
    """What a search found. `complete`: every reachable state was seen (it stops at a violation, or at its bound)."""

    states: int
    transitions: int
    depth: int
    complete: bool
    finishes: bool
    counterexample: Counterexample | None

    def __str__(self) -> str:
        size = f"{self.states:,} states, {self.transitions:,} transitions, depth {self.depth}"
        if self.counterexample is None:
            return f"{size}: no violation{'' if self.complete else ', but not all was seen'}"
        return f"{size}: violation\n{self.counterexample}"


def explore(model: Model[State], states_max: int = STATES_MAX) -> Exploration:
    """Walk all schedules of `model` until an invariant breaks, all states are seen, or `states_max` are."""
    came_from: dict[State, tuple[State, str] | None] = {}
    queue: deque[tuple[State, int]] = deque()
    transitions = depth = 0
    finishes = False
    for state in model.initial():
        if state not in came_from:
            came_from[state] = None
            queue.append((state, 0))
    while queue:
        state, depth = queue.popleft()
        if (violation := model.broken(state)) is not None:
            steps = tuple(_steps_to(state, came_from))
            return Exploration(len(came_from), transitions, depth, False, finishes, Counterexample(steps, violation))
        finishes = finishes or model.finished(state)
        for label, successor in model.steps(state):
            transitions += 1
            if successor not in came_from:
                came_from[successor] = (state, label)
                queue.append((successor, depth + 1))
        if len(came_from) > states_max:
            return Exploration(len(came_from), transitions, depth, False, finishes, None)
    return Exploration(len(came_from), transitions, depth, True, finishes, None)


def dead_end(model: Model[State]) -> Counterexample | None:
    """A shortest schedule to a state from which no schedule finishes; None if each state has one. For models that are sound:
    all states are walked, and all transitions kept."""
    came_from: dict[State, tuple[State, str] | None] = dict.fromkeys(model.initial())
    queue: deque[State] = deque(came_from)
    before: dict[State, list[State]] = {}
    while queue:
        state = queue.popleft()
        for label, successor in model.steps(state):
            before.setdefault(successor, []).append(state)
            if successor not in came_from:
                came_from[successor] = (state, label)
                queue.append(successor)
    finishing = {state for state in came_from if model.finished(state)}
    todo = list(finishing)
    while todo:
        for state in before.get(todo.pop(), ()):
            if state not in finishing:
                finishing.add(state)
                todo.append(state)
    stuck = next((state for state in came_from if state not in finishing), None)
    return None if stuck is None else Counterexample(tuple(_steps_to(stuck, came_from)), "no schedule finishes from here")


def _steps_to(state: State, came_from: dict[State, tuple[State, str] | None]) -> list[str]:
    labels: list[str] = []
    while (link := came_from[state]) is not None:
        state, label = link
        labels.append(label)
    return labels[::-1]
