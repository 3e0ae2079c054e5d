"""Spark's executors: which there are, where their disks are, and how a Spark task is asked to run at a place.

Spark knows a host by the name or address under which it listens. A location is what the executor's own Python says, as that
has the disk; so each new executor is asked once, by a Spark task that is to run on it.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.adapters.spark.placement import collected
from headrace.core.affinity.sightings import have_all_come
from headrace.errors import SetupError

LOG = logging.getLogger("headrace.job")
LOOK_S, SAY_S, START_S_MAX = 0.1, 10.0, 600.0
_TRIES = 3
_ANCESTORS = 6  # a worker, its daemon, perhaps a shell, the executor's JVM


@dataclass(frozen=True, slots=True)
class Executor:
    """`id`: Spark's, which no other executor of the application ever has."""

    id: str
    host: str
    slots: int

    @property
    def preference(self) -> str:
        """How a Spark task is asked to run on it. A host with an underscore cannot be written with an id."""
        return self.host if "_" in self.host else f"executor_{self.host}_{self.id}"


class Executors:
    """The executors of one Spark application. Not thread-safe. `location_of` runs on them."""

    def __init__(self, session: Any, location_of: Callable[[], str]) -> None:
        self._session, self._location_of = session, location_of
        self._ids = ""
        self._there: tuple[Executor, ...] = ()
        self._locations: dict[str, str] = {}  # by executor

    def look(self) -> None:
        """See who is there. Asks Spark for one short text, and for more only where that has changed."""
        ids = self._session.sparkContext._jsc.sc().getExecutorIds().mkString(",")
        if ids == self._ids:
            return
        self._there = tuple(self._listed())
        self._greet([one for one in self._there if one.id not in self._locations])
        are_known = all(one.id in self._locations for one in self._there)
        if are_known and len(self._there) == len(list(filter(None, ids.split(",")))):
            self._ids = ids  # else it is looked at again: a new one is listed a moment later

    def slots(self) -> dict[str, int]:
        """How many Spark tasks run at once at each location."""
        found: Counter[str] = Counter()
        for one in self._there:
            if one.id in self._locations:
                found[self._locations[one.id]] += one.slots
        return dict(sorted(found.items()))

    def preferences(self, location: str | None) -> list[str]:
        """The executors at a location, as a Spark task is asked to run on one of them; none where there is none."""
        return [one.preference for one in self._there if location is not None and self._locations.get(one.id) == location]

    def wait(self, say: Callable[[str], None]) -> None:
        """Wait until the executors are there that a first plan is to be made with. `SetupError` where none comes at all."""
        began_s = changed_s = said_s = time.monotonic()
        there, promised = 0, promised_executors(self._session.sparkContext.getConf().get)
        while True:
            self.look()
            now_s = time.monotonic()
            there, before = len(self._there), there
            changed_s = now_s if there != before else changed_s
            if have_all_come(there, promised, now_s - changed_s, now_s - began_s):
                return
            if not there and now_s - began_s > START_S_MAX:
                hint = "has the cluster room for one? see the page of its master"
                raise SetupError(f"Spark has had no executor for {START_S_MAX:.0f} s", hint)
            if now_s - said_s > SAY_S:
                said_s = now_s
                say(f"waiting for Spark's executors: {there} of {promised or 'some'} after {now_s - began_s:.0f} s")
            time.sleep(LOOK_S)

    def _listed(self) -> Iterator[Executor]:
        summaries = self._session.sparkContext._jsc.sc().statusStore().executorList(True)
        for number in range(summaries.size()):
            one = summaries.apply(number)
            host, _, port = one.hostPort().rpartition(":")
            if one.id() != "driver" and one.isActive() and port:  # a new one is listed without a port first
                yield Executor(one.id(), host, max(1, one.totalCores()))

    def _greet(self, new: Sequence[Executor]) -> None:
        """Ask each where it is. Spark may run the question elsewhere, as where the executor is busy: then it is asked again."""
        left = list(new)
        for _ in range(_TRIES):
            if not left:
                return
            for executor, location in self._answers(left).items():
                self._locations.setdefault(executor, location)
            left = [one for one in left if one.id not in self._locations]
        LOG.info("%d of Spark's executors have not said where they are yet", len(left))

    def _answers(self, asked: Sequence[Executor]) -> Mapping[str, str]:
        location_of, count = self._location_of, len(asked)

        def answered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for _ in batches:
                said = json.dumps([own_executor_id(), location_of()])
                yield pa.RecordBatch.from_pydict({"said": [said]})

        frame = self._session.range(0, count, 1, count).mapInArrow(answered, "said string")
        said = collected(self._session.sparkContext, frame, False, [[one.preference] for one in asked])
        return {executor: location for executor, location in map(json.loads, said) if executor}


def promised_executors(setting: Callable[[str], str | None]) -> int | None:
    """How many executors the settings of Spark promise; None where they do not say.

    >>> promised_executors({"spark.cores.max": "6", "spark.executor.cores": "2"}.get), promised_executors({}.get)
    (3, None)
    """
    if setting("spark.dynamicAllocation.enabled") == "true":
        return None
    instances, most, each = map(setting, ("spark.executor.instances", "spark.cores.max", "spark.executor.cores"))
    if instances is not None:
        return int(instances)
    return None if most is None or each is None else max(1, int(most) // int(each))


def own_executor_id() -> str:
    """Spark's id of the executor whose Python worker this is, by the command line of the JVM above it; empty where that cannot
    be seen."""
    pid = os.getpid()
    for _ in range(_ANCESTORS):
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
        except (OSError, ValueError, IndexError):
            return ""
        if "--executor-id" in words:
            return words[words.index("--executor-id") + 1]
    return ""
