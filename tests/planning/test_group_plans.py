"""What a leader's plans make of the processors of a group."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import headrace as hr
from headrace.core.affinity.members import Member
from headrace.core.group.drafts import GroupDraft, GroupStep, WantedPlan, group_draft
from headrace.core.group.grants import Grant, GroupShape, processor_slots, processor_tasks
from headrace.core.job_plan.draft import Draft
from headrace.core.job_plan.groupers import AllSspsToEveryTask
from headrace.model.scale import ScaleRequest
from headrace.model.startpoint import StartpointStatus
from planning.planned_model import EARLIEST, STRINGS, PlannedModel

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


def led(job: PlannedModel, version: int, present: str) -> GroupDraft:
    """What the leader makes of the next plan, for these processors of one slot; `a` and `b` have grants."""
    members = tuple(slot for id_ in present for slot in processor_slots(id_, None, 1))
    job.terms = replace(job.terms, processors=members)
    wanted = WantedPlan(GroupShape(members, version), {id_: id_ for id_ in present})
    return group_draft(next_plan(job, version), job.snapshot, wanted, {"a": Grant(5, "a"), "b": Grant(6, "b")})


def test_who_has_spent_a_startpoint_works_on_through_a_plan_that_leaves_it_alone() -> None:
    """Its rounds were ended, as the plan had its checkpoints without the startpoint's id."""
    job = PlannedModel(lambda app: app.stream("clicks", **STRINGS).to("out"), {"clicks": 2}, processors=A_AND_B, next_version=1)
    job.write("clicks", 10)
    job.start()
    job.run(5)
    for partition in (0, 1):
        job.request(f"s{partition}", "clicks", EARLIEST, partition)
    job.commit(next_plan(job, 2))
    job.run(3)
    spent = job.snapshot.checkpoints
    assert sorted(id_ for one in spent.values() for id_ in one.spent_startpoints.values()) == ["s0", "s1"]
    made = led(job, 3, "abcdef")  # four more come, for which there are no tasks
    assert (made.step, made.changed, made.gains) == (GroupStep.PROPOSE, frozenset(), frozenset())
    applied = made.draft.changed_startpoints
    assert {id_: one and one.status for id_, one in applied.items()} == dict.fromkeys(("s0", "s1"), StartpointStatus.APPLIED)
    job.commit(made.draft)
    job.snapshot = replace(job.snapshot, checkpoints=spent)  # none of them is written
    assert led(job, 4, "abcdef").step is GroupStep.NOTHING
    job.delete("s0")
    after = led(job, 4, "ab")
    assert not after.changed and not after.draft.changed_startpoints, "what was spent is spent, deleted or not"
    assert {str(task): sorted(one.positions.values()) for task, one in after.draft.checkpoints.items()} == {
        "Partition_0": [3],
        "Partition_1": [3],
    }
    left = led(job, 4, "a")  # the task of `b` goes to `a`, which works on meanwhile
    assert (left.changed, left.gains) == ({"b"}, {"a"})
    assert processor_tasks(left.draft.job_model, ["a"]) == spent.keys()


def every(number: int | None) -> AllSspsToEveryTask:
    return AllSspsToEveryTask(number)


def test_tasks_that_each_read_everything_are_as_many_as_before_whoever_leads() -> None:
    """They were as many as the leader has slots: another one, with other slots, took tasks away, and their positions."""
    slots = (*processor_slots("a", None, 1), *processor_slots("b", None, 4))
    job = PlannedModel(lambda app: app.stream("clicks", **STRINGS).to("out"), {"clicks": 2}, grouper=every, processors=slots)
    job.write("clicks", 10)
    job.terms = replace(job.terms, slots=1, next_version=1)  # `a` leads
    job.start()
    assert len(job.snapshot.checkpoints) == 5, "the slots of all processors"
    job.run(4)
    before = {task: one.positions for task, one in job.snapshot.checkpoints.items()}
    for version, leads, there in ((2, 4, slots[1:]), (3, 1, slots[:1]), (4, 4, (*slots, Member("c")))):
        job.terms = replace(job.terms, slots=leads, processors=there)
        made = next_plan(job, version)
        assert {task: one.positions for task, one in made.checkpoints.items()} == before
        job.commit(made)
    job.snapshot = job.snapshot.with_scale(ScaleRequest("ann", 1, None, None, 2))
    made = next_plan(job, 5)
    assert len(made.checkpoints) == 2 and not made.scaling.refused, "a number that is requested counts"


def test_tasks_that_each_read_everything_are_as_many_as_slots_where_tasks_were_others_before() -> None:
    job = PlannedModel(lambda app: app.stream("clicks", **STRINGS).to("out"), {"clicks": 5}, processors=A_AND_B, next_version=1)
    job.start()
    job.terms = replace(job.terms, grouper=every, slots=4)
    assert len(next_plan(job, 2).checkpoints) == 2
