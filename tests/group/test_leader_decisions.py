"""What a leader has decided and could not do it decides again, and who has left is fenced, whichever call was not answered."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from headrace.core.group.drafts import GroupStep
from headrace.core.group.grants import Grant, Grants
from headrace.core.group.state import GroupRun, ModelOrigin, ModelVersions, Registration
from headrace.driver.group import coordinator, heartbeat, shown_model
from headrace.driver.group.coordinator import GroupCoordinator, GroupSettings
from headrace.driver.group.group_planner import GroupPlanner
from headrace.errors import StreamNotFoundError, UnavailableError
from headrace.group.layout import GroupName
from headrace.group.processor_group import ProcessorGroup
from headrace.model.change import ChangeKind, ChangeRequest
from support.world import waited
from support.zookeepers import MemoryPlace

TURNS = 100
OPEN = "records were written behind a transaction that is open"


def unanswered(what: str = "no answer") -> UnavailableError:
    return UnavailableError(what, "it is tried again")


class Led:
    """A group of one, `a`, which leads: on ZooKeeper in memory, with a stored job model, and plans that are those that the test
    says. `x`, which is not there, has a grant and a transaction that is open: until it is fenced no checkpoint can be read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: GroupStep, *, leaves: bool = False) -> None:
        self.now_s, self.unanswered = 1000.0, 0
        place = MemoryPlace()
        self.tree = place.tree()
        self.group = ProcessorGroup(self.tree, "/headrace", GroupName("delays"), place.clock)
        self.group.register(Registration("a", "host", 1, "code", "host", 1, "1@1", "boot"))
        self.grants: dict[str, Grant] = {"x": Grant(5, "one whose session has ended")} if leaves else {}
        self.is_open, self.fenced = leaves, 0
        self.plans = plans = MagicMock()
        plans.draft.return_value = SimpleNamespace(
            step=step,
            ungranted=frozenset("a"),
            changed=frozenset("a"),
            gains=frozenset(),
            to_fence=frozenset("a"),
            portions={"a": 1},
            draft=SimpleNamespace(job_model=SimpleNamespace()),
        )
        plans.commit.return_value = (MagicMock(), frozenset("a"))
        plans.to_lead.side_effect, plans.origin.return_value = self._loaded, None
        real = GroupPlanner(plans.planner)
        plans.take_back.side_effect, plans.fence_others.side_effect = real.take_back, real.fence_others
        store = plans.planner.backend.store
        store.job_model.return_value = None
        store.grants.side_effect = lambda: dict(self.grants)
        store.lanes_used.return_value = {"source": 2}
        store.write_grants.side_effect = self._write_grants
        store.fence.side_effect = self._fence
        for module in (coordinator, shown_model):
            monkeypatch.setattr(module, "encode", lambda _: b"{}")
        self.leader = self.another_leader()

    def another_leader(self) -> GroupCoordinator:
        assert self.group.sequence is not None
        run, settings = GroupRun("run", False, self.group.sequence), GroupSettings("code", 10.0, 30.0)
        leader = GroupCoordinator(self.plans, MagicMock(), self.group, settings, MagicMock(), run)
        monkeypatched: Any = leader
        monkeypatched._look_for_requests = lambda *_: None
        return leader

    def begin(self, *, goes_on: bool = False) -> None:
        if goes_on:
            self.plans.planner.backend.store.job_model.return_value = SimpleNamespace(version=1, sub_topologies=())
            self.plans.origin.return_value = ModelOrigin("code", "run")
        self.leader.begin(MagicMock(), lambda: None, followed_s=0.0)

    def await_proposal(self) -> None:
        """Look until there is one; `a` has released then."""
        for _ in range(TURNS):
            if not self.leader.is_changing:
                self.look(1)
        assert self.group.join_barrier(self.group.state().versions.proposed)

    def end(self) -> None:
        self.leader.end(is_last=False)

    def leave_an_end_unanswered(self, monkeypatch: pytest.MonkeyPatch, is_done: bool) -> None:
        """The next end of a proposal is not answered, whether it `is_done` or not."""
        leading: Any = self.leader._leading
        real = leading.abandon

        def abandon(version: int) -> bool:
            monkeypatch.setattr(leading, "abandon", real)
            if is_done:
                real(version)
            raise unanswered()

        monkeypatch.setattr(leading, "abandon", abandon)

    def look(self, turns: int = TURNS) -> None:
        """So many looks, one a second. What is not answered is answered by the next look."""
        for _ in range(turns):
            try:
                self.leader.look(self.group.state(), (), self.now_s)
            except UnavailableError:
                self.unanswered += 1
                self.tree.is_cut = False
            self.now_s += 1.0

    def _loaded(self, *_: object) -> Any:
        if self.is_open:
            raise unanswered(OPEN)
        return MagicMock()

    def _write_grants(self, _: int, grants: Grants) -> None:
        self.grants = dict(grants)

    def _fence(self, _: int, lanes: dict[str, Collection[int]]) -> None:
        self.fenced += 1
        if "x" not in self.grants:
            self.is_open = False


