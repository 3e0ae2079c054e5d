"""Streams that grow under a job that runs: it goes on by a new job model, with its state, in the order of each key."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import wiring
from headrace.codec.job_records import PARTITION_CHECKS
from headrace.driver.planning.stored_assignment import SystemStreamPartitionAssignmentManager
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine

KEYS = [f"key-{number}" for number in range(40)]
WAIT_S = 60.0


class World:
    """One application's streams and folders, on one system; what is sent is counted per key."""

    def __init__(self, system: Any, url: str, root: Path) -> None:
        self.system, self.url, self.root = system, url, root
        self.name = f"grow-{uuid.uuid4().hex[:8]}"
        self.input = f"in-{self.name}"
        self.sent: dict[str, int] = {}

    def app(self, **keys: Any) -> hr.App:
        places = {"local_store_dir": str(self.root / "stores"), "state_uri": str(self.root / "state")}
        often = {"partition_check_interval_s": 0.1, "trigger_interval_ms": 10, "containers": 2}
        return hr.App(self.name, self.url, **(places | often | keys))

    def send(self, rounds: int = 1) -> None:
        """A record for every key, `rounds` times over, with its number among those of its key."""
        for _ in range(rounds):
            records = []
            for key in KEYS:
                self.sent[key] = self.sent.get(key, 0) + 1
                records.append((key, self.sent[key]))
            self.system.produce(self.input, records, key=hr.String(), value=hr.Long())

    def out(self, stream: str, value: Any) -> list[tuple[str, Any]]:
        return [(record.key, record.value) for record in self.system.consume(stream, key=hr.String(), value=value)]


