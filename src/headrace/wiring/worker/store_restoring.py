"""The worker's side of restores on a cluster or in a group: how much an opening of a container's stores would read, and the
process that restores them in the background (`restore_process`)."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from msgspec import structs

from headrace.adapters.common import lease_holder as holders
from headrace.adapters.lmdb.ownership import used_place
from headrace.adapters.lmdb.store_status import held_state
from headrace.core.keys.heads import files_to_read, lacks_last_delta
from headrace.exchange.messages import ContainerPlan
from headrace.exchange.store_restoring import (
    RestoreAnswer,
    StoresToRestore,
    decoded_stores_to_restore,
    encoded_answer,
    encoded_stores_to_restore,
)
from headrace.exchange.texts import first_line_of
from headrace.model.checkpoint import Head, StateFile
from headrace.state_files.files import task_folder_of
from headrace.wiring.worker.location import local_folder_of, location_of
from headrace.wiring.worker.restore_folder import RestoreFolder

_MODULE = "headrace.wiring.worker.restore_process"
_STARTS_MAX = 3  # in a row, without coming further
_DIED = (
    f"expected a last word of the process that restores, found that {_STARTS_MAX} in a row ended without one and came no "
    "further; see the log of the worker there, and the kernel's, which may have killed them for their memory"
)


def missing_bytes(plan: ContainerPlan, application: str) -> dict[str, int]:
    """By task how many bytes of state files opening its store would read here, if all of them are more than a round may
    restore; else nothing. Changes nothing."""
    heads = {task.name: task.head for task in plan.tasks if task.head is not None}
    bound = plan.restore_inline_bytes
    if bound is None or sum(_bytes_of(head.files) for head in heads.values()) <= bound:
        return {}
    # On the log the next round applies what the last one has written (protocol.md 15): no store is ever at its head.
    found = _missing(local_folder_of(plan.local_store_dir), application, heads, is_last_applied=plan.system != "log")
    return {task: size for task, size in found.items() if size} if sum(found.values()) > bound else {}


def _missing(root: str, application: str, heads: Mapping[str, Head], *, is_last_applied: bool) -> dict[str, int]:
    """By task how many bytes of state files opening its store below `root` would read. `is_last_applied`: the last delta
    counts, too."""
    boot_id = holders.boot_id()
    return {
        task: _bytes_of(_missing_files(Path(root) / task_folder_of(application, task), head, boot_id, is_last_applied))
        for task, head in heads.items()
    }


def _missing_files(folder: Path, head: Head, boot_id: str, is_last_applied: bool) -> tuple[StateFile, ...]:
    held = held_state(used_place(folder), boot_id)
    if held is None:
        return head.files
    if not is_last_applied and lacks_last_delta(head, held.identity):
        return ()
    return files_to_read(head, held.identity, held.prepared)


def _bytes_of(files: tuple[StateFile, ...]) -> int:
    return sum(file.counted_bytes for file in files)


def end_restore(plan: ContainerPlan, application: str, title: str) -> None:
    """Before stores are opened: have a process end that restores these for another plan, and has their locks. Where only a part
    of the container takes part, it is its other stores that are restored."""
    if plan.is_part:
        return
    RestoreFolder(local_folder_of(plan.local_store_dir), application, title, plan.lane).end()


def restore(payload: bytes, parent: int | None = None) -> bytes:
    """Answer a `StoresToRestore`: begin, look how far it is, or have it end. Does not wait for it. `parent`: the process that
    is there as long as the containers may run; None: the one that has started this one, as an executor has."""
    asked = decoded_stores_to_restore(payload)
    here = location_of(asked.location_id)
    if here != asked.location:
        return encoded_answer(RestoreAnswer(elsewhere=here))
    asked = structs.replace(asked, local_store_dir=local_folder_of(asked.local_store_dir))
    return encoded_answer(PROCESSES.answered(asked, os.getppid() if parent is None else parent))


class RestoreProcesses:
    """The processes that this worker process has started. Threads may share it."""

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()

    def answered(self, asked: StoresToRestore, parent: int) -> RestoreAnswer:
        """How far it is; the process is started where none is at work. One that is at work for another plan ends first. What
        keeps this worker from that, as a full disk does, is the restore's error."""
        folder = RestoreFolder(asked.local_store_dir, asked.application, asked.sub_topology, asked.lane)
        try:
            return self._answered(asked, folder, parent)
        except OSError as error:
            return RestoreAnswer(token=asked.token, error=f"{folder.path}: {first_line_of(error)}")

    def _answered(self, asked: StoresToRestore, folder: RestoreFolder, parent: int) -> RestoreAnswer:
        token = asked.token
        if not asked.is_wanted:
            folder.end(token)
            return RestoreAnswer()
        if folder.wanted != token and _is_left_to_a_round(asked):
            return RestoreAnswer(token=token, is_done=True)
        lock = folder.locked()
        answer = folder.answer()
        is_known = answer.token == token
        try:
            if is_known and (answer.is_done or answer.error):
                folder.forget()  # where this answer is lost it is looked at once more
                return answer
            if lock is not None:
                starts = folder.starts().one_more(token, sum(store.done_bytes for store in answer.stores if is_known))
                if starts.count > _STARTS_MAX:
                    folder.forget()
                    return structs.replace(answer if is_known else RestoreAnswer(token=token), error=_DIED)
                folder.write_starts(starts)
            folder.want(token)
            if lock is not None:
                self._start(asked, lock, parent)
        finally:
            if lock is not None:
                os.close(lock)  # the process has it
        return answer if is_known else RestoreAnswer()

    def _start(self, asked: StoresToRestore, lock: int, parent: int) -> None:
        with self._lock:
            self._started = [one for one in self._started if one.poll() is None]
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", _MODULE, str(parent)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[lock],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                start_new_session=True,  # it may outlive this worker, if not the executor
            )
            self._started.append(process)
        assert process.stdin is not None
        try:
            with process.stdin:
                process.stdin.write(encoded_stores_to_restore(asked))
        except BrokenPipeError:
            pass  # it has ended: the next question starts another


def _is_left_to_a_round(asked: StoresToRestore) -> bool:
    """Whether the stores lack so little. What a round applies that the last one has written counts for nothing."""
    if asked.inline_bytes is None:
        return False
    found = _missing(asked.local_store_dir, asked.application, asked.heads, is_last_applied=False)
    return sum(found.values()) <= asked.inline_bytes


PROCESSES = RestoreProcesses()
