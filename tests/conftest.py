"""What all tests share: hypothesis profiles, a clean environment, and the rule for servers that are missing.

Spark is not started here.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NoReturn

import pytest
import typer.testing
from hypothesis import HealthCheck, settings

from support import class_archive
from support.failures import say_failures_at_once
from support.tiers import (
    forbid_servers,
    heaviest_files_first,
    keep_files_in_memory,
    leave_soaking_out,
    mark_soaking,
    mark_units,
)
from support.world import World, drop_kept_clients

pytest_plugins = ["headrace.testing.kafka_server", "support.fixtures"]  # one Kafka broker for all tests that need one

# A test's JVM lives for seconds: most of what its second compiler makes is never run. Every start of Spark in a test, or in a
# process that a test begins, takes half the processor's time without it, and a broker two thirds.
os.environ.setdefault("SPARK_SUBMIT_OPTS", class_archive.options(class_archive.SPARK))
os.environ.setdefault("KAFKA_OPTS", class_archive.options(class_archive.KAFKA))

# Typer's runner makes the tree of all commands anew for each call, which takes longer than most commands do.
typer.testing._get_command = cache(typer.testing._get_command)

IN_CI = os.environ.get("CI", "").lower() in {"1", "true", "yes"}

# Shared machines are slow at random: a deadline per example would fail tests that are right.
settings.register_profile("laptop", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# In CI the examples are the same at each run, so that a failure is the change's and can be had again; half as many do, as no
# run finds others than the one before.
settings.register_profile("ci", settings.get_profile("laptop"), derandomize=True, print_blob=True, max_examples=50)
settings.register_profile("thorough", settings.get_profile("laptop"), max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if IN_CI else "laptop"))


@pytest.hookimpl(trylast=True)  # when there is what writes to the terminal
def pytest_configure(config: pytest.Config) -> None:
    keep_files_in_memory(config.option.markexpr)
    say_failures_at_once(config)


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: the collector of garbage need not look at it again and again."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mark_soaking(items)
    leave_soaking_out(config, items)
    mark_units(items)
    if hasattr(config, "workerinput"):  # one of several processes
        heaviest_files_first(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.getvalue("dist") != "loadfile":
        return None
    from support.both_ends import FromBothEnds

    return FromBothEnds(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    """What `make test-unit` runs starts neither a broker nor Spark, and no fixture of it does."""
    with pytest.MonkeyPatch.context() as patched:
        if item.get_closest_marker("unit"):
            forbid_servers(patched)
        return (yield)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the developer's shell decides a test; the suite's own switches (HEADRACE_TEST_*) stay."""
    for variable in list(os.environ):
        if variable.startswith("HEADRACE_") and not variable.startswith("HEADRACE_TEST_"):
            monkeypatch.delenv(variable)


@pytest.fixture(autouse=True)
def no_clients_left() -> Iterator[None]:
    """A worker keeps its Kafka clients for the next round until it ends; the process of the tests would keep them all, each
    with threads that look for its broker. And a test that fails, or does not care, leaves its `World` open."""
    before = set(World.OPEN)
    yield
    for world in [world for key, world in World.OPEN.items() if key not in before]:
        world.close()
    drop_kept_clients()


@pytest.fixture
def without_server() -> Callable[[str, str], NoReturn]:
    """`without_server("Kafka", why)` ends a test whose server is missing: skipped on a laptop, failed in CI."""

    def end(server: str, why: str) -> NoReturn:
        text = f"{server} is missing: {why}"
        if IN_CI:
            pytest.fail(text, pytrace=False)
        pytest.skip(text)

    return end