@pytest.fixture(params=["kafka", "log"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    url = f"log:{tmp_path / 'log'}"
    if request.param == "kafka":
        url = f"kafka://{request.getfixturevalue('kafka_server').bootstrap}"
    with hr.open_system(url) as system:
        yield World(system, url, tmp_path)


def started(app: hr.App) -> Any:
    return wiring.start(app, engine=InlineEngine(run_container))


def waited(what: Callable[[], bool], job: Any) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not what():
        if not job.is_running:
            job.wait(0)
        assert time.monotonic() < deadline_s, f"not within {WAIT_S:g} s: {job.status()}"
        time.sleep(0.02)


def counting(world: World, **keys: Any) -> hr.App:
    app = world.app(**keys)
    records = app.stream(world.input, key=hr.String(), value=hr.Long())
    records.group_by_key().aggregate(n=hr.count(), last=hr.last("value"), store="n").to_stream().to(f"out-{world.name}")
    return app


def counts(world: World) -> dict[str, int]:
    return {key: value["n"] for key, value in world.out(f"out-{world.name}", hr.Json())}


def test_a_stateful_job_goes_on_with_its_state_and_its_tasks(world: World) -> None:
    world.system.create_stream(world.input, 2)
    world.send()
    job = started(counting(world))
    tasks = job.status()["sub_topologies"]["source"]["tasks"]
    model = job.status()["job_model"]
    for grown in (4, 16):
        world.send(2)
        waited(lambda: counts(world) == world.sent, job)
        world.system.expand_stream(world.input, grown)
        world.send(2)
        model += 1
        waited(lambda expected=model: job.status()["job_model"] == expected, job)
        world.send(2)
        waited(lambda: counts(world) == world.sent, job)
    assert job.status()["sub_topologies"]["source"]["tasks"] == tasks == 2
    job.stop()
    job.wait()
    by_task: dict[str, set[str]] = {}
    manager = SystemStreamPartitionAssignmentManager(world.system.metadata_store(world.name))
    for ssp, mapping in manager.read_assignment().items():
        by_task.setdefault(str(mapping.tasks[0]), set()).add(ssp.partition % 2)
    assert by_task == {"Partition_0": {0}, "Partition_1": {1}}
    assert manager.read_partition_records()[world.input].counts == (2, 4, 16)


def test_a_command_has_it_noticed_at_once(world: World) -> None:
    world.system.create_stream(world.input, 2)
    world.send()
    job = started(counting(world, partition_check_interval_s=3600.0))
    waited(lambda: counts(world) == world.sent, job)
    world.system.expand_stream(world.input, 8)
    store = world.system.metadata_store(world.name)
    store.request(PARTITION_CHECKS, b"{}")
    waited(lambda: job.status()["job_model"] == 2, job)
    world.send()
    waited(lambda: counts(world) == world.sent, job)
    assert not store.requests(PARTITION_CHECKS)
    job.stop()


def test_a_stateless_job_gets_new_tasks_and_keeps_each_keys_order(world: World) -> None:
    world.system.create_stream(world.input, 2)
    app = world.app(max_records_per_round=60)
    app.stream(world.input, key=hr.String(), value=hr.Long()).map_values(lambda record: record.value * 10, value=hr.Long()).to(
        f"out-{world.name}", partitioner=lambda record, count: 0
    )
    world.send(20)
    world.system.create_stream(f"out-{world.name}", 1)
    job = started(app)
    world.system.expand_stream(world.input, 6)
    world.send(20)
    waited(lambda: job.status()["job_model"] == 2, job)
    world.send(20)

    def all_there() -> bool:
        return len(world.out(f"out-{world.name}", hr.Long())) == sum(world.sent.values())

    waited(all_there, job)
    assert job.status()["sub_topologies"]["source"]["tasks"] == 6
    seen: dict[str, int] = {}
    for key, value in world.out(f"out-{world.name}", hr.Long()):
        assert value == 10 * (seen.get(key, 0) + 1), f"{key}: {value} after {seen.get(key)}"
        seen[key] = value // 10
    job.stop()


def test_another_change_stops_those_who_read_it_and_nobody_else(world: World) -> None:
    world.system.create_stream(world.input, 4)
    app = world.app()
    records = app.stream(world.input, key=hr.String(), value=hr.Long())
    anew = records.repartition(hr.Repartitioned(name="anew", number_of_partitions=2))
    anew.group_by_key().count(store="n").to_stream().to(f"out-{world.name}")
    world.send()
    job = started(app)
    seen = lambda: dict(world.out(f"out-{world.name}", hr.Long()))  # noqa: E731
    waited(lambda: seen() == world.sent, job)
    world.system.expand_stream(world.input, 6)
    waited(lambda: "stopped" in job.status()["sub_topologies"]["source"]["waiting_for"], job)
    said = job.status()["sub_topologies"]["source"]["waiting_for"]
    assert world.input in said and "4 partitions" in said and "6" in said
    before = dict(world.sent)
    world.send()
    time.sleep(1.0)
    assert seen() == before, "a sub-topology that has stopped went on"
    assert job.is_running
    # The other one still reads what is in its stream.
    world.system.produce(f"{world.name}-anew-repartition", [("key-0", 1)], key=hr.String(), value=hr.Long())
    waited(lambda: seen() == before | {"key-0": before["key-0"] + 1}, job)
    job.stop()
    with pytest.raises(hr.IncompatibleChangeError, match="had 4 partitions and now has 6"):
        job.wait()
    with pytest.raises(hr.IncompatibleChangeError, match="had 4 partitions and now has 6"):
        started(app)


def test_a_job_that_has_nothing_left_to_run_ends_with_the_error(world: World) -> None:
    world.system.create_stream(world.input, 4)
    world.send()
    job = started(counting(world))
    waited(lambda: counts(world) == world.sent, job)
    world.system.expand_stream(world.input, 6)
    with pytest.raises(hr.IncompatibleChangeError) as raised:
        job.wait(WAIT_S)
    assert "8" in raised.value.hint
    world.system.expand_stream(world.input, 8)
    again = started(counting(world))
    world.send()
    waited(lambda: counts(world) == world.sent, again)
    again.stop()


def test_repartition_streams_grow_too_and_their_number_stays_that_of_the_topology(world: World) -> None:
    world.system.create_stream(world.input, 2)

    def made() -> hr.App:
        app = world.app()
        records = app.stream(world.input, key=hr.String(), value=hr.Long())
        anew = records.repartition(hr.Repartitioned(name="anew", number_of_partitions=2))
        anew.group_by_key().aggregate(n=hr.count(), store="n").to_stream().to(f"out-{world.name}")
        return app

    world.send()
    job = started(made())
    waited(lambda: counts(world) == world.sent, job)
    world.system.expand_stream(f"{world.name}-anew-repartition", 8)
    waited(lambda: job.status()["job_model"] == 2, job)
    world.send(3)
    waited(lambda: counts(world) == world.sent, job)
    assert job.status()["sub_topologies"]["anew"]["tasks"] == 2
    ends = world.system.end_offsets(f"{world.name}-anew-repartition")
    assert len(ends) == 8 and sum(1 for end in ends.values() if end) > 2, "it is written by the new number"
    job.stop()
    again = started(made())
    world.send()
    waited(lambda: counts(world) == world.sent, again)
    again.stop()


def test_windows_do_not_open_again_when_partitions_are_born(world: World) -> None:
    world.system.create_stream(world.input, 1)
    app = world.app(idle_timeout_s=3600.0)
    records = app.stream(world.input, key=hr.String(), value=hr.Long(), timestamp=lambda record: record.value * 1_000_000)
    windows = records.group_by_key().windowed_by(hr.Tumbling("10 seconds", grace="0 seconds"))
    windows.aggregate(n=hr.count(), store="w").to_stream(emit="closed").to(f"out-{world.name}")
    world.system.produce(world.input, [("a", 1), ("a", 12), ("a", 25)], key=hr.String(), value=hr.Long())
    job = started(app)
    out = f"out-{world.name}"
    waited(lambda: sum(world.system.end_offsets(out).values()) > 0, job)

    def closed() -> list[int]:
        return [record.value["n"] for record in world.system.consume(out, key=hr.Windowed(hr.String()), value=hr.Json())]

    waited(lambda: closed() == [1, 1], job)
    world.system.expand_stream(world.input, 2)
    waited(lambda: job.status()["job_model"] == 2, job)
    world.system.produce(world.input, [("a", 2), ("a", 26)], key=hr.String(), value=hr.Long())  # the first of them is late
    waited(lambda: job.status()["sub_topologies"]["source"]["counters"].get("late_records") == 1, job)
    assert closed() == [1, 1]
    job.stop()


def test_it_goes_on_under_a_producer_that_never_rests(world: World) -> None:
    world.system.create_stream(world.input, 2)
    job = started(counting(world, max_records_per_round=500))
    stopping = threading.Event()

    def produce() -> None:
        while not stopping.is_set():
            world.send()

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        for grown in (4, 8):
            time.sleep(0.5)
            world.system.expand_stream(world.input, grown)
            waited(lambda expected=grown: job.plan.found_counts[world.input] == expected, job)
        time.sleep(0.5)
    finally:
        stopping.set()
        producer.join()
    waited(lambda: counts(world) == world.sent, job)
    job.stop()
    per_key: dict[str, int] = {}
    for key, value in world.out(f"out-{world.name}", hr.Json()):
        assert value["last"] == value["n"] > per_key.get(key, 0), f"{key}: {value} after {per_key.get(key)}"
        per_key[key] = value["n"]
