"""Three machines, and one Spark for all tests of this folder; its executors run into traps that tests set."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from cluster.conftest import Driver, job_keys_of, need_machines
from cluster.machines import until
from cluster_faults.machines import FaultyCluster
from cluster_faults.traps import Traps

MACHINES = ("machine-1", "machine-2", "machine-3")
LOST_S = 10  # after so long an executor that does not answer counts as lost
BACK_S = 90.0
SETTINGS = {
    "spark.executorEnv.PYTHONPATH": os.pathsep.join([str(Path(hr.__file__).parents[1]), str(Path(__file__).parents[1])]),
    "spark.cores.max": "3",
    "spark.executor.cores": "1",
    "spark.network.timeout": f"{LOST_S}s",
    "spark.network.timeoutInterval": "1s",
    "spark.executor.heartbeatInterval": "1s",
}


@pytest.fixture(scope="package")
def all_machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyCluster]:
    """Of which the first alone has a worker, before a test starts others."""
    need_machines()
    with FaultyCluster(tmp_path_factory.mktemp("faults"), MACHINES, begin_with=1) as started:
        for name in MACHINES:
            (started.root / name / "own").mkdir(parents=True, exist_ok=True)
            (started.root / name / "own" / "disk").write_text(f"disk-{name[-1]}")
        yield started


@pytest.fixture(scope="package")
def traps(all_machines: FaultyCluster) -> Traps:
    return Traps(all_machines.shared / "traps")


@pytest.fixture(scope="package")
def driver(all_machines: FaultyCluster, traps: Traps) -> Iterator[Driver]:
    settings = SETTINGS | {f"spark.executorEnv.{name}": value for name, value in traps.environment.items()}
    started = Driver(all_machines, applications="cluster_faults.application", more=settings)
    yield started
    started.close()


@pytest.fixture
def cluster(all_machines: FaultyCluster, driver: Driver) -> Iterator[FaultyCluster]:
    """With an executor on each machine, before the test and after it."""
    complete(all_machines, driver)
    yield all_machines
    complete(all_machines, driver)


def complete(cluster: FaultyCluster, driver: Driver) -> None:
    for name in cluster.there:
        cluster.thaw(name)
    cluster.start(*(name for name in MACHINES if name not in cluster.there))
    until(lambda: driver.ask(executors=True)["executors"] == len(MACHINES), BACK_S)


@pytest.fixture
def job_keys(all_machines: FaultyCluster, kafka_server: Any) -> Callable[..., dict[str, Any]]:
    return job_keys_of(all_machines, kafka_server)
