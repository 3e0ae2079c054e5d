"""Long runs against one broker, for `make soak`: all steps killed and stopped, the broker killed, every planted bug seen."""

from __future__ import annotations

import random
import time
from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from chaos.checker import KillReport
from chaos.children import Children, report_of
from headrace.testing.kafka_server import KafkaServer
from kafka_faults.broker import QUIET
from kafka_faults.killing import KAFKA_STEPS, START_STEPS, every_step_landed, kill_at_moments, kill_at_steps
from kafka_faults.schedules import SCHEDULES
from kafka_faults.stopping import STOPS, stop_and_take_over
from kafka_faults.world import SERVER, WAIT_S, World, told

STEPS = (*KAFKA_STEPS, *START_STEPS)


def kafka_run(folder: Path, seed: int, broker: KafkaServer, kills_per_step: int) -> KillReport:
    """Faults of every kind on one application, then the verdict; the same seed draws the same faults."""
    report = KillReport()
    with Children(folder, SERVER) as children:
        world = World(broker.client_settings(), folder, seed, children)
        kill_at_steps(world, seed, STEPS * kills_per_step, report)
        kill_at_moments(world, seed, 2 * kills_per_step, (0.3, 3.0), report)
        stop_and_take_over(world, seed, STOPS, report)
        kill_broker(world, random.Random(seed), broker, report)
        world.finish()
        world.judge(report)
    every_step_landed(report, STEPS)
    return report


def kill_broker(world: World, draw: random.Random, broker: KafkaServer, report: KillReport) -> None:
    """Kill the broker while the job is at work, and start it again: the job has to go on by itself."""
    world.produce(300)
    run = world.run_of(keys={"max_records_per_round": 20})
    pid = world.children.start(run)
    time.sleep(draw.uniform(1.5, 3.0))
    broker.kill()
    time.sleep(draw.uniform(0.1, 1.0))
    broker.restart()
    code = world.children.wait(pid)
    assert code == 0, f"ended with {code}: {told(run)}"
    report.fault("broker", "SIGKILL", landed=True)


def see_every_planted_bug(folder: Path, seed: int, broker: KafkaServer) -> int:
    """Run the schedule of each planted bug; the number of them. `AssertionError` for one that is not seen."""
    with Children(folder, SERVER) as children:
        for schedule in dict.fromkeys(SCHEDULES.values()):  # the code as it is comes through
            schedule(World(broker.client_settings(), folder, seed, children), "")
        for bug, schedule in SCHEDULES.items():
            world = World(broker.client_settings(), folder, seed, children)
            try:
                schedule(world, bug)
            except AssertionError:
                continue
            raise AssertionError(f"planted bug {bug!r} was not seen, seed {seed}")
    return len(SCHEDULES)


FORGETS = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "2000"}
QUIET_S = 150.0
STOPPED_S = 80.0


def quiet_partition_run(folder: Path, seed: int, broker: KafkaServer, quiet_s: float = QUIET_S) -> KillReport:
    """One partition is quiet for `quiet_s` while the job runs; then the job is stopped for longer than positions are kept.

    `broker` has the settings `FORGETS`: positions that nobody commits again are gone after a minute.
    """
    report = KillReport()
    pause_s = 0.1
    with Children(folder, SERVER) as children:
        world = World(broker.client_settings(), folder, seed, children)
        world.produce(30)
        world.finish(keys={"containers": 3})
        world.produce(int(quiet_s / pause_s), range(2))
        run = world.finish(keys={"containers": 3}, pause_s=pause_s, run_s=2 * quiet_s)
        source = report_of(run)["status"]["sub_topologies"]["source"]
        assert source["counters"]["records"] == int(quiet_s / pause_s), source
        positions = positions_of(world)
        assert all(offset >= 0 for offset in positions.values()), f"positions were forgotten while the job ran: {positions}"
        report.checked("positions, while a partition was quiet", len(positions))
        time.sleep(STOPPED_S)
        forgotten = [offset for offset in positions_of(world).values() if offset < 0]
        assert forgotten, "the broker has forgotten nothing: the stop was too short to show anything"
        world.produce(60)
        world.finish()
        world.judge(report)
    return report


def positions_of(world: World) -> dict[str, int]:
    """The positions that the groups of the application have; -1 for one that is gone."""
    admin = AdminClient({**world.settings, **QUIET})
    found: dict[str, int] = {}
    for task, checkpoint in world.checkpoints().items():
        group = f"{world.name}.{checkpoint['round_id']['sub_topology'] or 'source'}"
        answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)], request_timeout=WAIT_S)[group]
        offsets = {(p.topic, p.partition): p.offset for p in answer.result().topic_partitions or ()}
        for ssp in checkpoint["positions"]:
            topic, _, partition = ssp.removeprefix("kafka.").rpartition(".")
            found[f"{task} {ssp}"] = offsets.get((topic, int(partition)), -1)
    return found
