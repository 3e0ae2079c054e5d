"""What a processor of a group shows of its rounds where they are dropped, or cannot be begun. The rounds are doubles."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from headrace.core.group.grants import Grant
from headrace.core.group.state import GroupMember, GroupState, ModelOrigin, ModelVersions, Registration, incarnation_of
from headrace.driver.group import processor_rounds
from headrace.driver.group.processor_rounds import LOADING, ProcessorRounds
from headrace.errors import UnavailableError

HERE = Registration("p", "h", 1, "code", "h", 1, "1@1", "boot")
INCARNATION = incarnation_of(GroupMember(0, HERE))
STATE = GroupState((GroupMember(0, HERE),), ModelVersions(1, 1), 1, origin=ModelOrigin("code", "run"))


class Generation(MagicMock):
    """Remembers what was published of its end."""

    def __init__(self, *_: Any, **options: Any) -> None:
        super().__init__()
        self.runners, self.stopped_by, self.ends = {"x": 1}, {}, list[str]()

    def publish_end(self, why: str) -> None:
        self.ends.append(why)

    def _get_child_mock(self, **options: Any) -> MagicMock:
        return MagicMock(**options)


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> Any:
    backend = MagicMock(retention=None, restoration=None)
    preparer, reader, group = MagicMock(), MagicMock(), MagicMock()
    preparer.planner.backend = backend
    reader.grants.return_value = {"p": Grant(5, INCARNATION)}
    group.lease.holds.return_value = True
    made = ProcessorRounds(HERE, preparer, MagicMock(), reader, group, MagicMock(partition_check_s=1e9))
    plan = SimpleNamespace(model=MagicMock(), subs=[], refused={}, checkpoints={}, epoch=5)
    monkeypatch.setattr(processor_rounds, "Generation", Generation)
    monkeypatch.setattr(processor_rounds, "holders_of", lambda model: {"p"})
    monkeypatch.setattr(processor_rounds, "processor_tasks", lambda model, ids: [])
    monkeypatch.setattr(processor_rounds, "replace", lambda one, **_: one)
    monkeypatch.setattr(made, "_loaded", lambda *_: plan)
    made.follow(STATE, INCARNATION, is_leader=False)
    return made


def cannot_load(rounds: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise UnavailableError("Kafka gives no answer", "")

    monkeypatch.setattr(rounds, "_loaded", fails)


def test_rounds_that_have_begun_again_are_not_said_to_have_ended(rounds: Any) -> None:
    """The process wakes within its session: its rounds are dropped, and the turn that follows begins others."""
    dropped = rounds.generation
    rounds.drop("ZooKeeper, which has not answered")
    rounds.follow(STATE, INCARNATION, is_leader=False)
    rounds.publish_end()
    assert rounds.generation is not dropped and rounds.waiting_for == ""
    assert (dropped.ends, rounds.generation.ends) == (["ZooKeeper, which has not answered"], [])


@pytest.mark.parametrize("was_dropped", [False, True])
def test_a_processor_whose_rounds_cannot_be_begun_says_what_it_waits_for(
    rounds: Any, monkeypatch: pytest.MonkeyPatch, was_dropped: bool
) -> None:
    if was_dropped:
        rounds.drop("ZooKeeper, which has not answered")
    else:
        rounds._reader.grants.return_value = {"p": Grant(9, INCARNATION)}
    cannot_load(rounds, monkeypatch)
    for _ in range(2):
        with pytest.raises(UnavailableError):
            rounds.follow(STATE, INCARNATION, is_leader=False)
        assert rounds.generation is None and rounds.waits_for == LOADING


def test_lanes_of_a_sub_topology_that_cannot_follow_its_streams_are_fenced_too(
    rounds: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt of before would commit under a grant that no other knows to be in use."""
    subs = [SimpleNamespace(name=None, title="source", reads=("recreated",)), SimpleNamespace(name="x", title="x", reads=())]
    plan = SimpleNamespace(model=MagicMock(), subs=subs, refused={"recreated": MagicMock()}, checkpoints={}, epoch=9)
    monkeypatch.setattr(rounds, "_loaded", lambda *_: plan)
    store = rounds._backend.processor_store
    store.recover.return_value = {}
    store.reset_mock()
    rounds._reader.grants.return_value = {"p": Grant(9, INCARNATION)}
    rounds.follow(STATE, INCARNATION, is_leader=False)
    assert [call.args for call in store.recover.call_args_list] == [(9, "x")]
    assert [call.args for call in store.shut_out.call_args_list] == [(9, None)]


def test_a_processor_that_gains_tasks_works_on_where_the_plan_cannot_be_read(
    rounds: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    works, rounds._grant = rounds.generation, MagicMock(number=5)
    monkeypatch.setattr(Grant, "widens", lambda self, before: True)
    rounds._reader.grants.return_value = {"p": Grant(9, INCARNATION)}
    cannot_load(rounds, monkeypatch)
    with pytest.raises(UnavailableError):
        rounds.follow(STATE, INCARNATION, is_leader=False)
    assert rounds.generation is works and rounds.waits_for == ""
