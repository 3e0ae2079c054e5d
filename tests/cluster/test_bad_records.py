"""A record that fails in every attempt at the location of its task: the last attempt is run elsewhere, where it declines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cluster.conftest import Driver
from cluster.machines import Cluster
from cluster.test_cluster import FIRST_MS, WAIT_S, Clustered
from support.fixtures import only_on

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
Keys = Callable[..., dict[str, Any]]
WORLD, place = Clustered, only_on("kafka")


@pytest.mark.parametrize(("ends", "said"), [("worker", "a worker process died"), ("executor", "an executor was lost")])
def test_a_record_that_ends_its_worker_process_or_its_executor_ends_the_job(
    cluster: Cluster, driver: Driver, world: Clustered, job_keys: Keys, ends: str, said: str
) -> None:
    world.create(2, "orders", "counts")
    world.produce("orders", [("a", {"id": 1, "ends": ends}, FIRST_MS)])
    before = driver.ask(call="cluster.application:with_failures_max", most=2)["value"]
    try:
        driver.ask(start="deadly", until=None, **job_keys(world.name))
        with pytest.raises(AssertionError, match=rf"RoundFailedError: .* failed 2 times, .* {said} while .*-orders partition"):
            driver.ask(wait=WAIT_S)
    finally:
        driver.ask(stop=True)
        driver.ask(call="cluster.application:with_failures_max", most=before)
