"""What Kafka has of a simulated group: the job model, the grants, and who may change them. It is the commit point.

Plans are made by the planner, and judged by `core.group`, as `driver.group.group_planner` does it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import headrace as hr
from headrace.core.affinity.groupers import LocalityInfo
from headrace.core.group.drafts import GroupDraft, WantedPlan, group_draft
from headrace.core.group.grants import Grant, Grants, after_change, numbers_in_force, processor_of
from headrace.core.group.state import ModelOrigin
from headrace.core.job_plan.planner import planned
from headrace.errors import FencedError, UnavailableError
from headrace.model.change import Change, ChangeKind
from headrace.model.checkpoint import RoundId
from headrace.model.job_model import JobModel
from planning.planned_model import STRINGS, PlannedModel

Plan = Mapping[str, frozenset[str]]  # id to the tasks that it has, of all sub-topologies
BEHIND = 2  # tasks of the second sub-topology


def _passing(app: hr.App) -> Any:
    lines = app.stream("lines", **STRINGS)
    return lines.repartition(hr.Repartitioned(name="behind", number_of_partitions=BEHIND)).to("out")


def plan_of(model: JobModel | None) -> Plan:
    found: dict[str, set[str]] = {}
    for sub in () if model is None else model.sub_topologies:
        for container in sub.containers:
            found.setdefault(str(processor_of(container)), set()).update(str(task.name) for task in container.tasks)
    return {id_: frozenset(tasks) for id_, tasks in found.items()}


class Kafka:
    """Two sub-topologies, of `tasks` and of `BEHIND` tasks. Who changes anything says which leader it is: `FencedError` where
    another has taken the application since. `open`: the grants under which a processor sleeps, or has died, in a transaction.
    It ends when its lanes are fenced, and by no timeout; no checkpoint is read before. `unanswered_in`: so many of what a
    leader does later its call is not answered, once."""

    def __init__(self, tasks: int) -> None:
        self._job = PlannedModel(_passing, {"lines": tasks})
        self.holder: tuple[str, int] | None = None
        self.numbers = 0
        self.grants: Grants = {}
        self.origin: ModelOrigin | None = None  # of the job model
        self.entries: list[Change] = []
        self.open: set[int] = set()
        self.unanswered_in: int | None = None

    def _ask(self) -> None:
        if self.unanswered_in is not None:
            self.unanswered_in -= 1
            if self.unanswered_in < 0:
                self.unanswered_in = None
                raise UnavailableError("Kafka does not answer")

    def read(self) -> None:
        """What a leader reads of checkpoints."""
        self._ask()
        if self.open:
            raise UnavailableError(f"transactions are open under grants {sorted(self.open)}")

    @property
    def model(self) -> JobModel | None:
        return self._job.snapshot.model

    @property
    def version(self) -> int:
        return 0 if self.model is None else self.model.version

    @property
    def plan(self) -> Plan:
        return plan_of(self.model)

    def take(self, holder: tuple[str, int]) -> None:
        self.holder = holder
        self.numbers += 1

    def draft(self, wanted: WantedPlan, is_replan: bool, locality: LocalityInfo) -> GroupDraft:
        self.read()
        shape, job = wanted.shape, self._job
        terms = replace(
            job.terms,
            processors=shape.processors,
            next_version=shape.version,
            forgets_locality=shape.forgets,
            is_replan=is_replan,
        )
        snapshot = replace(job.snapshot, epoch=self.numbers, locality=locality)
        return group_draft(planned(terms, snapshot), snapshot, wanted, self.grants)

    def take_back(self, holder: tuple[str, int], processors: Collection[str]) -> None:
        self._ask()
        self._check(holder)
        self.grants = {id_: grant for id_, grant in self.grants.items() if id_ not in processors}
        self.fence_others(holder)

    def fence_others(self, holder: tuple[str, int]) -> None:
        self._ask()
        self._check(holder)
        self.open &= numbers_in_force(self.grants)

    def _check(self, holder: tuple[str, int]) -> None:
        if holder != self.holder:
            raise FencedError("another leader has the application")

    def grant(
        self,
        holder: tuple[str, int],
        wanted: WantedPlan,
        processors: Collection[str],
        origin: ModelOrigin | None = None,
    ) -> None:
        self.take_back(holder, processors)
        self._ask()
        self._give(wanted, processors, processors)
        self.origin = origin

    def commit(
        self,
        holder: tuple[str, int],
        wanted: WantedPlan,
        is_replan: bool,
        locality: LocalityInfo,
        changed: Collection[str],
        origin: ModelOrigin | None = None,
    ) -> None:
        fenced, before = frozenset(changed), self.plan
        for _ in range(5):
            self.take_back(holder, fenced)
            made = self.draft(wanted, is_replan, locality)
            if made.to_fence <= fenced:
                self._ask()
                assert made.draft.job_model.version > self.version, "a version is used twice"
                self._job.commit(made.draft)
                self._give(wanted, fenced, made.portions, made.gains - fenced)
                self.origin = origin
                self.entries += made.draft.changes.values()
                assert self.plan != before or wanted.of_other_code, f"job model {self.version} changes nothing"
                self._check_entries(made)
                self._ask()  # it is committed, and that is not known
                return
            fenced |= made.to_fence
        raise UnavailableError("each plan changes other processors")

    def commit_round(self, grant: Grant, tasks: Collection[str]) -> None:
        """A round of these tasks, by the number under which a processor works; nothing where it is not in force."""
        if grant.number in numbers_in_force(self.grants):
            there = self._job.snapshot.checkpoints
            mine = {name: one for name, one in there.items() if str(name) in tasks}
            made = {name: replace(one, round_id=RoundId(grant.number, name.sub_topology, 1)) for name, one in mine.items()}
            self._job.snapshot = replace(self._job.snapshot, checkpoints={**there, **made})

    def _give(
        self, wanted: WantedPlan, changed: Collection[str], holders: Collection[str], gains: Collection[str] = ()
    ) -> None:
        self.grants = after_change(self.grants, changed, holders, wanted.present, self.numbers, gains)
        self.numbers = max([self.numbers, *(grant.number for grant in self.grants.values())])

    def _check_entries(self, made: GroupDraft) -> None:
        moves = [one for one in made.draft.changes.values() if one.kind is ChangeKind.REBALANCE]
        assert not any(one.after.startswith("0 of") for one in moves), moves
