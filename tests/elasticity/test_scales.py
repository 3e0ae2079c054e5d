"""Which scale is in force: what a start keeps, what counts as a request, and what waits for tasks to come together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.core.elasticity.scales import (
    ScaleDecision,
    ScaledSub,
    ScaleRequests,
    ScaleTerms,
    decided,
    refusal_of,
    stored_scales,
)
from headrace.core.job_plan.groupers import AllSspsToEveryTask, GroupByPartition, SystemStreamPartitionGrouper
from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.job_model import ContainerModel, JobModel, SubTopologyModel, TaskModel
from headrace.model.scale import Scale, ScaleInForce, ScaleRequest, StoredScales
from headrace.model.streams import SSP
from headrace.model.tasks import KeyBucket, PartitionGroup, TaskName
from planning.planned_model import STRINGS, PlannedModel

ONE = Scale()
SUBS = {"source": None, "by-day": "by-day"}


def terms(configured: dict[str, Scale] | Scale = ONE, grouper: SystemStreamPartitionGrouper | None = None) -> ScaleTerms:
    def of(name: str | None) -> Scale:
        return configured if isinstance(configured, Scale) else configured.get(name or "source", Scale())

    return ScaleTerms(tuple(map(ScaledSub, SUBS.values())), of, lambda count: grouper or GroupByPartition())


class Job:
    """What is stored of a job with one partition per sub-topology, as plans leave it."""

    def __init__(self, factors: Mapping[str, int], scales: StoredScales | None = None) -> None:
        subs, self.checkpoints = [], dict[TaskName, Checkpoint]()
        for title, factor in factors.items():
            name, ssp = SUBS[title], SSP("log", f"into-{title}", 0)
            tasks = []
            for index in range(factor):
                task = TaskName(PartitionGroup(0), name, KeyBucket(index, factor) if factor > 1 else None)
                tasks.append(TaskModel(task, (ssp,)))
                self.checkpoints[task] = Checkpoint(task, RoundId(1, name, 1), 1, {ssp: 5})
            subs.append(SubTopologyModel(name, (ContainerModel(0, tuple(tasks)),), factor))
        self.model = JobModel("app", 1, tuple(subs))
        self.scales = scales or StoredScales()

    def put_apart(self, title: str) -> Job:
        last = max(task for task in self.checkpoints if task.sub_topology == SUBS[title])
        there = self.checkpoints[last]
        self.checkpoints[last] = replace(there, positions=dict.fromkeys(there.positions, 9))
        return self

    def decided(self, terms_: ScaleTerms, requests: Mapping[str, ScaleRequest] | None = None) -> ScaleDecision:
        return decided(terms_, ScaleRequests(self.scales, requests or {}), self.model, self.checkpoints)

    def applied(self, terms_: ScaleTerms, requests: Mapping[str, ScaleRequest] | None = None) -> tuple[Job, ScaleDecision]:
        """The job behind the plan that is made so."""
        found = self.decided(terms_, requests)
        scales = stored_scales(ScaleRequests(self.scales, requests or {}), found)
        return Job({title: one.scale.factor for title, one in found.in_force.items()}, scales), found


def asks(factor: int | None = None, sub: str | None = None, containers: int | None = None, by: str = "me") -> ScaleRequest:
    return ScaleRequest(by, 0, sub, factor, containers)


def factors(decision: ScaleDecision) -> dict[str, int]:
    return {title: one.scale.factor for title, one in decision.in_force.items()}


def test_a_first_start_has_what_is_configured() -> None:
    found = decided(terms({"source": Scale(4, 2)}), ScaleRequests(), None, {})
    assert found.in_force["source"] == ScaleInForce(Scale(4, 2), Scale(4, 2))
    assert not (found.recuts or found.changes or found.waiting)


def test_a_restart_keeps_what_was_set_and_takes_an_edit_of_the_configuration() -> None:
    job, _ = Job({"source": 2, "by-day": 2}).applied(terms(Scale(2)), {"a": asks(8)})
    kept, same = job.applied(terms(Scale(2)))
    assert factors(same) == {"source": 8, "by-day": 8} and not same.changes
    assert kept.scales.scales["source"] == ScaleInForce(Scale(8), Scale(2), "me")
    edited, decision = kept.applied(terms(Scale(4)))
    assert factors(decision) == {"source": 4, "by-day": 4}
    assert [(one.before.factor, one.after.factor, one.by) for one in decision.changes] == [(8, 4, ""), (8, 4, "")]
    assert not edited.decided(terms(Scale(4))).changes


def test_a_job_of_an_older_version_has_the_factor_of_its_model() -> None:
    job, decision = Job({"source": 4, "by-day": 4}).applied(terms(Scale(4)))
    assert not decision.changes and job.scales.scales["source"].configured == Scale(4)
    assert Job({"source": 4, "by-day": 4}).decided(terms(Scale(2))).changes  # its edit counts too


def test_of_several_requests_the_last_counts_and_the_others_are_superseded() -> None:
    requests = {"a": asks(8, by="ann"), "b": asks(2, by="bob"), "c": asks(8, "source", by="cy")}
    job, decision = Job({"source": 1, "by-day": 1}).applied(terms(), requests)
    assert factors(decision) == {"source": 8, "by-day": 2}
    assert [(one.sub_topology, one.by) for one in decision.changes] == [("source", "cy"), ("by-day", "bob")]
    assert decision.settled == ("a", "b", "c") and decision.superseded == ("a",)
    again = job.decided(terms(), requests)  # they were not removed: a crash behind the transaction
    assert not again.changes and again.settled == ()


def test_containers_and_factor_are_set_each_by_itself() -> None:
    job, _ = Job({"source": 1, "by-day": 1}).applied(terms(), {"a": asks(4), "b": asks(containers=3)})
    assert job.scales.scales["source"].scale == Scale(4, 3)
    _, decision = job.applied(terms(Scale(1, 2)))  # only the containers were edited
    assert decision.in_force["source"].scale == Scale(4, 2) and not decision.recuts


def test_what_is_in_force_already_changes_nothing_and_is_settled() -> None:
    decision = Job({"source": 2, "by-day": 2}).decided(terms(Scale(2)), {"a": asks(2)})
    assert not (decision.changes or decision.recuts) and decision.settled == ("a",) and not decision.superseded


def test_a_merge_of_tasks_that_are_apart_waits_and_all_else_is_done() -> None:
    apart = Job({"source": 4, "by-day": 4}).put_apart("source")
    requests = {"a": asks(2, by="ann")}
    job, decision = apart.applied(terms(Scale(4)), requests)
    assert factors(decision) == {"source": 4, "by-day": 2}
    assert decision.settled == () and decision.waiting["source"].positions == {SSP("log", "into-source", 0): 9}
    behind = decision.waiting["source"].behind(apart.checkpoints)
    assert {str(task): left for task, left in behind.items()} == {f"Partition_0-{index}-4": 4 for index in range(3)}
    later = {**requests, "b": asks(8, "by-day", by="bob")}
    job, decision = job.put_apart("source").applied(terms(Scale(4)), later)
    assert factors(decision) == {"source": 4, "by-day": 8} and decision.settled == ()  # "b" is kept: "a" would undo it later
    together, decision = job.applied(terms(Scale(4)), later)
    assert factors(decision) == {"source": 2, "by-day": 8} and decision.settled == ("a", "b")
    assert not together.decided(terms(Scale(4))).changes


def test_an_edit_takes_tasks_away_while_a_lower_factor_waits() -> None:
    """The start that made the plan ended with a KeyError, once it was committed."""

    def two(app: hr.App) -> None:
        app.stream("clicks", **STRINGS).to("out")
        app.stream("views", **STRINGS).to("out")

    job = PlannedModel(two, {"clicks": 2, "views": 4}, elasticity_factor=lambda name: 2)
    job.write("clicks", 10)
    job.write("views", 10)
    job.start()
    job.run(5)
    there = dict(job.snapshot.checkpoints)
    for name in ("Partition_1-0-2", "Partition_3-0-2"):
        ahead = TaskName.parse(name)
        there[ahead] = replace(there[ahead], positions={ssp: at + 2 for ssp, at in there[ahead].positions.items()})
    job.snapshot = replace(job.snapshot, checkpoints=there).with_scale(ScaleRequest("ann", 1, None, 1))
    job.edit(lambda app: app.stream("clicks", **STRINGS).to("out"), elasticity_factor=lambda name: 2)
    made = job.start()
    waiting = made.scaling.waiting["source"]
    assert {str(task): left for task, left in waiting.behind(made.checkpoints).items()} == {"Partition_1-1-2": 2}
    assert waiting.text(made.checkpoints).endswith("to be merged are together: Partition_1-1-2 is behind, by 2 offsets")


def test_an_edit_that_has_to_wait_is_not_forgotten() -> None:
    job, decision = Job({"source": 4, "by-day": 1}).put_apart("source").applied(terms({"source": Scale(2)}))
    assert factors(decision)["source"] == 4
    assert job.decided(terms({"source": Scale(2)})).recuts


def test_a_split_does_not_wait() -> None:
    assert Job({"source": 2, "by-day": 1}).put_apart("source").decided(terms(), {"a": asks(8, "source")}).recuts


def test_withdrawn_by_the_factor_that_is_in_force() -> None:
    job = Job({"source": 4, "by-day": 4}).put_apart("source")
    decision = job.decided(terms(Scale(4)), {"a": asks(2, "source"), "b": asks(4, "source")})
    assert not (decision.changes or decision.waiting)
    assert decision.settled == ("a", "b") and decision.superseded == ("a",)


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (asks(0), "power of two"),
        (asks(3), "power of two"),
        (asks(2048), "1 to 1,024"),
        (asks(2, "by-night"), "no sub-topology 'by-night'; there are: source, by-day"),
        (asks(), "asks for nothing"),
        (asks(containers=-1), "expected 1 to"),
    ],
)
def test_what_cannot_be_done_is_refused_and_the_rest_is_done(request_: ScaleRequest, why: str) -> None:
    assert why in str(refusal_of(request_, terms()))
    decision = Job({"source": 1, "by-day": 1}).decided(terms(), {"a": request_, "b": asks(2, "source")})
    assert list(decision.refused) == ["a"] and why in decision.refused["a"]
    assert factors(decision) == {"source": 2, "by-day": 1} and set(decision.settled) == {"a", "b"}


def test_tasks_that_all_read_everything_take_no_factor() -> None:
    why = refusal_of(asks(2), terms(grouper=AllSspsToEveryTask(2)))
    assert why is not None and "every task reads everything" in why
    assert refusal_of(asks(1), terms(grouper=AllSspsToEveryTask(2))) is None


wanted = st.builds(asks, st.sampled_from([1, 2, 4, 8, None]), st.sampled_from([None, *SUBS]), st.sampled_from([None, 1, 3]))


@given(st.lists(wanted, max_size=6), st.lists(st.booleans(), min_size=6, max_size=6))
def test_however_requests_are_picked_up_the_scale_is_that_of_the_last(asked: list[ScaleRequest], looks: list[bool]) -> None:
    """Plans are made between requests or not, and requests are removed late: what comes out is what was asked for last."""
    job, open_ = Job({"source": 1, "by-day": 1}), dict[str, ScaleRequest]()
    expected = {title: [1, 0] for title in SUBS}
    for number, (one, is_looked) in enumerate(zip(asked, looks, strict=False)):
        open_[f"{number:02}"] = one
        for title in SUBS if one.sub_topology is None else [one.sub_topology]:
            if one.factor is not None:
                expected[title][0] = one.factor
            if one.containers is not None:
                expected[title][1] = one.containers
        if is_looked:
            job, _ = job.applied(terms(), open_)
    job, decision = job.applied(terms(), open_)
    assert {title: [one.scale.factor, one.scale.containers] for title, one in decision.in_force.items()} == expected
    assert set(job.scales.settled) == set(open_)


def test_containers_are_no_request_in_a_group() -> None:
    """There they are the slots of its processors. The factor is, and so are containers that say how many tasks there are."""
    group = replace(terms(), in_group=True)
    requests = {"a": asks(containers=1), "b": asks(2, containers=3, by="bob"), "c": asks(4), "d": asks(containers=0)}
    decision = Job({"source": 1, "by-day": 1}).decided(group, requests)
    assert factors(decision) == {"source": 4, "by-day": 4} and decision.settled == ("a", "b", "c", "d")
    assert {one.scale.containers for one in decision.in_force.values()} == {0}
    assert decision.refused.keys() == {"a", "b"} and "start processors or stop some" in decision.refused["a"]
    of_all = replace(group, grouper=AllSspsToEveryTask)
    assert refusal_of(asks(containers=3), of_all) is None
    assert refusal_of(asks(containers=3), replace(group, grouper=lambda _: AllSspsToEveryTask(2))) is not None
