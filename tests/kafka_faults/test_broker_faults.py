"""A broker that is killed in the middle of a job, forgets positions, or ends transactions that take too long."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from chaos.world import SeededWorld
from headrace.testing.kafka_server import KafkaServer
from kafka_faults.soaking import kill_broker
from support.broker import QUIET
from support.checker import KillReport
from support.children import Children, log_of, report_of, told
from support.fixtures import place_on
from support.world import WAIT_S, Place, waited

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]
SEED = 20272


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaServer]:
    """One of their own for tests that kill it."""
    with KafkaServer() as server:
        yield server


def test_a_job_goes_on_when_its_broker_is_killed_and_comes_back(
    tmp_path: Path, children: Children, broker: KafkaServer
) -> None:
    report = KillReport()
    world = SeededWorld(tmp_path, place_on(broker), children, SEED)
    kill_broker(world, random.Random(SEED), broker, report)
    world.judge(report)
    print(report)
    report.verify()


def test_a_round_that_takes_longer_than_a_transaction_may_is_cut_short_and_goes_on(
    tmp_path: Path, children: Children, on_kafka: Place
) -> None:
    report = KillReport()
    world = SeededWorld(tmp_path, on_kafka, children, SEED)
    world.produce(450)
    run = world.finish(
        keys={"kafka.transaction.timeout.ms": "1200", "max_records_per_round": 1000, "containers": 1}, pause_s=0.004
    )
    source = report_of(run)["status"]["sub_topologies"]["source"]
    assert source["records"] == 450 and source["round"] > 1, source
    assert "rounds are cut short after 400" in log_of(run)
    world.judge(report)
    report.verify(landed_min=0)


def test_a_transaction_that_the_broker_has_ended_is_worked_off_again(
    tmp_path: Path, children: Children, on_kafka: Place
) -> None:
    report = KillReport()
    world = SeededWorld(tmp_path, on_kafka, children, SEED)
    world.produce(100)
    run, pid = world.stopped(("kafka", 8), count=2, keys={"kafka.transaction.timeout.ms": "1500"})
    waited(lambda: not world.is_in_transaction(), otherwise="the broker did not end the transaction")
    assert world.woken(pid) == 0, told(run)
    report.fault("kafka 8", "SIGSTOP", landed=True)
    world.judge(report)
    report.verify()


def test_a_transaction_timeout_that_the_broker_does_not_allow_is_refused_at_start(
    tmp_path: Path, children: Children, on_kafka: Place
) -> None:
    world = SeededWorld(tmp_path, on_kafka, children, SEED)
    run = world.run_of(keys={"kafka.transaction.timeout.ms": "1000000"})
    assert children.finish(run) == 1
    assert report_of(run)["error"] == "ConfigError"
    assert "kafka.transaction.timeout.ms = 1000000" in report_of(run)["message"]
    assert "allows at most 900000" in report_of(run)["message"]


def test_positions_that_the_broker_has_forgotten_are_found_again(tmp_path: Path, children: Children, on_kafka: Place) -> None:
    """As after a long stop, by deletion of the groups: the checkpoints' topic is the record."""
    report = KillReport()
    world = SeededWorld(tmp_path, on_kafka, children, SEED)
    world.produce(100)
    world.finish()
    groups = forget_groups(world)
    assert len(groups) == 3, groups
    world.produce(60)
    run, pid = world.stopped(("kafka", 1), count=2)  # and again while it runs
    forget_groups(world)
    assert world.woken(pid) == 0, told(run)
    world.judge(report)
    report.verify(landed_min=0)


def forget_groups(world: SeededWorld) -> list[str]:
    """Delete the application's groups, with all their positions; their names."""
    admin = AdminClient({**world.settings, **QUIET})
    known = admin.list_consumer_groups(request_timeout=WAIT_S).result().valid
    mine = sorted(group.group_id for group in known if group.group_id.startswith(f"{world.name}."))
    for future in admin.delete_consumer_groups(mine, request_timeout=WAIT_S).values():
        future.result()
    return mine
