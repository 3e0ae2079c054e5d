"""Groups that come back: after a restart of all, and of some while a spare is there, tasks are where they were (SEP-11)."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import pytest

from groups.group import Group, group_on
from headrace import wiring
from headrace.client.plan_preview import plan_preview
from headrace.codec.job_records import history_of
from headrace.model.change import ChangeKind

pytestmark = pytest.mark.chaos
PLANNED_S = 1.5  # longer than a leader waits for more processors to come before it makes a plan


class Groups(Protocol):
    def __call__(self, partitions: int) -> AbstractContextManager[Group]: ...


@pytest.fixture
def groups(kafka_server: Any, real_zookeeper: Any, tmp_path: Path) -> Groups:
    coordinator = f"zookeeper://{real_zookeeper.server.address}/headrace"
    return lambda partitions: group_on(kafka_server, coordinator, tmp_path, partitions=partitions)


def await_work(group: Group, id_: str) -> None:
    group.until(lambda: group.status(id_).get("waiting_for") == "")


@pytest.mark.parametrize("is_killed", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_tasks_come_home_after_all_have_ended_however_late_each_comes(groups: Groups, is_killed: bool) -> None:
    """The first ones work on their own tasks meanwhile, and leave those of the others alone."""
    with groups(4) as group:
        for id_ in "abcd":
            group.start(id_, return_wait_s=60.0)
        group.await_shares(*"abcd")
        group.send(40)
        group.await_all()
        version, shares = group.version(), group.tasks_of()
        for id_ in "abcd":
            group.kill(id_) if is_killed else group.stop(id_)
        group.send(40)
        for id_ in "dcba":
            group.start(id_, return_wait_s=60.0)
            await_work(group, id_)
            time.sleep(PLANNED_S)
        group.await_all()
        assert (group.version(), group.tasks_of()) == (version, shares)
        group.stop_all()
        assert group.check() >= 160


@pytest.mark.soak
def test_one_of_those_that_were_killed_does_not_come_back(groups: Groups) -> None:
    """Its tasks go to the others once they have waited for it; one that is killed while others work is not waited for."""
    with groups(4) as group:
        for id_ in "ab":
            group.start(id_, return_wait_s=3.0)
        group.await_shares(*"ab")
        group.send(40)
        group.await_all()
        for id_ in "ab":
            group.kill(id_)
        group.send(40)
        group.start("b", return_wait_s=3.0)
        group.await_shares("b")
        group.await_all()
        group.start("a", return_wait_s=600.0)
        group.await_shares("a", "b")
        group.kill("b")
        group.send(40)
        group.await_shares("a")
        group.await_all()
        group.stop_all()
        assert group.check() >= 240


def test_a_spare_that_comes_and_goes_makes_no_job_model_and_says_why_it_has_no_tasks(groups: Groups) -> None:
    """There are two sub-topologies of one task each, so two processors have one, and the third has none."""
    with groups(1) as group:
        group.start("a")
        group.await_shares("a")
        group.start("b")
        group.await_shares("a", "b")  # one each, though each sub-topology has but one
        group.send(20)
        group.await_all()
        version, shares = group.version(), group.tasks_of()
        assert {len(tasks) for tasks in shares.values()} == {1}
        group.start("c")
        group.until(lambda: "there are 2, and they are with a, b: it is a spare" in group.waiting_for("c"))
        time.sleep(PLANNED_S)
        group.until(lambda: "it is a spare" in group.shown()["processors"].get("c", {}).get("waiting_for", ""))
        assert [group.status(id_)["has_tasks"] for id_ in "abc"] == [True, True, False]
        app = group.application()
        preview = plan_preview(app.topology(), wiring.config_of(app), group.system)
        assert (preview.before, preview.after, preview.lines) == (version, version, ())
        for id_ in "cb":
            group.stop(id_)
            group.until(lambda id_=id_: id_ not in group.shown()["processors"])
            group.start(id_)
            group.until(lambda id_=id_: "it is a spare" in group.waiting_for(id_) or group.status(id_).get("waiting_for") == "")
            time.sleep(PLANNED_S)
            group.send(20)
            group.await_all()
            assert (group.version(), group.tasks_of()) == (version, shares)
            group.until(lambda: min(group.shown_records()) >= len(group.sent))  # with those of the process before
        entries = history_of(group.system.metadata_store(group.name)).values()
        assert [one.what for one in entries if one.kind is ChangeKind.REBALANCE] == ["b came"]
        group.kill("b")
        group.await_shares("a", "c")
        group.send(20)
        group.await_all()
        group.stop_all()
        assert group.check() >= 160


def test_a_bounded_run_keeps_tasks_where_they_are_within_itself_only(groups: Groups) -> None:
    """One that is stopped in the midst of it is waited for, and has its tasks again; in the next run the first one that comes
    has all of them, though the other would be waited for as long."""
    options = {"until": "caught-up", "return_wait_s": 600.0}
    with groups(4) as group:
        group.send(200)
        for id_ in "ab":
            group.start(id_, slow_s=0.02, **options)
        group.await_shares("a", "b")
        version, shares = group.version(), group.tasks_of()
        group.stop("b")
        group.start("b", **options)
        for id_ in "ab":
            group.await_success(id_)
        assert (group.version(), group.tasks_of()) == (version, shares)
        group.send(40)
        group.start("a", **options)
        group.await_success("a")
        assert group.tasks_of().keys() == {"a"}
        assert group.check() >= 480
