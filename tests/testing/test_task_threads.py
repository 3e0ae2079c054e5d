"""Virtual tasks in threads: what comes out is what one thread gives, also where rounds are cut in the midst of a batch."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import pytest

import headrace as hr
from headrace.driver.rounds.sub_topology_runner import SubTopologyRunner
from headrace.testing import Driver
from headrace.worker import task_queues
from headrace.worker.task_queues import Turns
from support.world import caught_up, started, waited

HOUR_US = 3_600_000_000
WAIT_S = 20


def key_of_bucket(bucket: int, factor: int) -> str:
    import xxhash

    names = (f"k{number}" for number in range(10_000))
    return next(name for name in names if xxhash.xxh64(name.encode(), seed=42).intdigest() % factor == bucket)


@contextmanager
def committed_positions() -> Iterator[list[dict[str, int]]]:
    """After each round the positions of the tasks, of which each reads one partition."""
    found: list[dict[str, int]] = []
    commit = SubTopologyRunner.commit

    def committing(self: SubTopologyRunner, *args: Any) -> None:
        commit(self, *args)
        found.append({str(name): min(one.positions.values()) for name, one in self.checkpoints.items()})

    with mock.patch.object(SubTopologyRunner, "commit", committing):
        yield found


class Totals(hr.Processor[str, Any, str, Any]):
    """A sum per key, forwarded with each record; every seventh record of a key fails after it has changed the state."""

    stores: ClassVar = [hr.KeyValueStore("totals", value=hr.Json())]

    def init(self, context: Any) -> None:
        self.context, self.store = context, context.store("totals")

    def process(self, record: Any) -> None:
        count, total = self.store.get() or (0, 0)
        self.store.put([count + 1, total + record.value])
        self.context.forward(value=[count + 1, total + record.value])
        if record.value % 7 == 6:
            raise ValueError("a seventh")


def mixed(factor: int, **keys: Any) -> hr.App:
    app = hr.App("mixed", elasticity_factor=factor, dead_letter_stream="dead", **keys)
    rows = app.stream("in", key=hr.String(), value=hr.Long())
    rows.filter(lambda r: r.value % 3 != 0).map_values(lambda r: r.value * 10, value=hr.Long()).to("plain")
    rows.process(Totals, name="totals", value=hr.Json()).to("totals")
    rows.group_by_key().count(store="counts").to_stream(emit="each").to("counts", value=hr.Long())
    return app


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("partitions", [1, 2])
def test_threads_write_what_the_whole_task_writes_in_the_same_order(threads: int, partitions: int) -> None:
    """Of one stream that comes to one task; where tasks merge several sides, order is by key."""
    found = []
    for factor in (1, 4):
        app = hr.App("same", elasticity_factor=factor, dead_letter_stream="dead")
        rows = app.stream("in", key=hr.String(), value=hr.Long())

        def scaled(record: Any) -> int:
            if record.value % 7 == 6:
                raise ValueError("a seventh")
            return int(record.value) * 10

        scaled_rows = rows.map_values(scaled, value=hr.Long())
        scaled_rows.to("plain")
        scaled_rows.group_by_key().count(store="counts").to_stream(emit="each").to("counts", value=hr.Long())
        streams = {"in": partitions, "plain": 1, "counts": 1, "dead": 1}
        with Driver(app, partitions=streams, overrides=[f"task_threads={threads}"]) as driver:
            for turn in range(2):
                for number in range(3_000):
                    driver.send("in", f"k{number % 37}", number + turn, partition=number % 37 % partitions)
                driver.run()
            found.append([[(r.key, r.value, r.headers) for r in driver.read(name)] for name in ("plain", "counts", "dead")])
    assert found[0] == found[1]
    assert len(found[0][0]) + len(found[0][2]) == 6_000


@pytest.mark.parametrize(("threads", "first_rows"), [(8, 1), (1, 7), (8, 7), pytest.param(1, 1, marks=pytest.mark.soak)])
def test_rounds_that_are_cut_anywhere_process_every_record_once(threads: int, first_rows: int) -> None:
    """Each piece may be the last of a round; tasks are apart nearly always."""
    calls = Counter[tuple[str, int]]()

    def noted(record: Any) -> int:
        calls[record.key, record.offset] += 1
        return int(record.value)

    app = hr.App("cut", elasticity_factor=4, dead_letter_stream="dead")
    rows = app.stream("in", key=hr.String(), value=hr.Long()).map_values(noted, value=hr.Long())
    rows.process(Totals, name="totals", value=hr.Json()).to("totals")
    rows.group_by_key().count(store="counts").to_stream(emit="each").to("counts", value=hr.Long())
    overrides = [f"task_threads={threads}", "max_round_ms=1"]
    driver = Driver(app, partitions={"in": 2}, overrides=overrides)
    with sizes(first_rows), committed_positions() as positions, driver:
        for number in range(600):
            driver.send("in", f"k{number % 23}", number, partition=number % 23 % 2)
        driver.run()
        counts = {f"k{number}": driver.store("counts").get(f"k{number}") for number in range(23)}
        each = [(r.key, r.value) for r in driver.read("counts")]
        letters = driver.read("dead")
    assert counts == Counter(f"k{number % 23}" for number in range(600))
    assert Counter(each) == Counter((key, n + 1) for key, count in counts.items() for n in range(count))
    assert len(letters) == sum(number % 7 == 6 for number in range(600))
    assert set(calls.values()) == {1}, "a function was called twice for a record"
    assert len(positions) > 10
    assert any(len(set(one.values())) > 2 for one in positions), "tasks were apart"


@contextmanager
def sizes(rows: int) -> Iterator[None]:
    """Pieces of so many rows."""
    init = Turns.__init__

    def starting(self: Turns, *args: Any) -> None:
        init(self, *args)
        for turn in self.all:
            turn.size = rows

    with mock.patch.object(Turns, "__init__", starting), mock.patch.object(task_queues, "next_size", return_value=rows):
        yield


def test_two_tasks_are_in_a_function_at_once_and_a_resource_is_loaded_once() -> None:
    loaded: list[int] = []
    barrier = threading.Barrier(4, timeout=WAIT_S)

    def load() -> int:
        loaded.append(threading.get_ident())
        time.sleep(0.1)
        return len(loaded)

    class Meeting(hr.Processor[Any, Any, Any, Any]):
        def init(self, context: Any) -> None:
            self.context = context

        def process(self, record: Any) -> None:
            barrier.wait()
            assert self.context.resource(load) == 1

    app = hr.App("meeting", elasticity_factor=4)
    app.stream("in", key=hr.String(), value=hr.Long()).process(Meeting, name="meeting")
    with Driver(app, overrides=["task_threads=4"]) as driver:
        for turn in range(3):
            for bucket in range(4):
                driver.send("in", key_of_bucket(bucket, 4), turn, partition=0)
            driver.run()
            if turn == 1:
                driver.expand("in", 2)  # another plan
        assert len(loaded) == 1


def test_what_fails_in_one_task_takes_back_its_record_only() -> None:
    with Driver(mixed(4), overrides=["task_threads=4"]) as driver:
        for number in range(400):
            driver.send("in", f"k{number % 10}", number)
        driver.run()
        good = [number for number in range(400) if number % 7 != 6]
        assert len(driver.read("dead")) == 400 - len(good)
        for key in range(10):
            mine = [number for number in good if number % 10 == key]
            assert driver.store("totals").get(f"k{key}") == [len(mine), sum(mine)]
        assert len(driver.read("totals")) == len(good)


@pytest.mark.parametrize("threads", [1, 4])
def test_a_batch_of_slow_records_keeps_to_the_rounds_time(threads: int) -> None:
    app = hr.App("slow", elasticity_factor=4)
    rows = app.stream("in", key=hr.String(), value=hr.Long())
    rows.map_values(lambda r: time.sleep(0.001) or r.value, value=hr.Long()).to("out")
    lengths: list[float] = []
    run = SubTopologyRunner.run

    def timed(self: SubTopologyRunner, *args: Any) -> Any:
        began_s = time.monotonic()
        answer = run(self, *args)
        lengths.append(time.monotonic() - began_s)
        return answer

    with mock.patch.object(SubTopologyRunner, "run", timed):
        overrides = [f"task_threads={threads}", "max_round_ms=700"]
        with Driver(app, overrides=overrides) as driver:
            for number in range(5_000 if threads == 1 else 12_000):
                driver.send("in", f"k{number % 100}", number)
            driver.run()
            assert sorted(r.value for r in driver.read("out")) == list(range(5_000 if threads == 1 else 12_000))
    assert len(lengths) > 2
    assert max(lengths) < 2.0, "one batch: 5 s of one thread"


def test_a_bucket_far_behind_has_no_late_records_and_each_window_closes_once() -> None:
    """One task is slow, so that rounds are cut for it; event time goes on with the others by hours."""
    slow = key_of_bucket(1, 4)
    keys = [key_of_bucket(bucket, 4) for bucket in range(4)]
    app = hr.App("behind", elasticity_factor=4)

    def delayed(record: Any) -> Any:
        if record.key == slow:
            time.sleep(0.003)
        return record.value

    rows = app.stream("in", key=hr.String(), value=hr.Long()).map_values(delayed, value=hr.Long())
    windows = rows.group_by_key().windowed_by(hr.Tumbling("1 hour", grace="0 seconds"))
    windows.count(store="hours").suppress(hr.until_window_closes()).to_stream().to("closed", value=hr.Long())
    hours, each = 60, 25
    with committed_positions() as positions, Driver(app, overrides=["task_threads=4"]) as driver:
        start_us = 1_700_000_000_000_000 // HOUR_US * HOUR_US
        for hour in range(hours):
            for number in range(each):
                for key in keys:
                    driver.send("in", key, number, at=start_us + hour * HOUR_US + number)
        driver.run()
        for key in keys:
            driver.send("in", key, 0, at=start_us + (hours + 1) * HOUR_US)
        driver.run()
        driver.send("in", keys[0], 0, at=start_us + (hours + 1) * HOUR_US + 1)
        driver.run()
        assert driver.counters.get("late_records", 0) == 0
        closed = Counter((r.key.key, r.key.start_us, r.value) for r in driver.read("closed"))
    assert any(max(one.values()) - min(one.values()) > 10 * each for one in positions), "a task was hours behind"
    assert closed == Counter((key, start_us + hour * HOUR_US, each) for key in keys for hour in range(hours))


def test_a_hot_key_is_led_by_so_many_offsets_at_most_and_catches_up() -> None:
    hot, others = key_of_bucket(2, 4), [key_of_bucket(bucket, 4) for bucket in (0, 1, 3)]
    app = hr.App("hot", elasticity_factor=4)
    rows = app.stream("in", key=hr.String(), value=hr.Long())
    worked = rows.map_values(lambda r: time.sleep(0.0005) or r.value, value=hr.Long())
    worked.group_by_key().count(store="counts").to_stream().to("counts", value=hr.Long())
    with committed_positions() as positions, Driver(app, overrides=["task_threads=4", "max_bucket_lead=1_000"]) as driver:
        for number in range(10_000):
            driver.send("in", others[number // 10 % 3] if number % 10 == 0 else hot, number)
        driver.run()
        counts = {key: driver.store("counts").get(key) for key in (hot, *others)}
    assert counts[hot] == 9_000
    assert sum(counts.values()) == 10_000
    assert all(max(one.values()) - min(one.values()) <= 1_000 for one in positions)
    assert set(positions[-1].values()) == {10_000}


def test_rounds_of_tasks_that_merge_what_they_read_end_at_the_lead_too() -> None:
    app = hr.App("joined", elasticity_factor=4)
    users = app.table("users", key=hr.String(), value=hr.Long())
    orders = app.stream("orders", key=hr.String(), value=hr.Long())
    orders.left_join(users, lambda order, user: [order, user], value=hr.Json()).to("named")
    with committed_positions() as positions, Driver(app, overrides=["task_threads=4", "max_bucket_lead=50"]) as driver:
        for number in range(400):
            driver.send("users", f"k{number % 20}", number // 20, at=number)
            driver.send("orders", f"k{number % 20}", number // 20, at=number)
        driver.run()
        named = [r.value for r in driver.read("named")]
    assert Counter(map(tuple, named)) == Counter((number // 20, number // 20) for number in range(400))
    assert len(positions) >= 8


def test_a_job_with_sixteen_threads_asleep_stops_within_a_second(tmp_path: Path) -> None:
    url = f"log:{tmp_path / 'log'}"
    places = {"local_store_dir": str(tmp_path / "stores"), "state_uri": str(tmp_path / "state")}
    app = hr.App("asleep", system=url, elasticity_factor=16, task_threads=16, **places)
    entered = Counter[str]()

    def asleep(record: Any) -> Any:
        entered[threading.current_thread().name] += 1
        time.sleep(0.001)
        return record.value

    app.stream("in", key=hr.String(), value=hr.Long()).map_values(asleep, value=hr.Long()).to("out")
    with hr.open_system(url) as log:
        log.create_stream("in", 1)
        log.create_stream("out", 1)
        log.produce("in", [(f"k{n % 500}", n) for n in range(200_000)], key=hr.String(), value=hr.Long())
        job = started(app)
        waited(lambda: len(entered) == 16 and min(entered.values()) > 100, job)
        began_s = time.monotonic()
        job.stop()
        job.wait()
        assert time.monotonic() - began_s < 1.0
        assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("task-")]
        assert log.end_offsets("out") == {0: 0}, "nothing of the round was committed"


@pytest.mark.parametrize("factor", [1, 4])
def test_threads_begin_by_themselves_once_virtual_tasks_have_waited(tmp_path: Path, factor: int) -> None:
    url, names = f"log:{tmp_path / 'log'}", list[str]()

    def waiting(record: Any) -> Any:
        names.append(threading.current_thread().name)
        time.sleep(0.001)
        return record.value

    places = {"local_store_dir": str(tmp_path / "stores"), "state_uri": str(tmp_path / "state")}
    app = hr.App("auto", system=url, elasticity_factor=factor, max_records_per_round=1_000, **places)
    app.stream("in", key=hr.String(), value=hr.Long()).map_values(waiting, value=hr.Long()).to("out")
    with hr.open_system(url) as log:
        log.create_stream("in", 1)
        log.create_stream("out", 1)
        log.produce("in", [(f"k{n % 50}", n) for n in range(3_000)], key=hr.String(), value=hr.Long())
        caught_up(app)
        values = [record.value for record in log.consume("out", key=hr.String(), value=hr.Long())]
    assert values == list(range(3_000)), "in the order of the input"
    first, later = set(names[:1_000]), set(names[1_000:])
    assert not any(name.startswith("task-") for name in first)
    assert later == ({f"task-{number}" for number in range(4)} if factor == 4 else first)
