"""A cluster of one machine: there is no other one where Spark could try again what has failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import headrace as hr
from cluster.conftest import Driver, need_machines
from cluster.machines import Cluster
from cluster.test_cluster import FIRST_MS, WAIT_S, Clustered
from support.fixtures import only_on

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
Keys = Callable[..., dict[str, Any]]
WORLD, place = Clustered, only_on("kafka")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    need_machines()
    with Cluster(tmp_path_factory.mktemp("cluster"), ["machine-1"]) as started:
        yield started


@pytest.mark.usefixtures("cluster")
def test_the_record_on_which_an_expression_raises_is_found(driver: Driver, world: Clustered, job_keys: Keys) -> None:
    """Each look for it is a round that fails."""
    world.create(1, "orders", "filtered", "dead")
    world.produce("orders", [(f"k{n}", {"id": n, "amount": "x" if n == 2 else "1"}, FIRST_MS) for n in range(4)])
    driver.ask(start="casting", until="caught-up", **job_keys(world.name))
    try:
        driver.ask(wait=WAIT_S)
    finally:
        driver.ask(stop=True)
    assert sorted(record.key for record in world.read("filtered", hr.Json())) == sorted(f"k{n}" for n in (0, 1, 3))
    assert [record.key for record in world.read("dead", hr.Json())] == ["k2"]
