"""Spark's executors: which there are, where their disks are, and how a Spark task is asked to run at a place.

Spark knows a host by the name or address under which it listens. A location is what the executor's own Python says, as that
has the disk; so each new executor is asked once, by a Spark task that is to run on it (`questions`), and one that cannot do the
work is rejected.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from headrace.adapters.spark import questions
from headrace.adapters.spark.dead_jvm import JvmCalls
from headrace.adapters.spark.failures import failure_of
from headrace.adapters.spark.questions import Executor
from headrace.adapters.spark.required_settings import changes_executors
from headrace.core.affinity.admission import Admitted, Rejected, Verdict, is_to_be_asked, rejections_of
from headrace.core.affinity.sightings import have_all_come
from headrace.errors import SetupError
from headrace.exchange.engine import WorkerCheck
from headrace.model.names import few

LOG = logging.getLogger("headrace.job")
LOOK_S, SAY_S = 0.1, 10.0
START_S_MAX, REJECTED_S_MAX = 600.0, 30.0  # without any executor, and with none that may work


class Executors:
    """The executors of one Spark application, each asked once by `check` when it appears, in the background: one that does not
    answer holds up no other."""

    def __init__(self, session: Any, calls: JvmCalls) -> None:
        self._context, self._calls = session.sparkContext, calls
        self._check: WorkerCheck | None = None
        self._ids = ""
        self._lock = threading.Lock()  # of what follows
        self._there: tuple[Executor, ...] = ()
        self._verdicts: dict[str, Verdict] = {}  # by executor
        self._asked_s: dict[str, float] = {}
        self._asking: set[str] = set()

    def look(self) -> None:
        """See who is there. Asks Spark for one short text, and for more only where that has changed. `EngineFailure` where it
        does not answer."""
        ids = self._calls.ask(lambda: str(self._context._jsc.sc().getExecutorIds().mkString(",")))
        if ids != self._ids:
            listed = self._calls.ask(lambda: tuple(_listed(self._context)))
            there = {one.id for one in listed}
            with self._lock:
                self._there = listed
                # An executor may have answered for another one that was asked: it has a verdict, and was not asked.
                self._asked_s = {id_: at_s for id_, at_s in self._asked_s.items() if id_ in there}
                self._verdicts = {id_: verdict for id_, verdict in self._verdicts.items() if id_ in there}
            if there == set(filter(None, ids.split(","))):
                self._ids = ids  # else it is looked at again: a new one is listed a moment later, and so one that is lost
        self._ask(time.monotonic())

    def slots(self) -> dict[str, int]:
        """How many Spark tasks run at once at each location."""
        found: Counter[str] = Counter()
        for one, location in self._admitted():
            found[location] += one.slots
        return dict(sorted(found.items()))

    def preferences(self, location: str | None) -> list[str]:
        """The executors at a location, as a Spark task is asked to run on one of them; none where there is none."""
        return [one.preference for one, here in self._admitted() if here == location]

    def location_of(self, executor: str) -> str | None:
        """Where the executor of an id of Spark's is; None where it is not there any more, or may not work."""
        return next((location for one, location in self._admitted() if one.id == executor), None)

    def one_of_each_location(self) -> list[Executor]:
        return list({location: one for one, location in self._admitted()}.values())

    def rejections(self) -> dict[str, str]:
        """By host, why executors there get no work."""
        with self._lock:
            return rejections_of(self._verdicts, {one.id: one.host for one in self._there})

    def wait(self, check: WorkerCheck, say: Callable[[str], None]) -> None:
        """Wait until the executors have answered that a first plan is to be made with. `SetupError` where none may work."""
        self._check = check
        began_s = changed_s = said_s = time.monotonic()
        bad_s: float | None = None
        known, promised = 0, promised_executors(self._context.getConf().get)
        while True:
            self.look()
            now_s = time.monotonic()
            rejections = self.rejections()
            with self._lock:
                known, before = len(self._verdicts), known
                is_asking = bool(self._asking)
            changed_s = now_s if known != before or is_asking else changed_s
            if self._admitted() and have_all_come(known, promised, now_s - changed_s, now_s - began_s):
                return
            if not rejections or self._admitted():
                bad_s = None
            elif bad_s is None:
                bad_s = now_s
            if not self._admitted() and (now_s - began_s > START_S_MAX or (bad_s and now_s - bad_s > REJECTED_S_MAX)):
                raise _none_came(rejections)
            if now_s - said_s > SAY_S:
                said_s = now_s
                rejected = f"; {len(rejections)} rejected: {few(list(rejections))}" if rejections else ""
                waits = f"{len(self._admitted())} of {promised or 'some'} after {now_s - began_s:.0f} s"
                say(f"waiting for Spark's executors: {waits}{rejected}")
            time.sleep(LOOK_S)

    def _admitted(self) -> list[tuple[Executor, str]]:
        """Those that may work, and where they are."""
        with self._lock:
            found = [(one, self._verdicts.get(one.id)) for one in self._there]
        return [(one, verdict.location) for one, verdict in found if isinstance(verdict, Admitted)]

    def _ask(self, now_s: float) -> None:
        """Ask those that are to be asked now, in a thread."""
        check = self._check
        with self._lock:
            due = [
                one
                for one in self._there
                if one.id not in self._asking and is_to_be_asked(self._verdicts.get(one.id), self._asked_s.get(one.id), now_s)
            ]
            if not due or check is None:
                return
            self._asking.update(one.id for one in due)
        threading.Thread(target=self._asked, args=(check, due), name="headrace-executors", daemon=True).start()

    def _asked(self, check: WorkerCheck, due: Sequence[Executor]) -> None:
        try:
            self._record(questions.verdicts(self._context, check, due))
        except Exception as error:
            failure = failure_of(error)
            if not failure.cancelled and self._context._jsc is not None:  # else Spark is being stopped
                LOG.warning("Spark's executors could not be asked what they are like: %s", failure.message)
        finally:
            with self._lock:
                self._asking.difference_update(one.id for one in due)
                self._asked_s.update((one.id, time.monotonic()) for one in due)

    def _record(self, verdicts: Mapping[str, Verdict]) -> None:
        with self._lock:
            hosts = {one.id: one.host for one in self._there}
            before = dict(self._verdicts)
            there = {one: verdict for one, verdict in verdicts.items() if one in hosts}
            self._verdicts.update(there)
        for one, verdict in there.items():  # Spark may have asked another one, too, which came just now
            former = before.get(one)
            if isinstance(verdict, Rejected) and verdict != former:
                LOG.warning("executor %s on host %s is rejected, it gets no work: %s", one, hosts[one], verdict)
            elif isinstance(former, Rejected) and isinstance(verdict, Admitted):
                LOG.info("executor %s on host %s is not rejected any more", one, hosts[one])


