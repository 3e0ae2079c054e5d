"""A killed process leaves its transaction open until that times out: who only looks, or starts a job, does not wait for it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Producer

import headrace as hr
from chaos.usual_job import usual
from chaos.world import SeededWorld
from headrace.adapters.kafka import compacted
from headrace.adapters.kafka.job_entries import Held
from headrace.adapters.kafka.names import metadata_topic
from headrace.config.loading import Config
from headrace.driver.planning.job_planner import check_before_engine
from headrace.model.commits import DriverLease
from headrace.wiring.launch import topology_before_engine
from support.broker import QUIET
from support.checker import KillReport
from support.children import Children
from support.world import Place

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(120)]
SEED = 20291
BEFORE_COMMIT = ("kafka", 8)


def looked(world: SeededWorld) -> None:
    """What a start does before it takes the seconds of Spark, and what the commands do."""
    topology = topology_before_engine(usual(world.run_of()).topology())
    with hr.open_system(world.url) as system:
        check_before_engine(topology, Config(), system, system.job_store(world.name, exactly_once=True), print)
    with hr.elasticity(world.name, world.url) as scales:
        assert scales.preview(2).effects


def test_a_killed_containers_transaction_is_not_waited_for(
    tmp_path: Path, children: Children, on_kafka: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compacted, "READ_S", 5.0)
    report = KillReport()
    world = SeededWorld(tmp_path, on_kafka, children, SEED)
    world.produce(60)
    world.killed(BEFORE_COMMIT, count=3)
    assert world.is_in_transaction()
    looked(world)
    assert world.is_in_transaction(), "it has ended meanwhile, so nothing would have waited"
    world.finish(stale_us=0)
    world.judge(report)
    report.verify(landed_min=0)


def test_a_killed_drivers_transaction_is_waited_for_a_moment(
    tmp_path: Path, children: Children, on_kafka: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compacted, "READ_S", 5.0)
    world = SeededWorld(tmp_path, on_kafka, children, SEED)
    world.produce(60)
    world.finish()
    killed = Producer({**world.settings, **QUIET, "transactional.id": "killed"})
    killed.init_transactions(30)
    killed.begin_transaction()
    heartbeat = Held(DriverLease("killed", "another-host", 17, "1@1", "boot", 0), 0)  # it counts, and is an old one
    for key, value in ((b"job/holder", msgspec.json.encode(heartbeat)), (b"job-models/current", b"never")):
        killed.produce(metadata_topic(world.name), value, key, 0)
    killed.flush(30)
    looked(world)
    killed.abort_transaction(30)
