"""A storm: jobs on Spark under load, whose topic grows by Kafka's own admin, and drivers that are killed as it does.

One producer learns of new partitions at once, another goes by the old number for a long time. The first growth is left in
peace: the job has to take it without a restart of Spark. In each of the others the driver is killed, at a numbered step
of the change or at a random moment, and another one goes on. Then all that was written is judged.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from expansion.growing_job import OUTPUT_PARTITIONS, OUTPUTS, judge
from expansion.storm_child import Run
from headrace.testing.kafka_server import KafkaServer
from kafka_expansion.checker import stale_rows
from kafka_expansion.producers import Load, merged, read_ledger, running
from kafka_faults.family import ended, family_of
from support.broker import QUIET, checkpoints_of, read_topic
from support.checker import KillReport, Row
from support.children import Children, report_of
from support.log_states import state_of

CHILD = Path(__file__).with_name("storm_child.py")
KEYS, RATE_PER_S = 60, 250.0
WAIT_S = 180.0  # a start on a busy machine takes half a minute
STEPS = (2, 5, 9, 10, 11, 12)


def storm(
    folder: Path, seed: int, broker: KafkaServer, counts: Sequence[int], kills_per_growth: int, stale_s: float
) -> KillReport:
    """Let the topic grow from the first of `counts` to the last; nobody is killed in the first growth."""
    draw, report = random.Random(seed), KillReport()
    with Children(folder, CHILD) as children:
        grown = Grown(folder, broker, children, counts[0])
        loads = [
            Load(broker.bootstrap, grown.input, name, str(folder / name), RATE_PER_S, KEYS, stale)
            for name, stale in (("quick", 0.0), ("stale", stale_s))
        ]
        with running(*loads):
            grown.start(dies_in_change(draw, 1))
            grown.wait_for_model_of(counts[0])
            grown.expand(counts[1])
            grown.wait_for_model_of(counts[1])
            for count in counts[2:]:
                grown.expand(count)
                grown.kill(draw, report)
                for _ in range(kills_per_growth - 1):
                    grown.start(f"kill:start:{draw.choice(STEPS)}:{draw.randrange(1, 3)}")
                    grown.kill(draw, report)
                grown.start(dies_in_change(draw, 0) if count != counts[-1] else "")
                grown.wait_for_model_of(count)
            time.sleep(1.0)
        grown.kill(draw, report)
        grown.start(until="caught-up")
        code = children.wait(grown.pid)
        assert code == 0, f"ended with {code}: {grown.told()}"
        grown.judge([read_ledger(load.ledger) for load in loads], counts[0], report)
    return report


def dies_in_change(draw: random.Random, peaceful: int) -> str:
    """The trap of a run that dies in a change behind so many `peaceful` ones: each has both jobs pass all steps."""
    return f"kill:start:{draw.choice(STEPS)}:{2 * (1 + peaceful) + draw.randrange(1, 3)}"


class Grown:
    """The two jobs, their topic, and the run that is at work."""

    def __init__(self, folder: Path, broker: KafkaServer, children: Children, partitions: int) -> None:
        self.name = f"grown-{uuid.uuid4().hex[:8]}"
        self._folder, self._broker, self._children = folder, broker, children
        self._settings = {**broker.client_settings(), **QUIET}
        self._admin = AdminClient(self._settings)
        self._before, self._grown_ms = partitions, 0
        topics = {self.input: partitions}
        topics |= {f"{self.name}-stateful-{part}": OUTPUT_PARTITIONS for part in OUTPUTS}
        topics |= {f"{self.name}-stateless-passed": OUTPUT_PARTITIONS}
        for made in self._admin.create_topics([NewTopic(name, count, 1) for name, count in topics.items()]).values():
            made.result(WAIT_S)
        self._below: tuple[int, ...] = ()  # processes of the run before

    @property
    def input(self) -> str:
        return f"{self.name}-in"

    def expand(self, partitions: int) -> None:
        """By Kafka's own admin: Headrace is told by nobody."""
        self._grown_ms = self._grown_ms or time.time_ns() // 1_000_000
        self._admin.create_partitions([NewPartitions(self.input, partitions)])[self.input].result(WAIT_S)

    # --- runs -------------------------------------------------------------------------------------------------------

    def start(self, traps: str = "", until: str | None = None) -> None:
        """`traps`: the numbered step at which it kills itself, if it does."""
        left, self._below = ended(self._below, within_s=30.0), ()
        assert not left, f"processes {left} still ran half a minute after their driver had died"
        servers, files = self._broker.bootstrap, self._children.files()
        self._run = Run(self.name, servers, str(self._folder), until=until, traps=traps, **files)
        self._dies = bool(traps)
        self.pid = self._children.start(self._run)

    def kill(self, draw: random.Random, report: KillReport) -> None:
        """Kill the run that is at work at a random moment; one that kills itself at a step is waited for."""
        where = "at a numbered step" if self._dies else "at a random moment"
        if not self._dies:
            self._wait(lambda: any(line["stateful"]["at_work"] for line in self.seen()), "records of the run")
            time.sleep(draw.uniform(0.0, 2.0))
            self._below = family_of(self.pid).below
            os.kill(self.pid, signal.SIGKILL)
        code = self._children.wait(self.pid)
        assert code == -signal.SIGKILL, f"ended with {code}: {self.told()}"
        report.fault(where, "SIGKILL", landed=True)
        self._check_seen(report)

    def seen(self) -> list[dict[str, Any]]:
        """What this run's jobs looked like, at each change."""
        return [json.loads(line) for line in self._run.seen.read_text().splitlines()] if self._run.seen.exists() else []

    def wait_for_model_of(self, partitions: int) -> None:
        """Until both jobs work under a model of so many partitions."""

        def is_there() -> bool:
            return any(all(of["partitions"] == partitions and of["at_work"] for of in now.values()) for now in self.seen())

        self._wait(is_there, f"job models of {partitions} partitions")

    def _wait(self, what: Callable[[], bool], title: str) -> None:
        deadline_s = time.monotonic() + WAIT_S
        while not what():
            assert not Path(self._run.report).exists(), f"the jobs ended while {title} were waited for: {self.told()}"
            assert time.monotonic() < deadline_s, f"{title} did not come: {self.told()}"
            time.sleep(0.05)

    def told(self) -> str:
        told = str(report_of(self._run)) if Path(self._run.report).exists() else ""
        for suffix in ("log", "said", "seen"):
            path = Path(f"{self._run.report}.{suffix}")
            if path.exists():
                told += "\n" + path.read_text()[-3000:]
        return told

    # --- the verdict ------------------------------------------------------------------------------------------------

    def _check_seen(self, report: KillReport) -> None:
        """Under one process the models follow each other on one Spark, and a job with state keeps its tasks."""
        seen = self.seen()
        for build in ("stateful", "stateless"):
            sparks = {now[build]["spark"] for now in seen}
            assert len(sparks) <= 1, f"{build}: Spark was started anew: {sparks}"
            report.checked(f"{build}: models under one Spark", len({now[build]["model"] for now in seen}))
        tasks = {now["stateful"]["tasks"] for now in seen}
        assert tasks <= {self._before}, f"a stateful job had {tasks} tasks, expected {self._before}"
        grown = [now["stateless"] for now in seen if now["stateless"]["tasks"] != now["stateless"]["partitions"]]
        assert not grown, f"a stateless job has a task for each partition: {grown}"

    def judge(self, ledgers: Sequence[Any], before: int, report: KillReport) -> None:
        inputs = read_topic(self._settings, self.input)
        report.checked("records by the old number of partitions", stale_rows(inputs, self._grown_ms, before))
        for build in ("stateful", "stateless"):
            own = KillReport()

            def rows(part: str, build: str = build) -> list[Row]:
                return inputs if part == "in" else read_topic(self._settings, f"{self.name}-{build}-{part}")

            checkpoints = checkpoints_of(self._settings, f"{self.name}-{build}")

            def state(store: str, checkpoints: Any = checkpoints) -> dict[tuple[bytes, bytes], bytes]:
                return state_of(checkpoints, self._folder / "state", store)

            judge(rows, merged(ledgers), own, state if build == "stateful" else None, self._before)
            for what, count in own.checks.items():
                report.checked(f"{build}: {what}", count)
