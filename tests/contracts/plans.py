"""A small plan, its checkpoints and rounds, for the contract suites of stores."""

from __future__ import annotations

from dataclasses import replace

from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.commits import ContainerCommit, DriverLease, RoundCommit
from headrace.model.job_model import ContainerModel, JobModel, SubTopologyModel, TaskModel
from headrace.model.streams import SSP
from headrace.model.tasks import PartitionGroup, TaskName

S = 1_000_000
ELSEWHERE = DriverLease("run-1", "another-host", 17, "1@1", "boot", 0)
SECOND = replace(ELSEWHERE, run_id="run-2", pid=18)


def task(number: int) -> TaskName:
    return TaskName(PartitionGroup(number))


def model(tasks: int = 2, version: int = 1) -> JobModel:
    tasks_ = tuple(TaskModel(task(n), (SSP("log", "flights", n),)) for n in range(tasks))
    subs = (SubTopologyModel(None, (ContainerModel(0, tasks_),)),)
    return JobModel("delays", version, subs, {"flights": tasks}, stream_ids={"flights": "id-1"})


def apart() -> JobModel:
    """`model()` with its two tasks on a lane each."""
    tasks = model().sub_topologies[0].containers[0].tasks
    containers = tuple(ContainerModel(lane, (one,)) for lane, one in enumerate(tasks))
    return replace(model(), sub_topologies=(SubTopologyModel(None, containers),))


def checkpoint(number: int, epoch: int, round_: int, position: int, version: int = 1) -> Checkpoint:
    return Checkpoint(task(number), RoundId(epoch, None, round_), version, {SSP("log", "flights", number): position})


def round_of(*made: Checkpoint) -> RoundCommit:
    return RoundCommit(made[0].round_id, (ContainerCommit(0, made),))
