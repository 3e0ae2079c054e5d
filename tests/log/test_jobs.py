"""Jobs on the embedded log: who may drive one, and that a round commits whole or not at all, wherever it is cut."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.adapters.common.lease_holder import is_known_dead, this_process
from headrace.adapters.log import garbage, job_store
from headrace.adapters.log.chunks import Chunk, chunks_from, terms_of
from headrace.adapters.log.commits import PRODUCER_FILE_AGE_S
from headrace.adapters.log.data_files import ChunkWriter
from headrace.adapters.log.file_names import parts_of_round
from headrace.adapters.log.job_store import LogJobStore
from headrace.adapters.log.system import LogSystem
from headrace.codec.record_batches import HEADERS_TYPE, RECORD_SCHEMA
from headrace.errors import FencedError, JobHeldError, StorageError, StreamNotFoundError
from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.commits import ContainerCommit, RoundCommit
from headrace.model.job_model import JobModel
from headrace.model.streams import SSP
from headrace.model.tasks import PartitionGroup, TaskName

Start = Callable[..., Any]  # see `start` in conftest.py

TASK = TaskName(PartitionGroup(0))
DRIVER = """
import sys, time
from headrace.adapters.common.lease_holder import this_process
from headrace.adapters.log.system import open_system
with open_system(f"log:{sys.argv[1]}") as system:
    now_us = time.time_ns() // 1000
    print(system.job_store("app").acquire(this_process("other", now_us), now_us), flush=True)
    sys.stdin.readline()
