"""A group of four over many partitions, stateful, under everything that befalls processes, one thing after the other."""

from __future__ import annotations

import os
import random
import signal
import time
from typing import Any

import pytest

from groups.group import Group

IDS, PARTITIONS = "abcd", 64
GROUP = pytest.mark.group(partitions=PARTITIONS, hosts=IDS)
pytestmark = [pytest.mark.chaos, pytest.mark.soak, pytest.mark.timeout(1800), GROUP]
SEED, EVENTS = int(os.environ.get("HEADRACE_TEST_GROUP_SEED", "7")), int(os.environ.get("HEADRACE_TEST_GROUP_EVENTS", "12"))


class Storm:
    """`asleep`: those that are stopped, and are woken before the end."""

    def __init__(self, group: Group, zookeeper: Any) -> None:
        self.group, self.zookeeper = group, zookeeper
        self.asleep: list[str] = []

    @property
    def awake(self) -> list[str]:
        return [id_ for id_ in self.group.pids if id_ not in self.asleep]

    def kill(self, draw: random.Random) -> None:
        id_ = draw.choice(self.awake)
        self.group.kill(id_)
        self.start(id_)

    def kill_the_leader(self, draw: random.Random) -> None:
        leaders = [id_ for id_ in self.awake if self.group.status(id_).get("is_leader")]
        if leaders:
            self.group.kill(leaders[0])
            self.start(leaders[0])

    def sleep(self, draw: random.Random) -> None:
        if len(self.awake) > 2:
            id_ = draw.choice(self.awake)
            self.group.kill(id_, signal.SIGSTOP)
            self.asleep.append(id_)

    def wake(self, draw: random.Random) -> None:
        while self.asleep:
            self.group.kill(self.asleep.pop(), signal.SIGCONT)

    def leave_and_return(self, draw: random.Random) -> None:
        id_ = draw.choice(self.awake)
        self.group.stop(id_)
        time.sleep(draw.choice((0.0, 1.0, 7.0)))
        self.start(id_)

    def lose_zookeeper(self, draw: random.Random) -> None:
        self.zookeeper.stop()
        time.sleep(draw.choice((1.0, 6.0)))
        self.zookeeper.restart(empty=draw.random() < 0.3)

    def start(self, id_: str) -> None:
        self.group.start(id_, run_s=1500.0, tidy_s=10.0)


def test_a_group_of_four_over_many_partitions(group: Group, real_zookeeper: Any) -> None:
    draw, storm = random.Random(SEED), Storm(group, real_zookeeper)
    storm.start("a")
    group.await_shares("a")
    for id_ in IDS[1:]:
        storm.start(id_)
    group.await_shares(*IDS)
    happened = []
    for number in range(EVENTS):
        event = draw.choice(
            (storm.kill, storm.kill_the_leader, storm.sleep, storm.wake, storm.leave_and_return, storm.lose_zookeeper)
        )
        happened.append(event.__name__)
        group.send(200)
        event(draw)
        time.sleep(draw.uniform(0.5, 8.0))
        print(number, event.__name__, flush=True)
    storm.wake(draw)
    group.send(200)
    group.await_all(240.0)
    group.await_shares(*IDS)
    assert {len(tasks) for tasks in group.tasks_of().values()} == {2 * PARTITIONS // len(IDS)}
    version = group.version()
    for id_ in IDS:  # a rolling restart makes no new job model
        group.stop(id_)
        storm.start(id_)
        group.send(50)
        group.await_all(120.0)
    assert group.version() == version, happened
    group.stop_all()
    assert group.check() >= 2 * len(group.sent)
