"""An application on either system whose input grows, producers that never rest, the verdict.

Two producers write all the time: one learns of new partitions at once, the other goes by the old number for a while.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import headrace as hr
from expansion.growing_job import OUTPUT_PARTITIONS, OUTPUTS, judge
from kafka_expansion.producers import Ledger, Load, StaleProducer, key_of, merged, read_ledger
from support.checker import KillReport, partition_of
from support.children import Children
from support.log_states import state_of
from support.world import Place, World, waited

PARTITIONS = 2
STALE_S = 1.0
RATE_PER_S, KEYS = 150.0, 20


class LogProducer:
    """What `StaleProducer` is on Kafka, for a log: the same records, the same staleness; its ledger is in memory."""

    def __init__(self, system: Any, stream: str, name: str, stale_s: float) -> None:
        self._system, self._stream, self._name, self._stale_s = system, stream, name, stale_s
        self._seqs = [0] * KEYS
        self._counts = [(0.0, system.describe_stream(stream).partitions)]  # from when on it believes in them

    def run(self, stop: threading.Event) -> None:
        began_s, turn = time.monotonic(), 0
        size = 8
        while not stop.wait(max(0.0, began_s + turn * size / RATE_PER_S - time.monotonic())):
            now_s, found = time.monotonic(), self._system.describe_stream(self._stream).partitions
            if found > self._counts[-1][1]:
                self._counts.append((now_s + self._stale_s, found))
            count = max(count for from_s, count in self._counts if from_s <= now_s)
            self._write([(turn * size + place) % KEYS for place in range(size)], count)
            turn += 1

    def _write(self, numbers: list[int], count: int) -> None:
        records, sent_ms = [], time.time_ns() // 1_000_000
        for number in numbers:
            self._seqs[number] += 1
            key = key_of(self._name, number)
            value = {"producer": self._name, "seq": self._seqs[number], "count": count, "sent_ms": sent_ms}
            place = partition_of(key, count)
            records.append(hr.Record(key, json.dumps(value).encode(), sent_ms * 1000, partition=place))
        self._system.produce(self._stream, records)

    @property
    def ledger(self) -> Ledger:
        """When it has stopped."""
        written = {key_of(self._name, number): seq for number, seq in enumerate(self._seqs) if seq}
        return Ledger(written, written, (), stopped=True)


class GrowingWorld(World):
    """One application of `growing_job`, whose input grows."""

    def __init__(self, folder: Path, place: Place, children: Children, shape: str) -> None:
        super().__init__(folder, place, children, f"expansion.growing_job:{shape}")
        self.is_stateful = shape == "stateful"
        self.system.create_stream(self.stream("in"), PARTITIONS)
        for part in OUTPUTS:
            self.system.create_stream(self.stream(part), OUTPUT_PARTITIONS)
        self.ledger: Ledger | None = None

    @contextmanager
    def producers(self) -> Iterator[None]:
        """While the context lasts, two producers write. What they wrote is in `ledger` then."""
        stop, stream, kept = threading.Event(), self.stream("in"), []
        errors: list[BaseException] = []
        with ExitStack() as stack:
            for name, stale_s in (("quick", 0.0), ("stale", STALE_S)):
                if self.place.servers:
                    path = self.folder / name
                    load = Load(self.place.servers, stream, name, str(path), RATE_PER_S, KEYS, stale_s)
                    producer: Any = StaleProducer(load)
                    kept.append(lambda path=path: read_ledger(path))
                else:
                    system = stack.enter_context(hr.open_system(self.url))
                    producer = LogProducer(system, stream, name, stale_s)
                    kept.append(lambda producer=producer: producer.ledger)
                thread = threading.Thread(target=_kept(errors, producer.run), args=(stop,))
                thread.start()
                stack.callback(thread.join)
            stack.callback(stop.set)
            yield
        assert not errors, f"a producer ended: {errors[0]!r}"
        self.ledger = merged([ledger() for ledger in kept])

    def expand(self, partitions: int) -> None:
        """More partitions for the input; and where there is one, for the repartition stream, which the job itself writes."""
        self.system.expand_stream(self.stream("in"), partitions)
        if self.is_stateful:
            self.system.expand_stream(f"{self.name}-by-group-repartition", partitions)

    def wait_for_moved_keys(self) -> None:
        """Until a producer has written to a new partition: what is judged then has keys with records in two."""
        ends = lambda: self.system.end_offsets(self.stream("in")).items()  # noqa: E731
        waited(lambda: any(end for place, end in ends() if place >= PARTITIONS), otherwise="no record in a new partition")

    # --- what is committed ------------------------------------------------------------------------------------------

    def metadata(self) -> dict[str, Any]:
        """The assignment and the counts on record."""
        store = self.system.metadata_store(self.name)
        return {namespace: dict(store.all(namespace)) for namespace in ("ssp-assignment", "partition-counts")}

    def judge(self, report: KillReport) -> None:
        checkpoints = self.checkpoints()
        assert self.ledger is not None
        source = [task for task in checkpoints if "by-group" not in task]
        if self.is_stateful:
            assert len(source) == PARTITIONS, f"tasks: {sorted(checkpoints)}"

        def state(store: str) -> dict[tuple[bytes, bytes], bytes]:
            return state_of(checkpoints, self.folder / "state", store)

        judge(self.rows, self.ledger, report, state if self.is_stateful else None, PARTITIONS)


def _kept(errors: list[BaseException], run: Any) -> Any:
    def kept(*arguments: Any) -> None:
        try:
            run(*arguments)
        except BaseException as error:
            errors.append(error)

    return kept
