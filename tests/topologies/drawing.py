"""Draws topologies and data: by hypothesis, which makes them smaller where something fails, or from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import strategies as st

from topologies.building import is_accepted
from topologies.spec import HOW_MAX, KEYS, Sent, Spec, Step, nodes_of, sent_of

STEPS_MAX, RECORDS_MAX = 10, 60
EARLY_MS, LATE_MS = 3_000, 25_000  # times in ms: Kafka keeps no others
CUTS = (1000, 1, 5, 40)
FACTORS = (1, 2, 4)
THREADS = (1, 3)


@dataclass(frozen=True)
class Drawn:
    """Numbers, which a topology and what is sent are read off. `pauses`: after how many records the job comes to its end,
    and whether the clock goes on by an hour then, by which inputs are idle. `factors`: those that follow at the first of the
    pauses; `grown`: which inputs then have twice as many partitions."""

    partitions: int
    global_partitions: int
    cut: int
    containers: int
    factor: int
    threads: int
    steps: Sequence[Step]
    sent: Sequence[Sent]
    pauses: Sequence[tuple[int, bool]]
    factors: Sequence[int] = ()
    grown: Sequence[int] = ()

    def spec(self, name: str) -> Spec:
        partitions = dict.fromkeys(("a", "b", "t"), self.partitions) | {"g": self.global_partitions}
        keys = {"max_records_per_round": self.cut, "containers": self.containers}
        keys |= {"elasticity_factor": self.factor, "task_threads": self.threads}
        nodes = nodes_of(self.steps, is_accepted)
        for node in nodes:
            # With a smaller factor punctuations may be called once more for some keys.
            if self.factors and node.get("how") == "punctuated":
                node["how"] = "count"
        return Spec(name, partitions, nodes, keys)

    def records(self, spec: Spec) -> list[tuple[str, str | None, Any, int]]:
        return sent_of(spec.inputs, self.sent)


def _numbers(*most: int) -> st.SearchStrategy[Any]:
    return st.tuples(*(st.integers(0, each) for each in most))


# All lengths of windows, gaps, graces and joins are whole seconds, and so is a record's turn. What is shifted by whole seconds
# lies exactly at their bounds again and again: so are most.
_SHIFTS = st.one_of(
    st.just(0),
    st.integers(-EARLY_MS // 1000, EARLY_MS // 1000).map(lambda seconds: seconds * 1000),
    st.integers(-LATE_MS // 1000, 0).map(lambda seconds: seconds * 1000),
    st.integers(-EARLY_MS, EARLY_MS),
    st.integers(-LATE_MS, 0),
)
_SENT = st.tuples(st.integers(0, 3), st.integers(0, KEYS), st.integers(0, 99), _SHIFTS)
DRAWN = st.builds(
    Drawn,
    partitions=st.integers(1, 3),
    global_partitions=st.integers(1, 2),
    cut=st.sampled_from(CUTS),
    containers=st.integers(1, 3),
    factor=st.sampled_from(FACTORS),
    threads=st.sampled_from(THREADS),
    steps=st.lists(_numbers(99, 99, 99, HOW_MAX), min_size=1, max_size=STEPS_MAX),
    # left to itself hypothesis sends a handful; few are enough once it makes an example smaller
    sent=st.one_of(
        st.lists(_SENT, min_size=1, max_size=RECORDS_MAX // 2),
        st.lists(_SENT, min_size=RECORDS_MAX // 2, max_size=RECORDS_MAX),
    ),
    pauses=st.lists(st.tuples(st.integers(0, RECORDS_MAX), st.booleans()), max_size=3),
    factors=st.lists(st.sampled_from((*FACTORS, 16)), max_size=3),
    grown=st.lists(st.integers(0, 3), max_size=2),
)


def from_seed(draw: Random) -> Drawn:
    def numbers(*most: int) -> tuple[int, ...]:
        return tuple(draw.randint(0, each) for each in most)

    steps: Any = [numbers(99, 99, 99, HOW_MAX) for _ in range(draw.randint(5, STEPS_MAX))]
    ways = (
        lambda: draw.randint(-EARLY_MS // 1000, EARLY_MS // 1000) * 1000,
        lambda: draw.randint(-LATE_MS // 1000, 0) * 1000,
        lambda: draw.randint(-EARLY_MS, EARLY_MS),
        lambda: draw.randint(-LATE_MS, 0),
    )
    shifts = (0, 0, 0, 1, 2, 3)  # most at the bounds, and not far from their turn
    sent: Any = [(*numbers(3, KEYS, 99), ways[draw.choice(shifts)]()) for _ in range(RECORDS_MAX)]
    pauses = tuple((draw.randrange(RECORDS_MAX), draw.random() < 0.5) for _ in range(draw.randint(0, 3)))
    counts = (draw.randint(1, 3), draw.randint(1, 2), draw.choice(CUTS), draw.randint(1, 3))
    factors = [draw.choice(FACTORS) for _ in range(draw.randint(0, 3))]
    grown = [draw.randint(0, 3) for _ in range(draw.randint(0, 2))]
    return Drawn(*counts, draw.choice(FACTORS), draw.choice(THREADS), steps, sent, pauses, factors, grown)
