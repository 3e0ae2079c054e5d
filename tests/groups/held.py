"""A group of which one processor has stopped itself at a numbered step, and what befalls it, or the others, then."""

from __future__ import annotations

import signal
import time
from typing import Any

from groups.group import Group
from support.children import wait_until_stopped

RECORDS = 100
ASLEEP_S = 7.0  # longer than a session lives without an answer, by its own timeout and the server's ticks


class Held:
    """One has stopped itself at a step: `id`. `a` leads, `b` to `d` do not.

    What is done to it is a method: when it ends, each of the four runs, and the one that was stopped is awake."""

    first = "abcd"  # those that run before

    def __init__(self, group: Group, zookeeper: Any, id_: str, step: int, **options: Any) -> None:
        self.group, self.zookeeper, self.id, self._options = group, zookeeper, id_, options
        self.other = "b" if id_ == "a" else "a"  # a member, or the leader
        for one in self.first:
            self.start(one, traps=group.trap(one, "stop", step))
            if one == "a":
                group.await_shares("a")  # so it is the one that leads
        group.await_shares(*self.first)
        group.send(RECORDS)
        group.await_all()
        self.provoke()
        self._await_stop()

    def provoke(self) -> None:
        """From now on the trap acts; have the step be reached."""
        self.group.arm(self.id)
        self.group.send(RECORDS)

    def _await_stop(self) -> None:
        wait_until_stopped(self.group.pids[self.id])
        self.group.note_hit(self.id)

    def start(self, id_: str, **options: Any) -> None:
        self.group.start(id_, run_s=300.0, **self._options, **options)

    def wake(self, id_: str | None = None) -> None:
        self.group.kill(id_ or self.id, signal.SIGCONT)

    # --- what befalls it ----------------------------------------------------------------------------------------------

    def dies(self) -> None:
        self.group.kill(self.id)
        self.group.await_shares(*(set("abcd") - {self.id}))
        self.start(self.id)

    def dies_and_returns_at_once(self) -> None:
        self.group.kill(self.id)
        self.start(self.id)

    def sleeps(self) -> None:
        self.group.await_shares(*(set("abcd") - {self.id}))
        self.group.send(RECORDS)
        self.wake()

    def hesitates(self) -> None:
        """It wakes when its lease has ended, and its session has not, or just so."""
        time.sleep(3.5)
        self.wake()

    def another_dies(self) -> None:
        self.group.kill(self.other)
        self.wake()
        self.start(self.other)

    def another_sleeps(self) -> None:
        self.group.kill(self.other, signal.SIGSTOP)
        self.wake()
        time.sleep(ASLEEP_S)
        self.wake(self.other)

    def zookeeper_restarts(self) -> None:
        self.zookeeper.restart()
        self.wake()

    def zookeeper_comes_back_empty(self) -> None:
        self.zookeeper.restart(empty=True)
        self.wake()
