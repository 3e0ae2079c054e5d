"""What the progress display says of a job and of producing, without a terminal and with one."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from rich.console import Console

from headrace.driver import progress_display as progress
from headrace.driver.progress_display import Rate, line_of, shown

STATUS = {
    "application": "app",
    "running": True,
    "sub_topologies": {
        "source": {
            "records": 120_000,
            "records_per_s": 4_000,
            "lag": 1_500,
            "round": 3,
            "tasks": 4,
            "waiting_for": "round 1:source:4",
        },
        "by-carrier": {
            "records": 7,
            "records_per_s": 1,
            "lag": 0,
            "round": 1,
            "tasks": 1,
            "waiting_for": "new records",
        },
    },
}


def wait_until(is_done: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 30
    while not is_done() and time.monotonic() < until_s:
        time.sleep(0.01)


class FixedJob:
    """A job that stands still."""

    def __init__(self, status: dict[str, Any]) -> None:
        self._status = status

    def status(self) -> dict[str, Any]:
        return self._status


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_names_everything() -> None:
    assert line_of(STATUS) == (
        "source: 120,000 records, 4,000/s on average, lag 1,500, round 3, 4 tasks | "
        "by-carrier: 7 records, 1/s on average, lag 0, round 1, 1 task"
    )
    assert line_of(STATUS, {"source": 5_000, "by-carrier": 0}).startswith("source: 120,000 records, 5,000/s, lag 1,500")


def test_a_part_that_has_stopped_while_the_others_go_on_is_told() -> None:
    subs = STATUS["sub_topologies"]
    status = STATUS | {"sub_topologies": subs | {"by-carrier": subs["by-carrier"] | {"stopped_by": "stream 'a' had 4 ..."}}}
    source, by_carrier = line_of(status).split(" | ")
    assert source == line_of(STATUS).partition(" | ")[0]
    assert by_carrier.endswith("1 task, STOPPED")
    stream = FakeTerminal()
    with shown(FixedJob(status), stream):
        pass
    assert "stopped" in stream.getvalue()
    assert "working" in stream.getvalue()


def test_a_rate_is_that_of_the_last_seconds() -> None:
    rate = Rate()
    assert rate.add(0.0, 0) == 0
    assert rate.add(2.0, 200) == 100
    assert rate.add(10.0, 200) == 20
    assert rate.add(20.0, 200) == 0  # nothing came since 10 s
    assert rate.add(25.0, 1_700) == 100  # since 10 s: there is no sample from 15 s


def test_without_a_terminal_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_INTERVAL_S", 60.0)
    stream = io.StringIO()
    with shown(FixedJob(STATUS), stream):
        pass
    assert stream.getvalue() == f"   0 s  {line_of(STATUS)}\n"


class ChangingJob(FixedJob):
    """A job that starts: four looks at nothing, then records."""

    def __init__(self) -> None:
        super().__init__(STATUS)
        self.looks = 0

    def status(self) -> dict[str, Any]:
        self.looks += 1
        done = self.looks > 5
        sub = {"records": 7 * done, "records_per_s": 0, "lag": 7 - 7 * done, "round": int(done), "tasks": 1}
        return {"running": True, "sub_topologies": {"source": sub | {"waiting_for": "round 1:source:1"}}}


def test_a_line_that_says_what_the_last_one_said_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_INTERVAL_S", 0.01)
    job, stream = ChangingJob(), io.StringIO()
    with shown(job, stream):
        wait_until(lambda: job.looks > 12)
    lines = [line.partition(" s  ")[2] for line in stream.getvalue().splitlines()]
    assert lines[0] == "source: 0 records, 0/s, lag 7, round 0, 1 task"
    assert lines.count(lines[0]) == 1
    assert all(one != another for one, another in pairwise(lines))


def test_it_comes_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_INTERVAL_S", 0.01)
    monkeypatch.setattr(progress, "SAME_LINE_S", 0.05)
    stream = io.StringIO()
    with shown(FixedJob({"running": True, "sub_topologies": {}}), stream):
        wait_until(lambda: stream.getvalue().count("\n") >= 3)
    assert stream.getvalue().count("\n") >= 4


def test_dead_letters_are_shown_where_there_are_any() -> None:
    subs = STATUS["sub_topologies"]
    status = STATUS | {"sub_topologies": subs | {"source": subs["source"] | {"counters": {"dead_letters": 1_234}}}}
    assert line_of(status).partition(" | ")[0].endswith("lag 1,500, round 3, 4 tasks, 1,234 dead letters")


def test_nothing_where_it_is_not_wanted() -> None:
    stream = FakeTerminal()
    with shown(FixedJob(STATUS), stream, enabled=False):
        pass
    assert stream.getvalue() == ""


def test_a_terminal_gets_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = FakeTerminal()
    with shown(FixedJob(STATUS | {"running": False}), stream):
        pass
    assert "ended" in stream.getvalue()
    monkeypatch.setenv("TERM", "dumb")
    stream = FakeTerminal()
    with shown(FixedJob(STATUS), stream):
        pass
    assert stream.getvalue().endswith(f"{line_of(STATUS)}\n")


def test_the_table_says_what_goes_on() -> None:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(progress._JobView(FixedJob(STATUS)).table(ended=False))
    rows = [line.split() for line in console.export_text().splitlines()]
    assert rows[0] == ["records", "records/s", "lag", "round", "tasks", "now"]
    assert rows[1][0:2] == ["source", "120,000"] and rows[1][3:6] == ["1,500", "3", "4"] and rows[1][-1] == "working"
    assert rows[2][-3:] == ["waiting", "for", "new", "records"][-3:]