def _none_came(rejections: Mapping[str, str]) -> SetupError:
    if not rejections:
        hint = "has the cluster room for one? see the page of its master"
        return SetupError(f"Spark has had no executor for {START_S_MAX:.0f} s", hint)
    said = "\n".join(f"  {host}: {reason}" for host, reason in rejections.items())
    return SetupError(
        f"all of Spark's executors are rejected, and no other has come for {REJECTED_S_MAX:.0f} s:\n{said}", "put one right"
    )


def _listed(context: Any) -> Iterator[Executor]:
    summaries = context._jsc.sc().statusStore().executorList(True)
    for number in range(summaries.size()):
        one = summaries.apply(number)
        host, colon, _ = one.hostPort().rpartition(":")
        if one.id() != "driver" and one.isActive() and colon:  # a new one is listed without a port first
            yield Executor(one.id(), host, max(1, one.totalCores()))


def promised_executors(setting: Callable[[str], str | None]) -> int | None:
    """How many executors the settings of Spark promise; None where they do not say.

    >>> promised_executors({"spark.cores.max": "6", "spark.executor.cores": "2"}.get), promised_executors({}.get)
    (3, None)
    """
    if changes_executors(setting):
        return None
    instances, most, each = map(setting, ("spark.executor.instances", "spark.cores.max", "spark.executor.cores"))
    if instances is not None:
        return int(instances)
    return None if most is None or each is None else max(1, int(most) // int(each))
