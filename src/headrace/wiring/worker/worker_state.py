"""What a worker does alike on every system: the state of tasks, what the prefix's readers left, caches. A container moves
between worker processes, and a cancelled worker may live on for seconds: everything that is kept between rounds
(`WorkerCaches`) is checked each round, or is a cache only."""

from __future__ import annotations

import atexit
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from headrace.adapters.common import lease_holder as holders
from headrace.adapters.lmdb.environments import close_idle
from headrace.adapters.lmdb.former_stores import remove_former_stores
from headrace.adapters.lmdb.opening import open_task_store
from headrace.adapters.lmdb.store import TaskStore
from headrace.adapters.round_control.files import FileSignals
from headrace.adapters.round_control.worker_socket import SocketSignals
from headrace.core.keys.key_layout import slots_of
from headrace.core.topology.program import Program
from headrace.errors import DiskFullError, StoreDamagedError
from headrace.exchange.fault_injection import reached
from headrace.exchange.messages import ContainerPlan, TaskPlan
from headrace.model.checkpoint import Head
from headrace.model.tasks import TaskName
from headrace.state_files.files import FilePlace, StateFiles, task_folder_of
from headrace.wiring.folders import check_sign
from headrace.wiring.worker.background_folds import FOLDS, BackgroundFolds
from headrace.wiring.worker.location import local_folder_of
from headrace.worker.async_calls import awaited, within
from headrace.worker.ports import NoSignals, ReaderReport, RoundSignals
from headrace.worker.resources import Resources
from headrace.worker.state.task_state import TaskState

APPLY_STEP = {"log": 3, "kafka": 10}  # in protocol.md, "Steps"

_state_files: dict[str, StateFiles] = {}
_state_files_lock = threading.Lock()
_tidied: dict[str, int] = {}  # by folder, sub-topology and lane the epoch under which former stores were removed
_checked: dict[str, str] = {}  # of each of them the run whose driver it is shared with


class WorkerState:
    """The part of `worker.ports.WorkerPorts` that no system changes. `report`: what the prefix's readers reported."""

    def __init__(self, plan: ContainerPlan, program: Program, report: Callable[[], ReaderReport]) -> None:
        self._plan, self._program, self._report = plan, program, report
        self._boot_id = holders.boot_id()  # of this machine: the driver may be on another one
        self.signals = signals_of(plan)
        self._stores: dict[str, TaskStore] = {}  # of the tasks whose state is open

    def engine_report(self) -> ReaderReport:
        known = [
            known
            for known in self._plan.known_failures
            if any(piece.ssp == known.ssp and piece.start <= known.offset < piece.end for piece in self._plan.ranges)
        ]
        report = self._report()
        return ReaderReport(known + report.rejects, report.cuts, report.stopped)

    def apply(self, task: str, head: Head | None) -> None:
        """Bring the local store of `task` to the state `head`, which was just committed and was made through this opening. A
        store that is not open, or is not where the round began, is left to the next opening, and so is a damaged one."""
        store = self._stores.get(task)
        if store is None or head is None or head.identity == store.identity:
            return
        files, delta = self._files(), head.files[-1]
        try:
            store.apply(store.identity, head.identity, lambda: files.batches(delta), self._applying)
        except StoreDamagedError as error:
            store.found_damaged(error)
        except DiskFullError as error:
            store.notes.append(error.message)  # the next opening finds room, or raises it

    @contextmanager
    def open_state(self, task: TaskPlan) -> Iterator[TaskState]:
        folder = Path(local_folder_of(self._plan.local_store_dir)) / task_folder_of(self._program.application, task.name)
        files, run_id, boot_id = self._files(), self._plan.run_id, self._boot_id
        make = partial(open_task_store, folder, task.head, files, run_id=run_id, boot_id=boot_id, applying=self._applying)
        with ExitStack() as opened:
            try:
                store = opened.enter_context(make())
            except DiskFullError:
                # Of a change of the elasticity factor, whose stores have no room beside the former ones.
                if not remove_former_stores(folder.parent, self._tasks()):
                    raise
                store = opened.enter_context(make())
            state = TaskState(store, task.head, slots_of(TaskName.parse(task.name).bucket))
            self._remove_former_stores(folder.parent, task)
            state.notes, state.is_restored, state.held_files = store.troubles, store.is_restored, task.held_files
            state.local_bytes, state.restored_bytes = store.size_bytes, store.read_bytes
            self._stores[task.name] = store
            try:
                yield state
            finally:
                del self._stores[task.name]

    def _remove_former_stores(self, root: Path, task: TaskPlan) -> None:
        """Once in a plan, when its tasks have committed: a change of the elasticity factor is not undone from then on. Not
        while stores of another factor are being made."""
        here = f"{root} {self._program.sub_topology} {self._plan.lane}"
        is_prepared = any(one.held_files for one in self._plan.tasks)  # of one without state no file is held
        if not is_prepared and _tidied.get(here) != self._plan.epoch and task.round_id.startswith(f"{self._plan.epoch}:"):
            _tidied[here] = self._plan.epoch
            remove_former_stores(root, self._tasks())

    def _tasks(self) -> list[TaskName]:
        return [TaskName.parse(one.name) for one in self._plan.tasks]

    def _applying(self) -> None:
        reached(self._plan.system, APPLY_STEP[self._plan.system])

    def writing_state(self) -> AbstractContextManager[None]:
        return self._files().together()

    def write_state(self, task: TaskPlan, state: TaskState) -> tuple[Head, list[str]]:
        files, plan = self._files(), self._plan
        state.drop(self._program.removed_stores)
        task_folder = task_folder_of(self._program.application, task.name)
        store, place = Path(local_folder_of(plan.local_store_dir)) / task_folder, FilePlace(task_folder, plan.epoch)
        folds = BackgroundFolds(store, f"{plan.run_id}:{plan.epoch}", plan.state_uri, place)
        head = state.write(files, place, folds)
        assert head is not None
        paths = [files.local_path(file.name) for file in head.files]
        return head, [str(path) for path in paths if path is not None]

    def cache_of(self, task: str) -> dict[str, Any]:
        # With the epoch: a new plan may have taken a task's state back, and objects of users must not keep what was undone.
        # What was loaded knows of no state: a change of plan does not load it again.
        program, run_id = self._program, self._plan.run_id
        owner = f"{program.application}/{program.sub_topology}/{run_id}"
        return CACHES.of(f"{program.application}/{program.id}/{run_id}/{self._plan.epoch}", task, owner)

    def _files(self) -> StateFiles:
        uri = self._plan.state_uri
        with _state_files_lock:  # several tasks may open their state at once
            if uri not in _state_files:
                _state_files[uri] = StateFiles(uri)
            run_id, files = self._plan.run_id, _state_files[uri]
        if self._plan.has_other_machines and _checked.get(uri) != run_id:
            check_sign(files, self._program.application, run_id, socket.gethostname())
            _checked[uri] = run_id
        return files