"""


def now() -> int:
    return time.time_ns() // 1000


def written(root: Path, round_id: RoundId, values: list[bytes], application: str = "app") -> tuple[Chunk, ...]:
    """The chunks of a data file as a container of the round leaves it, for partition 0 of stream `out`."""
    writer = ChunkWriter(root, parts_of_round(application, round_id))
    columns = [pa.nulls(len(values), pa.binary()), pa.array(values), pa.array([0] * len(values), pa.int64())]
    headers = pa.nulls(len(values), HEADERS_TYPE)
    writer.write("out", 0, pa.RecordBatch.from_arrays([*columns, headers], schema=RECORD_SCHEMA))
    return writer.close()


def round_commit(
    root: Path, epoch: int, number: int, values: list[bytes], base: RoundId | None, sub_topology: str | None = None
) -> RoundCommit:
    """Round `number`, which writes `values` and moves its task to position `number * 10`."""
    round_id = RoundId(epoch, sub_topology, number)
    checkpoint = Checkpoint(TASK, round_id, 1, {SSP("log", "in", 0): number * 10})
    receipt = terms_of(written(root, round_id, values))
    return RoundCommit(round_id, (ContainerCommit(0, (checkpoint,), receipt),), {TASK: base})


def chunks_of(commit: RoundCommit) -> tuple[Chunk, ...]:
    return tuple(chunk for container in commit.containers for chunk in chunks_from(container.receipt))


def changed(commit: RoundCommit, **changes: Any) -> RoundCommit:
    """The commit with other fields of its only container."""
    return replace(commit, containers=(replace(commit.containers[0], **changes),))


def outputs(system: LogSystem) -> list[tuple[int | None, bytes]]:
    return [(record.offset, record.value) for record in system.consume("out")]


@pytest.fixture
def store(system: LogSystem) -> LogJobStore:
    system.create_stream("out", 1)
    return system.job_store("app")


@pytest.fixture
def epoch(store: LogJobStore) -> int:
    return store.acquire(this_process("mine", now()), now())


class TestHolding:
    def test_a_live_holder_is_named_and_a_dead_one_taken_over_at_once(
        self, store: LogJobStore, folder: Path, start: Start
    ) -> None:
        driver = start(DRIVER, folder)
        assert driver.stdout is not None and driver.stdout.readline() == "1\n"
        mine = this_process("mine", now())
        with pytest.raises(JobHeldError, match=rf"run by process {driver.pid} on host {mine.host} since 20"):
            store.acquire(mine, now())
        driver.kill()
        # Not waited for: until then it is a zombie process, which has a /proc entry and yet is gone.
        os.waitid(os.P_PID, driver.pid, os.WEXITED | os.WNOWAIT)
        assert store.acquire(mine, now()) == 2

    def test_a_stopped_holder_is_taken_over_when_it_was_silent_long_enough(
        self, store: LogJobStore, folder: Path, start: Start
    ) -> None:
        driver = start(DRIVER, folder)
        assert driver.stdout is not None and driver.stdout.readline() == "1\n"
        os.kill(driver.pid, signal.SIGSTOP)
        mine = this_process("mine", now())
        with pytest.raises(JobHeldError):
            store.acquire(mine, now() + 5_000_000)
        assert store.acquire(mine, now() + 11_000_000) == 2

    def test_two_runs_of_one_process_exclude_each_other(self, store: LogJobStore, epoch: int) -> None:
        with pytest.raises(JobHeldError):
            store.acquire(this_process("second", now()), now())
        store.release(epoch)
        assert store.acquire(this_process("second", now()), now()) == epoch + 1

    def test_only_what_is_certain_counts_as_dead(self) -> None:
        me = this_process("r", 0)
        assert not is_known_dead(me)
        assert is_known_dead(replace(me, process_started="1" + me.process_started))  # the pid was used again
        for other in (
            replace(me, host="elsewhere", process_started="1" + me.process_started),
            replace(me, boot_id="another", process_started="1" + me.process_started),
            replace(me, boot_id="", process_started="1" + me.process_started),
            replace(me, process_started="17@1"),  # another pid namespace
            replace(me, process_started=""),
        ):
            assert not is_known_dead(other)

    def test_the_steps_are_announced(self, system: LogSystem, monkeypatch: pytest.MonkeyPatch) -> None:
        seen: list[tuple[str, int]] = []
        monkeypatch.setattr(job_store, "reached", lambda protocol, step: seen.append((protocol, step)))
        store = system.job_store("app")
        epoch = store.acquire(this_process("r", now()), now())
        store.fence(epoch, {})
        store.commit_round(round_commit(system.root, epoch, 1, [], None))
        assert seen == [("start", n) for n in range(1, 6)] + [("log", n) for n in range(9, 13)]


class TestRounds:
    def test_outputs_and_positions_move_together(self, system: LogSystem, store: LogJobStore, epoch: int) -> None:
        first = round_commit(system.root, epoch, 1, [b"a", b"b"], None)
        store.commit_round(first)
        store.commit_round(round_commit(system.root, epoch, 2, [b"c"], first.round_id))
        assert outputs(system) == [(0, b"a"), (1, b"b"), (2, b"c")]
        assert store.checkpoints()[TASK].positions == {SSP("log", "in", 0): 20}

    def test_chunks_of_several_files_follow_each_other(self, system: LogSystem, store: LogJobStore, epoch: int) -> None:
        commit = round_commit(system.root, epoch, 1, [b"a"], None)
        more = written(system.root, commit.round_id, [b"b", b"c"]) + written(system.root, commit.round_id, [b"d"])
        system.produce("out", [(None, b"before")])
        store.commit_round(changed(commit, receipt=terms_of(chunks_of(commit) + more)))
        assert outputs(system) == list(enumerate([b"before", b"a", b"b", b"c", b"d"]))

    @pytest.mark.parametrize(
        ("damage", "error"),
        [
            (lambda system, path: path.unlink(), StorageError),
            (lambda system, path: os.truncate(path, path.stat().st_size - 1), StorageError),
            (lambda system, path: system.delete_stream("out"), StreamNotFoundError),
        ],
    )
    def test_a_commit_that_is_refused_changes_nothing(
        self,
        system: LogSystem,
        store: LogJobStore,
        epoch: int,
        damage: Callable[[LogSystem, Path], object],
        error: type[Exception],
    ) -> None:
        first = round_commit(system.root, epoch, 1, [b"a"], None)
        store.commit_round(first)
        second = round_commit(system.root, epoch, 2, [b"b"], first.round_id)
        damage(system, system.root / chunks_of(second)[0].file)
        before = store.checkpoints()
        with pytest.raises(error, match=r"nothing was committed|does not exist"):
            store.commit_round(second)
        assert store.checkpoints() == before
        if error is StorageError:
            assert outputs(system) == [(0, b"a")]

    def test_a_partition_that_does_not_exist_is_refused(
        self, system: LogSystem, store: LogJobStore, epoch: int
    ) -> None:
        commit = round_commit(system.root, epoch, 1, [b"a"], None)
        wrong = tuple(replace(chunk, partition=1) for chunk in chunks_of(commit))
        with pytest.raises(StorageError, match="'out' partition 1, which does not exist"):
            store.commit_round(changed(commit, receipt=terms_of(chunks_of(commit) + wrong)))
        assert outputs(system) == [] and store.checkpoints() == {}

    def test_a_relative_state_file_is_refused(self, system: LogSystem, store: LogJobStore, epoch: int) -> None:
        commit = round_commit(system.root, epoch, 1, [], None)
        with pytest.raises(StorageError, match="expected an absolute path"):
            store.commit_round(changed(commit, state_files=("state/x.arrow",)))

    def test_a_missing_state_file_refuses_the_commit(
        self, system: LogSystem, store: LogJobStore, epoch: int, tmp_path: Path
    ) -> None:
        there, gone = tmp_path / "there", tmp_path / "gone"
        there.touch()
        commit = round_commit(system.root, epoch, 1, [b"a"], None)
        with pytest.raises(StorageError, match="gone is missing"):
            store.commit_round(changed(commit, state_files=(str(there), str(gone))))
        assert outputs(system) == [] and store.checkpoints() == {}
        store.commit_round(changed(commit, state_files=(str(there),)))
        assert outputs(system) == [(0, b"a")]

    def test_another_base_is_refused_by_the_driver_alone(
        self, system: LogSystem, store: LogJobStore, epoch: int
    ) -> None:
        first = round_commit(system.root, epoch, 1, [b"a"], None)
        store.commit_round(first)
        for base in (None, RoundId(epoch, None, 0), RoundId(epoch, "other", 1)):
            with pytest.raises(FencedError, match="Partition_0"):
                store.commit_round(round_commit(system.root, epoch, 2, [b"b"], base))
        assert outputs(system) == [(0, b"a")]
        assert store.checkpoints()[TASK].round_id == first.round_id

    def test_another_job_model_is_named(self, system: LogSystem, store: LogJobStore, epoch: int) -> None:
        store.commit_job_model(epoch, JobModel("app", 2, ()), ())
        with pytest.raises(FencedError, match="job model 1, the current one is 2"):
            store.commit_round(round_commit(system.root, epoch, 1, [b"a"], None))
        assert outputs(system) == []

    @pytest.mark.parametrize("step", [9, 10, 11, 12])
    def test_an_error_at_any_step_changes_nothing(
        self, system: LogSystem, store: LogJobStore, epoch: int, step: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def reached(protocol: str, number: int) -> None:
            if (protocol, number) == ("log", step):
                raise KeyboardInterrupt

        commit = round_commit(system.root, epoch, 1, [b"a"], None)
        monkeypatch.setattr(job_store, "reached", reached)
        with pytest.raises(KeyboardInterrupt):
            store.commit_round(commit)
        monkeypatch.undo()
        assert outputs(system) == [] and store.checkpoints() == {}
        store.commit_round(commit)
        assert outputs(system) == [(0, b"a")]


ROUND = """
import os, pickle, signal, sys
from headrace.adapters.log import job_store
from headrace.adapters.log.system import open_system
folder, commit, protocol_step, action = sys.argv[1:]
def reached(protocol, step):
    if f"{protocol}{step}" == protocol_step:
        print("reached", flush=True)
        os.kill(os.getpid(), getattr(signal, action))
