"""A group whose processors run their rounds on Spark: what befalls the driver does not befall Spark's workers with it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from groups.group import Group, group_on

pytestmark = [pytest.mark.chaos, pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(600)]
TERMS: dict[str, Any] = {"on_spark": True, "run_s": 500.0, "session_ms": 10_000}
WITHIN_S = 120.0  # a Spark starts in 10 s and more where several do


@pytest.fixture
def group(kafka_server: Any, real_zookeeper: Any, tmp_path: Path) -> Iterator[Group]:
    with group_on(kafka_server, f"zookeeper://{real_zookeeper.server.address}/headrace", tmp_path) as made:
        yield made


def test_processors_are_killed_and_sleep_while_spark_runs_their_rounds(group: Group) -> None:
    for id_ in "abc":
        group.start(id_, **TERMS)
        group.await_shares(*"abc"[: "abc".index(id_) + 1], within_s=WITHIN_S)
    with group.sending(every_s=0.1):
        for id_ in ("b", "a"):  # another one, and the leader
            group.kill(id_)
            group.await_shares(*(set("abc") - {id_}), within_s=WITHIN_S)
            group.start(id_, **TERMS)
            group.await_shares(*"abc", within_s=WITHIN_S)
        for id_ in ("b", "c"):  # c leads, as it has been there for longest
            group.kill(id_, signal.SIGSTOP)
            group.await_shares(*(set("abc") - {id_}), within_s=WITHIN_S)
            group.kill(id_, signal.SIGCONT)
            group.await_shares(*"abc", within_s=WITHIN_S)
        for id_ in "abc":  # one after the other
            group.stop(id_)
            group.start(id_, **TERMS)
            group.await_shares(*"abc", within_s=WITHIN_S)
    group.await_all(WITHIN_S)
    group.stop_all()
    assert group.check() >= 1_000