def signals_of(plan: ContainerPlan) -> RoundSignals:
    """The signals of the plan's round, as its driver said that they come."""
    match plan.control:
        case None:
            return NoSignals()
        case {"files": path}:
            return FileSignals(path)
        case terms:
            return SocketSignals(terms)


def forget(application: str, state_uri: str) -> None:
    """Drop what this process keeps for an application with its state at `state_uri`: its folders may go now."""
    CACHES.clear(application)
    FOLDS.end()
    _state_files.pop(state_uri, None)
    close_idle()


LOG = logging.getLogger("headrace.processor")
CLOSE_S_MAX = 10.0  # of a `close` that is async
TASKS_MAX = 4_096  # tasks move between worker processes: what was not used for longest goes


class WorkerCaches:
    """The caches of this process; rounds of several threads may share them. `plan` names application, model and run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tasks: dict[tuple[str, str], dict[str, Any]] = {}
        self._resources: dict[str, tuple[Resources, set[tuple[str, str]]]] = {}  # by owner, and who may use them

    def of(self, plan: str, task: str, owner: str) -> dict[str, Any]:
        """`processors` of the task and `resources` of the owner, for as long as the process has room for them. `owner`: a
        sub-topology in a run of its application, under any plan."""
        with self._lock:
            found = self._tasks.pop((plan, task), None)
            if found is None:
                resources, users = self._resources.setdefault(owner, (Resources(), set()))
                users.add((plan, task))
                found = {"processors": {}, "resources": resources, "owner": owner}
            self._tasks[plan, task] = found  # at the end: used last
            while len(self._tasks) > TASKS_MAX:
                self._drop(next(iter(self._tasks)))
            return found

    def clear(self, application: str | None = None) -> None:
        with self._lock:
            for plan, task in list(self._tasks):
                if application is None or plan.startswith(f"{application}/"):
                    self._drop((plan, task))

    def _drop(self, entry: tuple[str, str]) -> None:
        found = self._tasks.pop(entry)
        for processor, _ in found["processors"].values():
            try:
                awaited(f"{type(processor).__qualname__}.close", processor.close(), within(CLOSE_S_MAX))
            except Exception:  # the user's: whatever it is, the work is done and committed
                LOG.exception("%s.close() failed", type(processor).__qualname__)
        _, users = self._resources[found["owner"]]
        users.discard(entry)
        if not users:
            del self._resources[found["owner"]]


CACHES = WorkerCaches()
atexit.register(CACHES.clear)
