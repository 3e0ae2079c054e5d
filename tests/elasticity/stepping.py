"""Single steps of a job under a test's control: a plan without rounds, some rounds, and what is committed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.client.scales import Elasticity
from headrace.client.startpoints import Startpoints
from headrace.model.checkpoint import Checkpoint
from headrace.testing import Driver


def rounds(driver: Driver, number: int) -> int:
    """Up to so many rounds of the source, not all that there is to do; how many there were."""
    (runner,) = driver._opened.runners
    for done in range(number):
        planned = driver._scheduler.next(runner, driver.now_us / 1e6, driver.now_us)
        if planned is None:
            return done
        driver._run_round(runner, planned)
    return number


def checkpoints(driver: Driver) -> Mapping[str, Checkpoint]:
    return {str(task): one for runner in driver._opened.runners for task, one in runner.checkpoints.items()}


def replan(driver: Driver) -> None:
    """Make the plan that is due, without a round."""
    requests = (*driver._requests.found(0.0, with_streams=False), *driver._scales())
    driver._replan(requests)


def scales_of(driver: Driver) -> Elasticity:
    """To be used in a `with`."""
    return Elasticity(driver.app.name, driver._config(), driver.app.topology(), driver._system)


def startpoints_of(driver: Driver) -> Startpoints:
    """To be used in a `with`."""
    return Startpoints(driver.app.name, driver._config(), driver.app.topology(), driver._system)


def history(driver: Driver) -> list[Any]:
    with scales_of(driver) as scales:
        return list(scales.history())
