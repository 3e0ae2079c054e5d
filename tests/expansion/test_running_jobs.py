"""Streams that grow under a job that runs: it goes on by a new job model, with its state, in the order of each key."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.codec.job_records import PARTITION_CHECKS
from headrace.driver.planning.stored_assignment import SystemStreamPartitionAssignmentManager
from support.world import WAIT_S, Place, World, started, waited

KEYS = [f"key-{number}" for number in range(40)]


class Growing(World):
    """One application whose input grows; what is sent is counted per key."""

    def __init__(self, folder: Path, place: Place) -> None:
        super().__init__(folder, place)
        self.input, self.output = self.stream("in"), self.stream("out")
        self.sent: dict[str, int] = {}

    def send(self, rounds: int = 1) -> None:
        """A record for every key, `rounds` times over, with its number among those of its key."""
        for _ in range(rounds):
            records = []
            for key in KEYS:
                self.sent[key] = self.sent.get(key, 0) + 1
                records.append((key, self.sent[key]))
            self.produce_to("in", records)

    def out(self, value: Any) -> list[tuple[str, Any]]:
        return [(record.key, record.value) for record in self.read("out", value)]


WORLD = Growing


def counting(world: Growing, **keys: Any) -> hr.App:
    app = world.app(**keys)
    records = app.stream(world.input, key=hr.String(), value=hr.Long())
    records.group_by_key().aggregate(n=hr.count(), last=hr.last("value"), store="n").to_stream().to(world.output)
    return app


def counts(world: Growing) -> dict[str, int]:
    return {key: value["n"] for key, value in world.out(hr.Json())}


def test_a_stateful_job_goes_on_with_its_state_and_its_tasks(world: Growing) -> None:
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


def test_a_command_has_it_noticed_at_once(world: Growing) -> None:
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


def test_a_stateless_job_gets_new_tasks_and_keeps_each_keys_order(world: Growing) -> None:
    world.system.create_stream(world.input, 2)
    app = world.app(max_records_per_round=60)
    app.stream(world.input, key=hr.String(), value=hr.Long()).map_values(lambda record: record.value * 10, value=hr.Long()).to(
        world.output, partitioner=lambda record, count: 0
    )
    world.send(20)
    world.system.create_stream(world.output, 1)
    job = started(app)
    world.system.expand_stream(world.input, 6)
    world.send(20)
    waited(lambda: job.status()["job_model"] == 2, job)
    world.send(20)

    def all_there() -> bool:
        return len(world.out(hr.Long())) == sum(world.sent.values())

    waited(all_there, job)
    assert job.status()["sub_topologies"]["source"]["tasks"] == 6
    seen: dict[str, int] = {}
    for key, value in world.out(hr.Long()):
        assert value == 10 * (seen.get(key, 0) + 1), f"{key}: {value} after {seen.get(key)}"
        seen[key] = value // 10
    job.stop()


def test_another_change_stops_those_who_read_it_and_nobody_else(world: Growing) -> None:
    world.system.create_stream(world.input, 4)
    app = world.app()
    records = app.stream(world.input, key=hr.String(), value=hr.Long())
    anew = records.repartition(hr.Repartitioned(name="anew", number_of_partitions=2))
    anew.group_by_key().count(store="n").to_stream().to(world.output)
    world.send()
    job = started(app)
    seen = lambda: dict(world.out(hr.Long()))  # noqa: E731
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
    world.produce_to("anew-repartition", [("key-0", 1)])
    waited(lambda: seen() == before | {"key-0": before["key-0"] + 1}, job)
    job.stop()
    with pytest.raises(hr.IncompatibleChangeError, match="had 4 partitions and now has 6"):
        job.wait()
    with pytest.raises(hr.IncompatibleChangeError, match="had 4 partitions and now has 6"):
        started(app)


def test_a_job_that_has_nothing_left_to_run_ends_with_the_error(world: Growing) -> None:
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


def test_repartition_streams_grow_too_and_their_number_stays_that_of_the_topology(world: Growing) -> None:
    world.system.create_stream(world.input, 2)

    def made() -> hr.App:
        app = world.app()
        records = app.stream(world.input, key=hr.String(), value=hr.Long())
        anew = records.repartition(hr.Repartitioned(name="anew", number_of_partitions=2))
        anew.group_by_key().aggregate(n=hr.count(), store="n").to_stream().to(world.output)
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


def test_windows_do_not_open_again_when_partitions_are_born(world: Growing) -> None:
    world.system.create_stream(world.input, 1)
    app = world.app(idle_timeout_s=3600.0)
    records = app.stream(world.input, key=hr.String(), value=hr.Long(), timestamp=lambda record: record.value * 1_000_000)
    windows = records.group_by_key().windowed_by(hr.Tumbling("10 seconds", grace="0 seconds"))
    windows.aggregate(n=hr.count(), store="w").to_stream(emit="closed").to(world.output)
    world.produce_to("in", [("a", 1), ("a", 12), ("a", 25)])
    job = started(app)
    waited(lambda: sum(world.system.end_offsets(world.output).values()) > 0, job)

    def closed() -> list[int]:
        return [record.value["n"] for record in world.read("out", hr.Json(), hr.Windowed(hr.String()))]

    waited(lambda: closed() == [1, 1], job)
    world.system.expand_stream(world.input, 2)
    waited(lambda: job.status()["job_model"] == 2, job)
    world.produce_to("in", [("a", 2), ("a", 26)])  # the first of them is late
    waited(lambda: job.status()["sub_topologies"]["source"]["counters"].get("late_records") == 1, job)
    assert closed() == [1, 1]
    job.stop()


def test_it_goes_on_under_a_producer_that_never_rests(world: Growing) -> None:
    world.system.create_stream(world.input, 2)
    job = started(counting(world, max_records_per_round=500))
    with world.producing(lambda _: world.send(), 0.0):
        for grown in (4, 8):
            time.sleep(0.5)
            world.system.expand_stream(world.input, grown)
            waited(lambda expected=grown: job.plan.found_counts[world.input] == expected, job)
        time.sleep(0.5)
    waited(lambda: counts(world) == world.sent, job)
    job.stop()
    per_key: dict[str, int] = {}
    for key, value in world.out(hr.Json()):
        assert value["last"] == value["n"] > per_key.get(key, 0), f"{key}: {value} after {per_key.get(key)}"
        per_key[key] = value["n"]
