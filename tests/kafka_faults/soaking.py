"""Long runs against one broker, for `make soak`: all steps killed and stopped, the broker killed, every planted bug seen."""

from __future__ import annotations

import random
import time
from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from chaos.killing import every_step_landed, finish_and_judge, kill_at_moments, kill_at_steps, steps_of
from chaos.stopping import KAFKA_STOPS, stop_and_take_over
from chaos.world import EVERYTHING, SeededWorld
from headrace.testing.kafka_server import KafkaServer
from kafka_faults.schedules import SCHEDULES
from support.broker import QUIET
from support.checker import KillReport
from support.children import Children, report_of, told
from support.world import WAIT_S, Place


def log_run(folder: Path, seed: int, kills_per_step: int) -> KillReport:
    """Kills at every step and at random moments of one application on a log, then the verdict."""
    report = KillReport()
    with Children(folder) as children:
        world = SeededWorld(folder, Place(), children, seed, EVERYTHING)
        kill_at_steps(world, seed, steps_of("log") * kills_per_step, report)
        kill_at_moments(world, seed, 2 * kills_per_step, (0.1, 1.0), report)
        finish_and_judge(world, report)
        world.close()
    every_step_landed(report, "log")
    return report


def kafka_run(folder: Path, seed: int, broker: KafkaServer, kills_per_step: int) -> KillReport:
    """Faults of every kind on one application, then the verdict; the same seed draws the same faults."""
    report = KillReport()
    place = Place(broker.bootstrap, broker.client_settings())
    with Children(folder) as children:
        world = SeededWorld(folder, place, children, seed, EVERYTHING)
        kill_at_steps(world, seed, steps_of("kafka") * kills_per_step, report)
        kill_at_moments(world, seed, 2 * kills_per_step, (0.3, 3.0), report)
        stop_and_take_over(world, seed, KAFKA_STOPS, report)
        kill_broker(world, random.Random(seed), broker, report)
        finish_and_judge(world, report)
        world.close()
    every_step_landed(report, "kafka")
    return report


def kill_broker(world: SeededWorld, draw: random.Random, broker: KafkaServer, report: KillReport) -> None:
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
    place = Place(broker.bootstrap, broker.client_settings())
    with Children(folder) as children:
        for schedule in dict.fromkeys(SCHEDULES.values()):  # the code as it is comes through
            schedule(SeededWorld(folder, place, children, seed), "")
        for bug, schedule in SCHEDULES.items():
            world = SeededWorld(folder, place, children, seed)
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
    place = Place(broker.bootstrap, broker.client_settings())
    with Children(folder) as children:
        world = SeededWorld(folder, place, children, seed)
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


def positions_of(world: SeededWorld) -> dict[str, int]:
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
