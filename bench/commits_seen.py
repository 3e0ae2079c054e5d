"""What the benchmark of groups sees from outside: when each task commits, by a consumer that shares no code with a driver; and
the load under which it looks."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition

from headrace.core.keys.hashing import partition_of

KEYS_OF_TASK = 20  # that are fed, by turns
VALUE = b"v" * 40


class Commit(NamedTuple):
    """Of a task. `at_s`: when its first record arrived; `who`: the id of the process; `run`: the id and its process."""

    at_s: float
    who: str
    run: str


class Arrivals:
    """What is committed to a stream, partition by partition, and when it could be read."""

    def __init__(self, servers: str, stream: str, partitions: int) -> None:
        settings = {"bootstrap.servers": servers, "group.id": uuid.uuid4().hex, "isolation.level": "read_committed"}
        waits = {"fetch.wait.max.ms": 100, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        self._consumer = Consumer(settings | waits)
        self._consumer.assign([TopicPartition(stream, number, 0) for number in range(partitions)])
        self.records = 0
        self.commits: Mapping[int, list[Commit]] = {number: [] for number in range(partitions)}
        self._next = [-1] * partitions  # the offset that would be of the same transaction
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while not self._ending.is_set():
            for message in self._consumer.consume(10_000, 0.01):
                if message.error() is None:
                    self._add(message, time.monotonic())

    def _add(self, message: Any, at_s: float) -> None:
        task, offset = message.partition(), message.offset()
        self.records += 1
        if offset != self._next[task]:
            who, pid, _ = message.value().decode().split(" ")
            self.commits[task].append(Commit(at_s, who, f"{who} {pid}"))
        self._next[task] = offset + 1

    def end(self) -> None:
        self._ending.set()
        self._thread.join()
        self._consumer.close()

    def owners(self) -> dict[int, str]:
        """By task which process committed last; without those that have committed nothing."""
        return {task: commits[-1].who for task, commits in self.commits.items() if commits}

    def first(self, task: int, since_s: float, other_than: str = "") -> float | None:
        """When it first committed since then, by another run than that."""
        return next((one.at_s for one in self.commits[task] if one.at_s > since_s and one.run != other_than), None)

    def gaps(self, task: int, since_s: float, until_s: float) -> list[tuple[float, float]]:
        """The pauses between its commits that lie in that time, or reach into it: how long, and when each began."""
        times = [one.at_s for one in self.commits[task] if one.at_s < until_s]
        behind = [at_s for at_s in times if at_s >= since_s]
        before = [at_s for at_s in times if at_s < since_s][-1:]
        ends = [*before, *behind, *([until_s] if not behind else [])]
        return [(later - earlier, earlier) for earlier, later in pairwise(ends)]


class Load:
    """Writes some records a second for each task, while the context is open."""

    def __init__(self, servers: str, stream: str, tasks: int, rate: float) -> None:
        self._producer, self._stream, self._every_s = producer_of(servers), stream, 1 / rate
        self._names = fed_names(tasks, KEYS_OF_TASK)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def _write(self) -> None:
        turn, due_s = 0, time.monotonic()
        while not self._ending.wait(max(0.0, due_s - time.monotonic())):
            for names in self._names.values():
                self._producer.produce(self._stream, VALUE, names[turn % KEYS_OF_TASK])
            self._producer.poll(0)
            turn, due_s = turn + 1, due_s + self._every_s
        self._producer.flush(30)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()


def producer_of(servers: str) -> Producer:
    settings = {"enable.idempotence": True, "compression.type": "lz4", "linger.ms": 5, "partitioner": "murmur2_random"}
    return Producer({"bootstrap.servers": servers, "log_level": 2, **settings})  # a broker that has just come up is no news


def name_of(number: int) -> bytes:
    return b"key-%09d" % number


def fed_names(tasks: int, each: int) -> dict[int, list[bytes]]:
    """Of each task the first keys."""
    found: dict[int, list[bytes]] = {task: [] for task in range(tasks)}
    number = 0
    while any(len(names) < each for names in found.values()):
        names = found[partition_of(name_of(number), tasks)]
        if len(names) < each:
            names.append(name_of(number))
        number += 1
    return found


def write_all(servers: str, stream: str, names: Sequence[bytes]) -> None:
    producer = producer_of(servers)
    for name in names:
        while True:
            try:
                producer.produce(stream, VALUE, name)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(120):
        raise SystemExit("the records could not be written")
