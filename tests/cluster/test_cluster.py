"""Jobs on a Spark standalone cluster whose workers share no folder with the driver but `state_uri`.

The driver's folders are empty for workers; where both have a folder of one name, such as `local_store_dir`, it is another one.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from cluster.application import Sent, matched_of, streaks_of, windows_of
from cluster.conftest import Driver
from cluster.machines import Cluster, until
from headrace.codec.job_records import history_of
from headrace.driver.planning.stored_locality import StoredLocality
from headrace.serdes.windowed import Windowed
from support.fixtures import only_on
from support.world import World

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
Keys = Callable[..., dict[str, Any]]
FIRST_MS = 1_700_000_000_000
WAIT_S = 150.0
MACHINES = ("machine-1", "machine-2")


def sent_of(rng: random.Random, count: int, field: str, keys: int = 12) -> Sent:
    """Records of some keys; one in ten is no JSON, one in ten has 0 in `field`."""
    return [
        (
            f"k{rng.randrange(keys)}",
            b"no json" if rng.random() < 0.1 else {"id": number, field: rng.randrange(10)},
            FIRST_MS + rng.randrange(60_000),
        )
        for number in range(count)
    ]


class Clustered(World):
    """The streams of one application."""

    def create(self, partitions: int, *streams: str) -> None:
        for stream in streams:
            self.system.create_stream(f"{self.name}-{stream}", partitions)

    def produce(self, stream: str, sent: Sent) -> None:
        records = [
            hr.Record(key.encode(), value if isinstance(value, bytes) else json.dumps(value).encode(), at * 1_000)
            for key, value, at in sent
        ]
        self.system.produce(f"{self.name}-{stream}", records)

    def dead_letters(self) -> Counter[tuple[str, ...]]:
        """Where each dead letter comes from, and how often it came."""
        found: Counter[tuple[str, ...]] = Counter()
        for letter in self.read("dead", hr.Bytes()):
            headers = dict(letter.headers)
            assert letter.value == b"no json"
            found[tuple(headers[f"headrace.{part}"].decode() for part in ("stream", "partition", "offset"))] += 1
        return found


WORLD, place = Clustered, only_on("kafka")


@contextmanager
def running(driver: Driver, **command: Any) -> Iterator[None]:
    """A job that is stopped at the end, however that comes."""
    driver.ask(**command)
    try:
        yield
    finally:
        driver.ask(stop=True)


def source_of(status: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = status["sub_topologies"]["source"]
    return found


def marks_of(cluster: Cluster, name: str) -> dict[str, list[dict[str, Any]]]:
    """By machine, the marks of the local stores that it has of an application."""
    return {
        machine: [json.loads(path.read_text()) for path in (folder / "own" / "stores" / name).glob("*/mark.json")]
        for machine, folder in cluster.machines.items()
    }


@pytest.mark.soak
def test_windows_a_join_and_a_processor_behind_expressions(
    cluster: Cluster, driver: Driver, world: Clustered, job_keys: Keys
) -> None:
    rng = random.Random(3)
    orders, payments = sent_of(rng, 10_500, "amount", 3_000), sent_of(rng, 7_500, "paid", 3_000)
    world.create(4, "orders", "payments")
    world.create(2, "windows", "matched", "streaks", "dead")
    world.produce("orders", orders)
    world.produce("payments", payments)  # more records than one Spark task takes: rows cross machines
    keys = job_keys(world.name, dead_letter_stream=f"{world.name}-dead")
    driver.ask(start="expressions", until="caught-up", **keys)
    status = source_of(driver.ask(wait=WAIT_S))

    windows = world.read("windows", hr.Long(), Windowed(hr.String()))
    assert {(one.key.key, one.key.start_us // 1_000): one.value for one in windows} == windows_of(orders)
    matched = [(one.key, one.value["order"], one.value["payment"]) for one in world.read("matched", hr.Json())]
    assert sorted(matched) == matched_of(orders, payments)
    assert sorted((one.key, one.value["count"]) for one in world.read("streaks", hr.Json())) == streaks_of(orders)
    bad = sum(value == b"no json" for _, value, _ in orders + payments)
    letters = world.dead_letters()
    assert len(letters) == sum(letters.values()) == bad == status["counters"]["dead_letters"]
    marks = marks_of(cluster, world.name)
    for machine, found in marks.items():
        assert found, f"{machine} has worked on tasks"
        assert {mark["boot_id"] for mark in found} == {cluster.boot_ids[machine]}, "a fact of the machine that has the disk"
        assert all(mark["content"] for mark in found), "its stores were sealed where they are"
    assert not (cluster.own / "stores" / world.name).exists(), "the driver has none"


@contextmanager
def without_new_executors(cluster: Cluster, driver: Driver, machine: str, is_so: bool) -> Iterator[None]:
    """While the context is open the Spark worker of a machine starts none in place of one that ends. All are there at the end:
    one that joins later would be a change of the next test's job."""
    if is_so:
        cluster.worker(machine).send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        cluster.worker(machine).send_signal(signal.SIGCONT)
        until(lambda: driver.ask(executors=True)["executors"] == len(MACHINES), WAIT_S)


