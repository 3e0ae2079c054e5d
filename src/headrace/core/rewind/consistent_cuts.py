"""Consistent cuts: the state of all tasks of a sub-topology between two of its rounds, taken, kept and thinned.

Which sub-topologies go by cuts, and which cut a rewind goes back to, see `rewinds`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headrace.core.rewind.state_history import (
    RetentionPolicy,
    StateVersion,
    Versions,
    left_open,
    on_the_line,
    rewound,
    thinned_over_time,
)
from headrace.core.topology.sub_topologies import SubTopology, has_state
from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName


@dataclass(frozen=True, slots=True)
class ConsistentCut:
    """The state of a sub-topology between two of its rounds, at `kept_us` (µs since the epoch).

    `rounds`: per task the round of its version. `written`: per partition of the repartition streams that it writes the
    offset which separates the writes by then from later ones.
    """

    sub_topology: str | None
    kept_us: int
    rounds: Mapping[TaskName, RoundId]
    written: Mapping[SSP, int]

    @property
    def key(self) -> str:
        """Its name among all cuts of all sub-topologies."""
        return f"{self.sub_topology or 'source'}/{self.kept_us:020d}"


@dataclass(frozen=True, slots=True)
class SubTopologyEdges:
    """A sub-topology, as far as going back goes: the streams that it reads, the repartition streams that it writes, and
    whether it has state."""

    name: str | None
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    has_state: bool


def edges_of(subs: Iterable[SubTopology]) -> tuple[SubTopologyEdges, ...]:
    """In the order of `sub_topologies_of`: each comes after all that write what it reads."""
    return tuple(SubTopologyEdges(sub.name, sub.reads, sub.writes, has_state(sub)) for sub in subs)


def going_by_cuts(flows: Sequence[SubTopologyEdges]) -> frozenset[str | None]:
    """The sub-topologies with state behind them, across repartition streams: those whose tasks go back together."""
    found: set[str | None] = set()
    reads: set[str] = set()  # of what has state, or leads to it
    for flow in reversed(flows):
        if reads.intersection(flow.writes):
            found.add(flow.name)
        if flow.has_state or flow.name in found:
            reads.update(flow.reads)
    return frozenset(found)


def cut_of(
    sub_topology: str | None,
    checkpoints: Iterable[Checkpoint],
    versions: Versions,
    written: Mapping[SSP, int],
    now_us: int,
) -> ConsistentCut | None:
    """The cut of a sub-topology whose tasks are at `checkpoints`, of which versions are kept; None where one has none, and
    only what it left by going back."""
    rounds = {one.task: _round_of_state(one, on_the_line(versions.get(one.task, ()))) for one in checkpoints}
    known = {task: round_id for task, round_id in rounds.items() if round_id is not None}
    return ConsistentCut(sub_topology, now_us, known, written) if len(known) == len(rounds) else None


def _round_of_state(checkpoint: Checkpoint, line: Sequence[StateVersion]) -> RoundId | None:
    """Of the versions on a task's line the one that has its present state: it may have been rewound to it."""
    if line and rewound(checkpoint, line[-1]) == checkpoint:
        return line[-1].checkpoint.round_id
    return next((one.checkpoint.round_id for one in line if one.checkpoint.round_id == checkpoint.round_id), None)


def thinned_cuts(
    versions: Versions, cuts: Sequence[ConsistentCut], now_us: int, keeping: RetentionPolicy
) -> tuple[dict[TaskName, tuple[StateVersion, ...]], tuple[ConsistentCut, ...]]:
    """Of a sub-topology's cuts those that stay, and the versions that they are of. As `thinned` does for one task.

    What is off the line stays until something newer is on it: so long going back may be taken back.
    """
    lines = {task: on_the_line(kept) for task, kept in versions.items()}
    on_line = {task: {one.order for one in line} for task, line in lines.items()}
    all_known = {task: {one.order for one in kept} for task, kept in versions.items()}

    def is_of(cut: ConsistentCut, known: Mapping[TaskName, set[tuple[int, int]]]) -> bool:
        return all(round_id.order in known.get(task, ()) for task, round_id in cut.rounds.items())

    ordered = sorted(cuts, key=lambda cut: cut.kept_us)
    stay = thinned_over_time([cut for cut in ordered if is_of(cut, on_line)], now_us, keeping)
    wanted = {task: {one.order for one in left_open(kept, lines[task]) if keeping.most} for task, kept in versions.items()}
    left = [cut for cut in ordered if cut not in stay and not is_of(cut, on_line) and is_of(cut, all_known)]
    if not any(wanted.values()):
        left = []
    for cut in (*stay, *left):
        for task, round_id in cut.rounds.items():
            wanted.setdefault(task, set()).add(round_id.order)
    kept_versions = {task: tuple(one for one in kept if one.order in wanted[task]) for task, kept in versions.items()}
    return kept_versions, tuple(sorted([*stay, *left], key=lambda cut: cut.kept_us))
