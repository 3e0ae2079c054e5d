"""A group of real processes on an ensemble of three ZooKeeper servers, which are killed, hang, or are behind."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from groups.group import Group, group_on
from support.ensembles import NUMBERS, Ensemble

pytestmark = pytest.mark.chaos
IDS = "abc"


@pytest.fixture
def group(kafka_server: Any, ensemble: Ensemble, tmp_path: Path) -> Iterator[Group]:
    with group_on(kafka_server, f"zookeeper://{ensemble.address}/headrace", tmp_path) as made:
        yield made


def start(group: Group, session_ms: int) -> None:
    for id_ in IDS:
        group.start(id_, session_ms=session_ms, run_s=300.0, return_wait_s=60.0)
    group.await_shares(*IDS)
    group.send(40)
    group.await_all()


@contextmanager
def without_another_model(group: Group) -> Iterator[None]:
    """Of what happens meanwhile no processor takes note for good."""
    before = group.version(), group.tasks_of()
    yield
    assert (group.version(), group.tasks_of()) == before


def await_more(group: Group, records: int = 100) -> None:
    """That so many more come through."""
    wanted = {one: len(group.rows(one)) + records for one in ("numbered", "by-digit")}
    group.until(lambda: all(len(group.rows(one)) >= count for one, count in wanted.items()))


def test_a_group_keeps_running_when_the_leader_of_the_ensemble_is_killed(group: Group, ensemble: Ensemble) -> None:
    start(group, session_ms=10_000)
    with without_another_model(group):
        with group.sending():
            await_more(group)
            ensemble.kill(ensemble.leader())
            assert len(ensemble.running) == 2
            ensemble.leader()
            await_more(group)
            await_more(group)
        group.await_all()
    group.stop_all()
    assert group.check() >= 2 * len(group.sent)


@pytest.mark.soak
def test_a_lost_quorum_stops_all_and_they_resume_with_the_same_tasks(group: Group, ensemble: Ensemble) -> None:
    """For longer than the timeout of their sessions."""
    start(group, session_ms=4000)
    with without_another_model(group):
        for number in (ensemble.leader(), ensemble.followers()[0]):
            ensemble.kill(number)
        group.until(lambda: all("ZooKeeper" in group.waiting_for(id_) for id_ in IDS), 30.0)
        before = len(group.rows("numbered"))
        group.send(40)
        time.sleep(6.0)
        assert len(group.rows("numbered")) == before, "nobody works without a quorum"
        ensemble.start()
        group.await_all()
    group.stop_all()
    assert group.check() >= 2 * len(group.sent)


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_no_server_that_hangs_or_is_behind_costs_a_processor_its_tasks(group: Group, ensemble: Ensemble) -> None:
    """Each in turn hangs for longer than the sessions live, as a host without power; then each follower hears nothing of the
    leader."""
    start(group, session_ms=20_000)
    with without_another_model(group):
        with group.sending(every_s=0.1):
            for number in NUMBERS:
                ensemble.pause(number)
                time.sleep(24.0)
                await_more(group)
                ensemble.start()
            for number in ensemble.followers():
                ensemble.hold(number)
                time.sleep(3.0)
                await_more(group)
                ensemble.start()
        group.await_all()
    group.stop_all()
    assert group.check() >= 2 * len(group.sent)
