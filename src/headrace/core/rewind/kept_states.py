"""The versions of a job's state that are kept, and what going back to each would read again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from headrace.core.rewind.consistent_cuts import ConsistentCut
from headrace.core.rewind.state_history import StateVersion, Versions
from headrace.model.checkpoint import Checkpoint
from headrace.model.job_model import JobModel
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName


@dataclass(frozen=True, slots=True)
class KeptState:
    """Versions that were kept at one time. `is_cut`: of all tasks of the sub-topology between two of its rounds, which go back
    together; else each task goes back alone. `read_again`: by stream the offsets from there to where its readers are now.
    `left`: a rewind has left it, and undoing that goes back to it."""

    sub_topology: str
    kept_us: int
    tasks: tuple[TaskName, ...]
    read_again: Mapping[str, int]
    is_cut: bool = False
    left: bool = False


def kept_states(
    model: JobModel,
    checkpoints: Mapping[TaskName, Checkpoint],
    versions: Versions,
    cuts: Iterable[ConsistentCut],
    *,
    by_task: bool = False,
) -> list[KeptState]:
    """All that is kept, oldest first, of each sub-topology. `by_task`: each version alone.

    A partition that several tasks read counts once, from the lowest of their positions.
    """
    found: list[KeptState] = []
    for sub in model.sub_topologies:
        tasks = {task.name for task in sub.tasks}
        own = {task: {one.order: one for one in versions.get(task, ())} for task in tasks}
        in_cuts: set[tuple[TaskName, tuple[int, int]]] = set()
        for cut in cuts:
            if cut.sub_topology != sub.name or not cut.rounds.keys() <= tasks:
                continue
            of_cut = [own[task][round_id.order] for task, round_id in cut.rounds.items() if round_id.order in own[task]]
            if len(of_cut) < len(cut.rounds):
                continue  # it is being dropped
            in_cuts |= {(one.checkpoint.task, one.order) for one in of_cut}
            if not by_task:
                found.append(_kept(sub.title, cut.kept_us, of_cut, checkpoints, is_cut=True))
        alone: dict[tuple[int, bool, str, int], list[StateVersion]] = {}
        for task, kept in own.items():
            at_once = Counter[int]()  # of one task several may be of one time
            for order, one in kept.items():
                if by_task or (task, order) not in in_cuts:
                    at_once[one.kept_us] += 1
                    key = one.kept_us, one.abandoned_for is not None, str(task) if by_task else "", at_once[one.kept_us]
                    alone.setdefault(key, []).append(one)
        found += [_kept(sub.title, kept_us, mine, checkpoints, left=left) for (kept_us, left, *_), mine in alone.items()]
    return sorted(found, key=lambda one: (one.kept_us, one.sub_topology, str(one.tasks[0])))


def _kept(
    title: str,
    kept_us: int,
    versions: Sequence[StateVersion],
    checkpoints: Mapping[TaskName, Checkpoint],
    *,
    is_cut: bool = False,
    left: bool = False,
) -> KeptState:
    tasks = sorted((one.checkpoint.task for one in versions), key=str)
    return KeptState(title, kept_us, tuple(tasks), _read_again(versions, checkpoints), is_cut, left)


def _read_again(versions: Collection[StateVersion], checkpoints: Mapping[TaskName, Checkpoint]) -> dict[str, int]:
    spans: dict[SSP, tuple[int, int]] = {}
    for one in versions:
        now = checkpoints.get(one.checkpoint.task)
        for ssp, position in one.checkpoint.positions.items():
            if now is not None and (end := now.positions.get(ssp)) is not None:
                before = spans.get(ssp, (position, end))
                spans[ssp] = min(before[0], position), max(before[1], end)
    found: dict[str, int] = {}
    for ssp, (start, end) in spans.items():
        found[ssp.stream] = found.get(ssp.stream, 0) + max(0, end - start)
    return dict(sorted(found.items()))
