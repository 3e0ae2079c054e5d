"""Lanes whose local stores are restored in the background sit out, and the others have their rounds. The cluster is this
process: its containers are run at the location that they are planned for; the processes that restore are real."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.core.affinity.arrivals import Arrival
from headrace.driver import store_restoration
from headrace.driver.cluster_view import ClusterView
from headrace.driver.rounds import scheduling
from headrace.driver.rounds.planned_round import WorkerPaths
from headrace.driver.store_restoration import StoreRestoration
from headrace.errors import DiskFullError, StateError
from headrace.exchange.engine import EngineFailure, RestoreWork
from headrace.exchange.store_restoring import RestoreAnswer, RestoredStore, decoded_stores_to_restore, encoded_answer
from headrace.model.checkpoint import Head, StateFile, StateFileKind
from headrace.model.tasks import TaskName
from headrace.wiring.worker import entry, store_restoring
from headrace.wiring.worker.worker_state import forget
from headrace.worker.inline_engine import InlineEngine
from support.located import HERE
from support.located_job import NAME, Clustered, Place, clustered, done, engine_is_busy, job_model, source_of, until


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Clustered:
    return clustered(monkeypatch)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    yield Place(tmp_path, 2)
    forget(NAME, str(tmp_path / "state"))


def state_bytes(place: Place, task: str) -> int:
    with hr.open_system(place.url) as log:
        checkpoints = log.job_store(place.name).checkpoints()
    head = checkpoints[TaskName.parse(task)].head
    assert head is not None
    return sum(file.bytes for file in head.files)


def test_a_lane_sits_out_while_its_store_is_restored_and_the_others_commit(place: Place, engine: Clustered) -> None:
    place.produce()
    place.caught_up(engine)
    assert place.counted() == place.sent
    assert not engine.asked, "stores of a first run are at their heads"
    place.lose("Partition_0")
    missing, behind = state_bytes(place, "Partition_0"), state_bytes(place, "Partition_1")
    before, mine, theirs = dict(place.sent), place.keys_of(0), place.keys_of(1)
    engine.is_held = True
    engine.rounds.clear()
    job = place.start(engine)
    try:
        place.produce()
        until(lambda: all(place.counted()[key] == place.sent[key] for key in theirs))
        assert all(place.counted()[key] == before[key] for key in mine)
        status = source_of(job)
        (shown,) = status["restoring"]
        assert (shown["task"], shown["location"], shown["done_bytes"]) == ("Partition_0", "east", 0)
        assert (shown["total_bytes"], shown["problem"]) == (missing, "")
        until(lambda: source_of(job)["waiting_for"] == "the state of Partition_0 at east")
        place.produce()
        until(lambda: all(place.counted()[key] == place.sent[key] for key in theirs))
        assert [0] not in engine.rounds[-2:] and set(engine.asked) == {"east"}
        engine.is_held = False
        until(lambda: place.counted() == place.sent)
        status = until(lambda: not source_of(job)["restoring"] and source_of(job))
        metrics = status["metrics"]
        assert "stores_restored" not in status["counters"], "no round has restored it"
        assert missing <= metrics["restored-bytes"] <= missing + behind
        assert (metrics["declined"], status["counters"]["containers_declined"]) == (1, 1)
        assert metrics["tasks-at-home"] == metrics["tasks-run"] == sum(map(len, engine.rounds))
    finally:
        job.stop()


@pytest.mark.parametrize("system", ["log", pytest.param("kafka", marks=pytest.mark.kafka)])
def test_the_other_tasks_of_its_lane_take_part_meanwhile(
    tmp_path: Path, engine: Clustered, system: str, request: pytest.FixtureRequest
) -> None:
    """Of two tasks in one lane one is restored."""
    url = f"kafka://{request.getfixturevalue('kafka_server').bootstrap}" if system == "kafka" else None
    place = Place(tmp_path, 4, url)
    place.produce()
    place.caught_up(engine)
    (mine,) = [one["tasks"] for one in job_model(place) if "Partition_0" in one["tasks"]]
    assert len(mine) == 2
    place.lose("Partition_0")
    waiting, others = place.keys_of(0), set.union(*(place.keys_of(number) for number in range(1, 4)))
    before = dict(place.sent)
    engine.is_held = True
    job = place.start(engine)
    try:
        for _ in range(2):
            place.produce()
            until(lambda: all(place.counted()[key] == place.sent[key] for key in others))
        assert all(place.counted()[key] == before[key] for key in waiting)
        assert [shown["task"] for shown in source_of(job)["restoring"]] == ["Partition_0"]
        engine.is_held = False
        until(lambda: place.counted() == place.sent)
        counters = source_of(job)["counters"]
        assert "stores_restored" not in counters, "no round has restored it"
        assert counters["containers_declined"] == 1
    finally:
        job.stop()
        forget(place.name, str(tmp_path / "state"))


def test_a_run_to_the_end_waits_for_a_restore_however_long_it_takes(
    place: Place, engine: Clustered, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.produce()
    place.caught_up(engine)
    place.lose("Partition_0")
    place.produce()
    monkeypatch.setattr(scheduling, "HELD_BACK_S", 0.1)
    engine.is_held = True
    job = place.start(engine, "caught-up")
    try:
        until(lambda: source_of(job)["restoring"])
        time.sleep(0.5)
        assert job.is_running
        engine.is_held = False
        job.wait(60)
    finally:
        job.stop()
    assert place.counted() == place.sent


def test_those_that_read_the_same_partition_do_not_wait(tmp_path: Path, engine: Clustered) -> None:
    """Virtual tasks of one partition in two lanes: the one that takes part reads on from where it is."""
    place = Place(tmp_path, 1)
    place.produce()
    keys = {"elasticity_factor": 2, "containers": 2, "max_records_per_round": 40}
    place.caught_up(engine, **keys)
    stores = {path.name for path in (place.root / "stores" / NAME).iterdir()}
    assert stores == {f"Partition_0-{bucket}-2" for bucket in range(2)}
    model = job_model(place)
    lost = [task for container in model if container["location"] == "east" for task in container["tasks"]]
    for task in lost:
        place.lose(task)
    engine.is_held = True
    job = place.start(engine, **keys)
    try:
        before = dict(place.sent)
        place.produce(400)  # many rounds
        theirs = until(lambda: (one := done(place, before)) and not engine_is_busy(engine) and one)
        assert 0 < len(theirs) < 10 and all(place.counted()[key] == place.sent[key] for key in theirs)
        assert {shown["task"] for shown in source_of(job)["restoring"]} == set(lost)
        engine.is_held = False
        until(lambda: place.counted() == place.sent)
    finally:
        job.stop()
        forget(place.name, str(tmp_path / "state"))


def test_what_cannot_be_restored_in_the_background_fails_with_the_error_of_the_store(
    place: Place, engine: Clustered, caplog: pytest.LogCaptureFixture
) -> None:
    place.produce()
    place.caught_up(engine)
    place.lose("Partition_0")
    folder, aside = place.root / "state" / NAME / "Partition_0", place.root / "aside"
    folder.rename(aside)
    place.produce()
    job = place.start(engine)
    try:
        with pytest.raises(StateError, match="found no such file"):
            job.wait(60)
    finally:
        job.stop()
    (said,) = [text for text in caplog.messages if "could not be in the background" in text]
    assert said.startswith("the state of Partition_0 at east is restored in a round") and "found no such file" in said
    aside.rename(folder)
    place.caught_up(engine)
    assert place.counted() == place.sent


def test_where_the_processes_that_restore_are_killed_each_time_a_round_restores(
    place: Place, engine: Clustered, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By the kernel, say, for their memory."""
    place.produce()
    place.caught_up(engine)
    place.lose("Partition_0")
    place.produce()
    popen, killed = subprocess.Popen, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"

    def killing(command: list[str], **keys: Any) -> Any:
        is_restore = "headrace.wiring.worker.restore_process" in command
        return popen([sys.executable, "-c", killed] if is_restore else command, **keys)

    monkeypatch.setattr(store_restoring.subprocess, "Popen", killing)
    status = place.caught_up(engine)
    assert place.counted() == place.sent
    assert status["counters"]["stores_restored"] == 1
    (said,) = [text for text in caplog.messages if "could not be in the background" in text]
    assert said.startswith("the state of Partition_0 at east is restored in a round") and "ended without one" in said


