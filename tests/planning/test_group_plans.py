"""What a leader's plans make of the processors of a group."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import headrace as hr
from headrace.core.affinity.members import Member
from headrace.core.job_plan.draft import Draft
from headrace.model.scale import ScaleRequest
from planning.planned_model import STRINGS, PlannedModel

A_AND_B = (Member("a"), Member("b"))


def counts(app: hr.App) -> None:
    app.stream("clicks", **STRINGS).group_by_key().count(store="counts").to_stream().to("totals")


class Paired(hr.TaskNameGrouper):
    """Tasks 0 and 1 are with the first processor, 2 and 3 with the next, and so on."""

    def group(
        self,
        tasks: Collection[hr.TaskModel],
        processor_ids: Collection[str] | None = None,
        previous_containers: Collection[hr.ContainerModel] | None = None,
    ) -> list[hr.ContainerModel]:
        ids, shares = sorted(processor_ids or ()), dict[str, list[hr.TaskModel]]()
        for number, task in enumerate(sorted(tasks, key=lambda one: one.name)):
            shares.setdefault(ids[number // 2 % len(ids)], []).append(task)
        return [hr.ContainerModel(lane, tuple(share), id_) for lane, (id_, share) in enumerate(shares.items())]


def next_plan(job: PlannedModel, version: int) -> Draft:
    job.terms = replace(job.terms, next_version=version)
    made = job.plan(is_replan=True)
    assert isinstance(made, Draft), made
    return made


def test_a_factor_under_which_a_users_grouper_tears_virtual_tasks_is_refused_on_record() -> None:
    """No processor could read its part: each ended at every grant, under a plan that was committed."""
    job = PlannedModel(counts, {"clicks": 1}, processors=A_AND_B, next_version=1, task_name_grouper=Paired())
    job.start()
    job.snapshot = job.snapshot.with_scale(ScaleRequest("ann", 1, None, 4))
    made = next_plan(job, 2)
    (why,) = made.scaling.refused.values()
    assert "of the virtual tasks of Partition_0 processor 'a' has Partition_0-0-4, Partition_0-1-4: expected" in why
    assert [str(task.name) for task in made.job_model.tasks] == ["Partition_0"]
    job.snapshot = job.snapshot.with_scale(ScaleRequest("ann", 2, None, 2))
    assert len(list(next_plan(job, 2).job_model.tasks)) == 2, "both virtual tasks are one pair"
