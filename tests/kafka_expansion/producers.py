"""Producers whose metadata is stale: they go on by the old number of partitions for a while after a topic has grown.

Each writes the records of its own keys one after the other: a key's next record goes out when the one before it is
acknowledged. What it has written stands in a ledger that survives its death: `read_ledger` reads it. Imports nothing of
Headrace.

In a test's process:

    with running(Load(servers, "flights", "p0", str(folder / "p0.ledger"), stale_s=60)) as producer:
        ...                                  # expand the topic, kill the driver, ...
    ledger = read_ledger(producer.ledger)    # after the block, which has stopped it

`python producers.py LOAD-AS-JSON` is one producer; SIGTERM stops it behind the batch that is in hand, SIGKILL anywhere.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from support.checker import partition_of

STOP_S_MAX = 60.0
START_S_MAX = 60.0
ANSWER_S_MAX = 60.0
LOOK_S = 0.2  # how often it looks how many partitions there are: what it sees then, it believes `stale_s` later
QUIET = {"log_level": 0}  # librdkafka prints each lost connection; here they are meant


@dataclass(frozen=True, slots=True)
class Load:
    """What one producer writes: to `topic`, `rate_per_s` records, over `keys` keys named `<name>-<number>`, in turn.

    `name` is its own among all producers of a test, and `ledger` a file that is not there yet. It believes in the number of
    partitions that it found at its start, and in a larger one `stale_s` after it has seen it. `records_max` ends it by
    itself. `client` are further settings of librdkafka.
    """

    servers: str
    topic: str
    name: str
    ledger: str
    rate_per_s: float = 500.0
    keys: int = 50
    stale_s: float = 0.0
    records_max: int | None = None
    batch_s: float = 0.05
    client: Mapping[str, str] = field(default_factory=dict)


class StaleProducer:
    """Writes a `Load` in the thread that calls `run`.

    A value is JSON: `producer`, `seq` (from 1 on, per key, without a gap), `count` (the number of partitions that it went
    by) and `sent_ms`, which is the record's timestamp too.
    """

    def __init__(self, load: Load) -> None:
        self.load = load
        self._errors: list[KafkaError] = []
        self._producer = Producer(
            {
                "bootstrap.servers": load.servers,
                "enable.idempotence": True,
                "linger.ms": 2,
                "topic.metadata.refresh.interval.ms": 1000,
                **load.client,
                **QUIET,
            }
        )
        self._seqs = [0] * load.keys
        self._count = self._found()
        self._coming: list[tuple[float, int]] = []  # counts that it has seen, and from when on it believes in them
        self._partitions: dict[int, int] = {}

    def run(self, stop: threading.Event) -> None:
        """Write until `stop` is set, or `records_max` are written. Raises where a record is not acknowledged."""
        load, written, turn = self.load, 0, 0
        size = max(1, min(load.keys, round(load.rate_per_s * load.batch_s)))
        with open(load.ledger, "x", encoding="utf-8") as ledger:
            _note(ledger, {"load": asdict(load), "count": self._count})
            began_s = looked_s = time.monotonic()
            while not stop.is_set() and (load.records_max is None or written < load.records_max):
                now_s = time.monotonic()
                if now_s - looked_s >= LOOK_S:
                    looked_s = now_s
                    self._look(now_s)
                if self._learn(now_s):
                    _note(ledger, {"count": self._count, "at_ms": _now_ms()})
                batch = [(turn + place) % load.keys for place in range(size)]
                turn = (turn + size) % load.keys
                self._write(ledger, batch)
                written += size
                stop.wait(max(0.0, began_s + written / load.rate_per_s - time.monotonic()))
            _note(ledger, {"stopped": True})

    def _write(self, ledger: Any, batch: Sequence[int]) -> None:
        """One record of each of these keys. The ledger knows what is tried before, and that it is acknowledged after."""
        for number in batch:
            self._seqs[number] += 1
        _note(ledger, {"tried": [[number, self._seqs[number]] for number in batch]})
        sent_ms = _now_ms()
        for number in batch:
            key = key_of(self.load.name, number)
            partition = self._partitions.setdefault(number, partition_of(key, self._count))
            value = {"producer": self.load.name, "seq": self._seqs[number], "count": self._count, "sent_ms": sent_ms}
            self._produce(key, json.dumps(value).encode(), partition, sent_ms)
        left = self._producer.flush(ANSWER_S_MAX)
        if left or self._errors:
            raise KafkaException(self._errors[0] if self._errors else KafkaError(KafkaError._TIMED_OUT, f"{left} records"))
        _note(ledger, {"written": len(batch)})

    def _produce(self, key: bytes, value: bytes, partition: int, sent_ms: int) -> None:
        deadline_s = time.monotonic() + ANSWER_S_MAX
        while True:
            try:
                self._producer.produce(
                    self.load.topic, value, key, partition, on_delivery=self._delivered, timestamp=sent_ms
                )
                return
            except KafkaException as error:  # of a partition that librdkafka's own metadata does not have yet
                if error.args[0].code() != KafkaError._UNKNOWN_PARTITION or time.monotonic() > deadline_s:
                    raise
                self._found()
                time.sleep(0.05)

    def _delivered(self, error: KafkaError | None, _: Any) -> None:
        if error is not None:
            self._errors.append(error)

    def _look(self, now_s: float) -> None:
        found = self._found()
        if found > max([self._count, *(count for _, count in self._coming)]):
            self._coming.append((now_s + self.load.stale_s, found))

    def _learn(self, now_s: float) -> bool:
        due = [count for at_s, count in self._coming if at_s <= now_s]
        if not due:
            return False
        self._count = max(due)
        self._coming = [(at_s, count) for at_s, count in self._coming if at_s > now_s]
        self._partitions.clear()
        return True

    def _found(self) -> int:
        """How many partitions the topic has; while no broker answers, as many as it believes in."""
        try:
            topic = self._producer.list_topics(self.load.topic, timeout=ANSWER_S_MAX).topics[self.load.topic]
        except KafkaException:
            if not hasattr(self, "_count"):
                raise
            return self._count
        assert topic.error is None, f"topic {self.load.topic!r}: {topic.error}"
        return len(topic.partitions)


def key_of(producer: str, number: int) -> bytes:
    return f"{producer}-{number}".encode()


@dataclass(frozen=True, slots=True)
class Ledger:
    """What a producer says that it wrote: key to the sequence number of its last record.

    Those up to `written` were acknowledged: they are there. Those behind it, up to `tried`, may be there, of a producer that
    was killed. `learned`: the counts that it came to believe in, each with the time in ms from which on.
    """

    written: Mapping[bytes, int]
    tried: Mapping[bytes, int]
    learned: tuple[tuple[int, int], ...]
    stopped: bool


def read_ledger(path: str | Path) -> Ledger:
    """A producer's ledger as far as it was written: the last line may be torn, where it was killed."""
    lines = Path(path).read_bytes().split(b"\n")[:-1]  # without what follows the last line's end
    name, learned, stopped = "", [], False
    written: dict[bytes, int] = {}
    tried: dict[bytes, int] = {}
    last: dict[bytes, int] = {}
    for line in map(json.loads, lines):
        if "load" in line:
            name = line["load"]["name"]
        elif "tried" in line:
            last = {key_of(name, number): seq for number, seq in line["tried"]}
            tried |= last
        elif "written" in line:
            assert line["written"] == len(last), f"{path}: {line['written']} of {len(last)} records"
            written |= last
        elif "at_ms" in line:
            learned.append((line["count"], line["at_ms"]))
        else:
            stopped = line["stopped"]
    return Ledger(written, tried, tuple(learned), stopped)