Of = Callable[..., Led]


@pytest.fixture
def led(monkeypatch: pytest.MonkeyPatch) -> Any:
    made: list[Led] = []

    def of(step: GroupStep, **options: bool) -> Led:
        made.append(Led(monkeypatch, step, **options))
        return made[-1]

    yield of
    for one in made:
        one.end()


def test_grants_that_could_not_be_given_are_given_later(led: Of) -> None:
    one = led(GroupStep.GRANT)
    one.plans.grant.side_effect = [unanswered(), None]
    one.begin()
    one.look()
    assert one.unanswered == 1 and one.plans.grant.call_count == 2


def test_a_plan_that_could_not_be_loaded_once_grants_were_given_is_loaded_later(led: Of) -> None:
    one = led(GroupStep.GRANT)
    one.plans.to_lead.side_effect = [unanswered(), MagicMock()]
    one.begin()
    one.look()
    assert one.unanswered == 1 and one.plans.to_lead.call_count == 2


def test_a_proposal_that_could_not_be_written_is_written_later(led: Of) -> None:
    one = led(GroupStep.PROPOSE)
    made = one.plans.draft.return_value

    def draft(_: object) -> object:
        one.tree.is_cut = one.unanswered == 0
        return made

    one.plans.draft.side_effect = draft
    one.begin()
    one.look(5)
    assert one.unanswered == 1 and one.leader.is_changing


