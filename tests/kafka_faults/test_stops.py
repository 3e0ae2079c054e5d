"""SIGSTOP of a driver at every numbered step: its successor commits, and what wakes later can do no harm."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from chaos.stopping import KAFKA_STOPS, stop_and_take_over
from chaos.world import SeededWorld
from support.checker import KillReport
from support.children import Children, log_of, report_of, told
from support.world import Place

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]
SEED = 20271


def test_a_driver_stopped_at_any_step_cannot_commit_once_another_took_over(
    tmp_path: Path, children: Children, on_kafka: Place
) -> None:
    report = KillReport()
    world = SeededWorld(tmp_path, on_kafka, children, SEED)
    stop_and_take_over(world, SEED, KAFKA_STOPS, report)
    world.produce(40)
    world.finish()
    world.judge(report)
    print(report)
    report.verify(landed_min=len(KAFKA_STOPS))


def test_what_wakes_after_its_commit_leaves_the_store_to_its_successor(
    tmp_path: Path, children: Children, on_kafka: Place
) -> None:
    report = KillReport()
    world = SeededWorld(tmp_path, on_kafka, children, SEED)
    world.produce(60)
    first, pid = world.stopped(("kafka", 9))  # what it committed it would apply now; it holds its stores
    world.finish(stale_us=0)
    assert world.woken(pid) == 1
    assert report_of(first)["error"] == "FencedError", told(first)
    assert "rebuilt" not in log_of(first), "it made its successor's store anew, at an older state"
    world.produce(40)
    last = world.finish()
    report_of_last = report_of(last)
    counters = [one["counters"] for one in report_of_last["status"]["sub_topologies"].values()]
    restored = [one.get("stores_restored", 0) for one in counters]
    assert (report_of_last["notes"], restored) == ([], [0] * len(counters)), "its stores are not as they were left"
    world.judge(report)
    report.verify(landed_min=0)


@pytest.mark.parametrize("step", [("kafka", 1), pytest.param(("kafka", 2), marks=pytest.mark.soak)])
def test_a_driver_that_wakes_in_the_middle_of_its_successors_transaction_does_not_block_it(
    tmp_path: Path, children: Children, on_kafka: Place, step: tuple[str, int]
) -> None:
    report = KillReport()
    world = SeededWorld(tmp_path, on_kafka, children, SEED)
    world.produce(90)
    first, first_pid = world.stopped(step)
    second, second_pid = world.stopped(("kafka", 8), count=2)
    assert world.woken(first_pid) == 1, told(first)
    assert report_of(first)["error"] == "FencedError", told(first)
    assert world.woken(second_pid) == 0, told(second)
    world.judge(report)
    report.verify(landed_min=0)


def test_a_second_driver_says_who_holds_the_job_and_a_third_starts_when_that_one_is_killed(
    tmp_path: Path, children: Children, on_kafka: Place
) -> None:
    report = KillReport()
    world = SeededWorld(tmp_path, on_kafka, children, SEED)
    world.produce(60)
    _, pid = world.stopped(("kafka", 4), count=2)
    second = world.run_of()
    assert children.finish(second) == 1
    assert report_of(second)["error"] == "JobHeldError"
    assert f"is run by process {pid} on host {socket.gethostname()}" in report_of(second)["message"]
    os.kill(pid, signal.SIGKILL)
    assert children.wait(pid) == -signal.SIGKILL
    world.finish()
    world.judge(report)
    report.verify(landed_min=0)
