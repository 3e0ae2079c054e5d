"""The tests' side of `child.py`: an application's topics on a broker, its seeded input, its runs, and the verdict on it."""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from chaos.checker import KillReport, Row, partition_of
from chaos.children import Children, report_of
from chaos.states import state_of
from chaos.verdict import judge_job
from kafka_faults.broker import QUIET, checkpoints_of, is_in_transaction, read_topic
from kafka_faults.child import Run

SERVER = Path(__file__).with_name("child.py")
INPUTS = 3
KEYS, GROUPS = 40, 11
WAIT_S = 60


class World:
    """One application on a broker. A context manager that leaves nothing running behind.

    `settings` reach the broker. `children` may be shared: `World`s of one test fork from one process.
    """

    def __init__(self, settings: Mapping[str, str], folder: Path, seed: int, children: Children) -> None:
        self.settings, self.children = dict(settings), children
        self.name = f"job-{uuid.uuid4().hex[:8]}"
        self.folder = folder / self.name
        self.folder.mkdir()
        self._random = random.Random(seed)
        self._next = 0
        self._began_ms = time.time_ns() // 1_000_000  # a broker deletes records that are older than a week
        admin = AdminClient({**self.settings, **QUIET})  # it has to live until the answer is there
        made = admin.create_topics([NewTopic(self.topic("in"), INPUTS, 1)], request_timeout=WAIT_S)
        made[self.topic("in")].result(WAIT_S)
        self._producer = Producer({**self.settings, **QUIET, "linger.ms": 1})

    def topic(self, part: str) -> str:
        return f"{self.name}-{part}"

    @property
    def written_topics(self) -> list[str]:
        return [self.topic(part) for part in ("mapped", "counts", "windows", "by-g", "checkpoints")]

    def produce(self, count: int, partitions: range = range(INPUTS)) -> None:
        """Seeded records; a key is always in one partition, and only keys of these `partitions` are drawn."""
        draw = self._random
        for _ in range(count):
            self._next += 1
            key = f"k{draw.randrange(KEYS)}".encode()
            while partition_of(key, INPUTS) not in partitions:
                key = f"k{draw.randrange(KEYS)}".encode()
            value = {"id": self._next, "n": draw.randrange(1000), "g": f"g{draw.randrange(GROUPS)}"}
            time_ms = self._began_ms + self._next * 20 + draw.randrange(-5_000, 5_000)
            text = json.dumps(value, separators=(",", ":"))
            self._producer.produce(
                self.topic("in"), text.encode(), key, partition=partition_of(key, INPUTS), timestamp=time_ms
            )
        assert self._producer.flush(WAIT_S) == 0, "the broker did not take the test's own records"

    def run_of(self, **options: Any) -> Run:
        stores = options.pop("stores", str(self.folder / "stores"))
        return Run(self.name, self.settings["bootstrap.servers"], stores, **self.children.files(), **options)

    def finish(self, **options: Any) -> Run:
        """A run that has to end well."""
        run = self.run_of(**options)
        code = self.children.finish(run)
        assert code == 0, f"ended with {code}: {told(run)}"
        return run

    def is_in_transaction(self) -> bool:
        return is_in_transaction(self.settings, self.written_topics)

    def checkpoints(self) -> dict[str, dict[str, Any]]:
        return checkpoints_of(self.settings, self.name)

    def rows(self, part: str) -> list[Row]:
        return read_topic(self.settings, self.topic(part))

    def judge(self, report: KillReport) -> None:
        """Compare all that the application wrote with plain models of what it read."""
        checkpoints = self.checkpoints()
        judge_job(self.rows, lambda store: state_of(checkpoints, self.folder / "state", store), report)


def told(run: Run) -> Any:
    """What a run said at its end, and its last log lines."""
    with suppress(OSError):
        return report_of(run)
    return log_of(run)[-3000:]


def log_of(run: Run) -> str:
    return Path(f"{run.report}.log").read_text()


