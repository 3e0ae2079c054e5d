"""A leader that ends in the midst of its own transaction: the next one fences it before it reads what that holds back."""

from __future__ import annotations

import pytest

from groups.group import NOT_YET, Group
from support.children import wait_until_stopped

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]
FOREVER_MS = 600_000  # of a transaction that is not fenced, by any bound of a test


def test_the_tasks_of_a_leader_that_is_killed_in_its_transaction_go_to_the_other(group: Group) -> None:
    """It has written its checkpoints, and not committed them."""
    trap = group.folder / "trap-a"
    trap.write_bytes(NOT_YET)
    group.start("a", traps=f"stop:kafka:8:1@{trap}", transaction_ms=FOREVER_MS)
    group.await_shares("a")
    group.start("b", transaction_ms=FOREVER_MS)
    group.await_shares("a", "b")
    group.send(40)
    group.await_all()
    trap.write_bytes(b"")
    group.send(40)
    wait_until_stopped(group.pids["a"])
    group.kill("a")
    group.await_shares("b")
    group.await_all()
    group.start("a", transaction_ms=FOREVER_MS)
    group.await_shares("a", "b")
    group.send(40)
    group.await_all()
    group.stop_all()
    assert group.check() >= 240
