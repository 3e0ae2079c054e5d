"""How `headrace status` shows the processors of a standalone group: who leads, and who is a spare."""

from __future__ import annotations

import time
from typing import Any

import pytest

from headrace.cli import jobs
from headrace.client import job_documents

WAITS = "none leads: process 17 on h, which led, waits for ZooKeeper"
LOST = "process 17 on h, which led, is lost, another will lead"


def shown(capsys: pytest.CaptureFixture[str], **processors: dict[str, Any]) -> list[list[str]]:
    """Of a group in which `a` and `b` have tasks, what the table has of each."""
    now_us = time.time_ns() // 1000
    reported = {id_: {"updated_us": now_us, "records": 7, "waiting_for": "", "ended_by": ""} for id_ in "ab"}
    sub = {"records": 14, "processors": reported, "tasks_by_processor": {"a": 2, "b": 1}}
    holder = {"pid": 1, "host": "h", "alive": True, "silent_s": 0.1}
    found = {"application": "w", "system": "kafka://k", "running": True, "counts_of": "this run", "holder": holder}
    there = {id_: {"updated_us": now_us, **one} for id_, one in processors.items()}
    jobs._print_status(found | {"rejected_executors": {}, "sub_topologies": {"source": sub}, "processors": there})
    lines = capsys.readouterr().out.splitlines()
    table = lines[next(number for number, line in enumerate(lines) if line.startswith("processor ")) :]
    role, reported_at = (table[0].index(name) for name in ("role", "reported"))
    return [[line.split()[0], line[role:].split()[0], line[reported_at:].partition(" ago")[2].strip()] for line in table[1:]]


def test_spares_are_listed_with_what_they_wait_for_and_the_leader_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    why = "tasks; its application or settings differ from those that the group runs"
    rows = shown(
        capsys,
        a={"is_leader": False, "is_spare": False, "waiting_for": ""},
        b={"is_leader": True, "is_spare": False, "waiting_for": ""},
        c={"is_leader": False, "is_spare": True, "waiting_for": why},
    )
    assert rows == [["a", "source", ""], ["b", "leads", ""], ["c", "spare", why]]


def test_a_leader_without_tasks_leads(capsys: pytest.CaptureFixture[str]) -> None:
    rows = shown(capsys, z={"is_leader": True, "is_spare": True, "waiting_for": "tasks: there are 3"})
    assert rows[-1] == ["z", "leads", "tasks: there are 3"]


def test_of_one_task_that_waits_the_words_are_of_one() -> None:
    by_processor, reported = {"a": 1, "b": 2}, dict[str, Any](processors={})
    first, second = job_documents._waiting_for_processors(by_processor, reported)
    assert first.startswith("1 task waits for processor a") and second.startswith("2 tasks wait for processor b")


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ({"pid": 17, "is_leader": False, "waiting_for": "ZooKeeper"}, WAITS),
        ({"pid": 17, "is_leader": True, "waiting_for": ""}, LOST),
        ({"pid": 18, "is_leader": False, "waiting_for": ""}, LOST),
    ],
)
def test_a_leader_that_is_there_and_does_not_lead_is_not_lost(there: dict[str, Any], said: str) -> None:
    holder = {"host": "h", "pid": 17, "silent_s": 95.0, "alive": False}
    found = {"holder": holder, "running": True, "working_processors": ["a", "b"], "processors": {"a": {"host": "h", **there}}}
    assert jobs._state_text(found) == f"running: processors a, b of its group; {said}"
