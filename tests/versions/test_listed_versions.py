"""What is listed of kept versions: the versions on record, and what going back to each reads again."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from headrace.cli.commands import application as command
from headrace.core.rewind.consistent_cuts import ConsistentCut
from headrace.core.rewind.kept_states import kept_states
from headrace.core.rewind.state_history import StateVersion
from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.job_model import ContainerModel, JobModel, SubTopologyModel, TaskModel
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName
from versions.test_kept_versions import application, driver_in, work

A, B = TaskName.parse("Partition_0"), TaskName.parse("Partition_1")
IN_0, IN_1, SHARED = SSP("k", "in", 0), SSP("k", "in", 1), SSP("k", "all", 0)


def at(task: TaskName, number: int, own: int, shared: int) -> Checkpoint:
    return Checkpoint(task, RoundId(1, None, number), 1, {IN_0 if task == A else IN_1: own, SHARED: shared})


def model() -> JobModel:
    tasks = TaskModel(A, (SHARED, IN_0)), TaskModel(B, (SHARED, IN_1))
    return JobModel("app", 1, (SubTopologyModel(None, (ContainerModel(0, tasks),)),), {}, {})


def test_a_partition_that_several_read_counts_once_and_a_cut_has_all_its_tasks() -> None:
    now = {A: at(A, 9, 100, 50), B: at(B, 9, 200, 50)}
    versions = {A: [StateVersion(at(A, 1, 10, 5), 7), StateVersion(at(A, 2, 60, 20), 8)], B: [StateVersion(at(B, 1, 40, 3), 7)]}
    cut = ConsistentCut(None, 7, {A: RoundId(1, None, 1), B: RoundId(1, None, 1)}, {})
    gone = ConsistentCut(None, 6, {A: RoundId(1, None, 0), B: RoundId(1, None, 1)}, {})
    together, alone = kept_states(model(), now, versions, [cut, gone])
    assert (together.is_cut, together.tasks, together.read_again) == (True, (A, B), {"all": 47, "in": 90 + 160})
    assert (alone.is_cut, alone.tasks, alone.read_again) == (False, (A,), {"all": 30, "in": 40})
    assert [(one.kept_us, one.tasks) for one in kept_states(model(), now, versions, [cut], by_task=True)] == [
        (7, (A,)),
        (7, (B,)),
        (8, (A,)),
    ]


def test_the_command_lists_what_is_kept(tmp_path: Path) -> None:
    with driver_in(tmp_path) as driver:
        for _ in range(3):
            work(driver)
        named = ["--application", application().name, "--system", f"log:{tmp_path / 'log'}", "--json"]
        result = CliRunner().invoke(command, ["state", "versions", *named])
        assert result.exit_code == 0, result.output
        found = json.loads(result.stdout)["versions"]
        again = [sum(one["read_again"].values()) for one in found]
        assert len(again) >= 2 and again == sorted(again, reverse=True), "the older, the more is read again"


def test_where_none_is_kept_it_says_which_settings_keep_some(tmp_path: Path) -> None:
    with driver_in(tmp_path, most=1) as driver:
        work(driver)
        named = ["--application", application().name, "--system", f"log:{tmp_path / 'log'}"]
        result = CliRunner().invoke(command, ["state", "versions", *named])
        assert result.exit_code == 0 and "keep_state_versions" in result.stderr, result.output
