"""Tasks of a container in threads: they work at the same time, each in one thread at once, and none outlives the round."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.errors import StoreDamagedError
from headrace.serdes.scalars import Bytes
from headrace.worker import task_queues
from headrace.worker.round_limits import RoundLimits, Stopped
from headrace.worker.rows import Field, Rows
from headrace.worker.task_queues import Part
from headrace.worker.task_threads import TaskThreads
from support.world import waited

WAIT_S = 20


class Signals:
    stopped = cut = False

    def is_stopped(self) -> bool:
        return self.stopped

    def is_cut(self) -> bool:
        return self.cut

    def troubles(self) -> Sequence[str]:
        return ()

    def close(self) -> None: ...


class Run:
    """A task that calls `function(task, offset)` for each row."""

    def __init__(self, number: int, function: Callable[[int, int], None]) -> None:
        self.number, self.task, self.function = number, f"task-{number}", function
        self.plan = SimpleNamespace(positions={0: 0})
        self.waited_to_open_s, self.fills = 0.0, dict[str, float]()
        self.processed: list[int] = []
        self.calls: list[str] = []
        self.lock = threading.Lock()

    def _alone(self, name: str) -> None:
        assert self.lock.acquire(blocking=False), "a task is in two threads"
        self.calls.append(name)
        self.lock.release()

    def begin(self) -> None:
        self._alone("begin")

    def feed(self, parts: Sequence[Part]) -> None:
        assert self.lock.acquire(blocking=False), "a task is in two threads"
        try:
            for offset in (offset for part in parts for offset in part.rows.offset.tolist()):
                self.function(self.number, offset)
                self.processed.append(offset)
        finally:
            self.lock.release()

    def finish(self, is_whole: bool = True) -> None:
        self._alone("finish")


class World:
    def __init__(self, tasks: int, function: Callable[[int, int], Any], threads: int | None = None, s: float = 60) -> None:
        self.runs: Any = [Run(number, function) for number in range(tasks)]
        self.signals = Signals()
        self.limits = RoundLimits(self.signals, time.monotonic() + s)
        self.tasks = TaskThreads(self.runs, (), {0: 0}, tasks if threads is None else threads, self.limits)
        self.read_to: int | None = None

    def give(self, offsets: Sequence[int], lead: int | None = None) -> bool:
        """A batch: record n is task n mod tasks's. Whether the round takes more."""
        start = 0
        while start < len(offsets):
            until = self.tasks.room(self.runs, offsets[start], lead)
            if until is None:
                self.read_to = offsets[start]
                return False
            mine = [offset for offset in offsets[start:] if offset < until]
            shares = []
            for run in self.runs:
                own = [offset for offset in mine if offset % len(self.runs) == run.number]
                if own:
                    shares.append((run, Part(0, False, False, rows_of(own))))
            self.tasks.give(shares)
            start += len(mine)
        return True

    def run(self, batches: Sequence[Sequence[int]], lead: int | None = None, then: Exception | None = None) -> None:
        """The round; after the last batch the reader raises `then`."""
        with self.tasks as tasks:
            tasks.begin()
            for batch in batches:
                if not self.give(batch, lead):
                    break
            if then is not None:
                raise then
            tasks.finish()

    def check_positions(self, end: int) -> dict[int, int]:
        left = self.tasks.left()
        positions = {}
        for run in self.runs:
            position = left.get(run.task, {}).get(0, end if self.read_to is None else self.read_to)
            assert run.processed == [offset for offset in range(run.number, position, len(self.runs)) if offset < end]
            positions[run.number] = position
        return positions


def rows_of(offsets: list[int]) -> Rows:
    values = Field(Bytes(), raw=pa.array([b"v"] * len(offsets)))
    numbers = np.array(offsets, np.int64)
    return Rows(np.zeros(len(offsets), np.int32), numbers, numbers, values, values, None)


@contextmanager
def no_thread_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before, "threads outlive the round"


def test_tasks_are_in_the_function_at_the_same_time() -> None:
    barrier = threading.Barrier(4, timeout=WAIT_S)
    with no_thread_left():
        world = World(4, lambda task, offset: barrier.wait() and None)
        world.run([range(40)])
        assert set(world.check_positions(40).values()) == {40}
    assert all(run.calls == ["begin", "finish"] for run in world.runs)


def test_with_fewer_threads_than_tasks_all_are_processed() -> None:
    inside: Counter[str] = Counter()
    names: set[str] = set()

    def function(task: int, offset: int) -> None:
        inside["now"] += 1
        names.add(threading.current_thread().name)
        time.sleep(0.001)
        inside["most"] = max(inside["most"], inside["now"])
        inside["now"] -= 1

    with no_thread_left():
        world = World(10, function, threads=3)
        world.run([range(600)])
    assert set(world.check_positions(600).values()) == {600}
    assert len(names) <= 3


