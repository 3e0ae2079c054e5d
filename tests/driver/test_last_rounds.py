"""The last rounds by phase, and of each task the last commit and the last error: kept by the job, for who looks later."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import wiring
from headrace.client.job_documents import status_document, tasks_document
from headrace.client.job_look import JobLook
from headrace.core.group.statuses import joined_statuses
from headrace.core.metrics.observations import OBSERVED_TASKS_MAX
from headrace.core.metrics.phases import PHASES, ROUNDS_KEPT
from headrace.driver.rounds.progress import Progress
from headrace.errors import RecordError
from headrace.model.checkpoint import RoundId
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine


def application(folder: Path, **keys: Any) -> hr.App:
    places = {"local_store_dir": str(folder / "stores"), "state_uri": str(folder / "state"), "max_records_per_round": 2}
    app = hr.App("shop", f"log:{folder / 'log'}", config={**places, **keys})
    counted = app.stream("in", key=hr.String(), value=hr.Long()).filter(lambda record: 1 // record.value > 0)
    counted.group_by_key().count(store="counts")
    return app


def run(app: hr.App) -> Any:
    job = wiring.start(app, until="caught-up", engine=InlineEngine(run_container))
    job.wait(60)
    return job.status()["sub_topologies"]["source"]


def looked(folder: Path) -> tuple[Mapping[str, Any], list[dict[str, Any]]]:
    """What another process sees: the status of `source`, and the tasks."""
    with hr.open_system(f"log:{folder / 'log'}", create=False) as system:
        job = JobLook(system, "shop")
        return status_document(job, "log")["sub_topologies"]["source"], tasks_document(job)["tasks"]


@pytest.fixture
def log(tmp_path: Path) -> Any:
    with hr.open_system(f"log:{tmp_path / 'log'}") as opened:
        opened.create_stream("in", 2)
        opened.create_stream("bad", 1)
        yield opened


def test_the_last_rounds_are_kept_by_phase_over_a_restart(tmp_path: Path, log: Any) -> None:
    log.produce("in", [(f"k{number}", 1) for number in range(12)], key=hr.String(), value=hr.Long())
    shown = run(application(tmp_path))
    found = [dict(zip(shown["last_rounds"]["columns"], row, strict=True)) for row in shown["last_rounds"]["rows"]]
    assert len(found) == shown["round"] >= 3 and sum(one["records"] for one in found) == 12
    assert [one["round"] for one in found] == sorted(one["round"] for one in found)
    for one in found:
        assert one["process"] > 0 and one["write"] > 0 and all(one[phase] >= 0 for phase in PHASES)
    assert shown["timings_ms"] == {phase: found[-1][phase] for phase in PHASES}
    log.produce("in", [("k", 1)], key=hr.String(), value=hr.Long())
    run(application(tmp_path))
    rows = looked(tmp_path)[0]["last_rounds"]["rows"]
    assert len(rows) == len(found) + 1 and rows[0][0] == 1 and rows[-1][0] == 2, "by their epochs, of both runs"


def test_a_task_has_the_time_of_its_commit_and_the_last_thing_that_went_wrong(tmp_path: Path, log: Any) -> None:
    log.produce("in", [hr.Record("a", 1, partition=0)], key=hr.String(), value=hr.Long())
    run(application(tmp_path, dead_letter_stream="bad"))
    log.produce("in", [hr.Record("a", 0, partition=0)], key=hr.String(), value=hr.Long())
    run(application(tmp_path, dead_letter_stream="bad"))
    first, second = looked(tmp_path)[1]
    assert first["last_commit"] == first["last_error"]["at"], "it is of that round"
    assert "ZeroDivisionError" in first["last_error"]["error"] and first["host"] == socket.gethostname()
    assert second["last_error"] is None and second["came"] == "same host", "as the run before"
    log.produce("in", [hr.Record("b", 0, partition=1)], key=hr.String(), value=hr.Long())
    with pytest.raises(RecordError):
        run(application(tmp_path))
    before, second = looked(tmp_path)[1]
    assert "ZeroDivisionError" in second["last_error"]["error"], "the round was not committed, and the job has ended"
    assert before["last_error"] == first["last_error"], "of the run before"


def test_they_stay_small() -> None:
    progress = Progress()
    for number in range(2 * ROUNDS_KEPT):
        progress.add(RoundId(1, None, number), [], 5, {"read": 1e6}, number)
    rows = progress.last_rounds()["rows"]
    assert len(rows) == ROUNDS_KEPT and rows[-1][:5] == [1, 2 * ROUNDS_KEPT - 1, 2 * ROUNDS_KEPT - 1, 5, 1.0]
    tasks = [f"Partition_{number}" for number in range(OBSERVED_TASKS_MAX)]
    progress.failed(tasks, "x" * 10_000, 7)
    (error,) = progress.of_tasks(set(tasks))["task_errors"]
    assert len(error[1]) < 400 and error[2] == sorted(tasks), "once, for all of them"
    assert "task_errors" not in progress.of_tasks({*tasks, "one more"})


def test_those_of_a_group_are_joined() -> None:
    def share(at_us: int, task: str) -> dict[str, Any]:
        rounds = {"columns": ["ended_us", "read"], "rows": [[at_us, 1]]}
        of_task = {"task_commits": {task: at_us}, "task_errors": [[at_us, "e", [task]]]}
        return {"updated_us": at_us, "last_rounds": rounds, **of_task}

    found = joined_statuses({"source@b": share(2, "Partition_1"), "source@a": share(3, "Partition_0")})["source"]
    assert found["last_rounds"]["rows"] == [[2, 1], [3, 1]]
    assert found["task_commits"] == {"Partition_0": 3, "Partition_1": 2} and len(found["task_errors"]) == 2


def test_who_reads_what_was_done_reads_it_while_a_round_adds_to_it() -> None:
    """Another thread may be in the midst of what it was given."""
    progress = Progress()
    progress.count({"a": 1})
    progress.committed(["Partition_0"], 1)
    progress.failed(["Partition_0"], "no", 1)
    given = iter(progress.counters), iter(progress.committed_us), iter(progress.errors)
    progress.count({"a": 1, "b": 2})
    progress.committed(["Partition_1"], 2)
    progress.failed(["Partition_1"], "no", 2)
    progress.lose(3, "lost")
    assert [list(one) for one in given] == [["a"], ["Partition_0"], ["Partition_0"]]
    assert progress.counters == {"a": 2, "b": 2, "lost_offsets": 3}
    assert progress.committed_us == {"Partition_0": 1, "Partition_1": 2}
