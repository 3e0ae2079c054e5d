"""A group whose processors run their rounds on Spark: what befalls the driver does not befall Spark's workers with it, and what
befalls these does not befall the driver."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from groups.attempts import Attempt
from groups.group import Group
from kafka_faults.family import ended, family_of, tree_of

pytestmark = [pytest.mark.chaos, pytest.mark.spark, pytest.mark.timeout(600)]
TERMS: dict[str, Any] = {"on_spark": True, "run_s": 500.0, "session_ms": 10_000}
SLOW: dict[str, Any] = {**TERMS, "slow_s": 0.05}  # what is sent is at work for some seconds
WITHIN_S = 120.0  # a Spark starts in 10 s and more where several do
END_S = 30.0  # what is left of a processor whose driver has died ends by itself
RECORDS = 60


@pytest.fixture
def pair(group: Group) -> Group:
    """Two processors with tasks; `a` leads."""
    for ids in ("a", "ab"):
        group.start(ids[-1], **SLOW)
        group.await_shares(*ids, within_s=WITHIN_S)
    group.send(RECORDS)
    group.await_all(WITHIN_S)
    return group


@pytest.mark.soak
def test_processors_are_killed_and_sleep_while_spark_runs_their_rounds(group: Group) -> None:
    for id_ in "abc":
        group.start(id_, **TERMS)
        group.await_shares(*"abc"[: "abc".index(id_) + 1], within_s=WITHIN_S)
    with group.sending(every_s=0.1):
        for id_ in ("b", "a"):  # another one, and the leader
            group.kill(id_)
            group.await_shares(*(set("abc") - {id_}), within_s=WITHIN_S)
            group.start(id_, **TERMS)
            group.await_shares(*"abc", within_s=WITHIN_S)
        for id_ in ("b", "c"):  # c leads, as it has been there for longest
            group.kill(id_, signal.SIGSTOP)
            group.await_shares(*(set("abc") - {id_}), within_s=WITHIN_S)
            group.kill(id_, signal.SIGCONT)
            group.await_shares(*"abc", within_s=WITHIN_S)
        for id_ in "abc":  # one after the other
            group.stop(id_)
            group.start(id_, **TERMS)
            group.await_shares(*"abc", within_s=WITHIN_S)
    group.await_all(WITHIN_S)
    group.stop_all()
    assert group.check() >= 1_000


# --- what befalls a processor in the midst of a round -------------------------------------------------------------------------


def the_driver_alone_is_killed(group: Group, worker: int) -> None:
    below = tree_of(group.pids["a"])[1:]
    group.kill("a")
    assert not ended(below, END_S)


def its_host_is_lost(group: Group, worker: int) -> None:
    group.kill("a", victims=tree_of(group.pids["a"]))


def its_driver_is_killed_and_the_rest_sleeps_until_its_tasks_are_elsewhere(group: Group, worker: int) -> None:
    below = tree_of(group.pids["a"])[1:]
    group.kill("a", signal.SIGSTOP, below)
    group.kill("a")
    the_other_has_all(group)
    a_worker_wakes_and_is_fenced(group, worker)
    for pid in reversed(below):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    assert not ended(below, END_S)


def its_machine_is_suspended(group: Group, worker: int) -> None:
    tree = tree_of(group.pids["a"])
    group.kill("a", signal.SIGSTOP, tree)
    the_other_has_all(group)
    group.kill("a", signal.SIGCONT, tree)


def its_machine_is_suspended_and_the_worker_wakes_first(group: Group, worker: int) -> None:
    tree = tree_of(group.pids["a"])
    group.kill("a", signal.SIGSTOP, tree)
    the_other_has_all(group)
    a_worker_wakes_and_is_fenced(group, worker)
    group.kill("a", signal.SIGCONT, tree)


def its_driver_alone_sleeps(group: Group, worker: int) -> None:
    group.kill("a", signal.SIGSTOP)
    the_other_has_all(group)
    group.kill("a", signal.SIGCONT)


def the_other_has_all(group: Group) -> None:
    group.await_shares("b", within_s=WITHIN_S)
    group.await_all(WITHIN_S)


def a_worker_wakes_and_is_fenced(group: Group, worker: int) -> None:
    """It was in the midst of its attempt: it ends that, and sends its commit."""
    os.kill(worker, signal.SIGCONT)

    def last() -> Attempt:
        return [attempt for attempt in group.attempts() if attempt.pid == worker][-1]

    group.until(lambda: last().ended_s is not None, WITHIN_S)
    assert last().commits_s is not None and last().committed_s is None, last()


@pytest.mark.soak
@pytest.mark.parametrize(
    "befalls",
    [
        the_driver_alone_is_killed,
        its_host_is_lost,
        its_driver_is_killed_and_the_rest_sleeps_until_its_tasks_are_elsewhere,
        its_machine_is_suspended,
        its_machine_is_suspended_and_the_worker_wakes_first,
        its_driver_alone_sleeps,
    ],
    ids=lambda befalls: befalls.__name__,
)
def test_what_befalls_a_processor_in_the_midst_of_a_round(pair: Group, befalls: Callable[[Group, int], None]) -> None:
    pair.send(RECORDS)
    befalls(pair, pair.await_worker("a"))
    if "a" not in pair.pids:
        pair.await_shares("b", within_s=WITHIN_S)
        pair.start("a", **SLOW)
    pair.send(RECORDS)
    pair.await_shares("a", "b", within_s=WITHIN_S)
    pair.await_all(WITHIN_S)
    pair.stop_all()
    assert pair.check() >= 6 * RECORDS


# --- what hangs alone ---------------------------------------------------------------------------------------------------------

BOUNDS: dict[str, Any] = {**TERMS, "slow_s": 0.02, "max_round_ms": 200, "round_wait_s": 6.0}


def test_a_worker_that_hangs_holds_its_round_up_within_a_bound(group: Group) -> None:
    group.start("a", **BOUNDS)
    group.await_shares("a", within_s=WITHIN_S)
    group.send(RECORDS)
    worker = group.await_worker("a")
    group.kill("a", signal.SIGSTOP, [worker])
    group.until(lambda: "is given up after 6 s" in group.waiting_for("a"))
    group.await_all()
    assert not ended([worker], END_S)
    group.stop_all()
    assert group.check() >= 2 * RECORDS


@pytest.mark.soak
def test_tasks_leave_a_worker_that_hangs(group: Group) -> None:
    """Not in the time after which a round is given up, but in that in which tasks are released."""
    group.start("a", **SLOW)
    group.await_shares("a", within_s=WITHIN_S)
    group.send(RECORDS)
    group.kill("a", signal.SIGSTOP, [group.await_worker("a")])
    group.start("b", **SLOW)
    group.await_shares("a", "b", within_s=WITHIN_S)
    group.await_all(WITHIN_S)
    group.stop_all()
    assert group.check() >= 2 * RECORDS


@pytest.mark.soak
@pytest.mark.parametrize("is_stopped", [False, True], ids=["in a round", "and the processor is stopped"])
def test_a_jvm_that_hangs_ends_its_processor_within_a_bound(group: Group, is_stopped: bool) -> None:
    terms = {**BOUNDS, "jvm_answer_s": 3.0}
    for ids in ("a", "ab"):
        group.start(ids[-1], **terms)
        group.await_shares(*ids, within_s=WITHIN_S)
    group.send(RECORDS)
    group.await_worker("a")
    below, jvm = tree_of(group.pids["a"])[1:], family_of(group.pids["a"]).jvm
    assert jvm is not None
    group.kill("a", signal.SIGSTOP, [jvm])
    if is_stopped:
        group.stop("a")
    else:
        error = group.await_refusal("a")
        assert re.search(r"Spark's JVM, process \d+, has not answered for 3 s and was killed", error["message"]), error
    assert not ended(below, END_S)
    group.await_shares("b", within_s=WITHIN_S)
    group.await_all(WITHIN_S)
    group.start("a", **terms)
    group.await_shares("a", "b", within_s=WITHIN_S)
    group.send(RECORDS)
    group.await_all(WITHIN_S)
    group.stop_all()
    assert group.check() >= 4 * RECORDS