def test_with_one_thread_it_is_the_callers() -> None:
    names: set[str] = set()
    with no_thread_left():
        world = World(3, lambda task, offset: names.add(threading.current_thread().name), threads=1)
        world.run([range(100)])
    assert names == {threading.current_thread().name}
    assert set(world.check_positions(100).values()) == {100}


def test_what_one_thread_raises_the_reader_raises_once_all_have_ended() -> None:
    held, entered = threading.Event(), threading.Event()

    def function(task: int, offset: int) -> None:
        if task == 1:
            assert entered.wait(WAIT_S)
            raise StoreDamagedError("a store is damaged")
        entered.set()
        assert held.wait(WAIT_S)

    with no_thread_left():
        world = World(2, function)
        threading.Timer(0.5, held.set).start()
        with pytest.raises(StoreDamagedError):
            world.run([range(20)])
        assert held.is_set(), "it waited for the function that was called"
        waited(lambda: not any(isinstance(thread, threading.Timer) for thread in threading.enumerate()), wait_s=WAIT_S)


def test_an_error_of_the_reader_ends_the_threads() -> None:
    with no_thread_left():
        world = World(4, lambda task, offset: time.sleep(0.001))
        with pytest.raises(OSError, match="no such chunk"):
            world.run([range(10_000)], then=OSError("no such chunk"))
    assert sum(len(run.processed) for run in world.runs) < 10_000


@pytest.mark.parametrize("threads", [1, 16])
def test_a_stop_is_followed_within_a_second(threads: int) -> None:
    with no_thread_left():
        world = World(16, lambda task, offset: time.sleep(0.001), threads=threads)
        stopped_s: list[float] = []

        def stop() -> None:
            world.signals.stopped = True
            stopped_s.append(time.monotonic())

        timer = threading.Timer(1.0, stop)
        timer.start()
        with pytest.raises(Stopped):
            world.run([range(50_000)])
        assert time.monotonic() - stopped_s[0] < 1.0
        timer.join()


@pytest.mark.parametrize("threads", [1, 4])
def test_a_batch_is_left_at_the_end_of_the_rounds_time(threads: int) -> None:
    began_s = time.monotonic()
    world = World(4, lambda task, offset: time.sleep(0.001), threads=threads, s=1.0)
    world.run([range(50_000)])
    assert time.monotonic() - began_s < 2.5, "50 s of work"
    positions = world.check_positions(50_000)
    assert max(positions.values()) < 50_000
    assert min(positions.values()) > 0
    assert max(positions.values()) - min(positions.values()) < 4_000, "none was forgotten"


@pytest.mark.parametrize("threads", [1, 4])
def test_a_round_that_is_cut_before_it_began_is_at_its_beginning(threads: int) -> None:
    world = World(4, lambda task, offset: None, threads=threads)
    world.signals.cut = True
    world.run([range(100)])
    assert set(world.check_positions(100).values()) == {0}
    assert all(run.calls == ["begin", "finish"] for run in world.runs)


def test_a_round_without_time_still_takes_a_piece() -> None:
    world = World(2, lambda task, offset: None, threads=1, s=-1.0)
    world.run([range(10_000)])
    assert max(world.check_positions(10_000).values()) > 0


def test_the_round_is_cut_for_a_task_that_all_others_wait_for() -> None:
    """Which has all its rows in the queue: reading is over, or waits for room."""
    began_s = time.monotonic()
    with no_thread_left():
        world = World(4, lambda task, offset: time.sleep(0.002 if task == 2 else 0))
        world.run([range(40_000)])  # 20 s for one
    assert time.monotonic() - began_s < 10
    positions = world.check_positions(40_000)
    assert {positions.pop(2) < 40_000, *positions.values()} == {True, 40_000}


@pytest.mark.parametrize("bound", ["rows", "lead"])
def test_reading_waits_for_a_slow_task_and_then_the_round_is_cut(monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    if bound == "rows":
        monkeypatch.setattr(task_queues, "QUEUE_ROWS", 500)
    lead = 2_000 if bound == "lead" else None
    with no_thread_left():
        world = World(4, lambda task, offset: time.sleep(0.002 if task == 2 else 0))
        world.run([range(first, first + 100) for first in range(0, 100_000, 100)], lead)
    positions = world.check_positions(100_000)
    assert world.read_to is not None and world.read_to < 20_000, "reading did not go on without it"
    assert world.tasks._turns.all[2].queue.rows <= 525
    assert positions[2] < world.read_to
    assert lead is None or max(positions.values()) - min(positions.values()) <= lead


def test_tasks_that_sleep_have_waited_and_tasks_that_compute_have_not() -> None:
    def share(function: Callable[[int, int], Any]) -> float:
        world = World(2, function, threads=1)
        world.run([range(300)])
        return world.tasks.waited_s / world.tasks.worked_s

    assert share(lambda task, offset: time.sleep(0.005)) > 0.8
    # whatever else the machine does can only add to it
    assert any(share(lambda task, offset: sum(range(30_000))) < 0.2 for _ in range(5))
