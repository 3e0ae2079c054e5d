"""Seeded runs with kills at numbered steps, as many as are asked for; used by a test, and for long by `make soak`."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import headrace as hr
from chaos.checker import KillReport
from chaos.children import Children, report_of, sprung
from chaos.verdict import judge

LOG_STEPS = tuple(("log", step) for step in range(1, 14))
START_STEPS = tuple(("start", step) for step in range(1, 13))
PARTITIONS, KEYS, GROUPS = 3, 40, 11
BATCH = 60
_TIME_US = 1_700_000_000_000_000


class Producer:
    """Writes the seeded input of the job in `child.py`, piece by piece; a piece may come while the job runs."""

    def __init__(self, log: Path, seed: int) -> None:
        self._system = hr.open_system(f"log:{log}")
        self._system.create_stream("in", PARTITIONS)
        self._random = random.Random(seed)
        self._next = 0

    def produce(self, count: int) -> None:
        self._system.produce("in", [self._record() for _ in range(count)], key=hr.String(), value=hr.Json())

    def end(self) -> None:
        """A last record of each partition, so late that all windows before it close."""
        time_us = _TIME_US + self._next * 20_000 + 3_600_000_000
        last = [hr.Record("end", {"id": -at, "n": 0, "g": "end"}, time_us, partition=at) for at in range(PARTITIONS)]
        self._system.produce("in", last, key=hr.String(), value=hr.Json())

    def _record(self) -> hr.Record:
        draw, self._next = self._random, self._next + 1
        value = {"id": self._next, "n": draw.randrange(1000), "g": f"g{draw.randrange(GROUPS)}"}
        time_us = _TIME_US + self._next * 20_000 + draw.randrange(-5_000_000, 5_000_000)
        return hr.Record(f"k{draw.randrange(KEYS)}", value, time_us)

    def close(self) -> None:
        self._system.close()

    @contextmanager
    def beside(self, pieces: Iterable[int], pause_s: float) -> Iterator[None]:
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


def kill_run(folder: Path, seed: int, kills_per_step: int, steps: Iterable[tuple[str, int]]) -> KillReport:
    """Kill the job at every step, several times each in seeded order, then let it finish and judge what it wrote."""
    draw = random.Random(seed)
    report = KillReport()
    log = folder / "data"
    producer = Producer(log, seed)
    order = [step for step in steps for _ in range(kills_per_step)]
    draw.shuffle(order)
    with Children(folder) as children:
        kill_at_steps(children, log, producer, draw, order, report)
        for name, keys in (("job", {}), ("calm", {"max_records_per_round": 500})):
            last = children.run_of(log, name, keys=keys)
            assert children.finish(last) == 0, told(last)
    producer.close()
    judge(log, "job", report, calm="calm")
    return report


def kill_at_steps(
    children: Children,
    log: Path,
    producer: Producer,
    draw: random.Random,
    order: Iterable[tuple[str, int]],
    report: KillReport,
    **options: Any,
) -> None:
    """Kill the job at each of these steps, with new input each time; what is left is for the next run to do."""
    for protocol, step in order:
        producer.produce(draw.randrange(BATCH // 2, BATCH))
        count = draw.randrange(1, 5) if protocol == "log" else 1
        run = children.run_of(log, traps=f"kill:{protocol}:{step}:{count}", **options)
        with producer.beside([draw.randrange(1, 10) for _ in range(3)], 0.1):
            code = children.finish(run)
        died = f"kill {protocol} {step}" in sprung(run)
        assert code in (0, -signal.SIGKILL), f"{protocol} {step}: ended with {code}: {told(run)}"
        assert died is (code != 0), f"{protocol} {step}: ended with {code}, the trap sprang: {died}"
        report.fault(f"{protocol} {step}", "SIGKILL", landed=died)


def every_step_landed(report: KillReport, steps: Iterable[tuple[str, int]]) -> None:
    missed = [f"{p} {s}" for p, s in steps if not report.landed[f"{p} {s}", "SIGKILL"]]
    assert not missed, f"no kill landed at {', '.join(missed)}\n{report}"


def told(run: Any) -> Any:
    try:
        return report_of(run)
    except OSError:
        return "no report"
