"""Kills and stops jobs at random steps for long: `make soak`, or `python scripts/soak.py [MINUTES] [SEED]`.

Each run has a seed of its own, printed before it starts; a failure ends the soak, and its seed gives the same run again
(as far as the order of threads allows). A run kills at every numbered step of the log's commit and of a start, lets the
job finish, and compares all that it wrote with models and with an undisturbed run; then the same on Kafka, where drivers
are stopped and the broker is killed, too; then it judges random topologies by plain models, one on each system with a
kill. Then the model of a group is searched, with more leaders and attempts than a test has time for. Last, each planted bug
has to be seen, and a job on Spark has to come through 200 kills of driver, JVM, Python workers and broker over a million
records.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from commit_model.soaking import search_groups  # noqa: E402
from headrace.testing.kafka_server import KafkaServer  # noqa: E402
from kafka_faults.soaking import FORGETS, kafka_run, log_run, quiet_partition_run, see_every_planted_bug  # noqa: E402
from kafka_faults.storm import BROKER_HEAP_MB, all_landed, storm  # noqa: E402
from support.checker import KillReport  # noqa: E402  (found on the path set above)
from topologies.soaking import topologies_run  # noqa: E402

KILLS_PER_STEP = 4
STORM_KILLS = 200


def main(minutes: float, seed: int | None) -> int:
    ends_s = time.monotonic() + minutes * 60
    log, kafka = KillReport(), KillReport()
    runs = 0
    with KafkaServer() as broker:
        while runs == 0 or time.monotonic() < ends_s:
            drawn = random.randrange(2**32) if seed is None else seed + runs
            print(f"run {runs + 1}, seed {drawn}", flush=True)
            with tempfile.TemporaryDirectory(prefix="headrace-soak-") as folder:
                report = log_run(Path(folder), drawn, KILLS_PER_STEP)
                _add(log, report, "the log")
            with tempfile.TemporaryDirectory(prefix="headrace-soak-") as folder:
                _add(kafka, kafka_run(Path(folder), drawn, broker, KILLS_PER_STEP), "Kafka")
            with tempfile.TemporaryDirectory(prefix="headrace-soak-") as folder:
                topologies, records = topologies_run(Path(folder), drawn, broker)
            print(f"  random topologies: {topologies}, {records:,} records compared", flush=True)
            runs += 1
        with tempfile.TemporaryDirectory(prefix="headrace-soak-") as folder:
            bugs = see_every_planted_bug(Path(folder), drawn, broker)
    print(f"{search_groups():,} states of groups searched", flush=True)
    with KafkaServer(properties=FORGETS) as broker, tempfile.TemporaryDirectory(prefix="headrace-soak-") as folder:
        _add(kafka, quiet_partition_run(Path(folder), drawn, broker), "Kafka, positions forgotten")
    with KafkaServer(heap_mb=BROKER_HEAP_MB) as broker, tempfile.TemporaryDirectory(prefix="headrace-soak-") as folder:
        print(f"a storm of {STORM_KILLS} kills, seed {drawn}", flush=True)
        report = storm(Path(folder), drawn, broker, STORM_KILLS)
        all_landed(report, STORM_KILLS)
        _add(kafka, report, "Kafka, a storm")
    print(f"the log\n{log}\n\nKafka\n{kafka}\n")
    print(f"{runs} runs, {_kills(log)} kills on the log, {_kills(kafka)} on Kafka, {bugs} planted bugs seen: all as it must be")
    return 0


def _add(total: KillReport, report: KillReport, system: str) -> None:
    report.verify(landed_min=0 if not report.tried else 1)
    total.tried.update(report.tried)
    total.landed.update(report.landed)
    total.checks.update(report.checks)
    print(f"  {system}: {_kills(report)} kills, {report.checks.total():,} checks", flush=True)


def _kills(report: KillReport) -> int:
    return sum(count for (_, kind), count in report.landed.items() if kind == "SIGKILL")


if __name__ == "__main__":
    given = sys.argv[1:]
    sys.exit(main(float(given[0]) if given else 30.0, int(given[1]) if len(given) > 1 else None))