def merged(ledgers: Sequence[Ledger]) -> Ledger:
    """Those of several producers as one; `learned` by time."""
    written, tried = ({key: seq for one in ledgers for key, seq in getattr(one, part).items()} for part in ("written", "tried"))
    assert len(written) == sum(len(one.written) for one in ledgers), "two producers have written one key"
    learned = sorted((entry for one in ledgers for entry in one.learned), key=lambda entry: entry[1])
    return Ledger(written, tried, tuple(learned), all(one.stopped for one in ledgers))


def _note(ledger: Any, line: Mapping[str, Any]) -> None:
    ledger.write(json.dumps(line) + "\n")
    ledger.flush()
    os.fsync(ledger.fileno())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class ProducerProcess:
    """A producer in a process of its own, which writes when this is made. Its output is in `said`."""

    load: Load
    process: subprocess.Popen[bytes]
    said: Path

    @property
    def ledger(self) -> str:
        return self.load.ledger

    @classmethod
    def started(cls, load: Load) -> ProducerProcess:
        """Start it, and wait until its first records are acknowledged. One that was killed does not go on: it would not know
        what of its last batch is there. Another takes its place, with keys of its own."""
        assert not Path(load.ledger).exists(), f"producer {load.name!r}: its ledger is there already: {load.ledger}"
        said = Path(f"{load.ledger}.said")
        environ = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with said.open("wb") as output:
            command = [sys.executable, __file__, json.dumps(asdict(load))]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environ)
        started = cls(load, process, said)
        deadline_s = time.monotonic() + START_S_MAX
        while not (Path(load.ledger).exists() and read_ledger(load.ledger).written):
            if process.poll() is not None or time.monotonic() > deadline_s:
                process.kill()
                raise AssertionError(f"producer {load.name!r} has not begun: {said.read_text(errors='replace')}")
            time.sleep(0.02)
        return started

    def stop(self) -> Ledger:
        """Have it end behind the batch that it is writing, and all of that acknowledged."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(STOP_S_MAX)
        assert code == 0, f"producer {self.load.name!r} ended with {code}: {self.said.read_text(errors='replace')}"
        return read_ledger(self.ledger)

    def kill(self) -> Ledger:
        """SIGKILL: what it was writing may be there or not."""
        self.process.kill()
        self.process.wait(STOP_S_MAX)
        return read_ledger(self.ledger)


@contextmanager
def running(*loads: Load) -> Iterator[Any]:
    """Producers in processes of their own, stopped with the block: one, or a list of as many as there are loads."""
    started: list[ProducerProcess] = []
    try:
        for load in loads:
            started.append(ProducerProcess.started(load))
        yield started[0] if len(loads) == 1 else started
        for producer in started:
            if producer.process.returncode != -signal.SIGKILL:
                producer.stop()
    finally:
        for producer in started:
            producer.process.kill()
            producer.process.wait(STOP_S_MAX)


def main(text: str) -> None:
    """One producer, until SIGTERM."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    StaleProducer(Load(**json.loads(text))).run(stop)


if __name__ == "__main__":
    main(sys.argv[1])
