"""Drivers that should be dead: stopped at every step while another takes over, or still alive when a second one comes."""

from __future__ import annotations

import os
import random
import signal
import socket
from pathlib import Path

import pytest

from chaos.checker import KillReport
from chaos.children import Children, report_of, sprung, wait_until_stopped
from chaos.killing import LOG_STEPS, START_STEPS, Producer
from chaos.states import checkpoints_of
from chaos.verdict import judge

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]
SEED = 20261
# A driver stopped inside SQLite's write transaction holds its lock: nobody can take over, and the error says why.
HOLDS_THE_CATALOG = {("log", 10), ("log", 11), ("log", 12), ("start", 2), ("start", 3)}
STOPS = [step for step in (*LOG_STEPS, *START_STEPS) if step not in HOLDS_THE_CATALOG and step != ("start", 1)]
TRIES = 4  # by chance another thread of the stopped driver holds the catalog: then it is tried again


def taken_over(children: Children, log: Path, step: tuple[str, int]) -> bool:
    """Stop a driver at a step, start another, let the first go on; whether the other one could take over."""
    stopped = children.run_of(log, traps=f"stop:{step[0]}:{step[1]}:1")
    pid = children.start(stopped)
    wait_until_stopped(pid)
    assert sprung(stopped) == [f"stop {step[0]} {step[1]}"]
    successor = children.run_of(log, stale_us=0, lock_wait_s=0.5)
    succeeded = children.finish(successor) == 0
    committed = checkpoints_of(log, "job")
    os.kill(pid, signal.SIGCONT)
    code = children.wait(pid)
    if succeeded:
        assert code == 1, f"{step}: a driver that was taken over ended well"
        assert report_of(stopped)["error"] == "FencedError", (step, report_of(stopped))
        assert checkpoints_of(log, "job") == committed, f"{step}: the old driver committed"
    else:
        assert report_of(successor)["error"] == "StorageError", (step, report_of(successor))
        assert f"stayed locked by process {pid} (which is stopped)" in report_of(successor)["message"]
        assert code == 0, (step, report_of(stopped))
    return succeeded


def test_a_driver_stopped_at_any_step_cannot_commit_once_another_took_over(tmp_path: Path) -> None:
    draw = random.Random(SEED)
    report = KillReport()
    log = tmp_path / "data"
    producer = Producer(log, SEED)
    with Children(tmp_path) as children:
        for step in STOPS:
            for _ in range(TRIES):
                producer.produce(draw.randrange(45, 80))
                landed = taken_over(children, log, step)
                report.fault(f"{step[0]} {step[1]}", "SIGSTOP", landed=landed)
                if landed:
                    break
        for step in sorted(HOLDS_THE_CATALOG):
            producer.produce(draw.randrange(45, 80))
            assert not taken_over(children, log, step), f"{step}: taken over while the catalog was locked"
            report.fault(f"{step[0]} {step[1]}", "SIGSTOP", landed=True)
        producer.produce(50)
        last = children.run_of(log)
        assert children.finish(last) == 0, report_of(last)
    producer.close()
    judge(log, "job", report)
    print(report)
    report.verify(landed_min=len(STOPS) + len(HOLDS_THE_CATALOG))


def test_a_store_that_a_stopped_process_holds_is_set_aside_and_said(tmp_path: Path) -> None:
    log = tmp_path / "data"
    producer = Producer(log, SEED)
    producer.produce(60)
    with Children(tmp_path) as children:
        first = children.run_of(log)
        assert children.finish(first) == 0, report_of(first)
        producer.produce(60)
        stopped = children.run_of(log, traps="stop:log:5:1")  # it has its stores open
        pid = children.start(stopped)
        wait_until_stopped(pid)
        successor = children.run_of(log, stale_us=0)
        assert children.finish(successor) == 0, report_of(successor)
        notes = " ".join(report_of(successor)["notes"])
        assert f"is held by process {pid}, which is stopped" in notes
        os.kill(pid, signal.SIGCONT)
        assert children.wait(pid) == 1
        producer.produce(60)
        last = children.run_of(log)
        assert children.finish(last) == 0, report_of(last)
    producer.close()
    report = KillReport()
    judge(log, "job", report)
    report.verify(landed_min=0)
    assert not list((tmp_path / "stores-job").rglob("*~1")), "the sibling is removed once the first folder is free"


def test_a_second_driver_says_who_holds_the_job_and_a_third_starts_when_that_one_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "data"
    producer = Producer(log, SEED)
    producer.produce(60)
    with Children(tmp_path) as children:
        first = children.run_of(log, traps="stop:log:4:2")
        pid = children.start(first)
        wait_until_stopped(pid)
        second = children.run_of(log)
        assert children.finish(second) == 1
        assert report_of(second)["error"] == "JobHeldError"
        assert f"is run by process {pid} on host {socket.gethostname()}" in report_of(second)["message"]
        os.kill(pid, signal.SIGKILL)
        assert children.wait(pid) == -signal.SIGKILL
        third = children.run_of(log)
        assert children.finish(third) == 0, report_of(third)
    producer.close()
    report = KillReport()
    judge(log, "job", report)
    report.verify(landed_min=0)