@pytest.mark.parametrize("comes_back", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_an_executor_that_is_killed_costs_no_record(
    cluster: Cluster, driver: Driver, world: Clustered, job_keys: Keys, comes_back: bool
) -> None:
    """A new one on its machine has its tasks again, and restores nothing; where none comes others get them."""
    rng = random.Random(4)
    sent = sent_of(rng, 400, "amount", 60)
    world.create(4, "orders")
    world.create(2, "counts", "dead")
    world.produce("orders", sent[:200])
    wait_s = 60.0 if comes_back else 1.0
    keys = job_keys(world.name, dead_letter_stream=f"{world.name}-dead", processor_return_wait_s=wait_s)
    wanted = Counter(key for key, value, _ in sent if isinstance(value, dict) and value["amount"] > 0)
    with (
        running(driver, start="one_expression", until=None, **keys),
        without_new_executors(cluster, driver, "machine-1", not comes_back),
    ):
        until(lambda: source_of(driver.ask(status=True))["records"] >= 200, WAIT_S)
        restored = source_of(driver.ask(status=True))["counters"].get("stores_restored", 0)
        assert {machine: len(marks) for machine, marks in marks_of(cluster, world.name).items()} == dict.fromkeys(MACHINES, 2)
        (executor,) = cluster.executors("machine-1")
        os.kill(executor, signal.SIGKILL)
        world.produce("orders", sent[200:])
        until(lambda: {one.key: one.value for one in world.read("counts", hr.Long())} == wanted, WAIT_S)
        counters = source_of(driver.ask(status=True))["counters"]
        changes = [one for one in history_of(world.system.metadata_store(world.name)).values() if one.kind == "rebalance"]
    letters = world.dead_letters()
    assert len(letters) == sum(letters.values()) == sum(value == b"no json" for _, value, _ in sent)
    if comes_back:
        assert counters.get("stores_restored", 0) == restored, "the machine has the state of its tasks"
        assert not changes
    else:
        assert counters["stores_restored"] == restored + 2, "the other machine had no state"
        assert (changes[0].what, changes[0].after) == ("machine-1 has left", "2 of 4 tasks moved")


def test_an_application_without_state_needs_no_place_for_it(
    cluster: Cluster, driver: Driver, world: Clustered, job_keys: Keys
) -> None:
    """Neither `state_uri` nor `local_store_dir` is set."""
    sent = sent_of(random.Random(5), 100, "amount")
    world.create(2, "orders")
    world.create(1, "filtered", "dead")
    world.produce("orders", sent)
    keys = job_keys(world.name, dead_letter_stream=f"{world.name}-dead")
    del keys["state_uri"], keys["local_store_dir"]
    driver.ask(start="without_state", until="caught-up", **keys)
    driver.ask(wait=WAIT_S)
    wanted = sorted(value["id"] for _, value, _ in sent if isinstance(value, dict) and value["amount"] > 0)
    assert sorted(one.value["id"] for one in world.read("filtered", hr.Json())) == wanted
    assert world.dead_letters().total() == sum(value == b"no json" for _, value, _ in sent)


def worked(log: Path) -> list[tuple[int, float]]:
    """The ids of the records that were worked on, and when."""
    lines = log.read_text().splitlines() if log.exists() else []
    return [(int(number), float(at)) for number, _, at in (line.partition(" ") for line in lines)]


MANY = 1_900  # after so many records of a task the pieces that it takes are short: see `runtime.merging`


class SlowJob:
    """A job that takes 2 ms for each of `count` records, which it reads in one round where nothing ends that."""

    def __init__(self, cluster: Cluster, it: Clustered, job_keys: Keys, count: int) -> None:
        self.it, self.log = it, cluster.shared / f"{it.name}.log"
        it.create(1, "orders", "payments", "counts")
        self.sent: Sent = [(f"k{number % 40}", {"id": number}, FIRST_MS + number) for number in range(count)]
        it.produce("orders", self.sent[::2])
        it.produce("payments", self.sent[1::2])
        timeout = {"kafka.transaction.timeout.ms": "600000"}  # a round may last for a third of it
        keys = job_keys(it.name, max_round_ms=200_000, partition_check_interval_s=0.2, **timeout)
        self.slowly = {"start": "slow", "until": None, "log": str(self.log), "pause_s": 0.002, **keys}

    def worked(self) -> list[tuple[int, float]]:
        """The ids of the records that were worked on, and when."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [(int(number), float(at)) for number, _, at in (line.partition(" ") for line in lines)]

    def finish(self, driver: Driver) -> None:
        driver.ask(**self.slowly | {"until": "caught-up", "pause_s": 0.0})
        driver.ask(wait=WAIT_S)
        found = {one.key: one.value for one in self.it.read("counts", hr.Long())}
        assert found == Counter(key for key, _, _ in self.sent), "no record is lost, none is counted twice"


@pytest.mark.soak
def test_a_round_that_takes_long_is_stopped_at_once(
    cluster: Cluster, driver: Driver, world: Clustered, job_keys: Keys
) -> None:
    job = SlowJob(cluster, world, job_keys, 8_000)
    with running(driver, **job.slowly):
        until(lambda: len(job.worked()) > MANY, WAIT_S)
        asked_s = time.time()
        status = driver.ask(stop=True)
    assert source_of(status)["records"] == 0
    time.sleep(4)  # longer than Spark takes to end a worker
    last_s = max(at for _, at in job.worked())
    assert last_s < asked_s + 1.5, "workers stop by themselves; Spark ends one after 2 s at the earliest"
    job.finish(driver)


@pytest.mark.soak
def test_a_round_that_takes_long_is_cut_short_for_a_new_plan(
    cluster: Cluster, driver: Driver, world: Clustered, job_keys: Keys
) -> None:
    job = SlowJob(cluster, world, job_keys, 12_000)
    with running(driver, **job.slowly):
        until(lambda: len(job.worked()) > MANY, WAIT_S)
        began = len(job.worked())
        job.it.system.expand_stream(f"{job.it.name}-orders", 2)
        status = until(lambda: (found := driver.ask(status=True))["job_model"] == 2 and found, WAIT_S)
        committed = source_of(status)["records"]
        assert began <= committed < len(job.sent), "what the round had reached counts, and it did not reach all"
        until(lambda: len(job.worked()) > committed + 100, WAIT_S)
        again = [number for number, times in Counter(number for number, _ in job.worked()).items() if times > 1]
        assert not again, "no work was thrown away"
    job.finish(driver)


@pytest.mark.soak
def test_a_folder_that_is_not_shared_is_no_place_for_state(
    cluster: Cluster, driver: Driver, world: Clustered, job_keys: Keys
) -> None:
    world.create(1, "orders", "counts")
    world.produce("orders", [("k", {"id": 1, "amount": 1}, FIRST_MS)])
    keys = job_keys(world.name) | {"state_uri": str(cluster.own / "state")}
    with pytest.raises(AssertionError, match="all of Spark's executors are rejected") as refused:
        driver.ask(start="one_expression", until="caught-up", **keys)
    for host in ("127.0.0.2", "127.0.0.3"):
        assert re.search(f"{host}: state_uri .*own/state is not the folder that the driver writes to: set", str(refused.value))
    assert not world.read("counts")


def test_each_task_stays_where_its_state_is(cluster: Cluster, driver: Driver, world: Clustered, job_keys: Keys) -> None:
    """Through many small rounds, larger ones, and a restart: each store is on one machine, and is made once."""
    rng = random.Random(16)
    sent = sent_of(rng, 4_500, "amount", 100)
    world.create(4, "orders")
    world.create(2, "counts", "dead")
    keys = job_keys(world.name, dead_letter_stream=f"{world.name}-dead")
    wanted = Counter[str]()
    for part in range(3):
        with running(driver, start="one_expression", until=None, **keys):
            for piece in range(5):
                mine = sent[part * 1_500 + piece * 300 :][:300]
                world.produce("orders", mine)
                wanted += Counter(key for key, value, _ in mine if isinstance(value, dict) and value["amount"] > 0)
                until(lambda now=dict(wanted): {one.key: one.value for one in world.read("counts", hr.Long())} == now, WAIT_S)
        stores = {machine: len(found) for machine, found in marks_of(cluster, world.name).items()}
        assert stores == {"machine-1": 2, "machine-2": 2}
    model = world.system.job_store(world.name).job_model()
    assert model is not None and model.version == 1
    kept = StoredLocality(world.system.metadata_store(world.name)).read_processor_locality().get_locality()
    assert Counter(kept.values()) == dict.fromkeys(MACHINES, 2)
    assert [one.location_id for one in model.sub_topologies[0].containers] == ["machine-1", "machine-2"]


SPOILT = {
    "no package": (f"mount -t tmpfs none {Path(hr.__file__).parent}", "No module named 'headrace.* install Headrace there"),
    "no Python": (f"mount --bind /dev/null {sys.executable}", "Cannot run program .* name a Python of the same version"),
    "stores that cannot be written": ('mount -o remount,bind,ro "$OWN"', "own/stores for the local stores cannot be written"),
    "another state folder": ('mount -t tmpfs none "$SHARED"', "is not the folder that the driver writes to"),
}


@pytest.mark.soak
def test_executors_that_cannot_do_the_work_get_none(
    cluster: Cluster, driver: Driver, world: Clustered, job_keys: Keys
) -> None:
    """Each is rejected by its host's name, with what to do, while the others work on."""
    world.create(4, "orders")
    world.create(2, "counts", "dead")
    world.produce("orders", [("k", {"id": 1, "amount": 1}, FIRST_MS)])
    keys = job_keys(world.name, dead_letter_stream=f"{world.name}-dead")
    hosts = {f"127.0.0.{number}": spoilt for number, spoilt in enumerate(SPOILT.values(), 10)}

    def rejected() -> dict[str, str]:
        found: dict[str, str] = driver.ask(status=True)["rejected_executors"]
        return found

    with running(driver, start="one_expression", until=None, **keys):
        with ExitStack() as machines:
            for host, (command, _) in hosts.items():
                machines.enter_context(cluster.joined(f"machine-{host}", host, command))
            until(lambda: rejected().keys() == hosts.keys(), WAIT_S, lambda: str(rejected()))
            for host, (_, said) in hosts.items():
                assert re.search(said, rejected()[host])
                assert "\n" not in rejected()[host] and "\tat " not in rejected()[host]
            world.produce("orders", [("k", {"id": 2, "amount": 1}, FIRST_MS)])
            until(lambda: [one.value for one in world.read("counts", hr.Long())][-1:] == [2], WAIT_S)
        until(lambda: not rejected(), WAIT_S)
        status = source_of(driver.ask(status=True))
        changes = [one for one in history_of(world.system.metadata_store(world.name)).values() if one.kind == "rebalance"]
    assert not changes and status["counters"].get("stores_restored", 0) <= 4, "no task was ever at a rejected executor"
    logged = re.findall(r"executor (\S+) on host (\S+) is rejected", (cluster.driver / "driver.log").read_text())
    mine = Counter(one for one in logged if one[1] in hosts)
    assert {host for _, host in mine} == hosts.keys() and set(mine.values()) == {1}, "each is said once"


def test_state_on_a_file_system_that_is_no_folder_of_the_machines(
    cluster: Cluster, driver: Driver, world: Clustered, job_keys: Keys
) -> None:
    """Its state comes back from there where the machines have lost theirs."""
    rng = random.Random(27)
    sent = sent_of(rng, 600, "amount", 30)
    world.create(4, "orders")
    world.create(2, "counts", "dead")
    keys = job_keys(world.name, dead_letter_stream=f"{world.name}-dead") | {"state_uri": f"fsspec+file://{cluster.shared}/remote"}
    wanted = Counter[str]()
    for part in (sent[:300], sent[300:]):
        world.produce("orders", part)
        wanted += Counter(key for key, value, _ in part if isinstance(value, dict) and value["amount"] > 0)
        driver.ask(start="one_expression", until="caught-up", **keys)
        status = source_of(driver.ask(wait=WAIT_S))
        assert {one.key: one.value for one in world.read("counts", hr.Long())} == wanted
        for folder in cluster.machines.values():
            shutil.rmtree(folder / "own" / "stores" / world.name)
    assert status["counters"]["stores_restored"] == 4
    assert list((cluster.shared / "remote" / world.name).rglob("*.arrow"))
