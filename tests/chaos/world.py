"""An application whose input is seeded, on either system: what is written, and the verdict."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

import headrace as hr
from chaos.verdict import judge_job
from support.broker import QUIET
from support.checker import KillReport, partition_of
from support.child import Run
from support.children import Children
from support.log_states import state_of
from support.world import WAIT_S, Place, World

PARTITIONS, KEYS, GROUPS = 3, 40, 11
USUAL, EVERYTHING = "chaos.usual_job:usual", "chaos.usual_job:everything"
_LOG_TIME_US = 1_700_000_000_000_000


class SeededWorld(World):
    """One application of `usual_job` and its input of so many partitions. `keys`: settings of its runs that name none."""

    def __init__(
        self,
        folder: Path,
        place: Place,
        children: Children,
        seed: int,
        build: str = USUAL,
        *,
        partitions: int = PARTITIONS,
        keys: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(folder, place, children, build)
        self._partitions, self._keys = partitions, keys
        self._random = random.Random(seed)
        self._next = 0
        # A broker takes no records of the future, and deletes those that are older than a week.
        self._began_us = (time.time_ns() // 1000 - 7_200_000_000) // 1000 * 1000 if place.servers else _LOG_TIME_US
        self.system.create_stream(self.stream("in"), partitions)
        self._producer = Producer({**self.settings, **QUIET, "linger.ms": 1}) if place.servers else None

    def run_of(self, **options: Any) -> Run:
        return super().run_of(**{"keys": self._keys, **options})

    def produce(self, count: int, partitions: Collection[int] | None = None) -> None:
        """Seeded records; a key is always in one partition, and only keys of these `partitions` (None: all) are drawn."""
        wanted = range(self._partitions) if partitions is None else partitions
        self._write([self._record(wanted) for _ in range(count)])

    def _write(self, records: list[hr.Record]) -> None:
        if self._producer is None:
            self.system.produce(self.stream("in"), records, key=hr.String(), value=hr.Json())
            return
        for record in records:  # without transactions: no markers lie between them
            text = json.dumps(record.value, separators=(",", ":")).encode()
            time_ms = record.timestamp_us // 1000
            self._producer.produce(self.stream("in"), text, record.key.encode(), record.partition, timestamp=time_ms)
        assert self._producer.flush(WAIT_S) == 0, "the broker did not take the test's own records"

    def _record(self, partitions: Collection[int]) -> hr.Record:
        draw, self._next = self._random, self._next + 1
        key = f"k{draw.randrange(KEYS)}"
        while (partition := partition_of(key.encode(), self._partitions)) not in partitions:
            key = f"k{draw.randrange(KEYS)}"
        value = {"id": self._next, "n": draw.randrange(1000), "g": f"g{draw.randrange(GROUPS)}"}
        time_us = self._began_us + self._next * 20_000 + draw.randrange(-5_000, 5_000) * 1000
        return hr.Record(key, value, time_us, partition=partition)

    def end(self) -> None:
        """A last record of each partition, so late that all windows before it close."""
        time_us = self._began_us + self._next * 20_000 + 3_600_000_000
        places = range(self._partitions)
        last = [hr.Record(f"end{at}", {"id": -at, "n": 0, "g": "end"}, time_us, partition=at) for at in places]
        self._write(last)

    @contextmanager
    def producing_beside(self, pieces: Iterable[int], pause_s: float) -> Iterator[None]:
        """Produce a piece after each pause while the context lasts."""
        ended = threading.Event()

        def go_on() -> None:
            for count in pieces:
                if ended.wait(pause_s):
                    return
                self.produce(count)

        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def judge(self, report: KillReport, calm: Run | None = None) -> None:
        """Compare all that the application wrote with plain models of what it read, and with an undisturbed run."""
        checkpoints = self.checkpoints()
        judge_job(
            self.rows,
            lambda store: state_of(checkpoints, self.folder / "state", store),
            report,
            calm=None if calm is None else self.rows_of(f"{calm.name}-mapped"),
            partitions=self._partitions,
        )
