"""How `headrace status` and `tasks` show stores that are restored: of a job that a driver in this process has published."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.cli import jobs

UNDER_WAY = {
    "task": "Partition_3",
    "location": "host-2",
    "done_bytes": 12_345_678,
    "total_bytes": 62_900_000,
    "entries": 120_000,
    "left_s": 7.4,
    "problem": "",
}


def shown(capsys: pytest.CaptureFixture[str], *restoring: dict[str, Any], running: bool = True) -> list[str]:
    sub = {"records": 1, "restoring": list(restoring)}
    holder = {"pid": 1, "host": "driver", "alive": running, "silent_s": 0.1}
    found = {"application": "a", "system": "log:x", "running": running, "counts_of": "this run", "holder": holder}
    found["rejected_executors"] = {}
    jobs._print_status(found | {"sub_topologies": {"source": sub}})
    return [line for line in capsys.readouterr().out.splitlines() if "store" in line]


def test_a_line_says_how_far_each_store_is(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = shown(capsys, UNDER_WAY)
    assert line == "source: the store of Partition_3 at host-2 is restored: 12.3 of 62.9 MB, 120,000 entries, about 7 s left"
    (line,) = shown(capsys, UNDER_WAY | {"left_s": None})
    assert line.endswith("120,000 entries")


def test_why_one_is_restored_in_a_round(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = shown(capsys, UNDER_WAY | {"problem": "the disk is full"})
    assert line.endswith("is restored in a round, as it could not be in the background: the disk is full")


def test_what_a_job_was_restoring_that_has_ended_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, UNDER_WAY, running=False) == []
