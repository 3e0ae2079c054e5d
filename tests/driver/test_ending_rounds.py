"""A change of plan ends the rounds that run; one that was planned just before is not begun."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.adapters.log.system import LogSystem
from headrace.driver.rounds.scheduling import RoundScheduler
from headrace.driver.rounds.sub_topology_runner import SubTopologyRunner
from headrace.errors import IncompatibleChangeError, UnavailableError
from support.world import started


def test_a_round_that_was_planned_before_the_end_was_seen_is_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"log:{tmp_path / 'log'}"
    with hr.open_system(url) as system:
        system.create_stream("in", 1)
        system.produce("in", [hr.Record(b"k", b"v", 0) for _ in range(10)])
    app = hr.App("ending", url, state_uri=str(tmp_path / "state"), local_store_dir=str(tmp_path / "stores"))
    app.stream("in", key=hr.Bytes(), value=hr.Bytes()).to("out")
    jobs, planned, begun = list[Any](), list[Any](), list[Any]()
    plan, run = RoundScheduler.next, SubTopologyRunner.run

    def planning(self: Any, *given: Any) -> Any:
        found = plan(self, *given)
        if found is not None and jobs:
            planned.append(found)
            jobs[0]._generation.yield_soon()  # between the plan of the round and its beginning
        return found if jobs else None

    def running(self: Any, one: Any) -> Any:
        begun.append(one)
        return run(self, one)

    monkeypatch.setattr(RoundScheduler, "next", planning)
    monkeypatch.setattr(SubTopologyRunner, "run", running)
    job = started(app)
    jobs.append(job)
    job.wait(20)
    assert len(planned) == 1 and not begun


@pytest.mark.parametrize("until", [None, "caught-up"])
def test_the_error_of_a_round_ends_the_job_though_the_system_cannot_tell_of_its_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: Any
) -> None:
    """The input was recreated with fewer partitions, and a broker gives no answer then."""
    url = f"log:{tmp_path / 'log'}"
    with hr.open_system(url) as system:
        system.create_stream("in", 2)
        system.produce("in", [hr.Record(b"k", b"v", 0) for _ in range(10)])
    app = hr.App("silent", url, state_uri=str(tmp_path / "state"), local_store_dir=str(tmp_path / "stores"))
    app.stream("in", key=hr.Bytes(), value=hr.Bytes()).to("out")

    def fewer(self: Any, streams: Any) -> dict[str, int]:
        return dict.fromkeys(streams, 1)

    def unanswered(self: Any, *_: Any) -> Any:
        raise UnavailableError("the broker gives no answer", "")

    def running(self: Any, one: Any) -> Any:
        monkeypatch.setattr(LogSystem, "partition_counts", fewer)
        monkeypatch.setattr(LogSystem, "describe_stream", unanswered)
        raise IncompatibleChangeError("stream 'in' was recreated")

    monkeypatch.setattr(SubTopologyRunner, "run", running)
    job = started(app, until) if until else started(app)
    with pytest.raises(IncompatibleChangeError, match="was recreated"):
        job.wait(20)