@pytest.mark.parametrize("inline_bytes", [0, 10**9])
def test_a_disk_without_room_for_a_folder_ends_the_job_with_the_error_of_the_store(
    place: Place, engine: Clustered, inline_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether stores are restored in the background or in the round, which is not tried again."""
    place.produce()
    place.caught_up(engine)
    place.lose("Partition_0")
    stores, mkdir = place.root / "stores", os.mkdir
    shutil.rmtree(stores)
    stores.mkdir()
    place.produce()

    def full(path: Any, *mode: int) -> None:
        if stores in Path(path).parents:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        mkdir(path, *mode)

    engine.rounds.clear()
    with monkeypatch.context() as patched:
        patched.setattr(os, "mkdir", full)
        job = place.start(engine, restore_inline_bytes=inline_bytes)
        try:
            with pytest.raises(DiskFullError, match=r"local store .*Partition_\d: the disk is full"):
                job.wait(60)
        finally:
            job.stop()
    assert len(engine.rounds) <= 2, "one that declines, and one that fails"
    place.caught_up(engine)
    assert place.counted() == place.sent


def test_a_small_restore_is_made_by_the_round(place: Place, engine: Clustered) -> None:
    place.produce()
    place.caught_up(engine)
    place.lose("Partition_0")
    missing = state_bytes(place, "Partition_0")
    place.produce()
    status = place.caught_up(engine, restore_inline_bytes=missing)
    assert status["counters"]["stores_restored"] == 1 and not engine.asked
    assert status["metrics"]["restored-bytes"] >= missing
    assert place.counted() == place.sent


# --- what is asked, and when -----------------------------------------------------------------------------------------


class Workers:
    """Answers of workers, by lane; an `EngineFailure` where there is none."""

    slots, reads, driver_address = 2, False, None

    def __init__(self, **slots: int) -> None:
        self._slots = slots
        self.answers: dict[int, RestoreAnswer] = {}
        self.asked: list[tuple[int, bool]] = []  # lane, and whether it is wanted
        self._lock = threading.Lock()

    def locations(self) -> Mapping[str, int]:
        return self._slots

    def restore(self, works: Sequence[RestoreWork]) -> Sequence[bytes]:
        asked = [decoded_stores_to_restore(work.payload) for work in works]
        with self._lock:
            self.asked += [(one.lane, one.is_wanted) for one in asked]
            if any(one.lane not in self.answers for one in asked):
                raise EngineFailure("no worker is there")
            answers = [self.answers[one.lane] for one in asked]
        pairs = zip(asked, answers, strict=True)
        return [
            encoded_answer(
                RestoreAnswer(
                    answer.elsewhere,
                    "" if answer.elsewhere else one.token,
                    answer.process,
                    answer.stores,
                    answer.read_bytes,
                    answer.is_done,
                    answer.error,
                )
            )
            for one, answer in pairs
        ]

    def asked_lanes(self) -> set[tuple[int, bool]]:
        with self._lock:
            found = set(self.asked)
            self.asked.clear()
        return found


TASKS = [TaskName.parse(f"Partition_{number}") for number in range(3)]
HEADS: dict[TaskName, Head | None] = {
    task: Head(1, (StateFile(f"{task}.arrow", StateFileKind.SNAPSHOT, 1_000, 10, "c", 1),)) for task in TASKS
}


@pytest.fixture
def restoration(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Workers], StoreRestoration]]:
    monkeypatch.setattr(store_restoration, "ASK_S", 0.01)
    made: list[StoreRestoration] = []

    def make(workers: Workers) -> StoreRestoration:
        paths = WorkerPaths("run-1", "/stores", "/state", control=None, max_round_s=1.0)  # type: ignore[arg-type]
        view = ClusterView(workers, 10.0)  # type: ignore[arg-type]
        made.append(StoreRestoration(workers.restore, view.present, "app", paths))
        made[-1].begin(1)
        return made[-1]

    yield make
    for one in made:
        one.close()


def request(restoration: StoreRestoration, lane: int, missing: int = 1_000) -> None:
    restoration.request(("source", lane), "east", {TASKS[lane]: HEADS[TASKS[lane]]}, {str(TASKS[lane]): missing})


Make = Callable[[Workers], StoreRestoration]


def under_way(process: str, done: int, read: int, lane: int = 0) -> RestoreAnswer:
    return RestoreAnswer(process=process, stores=[RestoredStore(str(TASKS[lane]), done, done // 100)], read_bytes=read)


def test_as_many_are_restored_at_once_as_the_location_has_slots(restoration: Make) -> None:
    workers = Workers(east=2)
    workers.answers = dict.fromkeys(range(3), RestoreAnswer())
    one = restoration(workers)
    for lane in range(3):
        request(one, lane)
    until(lambda: (1, True) in workers.asked_lanes())
    until(lambda: len(workers.asked) > 6)
    assert workers.asked_lanes() == {(0, True), (1, True)}
    assert set(one.waiting("source").lanes) == {0, 1, 2} and not one.waiting("other").lanes
    workers.answers[0] = RestoreAnswer(is_done=True)
    until(lambda: (2, True) in workers.asked_lanes())
    assert set(one.waiting("source").lanes) == {1, 2}


def test_progress_and_bytes_that_were_read_are_those_of_all_processes(restoration: Make) -> None:
    workers = Workers(east=1)
    workers.answers[0] = under_way("a", 300, 300)
    one = restoration(workers)
    request(one, 0)
    until(lambda: one.status("source")[0]["done_bytes"] == 300)
    workers.answers[0] = under_way("a", 500, 500)
    until(lambda: one.status("source")[0]["done_bytes"] == 500)
    assert one.taken_bytes("source") == 500 and one.taken_bytes("source") == 0
    workers.answers[0] = under_way("b", 550, 80)  # the first was killed, and its last words were not heard
    until(lambda: one.status("source")[0]["done_bytes"] == 550)
    shown = one.status("source")[0]
    assert (shown["entries"], shown["total_bytes"]) == (5, 1_000) and (shown["left_s"] or 0) > 0
    workers.answers[0] = RestoreAnswer(process="b", read_bytes=450, is_done=True)
    until(lambda: not one.status("source"))
    assert one.taken_bytes("source") == 450
    assert not one.waiting("source").lanes


def test_what_a_worker_elsewhere_says_and_what_no_worker_says_changes_nothing(restoration: Make) -> None:
    workers = Workers(east=1)
    one = restoration(workers)
    request(one, 0)  # no worker answers
    until(lambda: len(workers.asked) > 3)
    workers.answers[0] = RestoreAnswer(elsewhere="west", is_done=True)
    workers.asked_lanes()
    until(lambda: len(workers.asked) > 3)
    assert set(one.waiting("source").lanes) == {0}
    workers.answers[0] = RestoreAnswer(is_done=True)
    until(lambda: not one.waiting("source").lanes)


def test_a_lane_waits_for_its_location(restoration: Make) -> None:
    workers = Workers(west=1)
    one = restoration(workers)
    request(one, 0)
    time.sleep(0.1)
    assert not workers.asked and set(one.waiting("source").lanes) == {0}


def test_another_plan_ends_what_is_under_way_and_so_does_the_end_of_the_job(restoration: Make) -> None:
    workers = Workers(east=1)
    workers.answers = dict.fromkeys(range(3), RestoreAnswer())
    one = restoration(workers)
    request(one, 0)
    request(one, 1)  # not begun yet: there is one slot
    until(lambda: (0, True) in workers.asked_lanes())
    one.begin(2)
    assert not one.waiting("source").lanes
    until(lambda: (0, False) in workers.asked)
    assert (1, False) not in workers.asked_lanes()
    request(one, 1)
    until(lambda: (1, True) in workers.asked_lanes())
    one.close()
    assert (1, False) in workers.asked_lanes()
    request(one, 2)
    assert not one.waiting("source").lanes, "nothing is begun any more"


@pytest.mark.parametrize("unheard", [{0: RestoreAnswer(elsewhere="west")}, {}], ids=["answered elsewhere", "no answer"])
def test_an_end_that_was_not_heard_at_home_is_requested_again(restoration: Make, unheard: dict[int, RestoreAnswer]) -> None:
    workers = Workers(east=1)
    workers.answers = dict.fromkeys(range(3), RestoreAnswer())
    one = restoration(workers)
    request(one, 0)
    until(lambda: (0, True) in workers.asked_lanes())
    workers.answers = unheard
    one.begin(2)
    for _ in range(3):
        until(lambda: (0, False) in workers.asked_lanes())
    workers.answers = dict.fromkeys(range(3), RestoreAnswer())
    request(one, 1)
    until(lambda: workers.asked_lanes() == {(1, True)})


def test_a_task_in_another_lane_waits_for_the_end_of_the_process_that_has_its_store(restoration: Make) -> None:
    workers = Workers(east=2)
    workers.answers = dict.fromkeys(range(3), RestoreAnswer())
    one = restoration(workers)
    request(one, 0)
    until(lambda: (0, True) in workers.asked_lanes())
    workers.answers[0] = RestoreAnswer(elsewhere="west")  # each worker at home is busy
    one.begin(2)
    one.request(("source", 1), "east", {TASKS[0]: HEADS[TASKS[0]]}, {str(TASKS[0]): 1_000})
    request(one, 2)  # of another task
    until(lambda: (0, False) in workers.asked_lanes())
    until(lambda: workers.asked.count((0, False)) > 3)
    assert workers.asked_lanes() == {(0, False), (2, True)}
    assert set(one.waiting("source").lanes) == {1, 2}
    workers.answers[0] = RestoreAnswer()
    until(lambda: workers.asked_lanes() == {(1, True), (2, True)})


def test_an_end_is_requested_for_no_longer_than_such_a_process_lives(
    restoration: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_restoration, "LEASE_S", 0.1)
    workers = Workers(east=1)
    workers.answers = {0: RestoreAnswer(), 1: RestoreAnswer()}
    one = restoration(workers)
    request(one, 0)
    until(lambda: (0, True) in workers.asked_lanes())
    workers.answers[0] = RestoreAnswer(elsewhere="west")
    one.begin(2)
    one.request(("source", 1), "east", {TASKS[0]: HEADS[TASKS[0]]}, {str(TASKS[0]): 1_000})
    until(lambda: workers.asked_lanes() == {(1, True)})


def test_a_job_that_ends_requests_the_end_once(restoration: Make) -> None:
    """Its workers end with it."""
    workers = Workers(east=1)
    workers.answers[0] = RestoreAnswer()
    one = restoration(workers)
    request(one, 0)
    until(lambda: (0, True) in workers.asked_lanes())
    workers.answers[0] = RestoreAnswer(elsewhere="west")
    one.close()
    asked = workers.asked.count((0, False))
    time.sleep(0.1)
    assert 0 < asked == workers.asked.count((0, False))


def test_what_comes_with_a_plan_sits_out_until_a_worker_has_looked(restoration: Make) -> None:
    workers = Workers(east=2)
    one = restoration(workers)
    heads = [{task: head for task, head in HEADS.items() if head and task == TASKS[lane]} for lane in range(2)]
    one.begin(2, [Arrival("source", lane, "east", heads[lane]) for lane in range(2)], 500)
    assert set(one.waiting("source").lanes) == {0, 1}
    until(lambda: workers.asked_lanes() == {(0, True), (1, True)})
    workers.answers = {0: RestoreAnswer(is_done=True), 1: under_way("a", 300, 300, lane=1)}
    until(lambda: set(one.waiting("source").lanes) == {1})
    request(one, 0)  # its container declines all the same: what a round was to do has become too much
    assert set(one.waiting("source").lanes) == {0, 1} and not one.waiting("source").inline


def test_another_store_of_a_lane_that_is_restored_is_restored_too(restoration: Make) -> None:
    workers = Workers(east=1)
    workers.answers[0] = under_way("a", 300, 300)
    one = restoration(workers)
    request(one, 0)
    until(lambda: one.status("source")[0]["done_bytes"] == 300)
    one.request(("source", 0), "east", HEADS, {str(TASKS[1]): 1_000})
    assert [shown["task"] for shown in one.status("source")] == ["Partition_0", "Partition_1"]
    until(lambda: one.status("source")[0]["done_bytes"] == 300)
    workers.answers[0] = RestoreAnswer(process="b", is_done=True)
    until(lambda: not one.waiting("source").lanes)


def test_what_fails_is_restored_by_a_round_until_that_has_committed(restoration: Make) -> None:
    workers = Workers(east=1)
    workers.answers[0] = RestoreAnswer(process="a", error="the disk is full")
    one = restoration(workers)
    request(one, 0)
    until(lambda: one.waiting("source").inline == {0})
    assert not one.waiting("source").lanes
    assert one.status("source")[0]["problem"] == "the disk is full"
    one.took_part("source", [1])
    assert one.waiting("source").inline == {0}
    one.took_part("source", [0])
    assert not one.waiting("source").inline and not one.status("source")


def test_a_store_that_is_restored_and_not_there_is_not_restored_for_ever(restoration: Make) -> None:
    workers = Workers(east=1)
    workers.answers[0] = RestoreAnswer(is_done=True)
    one = restoration(workers)
    request(one, 0)
    until(lambda: not one.waiting("source").lanes)
    request(one, 0)
    assert one.waiting("source").inline == {0}
    one.took_part("source", [0])
    request(one, 0)
    assert set(one.waiting("source").lanes) == {0}, "later it is tried again"


# --- stores that are not used any more -------------------------------------------------------------------------------


def aged(folder: Path) -> None:
    """As if it was used a year ago."""
    mark = folder / "mark.json"
    mark.write_text(json.dumps(json.loads(mark.read_text()) | {"used_us": time.time_ns() // 1000 - 365 * 86_400_000_000}))


def test_a_start_removes_old_stores_of_tasks_that_live_elsewhere(
    place: Place, engine: Clustered, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.produce()
    place.caught_up(engine)
    stores = place.root / "stores" / NAME
    for task in ("Partition_0", "Partition_1"):
        aged(stores / task)
    shutil.copytree(stores / "Partition_0", stores / "Partition_7")
    (here,) = [one["location"] for one in job_model(place) if one["tasks"] == ["Partition_1"]]

    def on_one_machine(self: Clustered, work: Callable[[], None], within_s: float) -> None:
        HERE.location = here
        work()

    monkeypatch.setattr(Clustered, "on_each_machine", on_one_machine)
    job = place.start(engine)  # each machine has a disk of its own: here it is that of Partition_1
    try:
        until(lambda: not (stores / "Partition_7").exists() and not (stores / "Partition_0").exists())
    finally:
        job.stop()
    assert (stores / "Partition_1").exists()
    place.produce()
    place.caught_up(engine, restore_inline_bytes=10**9)
    assert place.counted() == place.sent


def test_on_one_machine_stores_of_tasks_that_are_there_no_more_are_removed(place: Place) -> None:
    place.produce()
    inline = InlineEngine(entry.run_container)
    place.caught_up(inline)  # type: ignore[arg-type]
    stores = place.root / "stores" / NAME
    for copy in ("Partition_7", "Partition_8"):
        shutil.copytree(stores / "Partition_0", stores / copy)
    for old in ("Partition_0", "Partition_7"):
        aged(stores / old)
    job = place.start(inline)  # type: ignore[arg-type]
    try:
        until(lambda: not (stores / "Partition_7").exists())
    finally:
        job.stop()
    assert {path.name for path in stores.iterdir()} == {"Partition_0", "Partition_1", "Partition_8"}
