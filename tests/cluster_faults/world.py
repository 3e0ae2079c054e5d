"""The streams of one application under faults, records that keep coming, and what is waited for and judged."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import headrace as hr
from cluster.conftest import Driver
from cluster.machines import until
from cluster_faults.judge import (
    Done,
    counts_follow_the_input,
    done_of,
    each_once,
    overlaps,
    timers_of,
    windows_of,
)
from cluster_faults.machines import FaultyCluster
from headrace.codec.job_records import history_of
from headrace.serdes.windowed import Windowed
from support.world import World

FIRST_MS, STEP_MS, LAST_MS = 1_700_000_000_000, 50, 61_003
KEYS = [f"k{number}" for number in range(60)]
PARTITIONS = 6
WAIT_S = 150.0


class Faulty(World):
    """`sent`: what was produced so far, with times that only rise."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.sent: list[tuple[str, int, int]] = []
        self._draw = random.Random(11)

    def create(self, partitions: int = PARTITIONS) -> None:
        for stream in ("orders", "windows", "work"):
            self.system.create_stream(self.stream(stream), partitions)

    def produce(self, keys: Sequence[str], **more: Any) -> None:
        """A record of each key, each a moment later than the one before."""
        first = len(self.sent)
        numbered = enumerate(keys, first)
        self._produce([(key, number, FIRST_MS + number * STEP_MS) for number, key in numbered], **more)

    def let_time_pass(self) -> None:
        """A record of each key at one and the same later time: in each partition the timers before it are due."""
        first = len(self.sent)
        at_ms = FIRST_MS + first * STEP_MS + LAST_MS
        self._produce([(key, number, at_ms) for number, key in enumerate(KEYS, first)])

    def _produce(self, new: list[tuple[str, int, int]], **more: Any) -> None:
        records = [hr.Record(key, {"id": number, **more}, at * 1_000) for key, number, at in new]
        self.sent += new
        self.produce_to("orders", records, value=hr.Json())

    def produce_some(self, count: int, **more: Any) -> None:
        self.produce(self._draw.choices(KEYS, k=count), **more)

    @contextmanager
    def fed(self, records: int = 4, every_s: float = 0.1) -> Iterator[None]:
        """While the context is open records come all the time; at its end time passes, so that all timers before it are due."""
        ending, failed = threading.Event(), list[BaseException]()

        def feed() -> None:
            try:
                while not ending.wait(every_s):
                    self.produce_some(records)
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=feed)
        thread.start()
        try:
            yield
        finally:
            ending.set()
            thread.join(30)
        assert not failed and not thread.is_alive(), failed
        self.let_time_pass()

    def work(self, *, is_replay: bool = False) -> list[Any]:
        return [row for row in self.read("work", hr.Json()) if is_replay == ("headrace.replay" in dict(row.headers))]

    def done(self) -> list[Done]:
        return done_of(self.work())

    def replayed(self) -> list[Done]:
        return done_of(self.work(is_replay=True))

    def timers(self) -> list[tuple[str, str]]:
        return sorted((row.key, row.value["timer"]) for row in self.work() if "timer" in row.value)

    def is_all_written(self) -> bool:
        return len(self.done()) >= len(self.sent) and len(self.timers()) >= timers_of(self.sent).total()

    def written(self) -> str:
        missing = timers_of(self.sent) - Counter(self.timers())
        return f"{len(self.done())} of {len(self.sent)} records, and not the timers {sorted(missing.elements())[:20]}"

    def judge(self, *, has_grown_in_a_replay: bool = False) -> None:
        """Each effect of a record is there once, and the attempts that were committed came one after the other. In a replay of
        a stream that has grown a timer may fire again behind its end, unmarked, as new partitions hold event time back; and
        what a task reads of several partitions has no order."""
        until(self.is_all_written, WAIT_S, self.written)
        done = self.done()
        assert each_once(done, self.sent)
        assert counts_follow_the_input(done, self.sent)
        fired, due = Counter(self.timers()), timers_of(self.sent)
        fired = Counter(fired.keys()) if has_grown_in_a_replay else fired
        assert fired == due, f"more often than due: {fired - due}; less often: {due - fired}"
        windows = self.read("windows", hr.Long(), Windowed(hr.String()))
        assert {(one.key.key, one.key.start_us // 1_000): one.value for one in windows} == windows_of(self.sent)
        assert not overlaps(done, in_order=not has_grown_in_a_replay)

    def changes(self) -> list[tuple[str, str]]:
        """Tasks that have moved while the job ran: why, and how many."""
        history = history_of(self.system.metadata_store(self.name)).values()
        return [(one.what, str(one.after)) for one in history if one.kind == "rebalance"]

    def homes(self) -> dict[str, str | None]:
        """Where the job model has each task."""
        model = self.system.job_store(self.name).job_model()
        assert model is not None
        return {str(task.name): one.location_id for one in model.sub_topologies[0].containers for task in one.tasks}

    def job_model(self) -> int:
        model = self.system.job_store(self.name).job_model()
        assert model is not None
        return int(model.version)

    def all_have_moved_on(self, since_s: float) -> bool:
        """Whether each task has committed what was begun after that time."""
        return {one.task for one in self.done() if one.start > since_s} == set(self.homes())

    def wait_until_all_move_on(self, within_s: float = WAIT_S) -> float:
        """Until each task has committed something that was begun from now on; how long that took."""
        since_s = time.monotonic()
        until(lambda: self.all_have_moved_on(since_s), within_s, lambda: f"{self.last_of_each()}")
        return time.monotonic() - since_s

    def last_of_each(self) -> dict[str, float]:
        """How long ago the last record of each task was begun that is committed."""
        now_s = time.monotonic()
        return {task: round(now_s - max(one.start for one in self.done() if one.task == task), 1) for task in self.homes()}


def source_of(status: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = status["sub_topologies"]["source"]
    return found


def counter(driver: Driver, name: str) -> int:
    return int(source_of(driver.ask(status=True))["counters"].get(name, 0))


@contextmanager
def running(driver: Driver, cluster: FaultyCluster, world: Faulty, keys: Callable[..., Any], **more: Any) -> Iterator[None]:
    """Its job, which is stopped at the end, however that comes."""
    driver.ask(start="worked", until=None, log=str(cluster.shared / f"{world.name}.log"), **keys(world.name, **more))
    try:
        yield
    finally:
        driver.ask(stop=True)
