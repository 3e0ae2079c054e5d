"""Processes that are stopped beyond their session timeout and wake, or are killed: no two work at the same time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.coordination import boot_time_s
from support.children import wait_until_stopped
from support.zookeepers import RealPlace, wait_until

pytestmark = [pytest.mark.chaos]
TIMEOUT_S = 1.2
SCRIPT = Path(__file__).with_name("stopped_client.py")
PLACE = "/headrace/delays-1-delays-1-1/processors"


class Client:
    def __init__(self, port: int, file: Path, processor_id: str = "a") -> None:
        self.file = file
        arguments = [str(port), processor_id, str(int(TIMEOUT_S * 1000)), str(file)]
        environ = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self.process = subprocess.Popen([sys.executable, str(SCRIPT), *arguments], env=environ)

    def lines(self, kind: str) -> list[list[str]]:
        text = self.file.read_text() if self.file.exists() else ""
        return [line.split()[1:] for line in text.splitlines() if line.startswith(kind + " ") and text.endswith("\n")]

    def worked(self) -> list[float]:
        return [float(seconds) for (seconds,) in self.lines("work")]


@pytest.fixture
def started(real_zookeeper: RealPlace, tmp_path: Path) -> Iterator[Callable[[str], Client]]:
    clients: list[Client] = []

    def start(processor_id: str) -> Client:
        clients.append(Client(real_zookeeper.server.port, tmp_path / f"client-{len(clients)}", processor_id))
        wait_until(clients[-1].worked, f"work of processor {processor_id}")
        return clients[-1]

    yield start
    for client in clients:
        client.process.kill()
        client.process.wait(30)


def test_the_lease_has_ended_before_others_see_a_stopped_processor_missing(real_zookeeper: RealPlace, started: Any) -> None:
    tree = real_zookeeper.tree()
    client = started("a")
    (first,) = tree.children(PLACE)
    os.kill(client.process.pid, signal.SIGSTOP)
    wait_until_stopped(client.process.pid)
    wait_until(lambda: not tree.children(PLACE), "the end of the session")
    missing_s = boot_time_s()
    before = client.worked()
    assert before[-1] < missing_s
    time.sleep(0.5)
    woken_s = boot_time_s()
    os.kill(client.process.pid, signal.SIGCONT)
    wait_until(lambda: len(client.lines("registered")) == 2, "another registration")
    (_, _), (number, registered_s) = client.lines("registered")
    wait_until(lambda: client.worked()[-1] > woken_s, "work under the other registration")
    again = [at for at in client.worked() if at > missing_s]
    # one reading of the clock may lie before the stop, with its line after it
    assert min(again) >= woken_s and min(again) >= float(registered_s) - 0.1
    (second,) = tree.children(PLACE)
    assert int(second[-10:]) == int(number) > int(first[-10:])


def test_a_stop_that_is_shorter_than_the_timeout_keeps_the_registration(real_zookeeper: RealPlace, started: Any) -> None:
    tree = real_zookeeper.tree()
    client = started("a")
    names = tree.children(PLACE)
    os.kill(client.process.pid, signal.SIGSTOP)
    wait_until_stopped(client.process.pid)
    time.sleep(0.3)
    woken_s = boot_time_s()
    os.kill(client.process.pid, signal.SIGCONT)
    wait_until(lambda: client.worked()[-1] > woken_s + TIMEOUT_S, "work for longer than a timeout")
    if len(client.lines("registered")) == 1:  # else this machine itself stood still for a timeout
        assert tree.children(PLACE) == names


def test_a_killed_processor_is_missing_after_its_timeout(real_zookeeper: RealPlace, started: Any) -> None:
    tree = real_zookeeper.tree()
    client, other = started("a"), started("b")
    assert len(tree.children(PLACE)) == 2
    client.process.kill()
    wait_until(lambda: len(tree.children(PLACE)) == 1, "the end of the session")
    assert client.worked()[-1] < boot_time_s()
    assert int(tree.children(PLACE)[0][-10:]) == int(other.lines("registered")[-1][0])


def test_a_server_that_is_killed_for_longer_than_the_timeout_stops_all_until_it_is_back(
    real_zookeeper: RealPlace, started: Any
) -> None:
    """Scenario 13."""
    clients = [started("a"), started("b")]
    real_zookeeper.stop()
    stopped_s = boot_time_s()
    time.sleep(2 * TIMEOUT_S)
    for client in clients:
        assert client.worked()[-1] < stopped_s + TIMEOUT_S, "the lease ends by itself"
    real_zookeeper.restart()
    back_s = boot_time_s()
    for client in clients:
        wait_until(lambda client=client: client.worked()[-1] > back_s, "work again")
    tree = real_zookeeper.tree()
    wait_until(lambda: len(tree.children(PLACE)) == 2, "both to be there once")
