"""A processor whose network does not reach ZooKeeper, or Kafka, for a while: in a network namespace, by cables that are cut."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.networks import NoNetworksError
from groups.apart import Apart, networks_apart
from groups.group import Group, group_on
from groups.hosts import SCRIPT
from support.children import Children

pytestmark = [pytest.mark.chaos, pytest.mark.kafka, pytest.mark.timeout(240)]
NEAR, FAR = "near.1", "far.1"


@pytest.fixture(scope="module")
def apart() -> Iterator[Apart]:
    try:
        with networks_apart() as made:
            yield made
    except NoNetworksError as error:
        pytest.fail(str(error), pytrace=False) if os.environ.get("CI") else pytest.skip(str(error))


@pytest.fixture
def group(apart: Apart, tmp_path: Path) -> Iterator[Group]:
    """Two processors; `far.1` is in the other network. What they work on is known, and all of it is done."""
    with group_on(apart.kafka, apart.coordinator, tmp_path, bootstrap=apart.bootstrap) as made:
        folder = tmp_path / "far"
        folder.mkdir()
        with Children(folder, SCRIPT, apart.enter) as there:
            made.hosts["far"] = there
            yield made
            made.hosts.clear()


def start(group: Group, *ids: str) -> None:
    for number, id_ in enumerate(ids, 1):
        group.start(id_, on_own_host=False, run_s=200.0)
        group.await_shares(*ids[:number])
    group.send(40)
    group.await_all()


WHO_LEADS = [pytest.param(NEAR, id="another-leads"), pytest.param(FAR, id="it-leads", marks=pytest.mark.soak)]


@pytest.mark.parametrize("first", WHO_LEADS)
def test_one_that_does_not_reach_zookeeper_stops_before_its_tasks_go_to_others(group: Group, apart: Apart, first: str) -> None:
    start(group, first, ({NEAR, FAR} - {first}).pop())
    apart.pull("zookeeper")
    try:
        for _ in range(40):  # all through the time in which its lease ends, and its session
            group.send(5)
            time.sleep(0.2)
        group.until(lambda: "ZooKeeper" in group.waiting_for(FAR))
        group.await_shares(NEAR)
        group.await_all()
        leads = {id_: one["is_leader"] for id_, one in group.system.job_store(group.name).processors().items()}
        assert leads == {NEAR: True, FAR: False}
    finally:
        apart.plug("zookeeper")
    group.await_shares(NEAR, FAR)
    group.send(40)
    group.await_all()
    group.stop_all()
    assert group.check() >= 560


@pytest.mark.soak
def test_one_that_is_started_in_place_of_one_that_does_not_reach_zookeeper_gets_its_tasks(group: Group, apart: Apart) -> None:
    """The one that is cut off was alone: nobody else knows of its run."""
    start(group, FAR)
    apart.pull("zookeeper")
    try:
        group.until(lambda: "ZooKeeper" in group.waiting_for(FAR))
        time.sleep(6.0)  # its session ends
        group.start(NEAR, on_own_host=False, run_s=200.0)
        group.await_shares(NEAR)
        group.send(40)
        group.await_all()
    finally:
        apart.plug("zookeeper")
    group.await_shares(NEAR, FAR)
    group.stop_all()
    assert group.check() >= 80


@pytest.mark.soak
@pytest.mark.parametrize("first", WHO_LEADS)
def test_one_that_does_not_reach_kafka_keeps_its_tasks_and_others_work_on(group: Group, apart: Apart, first: str) -> None:
    start(group, first, ({NEAR, FAR} - {first}).pop())
    version, shares = group.version(), group.tasks_of()
    keys = {key for number in range(4) if f"Partition_{number}" in shares[NEAR] for key in group.keys_in(number)}
    apart.pull("kafka")
    try:
        group.send(40)
        expected = sum(key in keys for key, _ in group.sent)
        group.until(lambda: sum(row["key"].decode() in keys for row in group.rows("numbered")) == expected)
        time.sleep(8.0)  # longer than a session lives
        assert (group.version(), group.tasks_of()) == (version, shares)
        assert len(group.rows("numbered")) < len(group.sent)
    finally:
        apart.plug("kafka")
    group.await_all(120.0)
    assert (group.version(), group.tasks_of()) == (version, shares)
    group.stop_all()
    assert group.check() >= 160