job_store.reached = reached
with open_system(f"log:{folder}") as system:
    try:
        system.job_store("app").commit_round(pickle.loads(bytes.fromhex(commit)))
    except Exception as error:
        print(type(error).__name__, flush=True)
"""


class TestCutProcesses:
    def cut(self, start: Start, folder: Path, commit: RoundCommit, step: int, action: str) -> Any:
        import pickle  # the test's own bytes, to its own child

        process = start(ROUND, folder, pickle.dumps(commit).hex(), f"log{step}", action)
        assert process.stdout is not None and process.stdout.readline() == "reached\n"
        return process

    @pytest.mark.parametrize("step", [9, 10, 11, 12])
    def test_a_driver_killed_at_any_step_leaves_nothing_of_its_round(
        self, system: LogSystem, store: LogJobStore, epoch: int, folder: Path, start: Start, step: int
    ) -> None:
        commit = round_commit(folder, epoch, 1, [b"a"], None)
        assert self.cut(start, folder, commit, step, "SIGKILL").wait(30) == -signal.SIGKILL
        assert outputs(system) == [] and store.checkpoints() == {}
        successor = store.acquire(this_process("mine", now()), now())
        store.commit_round(round_commit(folder, successor, 1, [b"b"], None))
        assert outputs(system) == [(0, b"b")]
        assert system.collect_garbage() == (chunks_of(commit)[0].file,)  # of a dead epoch
        assert outputs(system) == [(0, b"b")]

    def test_a_driver_that_wakes_after_its_successor_committed_is_fenced(
        self, system: LogSystem, store: LogJobStore, epoch: int, folder: Path, start: Start
    ) -> None:
        zombie = self.cut(start, folder, round_commit(folder, epoch, 1, [b"a"], None), 9, "SIGSTOP")
        os.waitid(os.P_PID, zombie.pid, os.WSTOPPED)
        successor = store.acquire(this_process("mine", now()), now())
        store.commit_round(round_commit(folder, successor, 1, [b"b"], None))
        before = store.checkpoints()
        system.collect_garbage()
        os.kill(zombie.pid, signal.SIGCONT)
        assert zombie.stdout.readline() == "FencedError\n"
        assert zombie.wait(30) == 0
        assert outputs(system) == [(0, b"b")] and store.checkpoints() == before

    @pytest.mark.parametrize("step", [10, 12])
    def test_a_driver_stopped_inside_the_transaction_commits_before_whoever_comes_next(
        self, system: LogSystem, store: LogJobStore, epoch: int, folder: Path, start: Start, step: int
    ) -> None:
        commit = round_commit(folder, epoch, 1, [b"a"], None)
        stopped = self.cut(start, folder, commit, step, "SIGSTOP")
        os.waitid(os.P_PID, stopped.pid, os.WSTOPPED)
        assert outputs(system) == []  # readers are not held up
        os.kill(stopped.pid, signal.SIGCONT)
        successor = store.acquire(this_process("mine", now()), now())  # waits for the lock
        assert stopped.wait(30) == 0
        assert outputs(system) == [(0, b"a")]
        with pytest.raises(FencedError):
            store.commit_round(round_commit(folder, successor, 1, [b"again"], None))
        store.commit_round(round_commit(folder, successor, 1, [b"b"], commit.round_id))
        assert outputs(system) == [(0, b"a"), (1, b"b")]


class TestGarbage:
    def test_what_may_still_be_committed_stays(self, system: LogSystem, store: LogJobStore, epoch: int) -> None:
        first = round_commit(system.root, epoch, 1, [b"a"], None)
        second = round_commit(system.root, epoch, 2, [b"b"], first.round_id)
        other = written(system.root, RoundId(epoch, "other", 1), [b"o"])
        twin = written(system.root, first.round_id, [b"a"])  # of a second attempt of round 1
        much_later = now() + 10 * PRODUCER_FILE_AGE_S * 1_000_000
        assert system.collect_garbage(much_later) == ()
        store.commit_round(first)
        assert system.collect_garbage() == (twin[0].file,)  # round 1 is finished, round 2 and `other` are not
        store.commit_round(second)
        assert system.collect_garbage(much_later) == ()
        assert (system.root / other[0].file).exists()
        assert outputs(system) == [(0, b"a"), (1, b"b")]

    def test_what_is_committed_while_garbage_is_sought_stays(
        self, system: LogSystem, store: LogJobStore, epoch: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        commit = round_commit(system.root, epoch, 1, [b"a"], None)
        is_referenced = garbage.is_referenced
        answers = []

        def slow_is_referenced(db: Any, name: str) -> bool:
            answers.append(is_referenced(db, name))
            if len(answers) == 1:
                store.commit_round(commit)
            return answers[-1]

        monkeypatch.setattr(garbage, "is_referenced", slow_is_referenced)
        assert system.collect_garbage() == ()
        assert answers == [False, True]
        assert outputs(system) == [(0, b"a")]

    def test_a_dead_epoch_leaves_nothing_behind(self, system: LogSystem, store: LogJobStore, epoch: int) -> None:
        done = round_commit(system.root, epoch, 1, [b"a"], None)
        store.commit_round(done)
        left = written(system.root, RoundId(epoch, "by-carrier", 9), [b"x"])
        stranger = written(system.root, RoundId(epoch, None, 1), [b"y"], application="unknown")
        store.acquire(this_process("mine", now()), now())
        assert system.collect_garbage() == (left[0].file,)
        assert not (system.root / left[0].file).parent.exists()
        assert (system.root / stranger[0].file).exists()  # of an application without an epoch: by age, as a producer's
        assert outputs(system) == [(0, b"a")]

    def test_a_repartition_stream_gives_its_room_back(self, system: LogSystem, store: LogJobStore, epoch: int) -> None:
        first = round_commit(system.root, epoch, 1, [b"a", b"b"], None)
        store.commit_round(first)
        second = round_commit(system.root, epoch, 2, [b"c"], first.round_id)
        store.commit_round(second)
        system.purge("out", {0: 1})
        assert system.collect_garbage() == ()
        system.purge("out", {0: 2})
        assert system.collect_garbage() == (chunks_of(first)[0].file,)
        assert outputs(system) == [(2, b"c")]
