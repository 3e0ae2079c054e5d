"""Which containers of a standalone group a new job model leaves as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace.core.affinity.members import process_of
from headrace.model.job_model import ContainerModel, JobModel, SubTopologyModel


def kept_as_they_are(
    subs: Sequence[SubTopologyModel], previous: JobModel | None, version: int
) -> tuple[SubTopologyModel, ...]:
    """`subs`, where each container that is as it was is so since the same version; the others are since `version`. For
    standalone groups: a new plan writes nothing of what it leaves alone. Of a processor that loses none of its tasks a
    container that gets more is as it was: it works on meanwhile (`core.group.grants.gaining`)."""
    before = _by_lane(previous.sub_topologies) if previous else {}
    now = _by_lane(subs)
    losing = {_process_of(one) for place, one in before.items() if not _extends(now.get(place), one)}

    def stamped(name: str | None, container: ContainerModel) -> ContainerModel:
        then = before.get((name, container.lane))
        is_same = then is not None and replace(then, since=None) == container
        works_on = then is not None and _extends(container, then) and _process_of(container) not in losing
        if then is None or not (is_same or works_on):
            return replace(container, since=version)
        assert previous is not None
        return replace(container, since=then.since or previous.version)

    return tuple(replace(sub, containers=tuple(stamped(sub.name, one) for one in sub.containers)) for sub in subs)


def _by_lane(subs: Sequence[SubTopologyModel]) -> dict[tuple[str | None, int], ContainerModel]:
    return {(sub.name, one.lane): one for sub in subs for one in sub.containers}


def _extends(now: ContainerModel | None, then: ContainerModel) -> bool:
    """Whether the same processor has all its tasks in the container, as they were."""
    return now is not None and replace(then, tasks=now.tasks, since=now.since) == now and set(then.tasks) <= set(now.tasks)


def _process_of(container: ContainerModel) -> str | None:
    return None if container.processor_id is None else process_of(container.processor_id)
