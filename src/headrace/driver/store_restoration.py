"""Local stores that are restored in the background, on a cluster or in a group, while the other lanes have their rounds.

A container declines where its stores lack much: these tasks sit out until they are there. A worker at its location starts a
process for them and is asked again twice a second how far that is, by a thread for each location: rounds never wait for it.
What a plan ends is requested until a worker there has heard it: its process has stores that may be another lane's by then.
Tasks that a plan brings to a location sit out from its beginning, until a worker there has looked at their stores. What cannot
be restored so is tried in a round, which then fails with the store's own error."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypedDict

from msgspec import structs

from headrace.core.affinity.arrivals import Arrival
from headrace.core.affinity.sitting_out import LaneProgress, TaskProgress, WaitingStores, under_way
from headrace.driver.rounds.planned_round import WorkerPaths
from headrace.exchange.engine import EngineFailure, RestoreWork
from headrace.exchange.store_restoring import LEASE_S, RestoreAnswer, StoresToRestore, decoded_answer, encoded_stores_to_restore
from headrace.model.checkpoint import Head
from headrace.model.tasks import TaskName

LOG = logging.getLogger("headrace.job")
ASK_S = 0.5
CLOSE_S = 5.0  # processes that are not told end by themselves, somewhat later
Lane = tuple[str, int]  # title of the sub-topology, number


class RestoringStatus(TypedDict):
    """A task whose local store is restored, and where. `done_bytes` of `total_bytes` of state files have been read; `left_s`:
    how long it takes still, None where that is not known. `problem`: why it is tried in a round, as it could not be done
    before; empty where it is under way."""

    task: str
    location: str
    done_bytes: int
    total_bytes: int
    entries: int
    left_s: float | None
    problem: str


@dataclass(slots=True)
class _LaneRestore:
    """`process` and `process_bytes`: which one was at work when it was last asked about, and what it had read by then."""

    asked: StoresToRestore
    progress: LaneProgress
    is_begun: bool = False
    process: str | None = None
    process_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _End:
    """What is to end at a location, and until when it may be under way there, as no worker was asked about it since."""

    asked: StoresToRestore
    until_s: float


@dataclass(slots=True)
class _Location:
    lanes: dict[Lane, _LaneRestore] = field(default_factory=dict)  # in the order in which they came
    ending: list[_End] = field(default_factory=list)  # what no worker there has heard yet
    thread: threading.Thread | None = None


class StoreRestoration:
    """The restores of a job, under one plan after the other. Thread-safe. `ask`: has workers at their locations answer, as
    `Engine.restore` does; `present`: how many restores may be under way at once at each location that is there now."""

    def __init__(
        self,
        ask: Callable[[Sequence[RestoreWork]], Sequence[bytes]],
        present: Callable[[], Mapping[str, int]],
        application: str,
        paths: WorkerPaths,
    ) -> None:
        self._ask, self._present, self._application, self._paths = ask, present, application, paths
        self._epoch = 0
        self._locations: dict[str, _Location] = {}
        self._inline: dict[Lane, _LaneRestore] = {}  # those that could not be restored in the background
        self._restored: dict[Lane, str] = {}  # what was restored last
        self._read_bytes: Counter[str] = Counter()  # by title, as far as it was not taken yet
        self._lock = threading.Lock()
        self._looks = threading.Event()  # set: there is something new to be done
        self._is_closed = False
        self._warned = ""

    def begin(self, epoch: int, come: Iterable[Arrival] = (), inline_bytes: int = 0) -> None:
        """Another plan is in force: what is restored for the one before ends. What has been made stays. Of tasks that `come` to
        a location those sit out whose stores lack more than `inline_bytes`, which is looked for now."""
        with self._lock:
            self._epoch = epoch
            self._inline.clear()
            self._end_all()
            for one in () if self._is_closed else come:
                heads = {str(task): head for task, head in one.heads.items()}
                asked = self._asked((one.sub_topology, one.lane), one.location, heads, inline_bytes)
                self._put((one.sub_topology, one.lane), _LaneRestore(asked, _begun_at(asked, {})))

    def end(self) -> None:
        """No plan is in force: what is restored ends. What has been made stays."""
        with self._lock:
            self._end_all()

    def close(self) -> None:
        """End all that is under way, and wait for that within a bound."""
        with self._lock:
            self._is_closed = True
            self._end_all()
            threads = [one.thread for one in self._locations.values() if one.thread is not None]
        until_s = time.monotonic() + CLOSE_S
        for thread in threads:
            thread.join(max(0.0, until_s - time.monotonic()))

    def _end_all(self) -> None:
        until_s = time.monotonic() + LEASE_S
        for location in self._locations.values():
            begun = [structs.replace(one.asked, is_wanted=False) for one in location.lanes.values() if one.is_begun]
            location.ending += [_End(asked, until_s) for asked in begun]
            location.lanes.clear()
        self._looks.set()

    def request(self, lane: Lane, location: str, heads: Mapping[TaskName, Head | None], missing: Mapping[str, int]) -> None:
        """Have the stores of a lane's tasks restored at their heads; `missing`: by task how many bytes these lack."""
        known = {str(task): head for task, head in heads.items() if head is not None and str(task) in missing}
        with self._lock:
            before = self._locations.setdefault(location, _Location()).lanes.get(lane)
            under_way = {} if before is None else before.asked.heads
            if self._is_closed or known.keys() <= under_way.keys():
                return
            asked = self._asked(lane, location, {**under_way, **known})
            one = _LaneRestore(asked, _begun_at(asked, missing))
            if self._restored.get(lane) == asked.token:
                self._give_up(lane, one, "its stores were restored, and are not there")
                return
            LOG.info("%s is restored in the background: %.1f MB", one.progress.text, sum(missing.values()) / 1e6)
            self._put(lane, one)

    def _asked(
        self, lane: Lane, location: str, heads: dict[str, Head], inline_bytes: int | None = None
    ) -> StoresToRestore:
        paths, (title, number) = self._paths, lane
        return StoresToRestore(
            application=self._application,
            sub_topology=title,
            lane=number,
            epoch=self._epoch,
            run_id=paths.run_id,
            local_store_dir=paths.local_store_dir,
            state_uri=paths.state_uri,
            has_other_machines=paths.has_other_machines,
            location=location,
            location_id=paths.location_id,
            heads=heads,
            inline_bytes=inline_bytes,
        )

    def _put(self, lane: Lane, one: _LaneRestore) -> None:
        """Have a lane be looked after, under the lock. The worker ends what is under way there for other stores of it."""
        here = self._locations.setdefault(one.asked.location, _Location())
        here.lanes[lane] = one
        self._looks.set()
        if here.thread is None:
            look, name = partial(self._look_after, one.asked.location, here), f"headrace-restore-{one.asked.location}"
            here.thread = threading.Thread(target=look, name=name, daemon=True)
            here.thread.start()

    def took_part(self, title: str, lanes: Iterable[int]) -> None:
        """These have committed a round: nothing of them is to be restored any more."""
        if self._inline:
            with self._lock:
                for number in lanes:
                    self._inline.pop((title, number), None)

    # --- what others see ---------------------------------------------------------------------------------------------

    def waiting(self, title: str) -> WaitingStores:
        """The lanes of a sub-topology that wait for stores."""
        with self._lock:
            waiting = {lane: one for here in self._locations.values() for lane, one in here.lanes.items()}
            inline = frozenset(number for name, number in self._inline if name == title)
        return WaitingStores({number: one.progress for (name, number), one in waiting.items() if name == title}, inline)

    def taken_bytes(self, title: str) -> int:
        """How much of state files was read for a sub-topology since the last call."""
        with self._lock:
            return self._read_bytes.pop(title, 0)

    def status(self, title: str) -> list[RestoringStatus]:
        """The tasks of a sub-topology whose stores are restored, or could not be."""
        with self._lock:
            pairs = [pair for here in self._locations.values() for pair in here.lanes.items()]
            mine = [one.progress for (name, _), one in (*pairs, *self._inline.items()) if name == title]
        now_s = time.monotonic()
        return [_shown(progress, task, now_s) for progress in mine for task in progress.tasks]

    # --- the thread of a location ------------------------------------------------------------------------------------

    def _look_after(self, name: str, here: _Location) -> None:
        while True:
            self._looks.clear()
            slots = self._present().get(name, 0)
            with self._lock:
                here.ending = [end for end in here.ending if end.until_s > time.monotonic()]
                if not (here.ending or here.lanes):
                    here.thread = None
                    return
                ending = list(here.ending) if slots or self._is_closed else []
                asked = self._begun(here, slots) if slots else {}
            answers = self._answers(name, [*(end.asked for end in ending), *(one.asked for one in asked.values())])
            with self._lock:
                heard = [end for end, answer in zip(ending, answers, strict=False) if answer.elsewhere is None]
                done = ending if self._is_closed else heard  # a job that ends says it once: its workers end, too
                here.ending = [end for end in here.ending if end not in done]
                for (lane, one), answer in zip(asked.items(), answers[len(ending) :], strict=False):
                    if here.lanes.get(lane) is one:  # else another plan is in force
                        self._hear(here, lane, one, answer)
            self._looks.wait(ASK_S)

    def _begun(self, here: _Location, slots: int) -> dict[Lane, _LaneRestore]:
        """The lanes that are restored now, under the lock. One that has a task of a process that is to end waits for that: the
        process has the task's store."""
        held = {task for end in here.ending for task in end.asked.heads}
        lanes = {lane: here.lanes[lane] for lane in under_way(list(here.lanes), slots)}
        begun = {lane: one for lane, one in lanes.items() if held.isdisjoint(one.asked.heads)}
        for one in begun.values():
            one.is_begun = True
        return begun

    def _answers(self, location: str, asked: Sequence[StoresToRestore]) -> list[RestoreAnswer]:
        works = [RestoreWork(location, encoded_stores_to_restore(one)) for one in asked]
        try:
            return list(map(decoded_answer, self._ask(works))) if works else []
        except Exception as error:  # a thread that ends in silence would leave lanes out for ever
            message = error.message if isinstance(error, EngineFailure) else f"{type(error).__name__}: {error}"
            if message != self._warned and not self._is_closed:
                LOG.warning("how far the stores at %s are is not known: %s", location, message)
            self._warned = message
            return []

    def _hear(self, here: _Location, lane: Lane, one: _LaneRestore, answer: RestoreAnswer) -> None:
        """What a worker says of a lane. Spark may have run the question elsewhere: then it says nothing."""
        if answer.token != one.asked.token:
            return
        before = one.process_bytes if answer.process == one.process else 0
        self._read_bytes[lane[0]] += max(0, answer.read_bytes - before)
        one.process, one.process_bytes = answer.process, answer.read_bytes
        known = {store.task: (store.done_bytes, store.entries) for store in answer.stores}
        one.progress = one.progress.heard(known, time.monotonic())
        if answer.error:
            del here.lanes[lane]
            self._give_up(lane, one, answer.error)
        elif answer.is_done:
            del here.lanes[lane]
            if one.asked.inline_bytes is None or answer.process is not None:  # else there was nothing to do
                self._restored[lane] = one.asked.token
                LOG.info("%s is restored", one.progress.text)

    def _give_up(self, lane: Lane, one: _LaneRestore, why: str) -> None:
        """Have a round restore it, which raises what is wrong."""
        LOG.warning("%s is restored in a round, as it could not be in the background: %s", one.progress.text, why)
        one.progress = replace(one.progress, problem=why)
        self._inline[lane] = one
        self._restored.pop(lane, None)


def _begun_at(asked: StoresToRestore, missing: Mapping[str, int]) -> LaneProgress:
    """Of what is asked nothing is done yet. `missing`: by task how many bytes its store lacks, as far as that is known."""
    totals = {task: sum(file.counted_bytes for file in head.files) for task, head in asked.heads.items()}
    tasks = (TaskProgress(task, total - missing.get(task, total), total) for task, total in totals.items())
    return LaneProgress(asked.location, tuple(tasks))


def _shown(lane: LaneProgress, task: TaskProgress, now_s: float) -> RestoringStatus:
    left_s = lane.left_s(now_s)
    return {
        "task": task.task,
        "location": lane.location,
        "done_bytes": task.done_bytes,
        "total_bytes": task.total_bytes,
        "entries": task.entries,
        "left_s": None if left_s is None else round(left_s, 1),
        "problem": lane.problem,
    }
