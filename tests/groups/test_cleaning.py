"""What a group deletes, and writes again: state files of rounds that were killed, local stores of tasks that live elsewhere,
and what ZooKeeper has of tasks and job models."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import pytest
from kazoo.client import KazooClient

import headrace as hr
from groups.group import NOT_YET, Group
from headrace.errors import StorageError
from headrace.group.processor_group import ProcessorGroup
from headrace.model.checkpoint import StateFileKind
from headrace.state_files.files import FilePlace, StateFiles
from headrace.wiring import config_of
from headrace.wiring.group_terms import open_group_of
from support.children import wait_until_stopped

pytestmark = pytest.mark.chaos
WRITTEN = 6  # the step of a round on Kafka at which its state files are written, and nothing else


def test_what_killed_rounds_have_written_is_deleted(group: Group) -> None:
    group.send(40)
    for _ in range(2):
        group.start("a", traps=f"kill:kafka:{WRITTEN}:1")
        group.await_end("a")
    left = group.state_files() - group.named_files()
    assert len(left) >= 2
    group.start("a")
    group.await_all()
    group.until(lambda: not left & group.state_files())
    group.stop_all()
    assert group.check() >= 80


def test_files_that_came_and_went_between_two_looks_of_the_leader_are_deleted(group: Group) -> None:
    """As long as no grant changes: none of them is ever in a checkpoint that it reads."""
    for id_ in "ab":
        group.start(id_)
        group.await_shares(*"ab"[: "ab".index(id_) + 1])
    for _ in range(40):
        group.send(24)
        time.sleep(0.3)
    group.await_all()
    group.until(lambda: not group.state_files() - group.named_files())
    group.until(lambda: not group.named_files() - group.state_files())
    group.stop_all()
    assert group.check() >= 960


def test_a_new_leader_deletes_no_file_that_another_has_written_and_not_committed(group: Group) -> None:
    """It deletes those of rounds that were killed meanwhile: one is left for it, to see that it has looked."""
    armed = group.folder / "trap"
    armed.write_bytes(NOT_YET)
    for id_ in "abc":
        traps = f"stop:kafka:{WRITTEN}:1@{armed}" if id_ == "c" else ""
        group.start(id_, traps=traps, session_ms=20_000)
        group.await_shares(*"abc"[: "abc".index(id_) + 1])
    group.send(40)
    group.await_all()
    armed.write_bytes(b"")
    group.send(40)
    wait_until_stopped(group.pids["c"])
    written = group.state_files() - group.named_files()
    assert written
    group.stop("a")
    files = StateFiles(f"{group.folder}/state")
    left = files.write_batches(FilePlace(f"{group.name}/Partition_0", 1), StateFileKind.DELTA, 99, [])  # of the first epoch
    group.until(lambda: left.name not in group.state_files(), 6.0)
    assert written <= group.state_files()
    group.kill("c", signal.SIGCONT)
    group.send(40)
    group.await_all()
    group.stop_all()
    assert group.check() >= 240


def stores_of(group: Group, id_: str) -> set[str]:
    """The tasks that have a local store with a processor."""
    return {unquote(one.name) for one in (group.folder / "stores" / id_ / group.name).iterdir()}


def test_local_stores_of_tasks_that_live_elsewhere_are_removed_and_no_others(group: Group) -> None:
    group.start("a")
    group.await_shares("a")
    group.send(80)
    group.await_all()
    every = group.tasks_of()["a"]
    group.start("b")
    group.await_shares("a", "b")
    group.send(80)
    group.await_all()
    assert stores_of(group, "a") == every, "they may come back soon"
    group.stop("a")
    group.start("a", retention_s=0.2)
    group.send(80)
    group.await_all()
    mine = group.tasks_of()["a"]
    assert mine < every
    group.until(lambda: stores_of(group, "a") == mine)
    assert stores_of(group, "b") == every - mine
    group.stop_all()
    assert group.check() >= 480


@pytest.fixture
def looking(group: Group) -> Iterator[ProcessorGroup]:
    """The group as one sees it who takes no part."""
    config = config_of(group.application())
    opened = open_group_of(config, group.name, wait_s=10.0)
    yield opened
    opened.close()


def test_where_tasks_have_run_is_forgotten_with_them(group: Group, looking: ProcessorGroup) -> None:
    group.start("a")
    group.send(40)
    group.await_all()

    def located() -> set[str]:
        return {str(task) for task in looking.locality.read_processor_locality().get_locality()}

    group.until(lambda: located() == group.tasks_of()["a"])
    with hr.elasticity(group.application()) as elasticity:
        elasticity.set(2)
    group.until(lambda: len(group.tasks_of()["a"]) == 16)
    group.send(80)
    group.await_all()
    group.until(lambda: located() and located() <= group.tasks_of()["a"])
    group.stop_all()
    assert group.check() >= 240


def test_a_job_model_that_was_altered_in_zookeeper_is_written_again_by_the_next_leader(
    group: Group, looking: ProcessorGroup, real_zookeeper: Any
) -> None:
    for id_ in "ab":
        group.start(id_)
        group.await_shares(*"ab"[: "ab".index(id_) + 1])
    group.send(40)
    group.await_all()
    client = KazooClient(real_zookeeper.server.address)
    client.start(10)
    try:
        client.set(looking.paths.chunk(group.version(), 0), b"altered")
    finally:
        client.stop()
        client.close()
    version = group.version()
    with pytest.raises(StorageError, match="was altered"):
        looking.job_model(version)
    group.stop("a")
    group.until(lambda: group.version() == version and _is_whole(looking, version), 4.0)
    group.send(40)
    group.start("a")
    group.await_all()
    group.stop_all()
    assert group.check() >= 160


def _is_whole(looking: ProcessorGroup, version: int) -> bool:
    try:
        return bool(looking.job_model(version))
    except StorageError:
        return False