@pytest.mark.parametrize("is_done", [True, False], ids=["done", "not done"])
def test_a_proposal_that_came_to_nothing_is_followed_by_another_though_its_end_was_not_answered(
    led: Of, monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    one = led(GroupStep.PROPOSE)
    one.begin()
    one.await_proposal()
    one.plans.commit.side_effect = [unanswered(), one.plans.commit.return_value]
    one.leave_an_end_unanswered(monkeypatch, is_done)
    one.look(5)
    assert one.unanswered == 1
    one.await_proposal()
    one.look(1)
    assert one.group.state().versions == ModelVersions(2, 2)


@pytest.mark.parametrize("is_done", [True, False], ids=["done", "not done"])
def test_a_proposal_of_a_leader_before_is_followed_by_another_though_its_end_was_not_answered(
    led: Of, monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    one = led(GroupStep.PROPOSE)
    one.begin()
    one.await_proposal()
    one.end()
    one.leader = one.another_leader()
    one.plans.draft.reset_mock()
    one.leave_an_end_unanswered(monkeypatch, is_done)
    one.begin()
    monkeypatch.setattr(one.leader, "_settling", one.leader._settling.with_look(one.group.state().members, (), (), 0).decided())
    one.look(5)
    assert one.unanswered == 1
    one.await_proposal()
    assert one.group.state().versions == ModelVersions(2, 0)


def test_what_was_requested_is_planned_again_where_the_pause_behind_a_plan_that_failed_could_not_be_ended(
    led: Of, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = led(GroupStep.PROPOSE)
    one.begin()
    request = ChangeRequest(ChangeKind.SCALE, "1")
    monkeypatch.setattr(one.leader, "_due", (request,))
    one.await_proposal()
    one.plans.commit.side_effect = unanswered()
    monkeypatch.setattr(one.leader._pauses, "end", MagicMock(side_effect=[unanswered(), None, None]))
    one.look(1)
    one.await_proposal()
    assert [order.requests for (order,), _ in one.plans.draft.call_args_list] == [(request,), (request,)]


def test_after_a_plan_whose_commit_was_not_answered_the_leader_goes_by_the_one_in_force(led: Of) -> None:
    """It may be committed: what looks after state files and requests then is to go by that one."""
    one = led(GroupStep.PROPOSE)
    one.begin(goes_on=True)
    one.await_proposal()
    assert one.plans.to_lead.call_count == 1
    one.plans.commit.side_effect = unanswered()
    one.look(2)
    assert one.plans.to_lead.call_count == 2


@pytest.mark.parametrize("step", [GroupStep.PROPOSE, GroupStep.GRANT])
def test_a_first_plan_that_was_committed_and_not_answered_is_not_followed_by_one_of_a_start(led: Of, step: GroupStep) -> None:
    """`reset_offset` counts once for a run: processors have begun under it."""
    one = led(step)
    one.begin()

    def committed(*_: object) -> Any:
        one.plans.planner.backend.store.job_model.return_value = SimpleNamespace(version=1, sub_topologies=())
        one.plans.origin.return_value = ModelOrigin("code", "run")
        raise unanswered(OPEN)

    for call in (one.plans.commit, one.plans.grant):
        call.side_effect = committed
    if step is GroupStep.PROPOSE:
        one.await_proposal()
    while not one.unanswered:
        one.look(1)
    for call in (one.plans.commit, one.plans.grant):
        call.side_effect = None
    one.look()
    assert [order.is_replan for (order,), _ in one.plans.draft.call_args_list][:2] == [False, True]
    assert one.plans.to_lead.called


def test_who_has_left_is_fenced_though_the_first_try_failed(led: Of) -> None:
    """Its grant was taken back by then: no grant says any more that its lanes are to be fenced."""
    one = led(GroupStep.NOTHING, leaves=True)
    fence = one.plans.planner.backend.store.fence
    fence.side_effect = [unanswered(), None]
    one.begin(goes_on=True)
    one.plans.to_lead.side_effect = None
    one.look()
    assert one.unanswered == 1 and not one.grants and fence.call_count == 2


@pytest.mark.parametrize("step", [GroupStep.GRANT, GroupStep.PROPOSE])
def test_those_whose_grants_a_change_has_taken_back_are_fenced_though_the_first_try_failed(led: Of, step: GroupStep) -> None:
    """One of them may sleep in a transaction: until that ends no checkpoint can be read, and so no plan is made."""
    one = led(step)
    one.begin(goes_on=True)
    fence, grant, draft = one.plans.planner.backend.store.fence, one.plans.grant, one.plans.draft
    made, is_owed = draft.return_value, False

    def change(*_: object) -> tuple[Any, frozenset[str]]:
        nonlocal is_owed
        is_owed = True
        fence.side_effect = [unanswered(), None]
        one.plans.take_back(0, ["a"])
        return MagicMock(), frozenset()

    def drafted(_: object) -> object:
        if is_owed and fence.call_count == before + 1:
            raise unanswered(OPEN)
        return made

    grant.side_effect = one.plans.commit.side_effect = change
    draft.side_effect = drafted
    one.look(1)
    before = fence.call_count
    if step is GroupStep.PROPOSE:
        one.await_proposal()
    one.look(5)
    assert is_owed and fence.call_count >= before + 2


def test_a_leader_that_begins_fences_who_has_left_before_it_reads_checkpoints(led: Of) -> None:
    """The leader before was killed in the transaction of its own round."""
    one = led(GroupStep.NOTHING, leaves=True)
    one.begin(goes_on=True)
    one.look(1)
    assert not one.is_open and one.unanswered == 0


def test_a_leader_that_begins_fences_whom_the_one_before_has_only_taken_the_grant_of(led: Of) -> None:
    """That one was killed between the two."""
    one = led(GroupStep.NOTHING, leaves=True)
    one.grants.clear()
    one.begin(goes_on=True)
    one.look(1)
    assert not one.is_open and one.unanswered == 0


def test_a_leader_that_leads_fences_none_while_nobody_leaves(led: Of) -> None:
    one = led(GroupStep.NOTHING)
    one.begin(goes_on=True)
    one.look(1)
    before = one.fenced
    one.look()
    assert one.fenced == before


def of_former_code(one: Led) -> None:
    """`x` has all tasks under the plan in force, which is of other code. All sessions have ended; `a` is back first."""
    container = SimpleNamespace(lane=0, processor_id="x", location_id="host", tasks=())
    sub = SimpleNamespace(name=None, title="source", containers=(container,))
    one.plans.planner.backend.store.job_model.return_value = SimpleNamespace(version=1, sub_topologies=(sub,))
    one.plans.origin.return_value = ModelOrigin("former code", "run")


@pytest.mark.parametrize("is_answered", [True, False], ids=["answered", "not answered"])
def test_who_waits_for_the_former_code_does_though_its_marks_were_not_answered(
    led: Of, monkeypatch: pytest.MonkeyPatch, is_answered: bool
) -> None:
    one = led(GroupStep.PROPOSE)
    of_former_code(one)
    leading: Any = one.leader._leading
    real = leading.await_return

    def await_return(ids: Collection[str]) -> None:
        monkeypatch.setattr(leading, "await_return", real)
        real(ids)
        if not is_answered:
            raise unanswered()

    monkeypatch.setattr(leading, "await_return", await_return)
    one.begin()
    one.look(20)  # it waits for 30
    assert one.group.state().marked == {"x"} and one.plans.draft.call_count == 0
    one.look(30)
    assert one.plans.draft.call_count == 1


def test_who_begins_to_lead_again_waits_for_the_former_code_as_well(led: Of) -> None:
    one = led(GroupStep.PROPOSE)
    of_former_code(one)
    one.begin()
    one.look(3)
    one.end()
    one.leader = one.another_leader()
    one.begin()
    one.look(10)
    assert one.plans.draft.call_count == 0


@pytest.mark.parametrize("step", [GroupStep.NOTHING, GroupStep.PROPOSE])
def test_a_plan_that_could_not_be_begun_is_begun_later(led: Of, step: GroupStep) -> None:
    one = led(step)
    one.begin(goes_on=True)
    if step is GroupStep.PROPOSE:
        one.await_proposal()
    leader: Any = one.leader
    leader._maintenance.planned = MagicMock(side_effect=[unanswered(), None, None, None])
    leader._requests.begin, leader._pauses.end = MagicMock(), MagicMock()
    one.look(5)
    assert one.unanswered == 1 and leader._requests.begin.called and leader._pauses.end.called


def test_a_plan_of_which_a_stream_is_missing_is_followed_by_one_that_creates_it(led: Of) -> None:
    one = led(GroupStep.NOTHING)
    missing = StreamNotFoundError("stream 'out', to which it writes, does not exist")
    one.plans.to_lead.side_effect = [missing, MagicMock(), MagicMock()]  # the third one: what was made has changed nothing
    one.begin(goes_on=True)
    one.look(10)
    assert one.plans.draft.call_count == 1 and one.plans.to_lead.call_count == 3


def test_no_heartbeat_is_sent_once_the_session_has_ended(led: Of, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "HEARTBEAT_S", 0.01)
    one = led(GroupStep.NOTHING)
    beats = one.plans.planner.backend.store.heartbeat
    one.begin(goes_on=True)
    waited(lambda: beats.call_count > 2)
    monkeypatch.setattr(one.group, "now_s", lambda: one.group.lease.confirmed_s + one.group.lease.timeout_s)
    time.sleep(0.1)
    before = beats.call_count
    time.sleep(0.2)
    assert beats.call_count == before


def test_heartbeats_are_sent_while_requests_are_looked_for(led: Of, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stored of them may be behind a transaction that is open: others would take a leader that waits for dead."""
    monkeypatch.setattr(heartbeat, "HEARTBEAT_S", 0.01)
    one = led(GroupStep.NOTHING)
    beats, leader = one.plans.planner.backend.store.heartbeat, one.leader
    monkeypatch.setattr(leader, "_plan", MagicMock())
    monkeypatch.setattr(leader, "_requests", MagicMock())

    def found(*_: object, **__: object) -> tuple[ChangeRequest, ...]:
        before = beats.call_count
        waited(lambda: beats.call_count > before + 2, wait_s=5)
        return ()

    monkeypatch.setattr(leader._requests, "found", found)
    monkeypatch.setattr(leader._requests, "scales", lambda *_: ((), {}))
    one.begin()
    GroupCoordinator._look_for_requests(leader, (), one.now_s)
    one.end()
