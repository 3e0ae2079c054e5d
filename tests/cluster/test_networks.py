"""Driver and executor behind addresses of their own: what goes by a wrong address, such as one of loopback, does not arrive."""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from cluster.conftest import Driver
from cluster.machines import until
from cluster.networks import NoNetworksError, two_networks
from headrace.adapters.spark.standalone import StandaloneCluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
WAIT_S = 150.0


@dataclass(frozen=True)
class Apart:
    """A master beside the driver, a worker in the other network, and a folder for the log that both see."""

    root: Path
    driver: Path
    master: str
    process: Driver | None = None

    def ask(self, **command: Any) -> dict[str, Any]:
        assert self.process is not None
        return self.process.ask(**command)

    def keys(self, name: str) -> dict[str, Any]:
        places = {"local_store_dir": str(self.root / "stores"), "state_uri": str(self.root / "state")}
        return {"name": name, "system": f"log:{self.root / 'data'}", "trigger_interval_ms": 20, **places}

    def produce(self, stream: str, values: list[dict[str, Any]]) -> None:
        with hr.open_system(f"log:{self.root / 'data'}") as log:
            log.create_stream(stream, 2)
            log.produce(stream, [(f"k{one['id'] % 7}", one) for one in values], key=hr.String(), value=hr.Json())


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apart]:
    root = tmp_path_factory.mktemp("apart")
    (root / "driver" / "tmp").mkdir(parents=True)
    try:
        with two_networks() as (here, there), StandaloneCluster(root, here.address, here.enter) as cluster:
            cluster.add_worker("worker", there.address, root / "worker", {"HOME": str(root)}, there.enter)
            cluster.wait_for("worker")
            found = Apart(root, root / "driver", cluster.master)
            driver = Driver(found, here.enter, here.address)
            try:
                yield replace(found, process=driver)
            finally:
                driver.close()
    except NoNetworksError as error:
        pytest.fail(str(error), pytrace=False) if os.environ.get("CI") else pytest.skip(str(error))


def test_an_application_with_expressions_and_state_runs_there(apart: Apart) -> None:
    """Rows are routed, state is kept, and the executor is known by its own address."""
    rng = random.Random(77)
    values = [{"id": number, "amount": rng.randrange(5)} for number in range(400)]
    apart.produce("apart-orders", values)
    apart.ask(start="one_expression", until="caught-up", **apart.keys("apart"))
    status = apart.ask(wait=WAIT_S)
    assert status["rejected_executors"] == {}
    with hr.open_system(f"log:{apart.root / 'data'}") as log:
        found = {one.key: one.value for one in log.consume("apart-counts", key=hr.String(), value=hr.Long())}
    assert found == Counter(f"k{one['id'] % 7}" for one in values if one["amount"] > 0)
    said = (apart.driver / "driver.log").read_text()
    (address,) = set(re.findall(r"executors reach this process at (\S+)", said))
    assert address == apart.master.removeprefix("spark://").partition(":")[0]


@pytest.mark.soak
def test_a_round_that_takes_long_hears_that_it_is_to_stop(apart: Apart) -> None:
    """The executor connects with a port of the driver."""
    log = apart.root / "worked.log"
    apart.produce("late-orders", [{"id": number} for number in range(6_000)])
    apart.produce("late-payments", [{"id": 0}])
    apart.ask(start="slow", until=None, log=str(log), pause_s=0.002, **apart.keys("late"))
    try:
        until(lambda: log.exists() and len(log.read_text().splitlines()) > 1_000, WAIT_S)
    finally:
        asked_s = time.time()
        status = apart.ask(stop=True)
    assert status["sub_topologies"]["source"]["records"] < 6_000, json.dumps(status)
    time.sleep(4)  # longer than Spark takes to end a worker
    last_s = max(float(line.partition(" ")[2]) for line in log.read_text().splitlines())
    assert last_s < asked_s + 1.5, "the worker has stopped by itself; Spark ends one after 2 s at the earliest"
