"""The tests' side of `child.py`: an application's streams on either system, producers that never rest, runs, the verdict.

Two producers write all the time: one learns of new partitions at once, the other goes by the old number for a while.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import headrace as hr
from chaos.checker import KillReport, Row, partition_of, read_stream
from chaos.children import Children, report_of, sprung, wait_until_stopped
from chaos.states import checkpoints_of as log_checkpoints_of
from chaos.states import state_of
from expansion.child import Run
from expansion.job import OUTPUT_PARTITIONS, OUTPUTS, judge
from kafka_expansion.producers import Ledger, Load, StaleProducer, key_of, merged, read_ledger
from kafka_faults.broker import checkpoints_of, read_topic

SERVER = Path(__file__).with_name("child.py")
PARTITIONS = 2
STALE_S = 1.0
RATE_PER_S, KEYS = 150.0, 20
WAIT_S = 60.0


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


class World:
    """One application, on Kafka (`servers` and its client's `settings`) or on a log of its own."""

    def __init__(
        self, folder: Path, children: Children, build: str, servers: str = "", settings: Mapping[str, str] | None = None
    ) -> None:
        self.name, self.build, self.children = f"grow-{uuid.uuid4().hex[:8]}", build, children
        self.folder, self.settings = folder / self.name, dict(settings or {})
        self.folder.mkdir()
        self.is_kafka = bool(servers)
        self._servers, self._log = servers, self.folder / "log"
        self.url = f"kafka://{servers}" if servers else f"log:{self._log}"
        self.system = hr.open_system(self.url)
        self.system.create_stream(f"{self.name}-in", PARTITIONS)
        for part in OUTPUTS:
            self.system.create_stream(f"{self.name}-{part}", OUTPUT_PARTITIONS)
        self.ledger: Ledger | None = None

    @contextmanager
    def producers(self) -> Iterator[None]:
        """While the context lasts, two producers write. What they wrote is in `ledger` then."""
        stop, stream, kept = threading.Event(), f"{self.name}-in", []
        errors: list[BaseException] = []
        with ExitStack() as stack:
            for name, stale_s in (("quick", 0.0), ("stale", STALE_S)):
                if self.is_kafka:
                    path = self.folder / name
                    load = Load(self._servers, stream, name, str(path), RATE_PER_S, KEYS, stale_s)
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
        self.system.expand_stream(f"{self.name}-in", partitions)
        if self.build == "stateful":
            self.system.expand_stream(f"{self.name}-by-group-repartition", partitions)

    def run_of(self, **options: Any) -> Run:
        return Run(self.name, self.url, str(self.folder), build=self.build, **self.children.files(), **options)

    def at_work(self, run: Run) -> int:
        """The run, started, once it has committed something; its pid."""
        pid, deadline_s = self.children.start(run), time.monotonic() + WAIT_S
        while not run.at_work.exists():
            assert not Path(run.report).exists(), f"it ended: {told(run)}"
            assert time.monotonic() < deadline_s, f"it is not at work: {told(run)}"
            time.sleep(0.01)
        return pid

    def stopped_in_change(self, step: int, partitions: int, **options: Any) -> tuple[Run, int]:
        """A run that has stopped at this step of the change to so many partitions, and its pid."""
        run = self.run_of(traps=f"stop:start:{step}:2", stale_us=0, silent=True, **options)
        pid = self.at_work(run)
        self.expand(partitions)
        wait_until_stopped(pid)
        assert sprung(run) == [f"stop start {step}"], told(run)
        return run, pid

    def wait_for_moved_keys(self) -> None:
        """Until a producer has written to a new partition: what is judged then has keys with records in two."""
        deadline_s = time.monotonic() + WAIT_S
        while not any(end for place, end in self.system.end_offsets(f"{self.name}-in").items() if place >= PARTITIONS):
            assert time.monotonic() < deadline_s, f"no producer has written to a new partition within {WAIT_S:.0f} s"
            time.sleep(0.05)

    def finish(self, **options: Any) -> Run:
        """A run that has to end well, at the end of what was written."""
        run = self.run_of(until="caught-up", **options)
        code = self.children.finish(run)
        assert code == 0, f"ended with {code}: {told(run)}"
        return run

    # --- what is committed ------------------------------------------------------------------------------------------

    def rows(self, part: str) -> list[Row]:
        stream = f"{self.name}-{part}"
        return read_topic(self.settings, stream) if self.is_kafka else read_stream(self._log, stream)

    def checkpoints(self) -> dict[str, dict[str, Any]]:
        return checkpoints_of(self.settings, self.name) if self.is_kafka else log_checkpoints_of(self._log, self.name)

    def metadata(self) -> dict[str, Any]:
        """The assignment and the counts on record."""
        store = self.system.metadata_store(self.name)
        return {namespace: dict(store.all(namespace)) for namespace in ("ssp-assignment", "partition-counts")}

    def judge(self, report: KillReport) -> None:
        checkpoints = self.checkpoints()
        assert self.ledger is not None
        stateful = self.build == "stateful"
        source = [task for task in checkpoints if "by-group" not in task]
        if stateful:
            assert len(source) == PARTITIONS, f"tasks: {sorted(checkpoints)}"

        def state(store: str) -> dict[tuple[bytes, bytes], bytes]:
            return state_of(checkpoints, self.folder / "state", store)

        judge(self.rows, self.ledger, report, state if stateful else None, PARTITIONS)

    def close(self) -> None:
        self.system.close()


def _kept(errors: list[BaseException], run: Any) -> Any:
    def kept(*arguments: Any) -> None:
        try:
            run(*arguments)
        except BaseException as error:
            errors.append(error)

    return kept


def told(run: Run) -> Any:
    """What a run said at its end, and its last log lines."""
    said = ""
    with suppress(OSError):
        said = str(report_of(run))
    with suppress(OSError):
        said += "\n" + Path(f"{run.report}.log").read_text()[-3000:]
    return said
