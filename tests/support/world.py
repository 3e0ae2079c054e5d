"""One application on either system: its runs in processes of their own (`child.py`) or in the test's, and what is committed.

What is committed is read without Headrace: on Kafka by `broker`, of a log by `checker` and `log_states`.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import headrace as hr
from headrace import wiring
from headrace.adapters.kafka import clients, container_transaction, fetching
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine
from support import broker, log_states
from support.checker import KillReport, Row, read_stream
from support.child import Run
from support.children import Children, sprung, told, wait_until_stopped

Step = tuple[str, int]  # a protocol and a number
WAIT_S = 60.0
ARRIVALS_MAX = 100_000  # at a step, before the one that is meant
TEXT, NUMBER = hr.String(), hr.Long()
START_STEPS = tuple(("start", step) for step in range(1, 13))
# Steps 6 to 8 read and plan, and store nothing: what a kill there leaves is what a kill at 5 leaves.
STORING_START_STEPS = tuple(step for step in START_STEPS if step[1] not in (6, 7, 8))
COMMIT_STEPS = {
    "kafka": tuple(("kafka", step) for step in range(1, 12)),
    "log": tuple(("log", step) for step in range(1, 14)),
}
IN_TRANSACTION = "inside an open transaction"


@dataclass(frozen=True, slots=True)
class Place:
    """A system: Kafka with these servers and clients' settings, or a log in the test's own folder."""

    servers: str = ""
    settings: Mapping[str, str] | None = None

    @property
    def kind(self) -> str:
        return "kafka" if self.servers else "log"

    def url(self, folder: Path) -> str:
        """Of a log, the one in this folder."""
        return f"kafka://{self.servers}" if self.servers else f"log:{folder / 'log'}"


class World:
    """One application: the input `NAME-in`, the outputs `NAME-...`, folders of its own. Suites derive theirs from it.

    `STREAMS`: what there is from the beginning, with the number of its partitions. `KEYS`: settings of its jobs. `NAME`: its
    name on a log of its own, where streams go without it. `children` forks its runs and `build` (see `Run`) makes the
    application there; neither is needed for jobs in this process.
    """

    NAME: ClassVar[str] = ""
    STREAMS: ClassVar[Mapping[str, int]] = {}
    OPEN: ClassVar[dict[int, World]] = {}  # those that are not closed yet
    KEYS: ClassVar[Mapping[str, Any]] = {"partition_check_interval_s": 0.1, "trigger_interval_ms": 10, "containers": 2}

    def __init__(self, folder: Path, place: Place, children: Children | None = None, build: str = "") -> None:
        self._children, self.place, self.build = children, place, build
        self.name = self.NAME or f"job-{uuid.uuid4().hex[:8]}"
        self.folder = folder / self.name
        self.folder.mkdir()
        self.log = self.folder / "log"
        self.url = place.url(self.folder)
        self.settings = dict(place.settings or {})
        self.system = hr.open_system(self.url)
        self.OPEN[id(self)] = self
        for part, partitions in self.STREAMS.items():
            self.system.create_stream(self.stream(part), partitions)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.OPEN.pop(id(self), None)
        self.system.close()

    @property
    def children(self) -> Children:
        assert self._children is not None, "this World has its jobs in the test's own process"
        return self._children

    # --- jobs in the test's own process -----------------------------------------------------------------------------

    def app(self, name: str = "", spark: Any = None, **keys: Any) -> hr.App:
        """Its application, or another one beside it, without operators yet."""
        places = {"local_store_dir": str(self.folder / "stores"), "state_uri": str(self.folder / "state")}
        return hr.App(name or self.name, self.url, spark, **{**places, **self.KEYS, **keys})

    def run(self, app: hr.App, **options: Any) -> Any:
        """Until all that there is has gone through; the job."""
        return caught_up(app, **options)

    @contextmanager
    def running(self, app: hr.App) -> Iterator[Any]:
        job = started(app)
        try:
            yield job
        finally:
            if job.is_running:
                job.stop()
        job.wait()

    # --- runs in processes of their own -------------------------------------------------------------------------------

    def run_of(self, **options: Any) -> Run:
        fields = {"name": self.name, "url": self.url, "folder": str(self.folder), "build": self.build}
        return Run(**{**fields, **self.children.files(), **options})

    def at_work(self, run: Run) -> int:
        """A run without an end, started, once it has committed something; its pid."""
        pid, deadline_s = self.children.start(run), time.monotonic() + WAIT_S
        while not run.at_work.exists():
            assert not Path(run.report).exists(), f"it ended: {told(run)}"
            assert time.monotonic() < deadline_s, f"it is not at work: {told(run)}"
            time.sleep(0.01)
        return pid

    def finish(self, **options: Any) -> Run:
        """A run that has to end well, at the end of what was written."""
        run = self.run_of(**options)
        code = self.children.finish(run)
        assert code == 0, f"ended with {code}: {told(run)}"
        return run

    def killed(self, at: Step, count: int = 1, **options: Any) -> Run:
        """A run that has to die at its `count`-th arrival at a step."""
        run = self.run_of(traps=f"kill:{at[0]}:{at[1]}:{count}", **options)
        self.must_have_died(run, at, self.children.finish(run))
        return run

    def killed_at_work(self, at: Step | None, change: Callable[[], Any], *, count: int = 1, within_s: float = 0.0) -> None:
        """A run that is at work, and dies in the change that `change` asks for, or in what follows: of a start's steps at its
        second arrival, of another scale's at the first from then on, of others at the `count`-th arrival under the second job
        model, and if `at` is None after `within_s`."""
        traps = later = ""
        armed = self.folder / "armed"
        if at is not None and at[0] == "start":
            traps = f"kill:start:{at[1]}:2"
        elif at is not None and at[0] == "scale":  # what was requested before a kill may come first
            armed.unlink(missing_ok=True)
            traps = f"kill:scale:{at[1]}:{ARRIVALS_MAX}@{armed}"
        elif at is not None:
            later = f"kill:{at[0]}:{at[1]}:{count}"
        run = self.run_of(until=None, traps=traps, later=later)
        pid = self.at_work(run)
        if at is not None and at[0] == "scale":
            self.wait_until_settled()
            armed.write_bytes(b"." * (ARRIVALS_MAX - 1))
        change()
        if at is None:
            time.sleep(within_s)
            os.kill(pid, signal.SIGKILL)
        self.must_have_died(run, at, self.children.wait(pid))

    def wait_until_settled(self) -> None:
        """Until nothing that was requested is open."""
        waited(lambda: not self.has_open_requests(), otherwise="another scale is requested, and not in force")

    def has_open_requests(self) -> bool:
        with hr.elasticity(self.name, self.url) as scales:
            return bool(scales.open_requests())

    def is_sprung(self) -> bool:
        """Whether the process has been killed at a step of another scale."""
        return (self.folder / "armed").stat().st_size >= ARRIVALS_MAX

    def must_have_died(self, run: Run, at: Step | None, code: int) -> None:
        assert code == -signal.SIGKILL, f"{at}: ended with {code}: {told(run)}"
        assert at is None or sprung(run) == [f"kill {at[0]} {at[1]}"], told(run)

    def stopped(self, at: Step, count: int = 1, **options: Any) -> tuple[Run, int]:
        """A driver that takes over from whoever is silent, and has stopped at its `count`-th arrival at a step; its pid."""
        run = self.run_of(traps=f"stop:{at[0]}:{at[1]}:{count}", **{"stale_us": 0, "silent": True, **options})
        pid = self.children.start(run)
        self.must_be_stopped(run, pid, at)
        return run, pid

    def stopped_at_work(self, at: Step, change: Callable[[], Any], **options: Any) -> tuple[Run, int]:
        """A driver that has stopped at a step of the change that `change` asks for while it is at work, or of the first round
        after it, and its pid."""
        trap = f"stop:{at[0]}:{at[1]}:{2 if at[0] == 'start' else 1}"
        traps = {"traps": trap} if at[0] in ("start", "scale") else {"later": trap}
        run = self.run_of(until=None, stale_us=0, silent=True, **traps, **options)
        pid = self.at_work(run)
        change()
        self.must_be_stopped(run, pid, at)
        return run, pid

    def must_be_stopped(self, run: Run, pid: int, at: Step) -> None:
        wait_until_stopped(pid)
        assert sprung(run) == [f"stop {at[0]} {at[1]}"], told(run)

    def woken(self, pid: int) -> int:
        """Let a stopped run go on; its exit code."""
        os.kill(pid, signal.SIGCONT)
        return self.children.wait(pid)

    # --- what is written --------------------------------------------------------------------------------------------

    def produce_to(self, part: str, records: Iterable[Any], key: Any = TEXT, value: Any = NUMBER) -> None:
        self.system.produce(self.stream(part), records, key=key, value=value)

    @contextmanager
    def producing(self, write: Callable[[Any], object], every_s: float) -> Iterator[None]:
        """While the context lasts, `write` is called again and again, with a system of its thread's own."""
        with kept_up(self.url, write, every_s):
            yield

    # --- what is committed ------------------------------------------------------------------------------------------

    def stream(self, part: str) -> str:
        return part if self.NAME else f"{self.name}-{part}"

    def read(self, part: str, value: Any = NUMBER, key: Any = TEXT) -> list[hr.Record]:
        """All committed records of `NAME-PART`, as Headrace reads them."""
        return list(self.system.consume(self.stream(part), key=key, value=value))

    def rows(self, part: str) -> list[Row]:
        """All committed records of `NAME-PART`."""
        return self.rows_of(self.stream(part))

    def rows_of(self, stream: str) -> list[Row]:
        return broker.read_topic(self.settings, stream) if self.place.servers else read_stream(self.log, stream)

    def checkpoints(self) -> dict[str, dict[str, Any]]:
        """Every task's checkpoint, as it is committed."""
        if self.place.servers:
            return broker.checkpoints_of(self.settings, self.name)
        return log_states.checkpoints_of(self.log, self.name)

    def state(self, store: str) -> dict[tuple[bytes, bytes], bytes]:
        """(key, sub-key) to value over all tasks, by the files that the checkpoints name."""
        return log_states.state_of(self.checkpoints(), self.folder / "state", store)

    def is_in_transaction(self) -> bool:
        """Whether the application has written records that are neither committed nor aborted; on a log it never has."""
        return bool(self.place.servers) and broker.has_open_transaction(self.settings, self.name)

    def note_open(self, report: KillReport) -> None:
        """Note whether a transaction of the driver that has just died is still open: what its successor has to end."""
        report.fault(IN_TRANSACTION, "of these", landed=self.is_in_transaction())


def drop_kept_clients() -> None:
    """Those that the workers of this process keep for their next round."""
    for pool in (clients._consumers, fetching._readers, container_transaction._producers):
        pool._clients.clear()


@contextmanager
def kept_up(url: str, write: Callable[[Any], object], every_s: float) -> Iterator[None]:
    """While the context lasts, `write` is called again and again, with a system of its thread's own."""
    stop, errors = threading.Event(), []

    def keep_writing() -> None:
        try:
            with hr.open_system(url) as system:
                while not stop.wait(every_s):
                    write(system)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=keep_writing)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert not errors, f"the producer ended: {errors[0]!r}"


def started(app: hr.App, until: str | None = None, **options: Any) -> Any:
    """A job in this process, without Spark."""
    return wiring.start(app, until, engine=InlineEngine(run_container), **options)


def caught_up(app: hr.App, wait_s: float = WAIT_S, **options: Any) -> Any:
    """A job in this process, without Spark, that has run to the end of what there is."""
    job = started(app, "caught-up", **options)
    job.wait(wait_s)
    return job


def caught_up_on_spark(app: hr.App, wait_s: float = 100.0) -> Any:
    """The same in the application's Spark session."""
    job = app.start(until="caught-up")
    job.wait(wait_s)
    return job


def source_of(job: Any) -> dict[str, Any]:
    """The status of its first sub-topology."""
    return dict(job.status()["sub_topologies"]["source"])


def waited(what: Callable[[], Any], job: Any = None, wait_s: float = WAIT_S, otherwise: str = "") -> Any:
    """Wait until something is so, and give it; raises what ended the job."""
    deadline_s = time.monotonic() + wait_s
    while True:
        looked_s = time.monotonic()
        if found := what():
            return found
        if job is not None and not job.is_running:
            job.wait(0)
        now_s = time.monotonic()
        assert now_s < deadline_s, f"not within {wait_s:g} s: {otherwise or (job and job.status())}"
        time.sleep(min(0.5, max(0.02, 2 * (now_s - looked_s))))  # a long look leaves the processor to what it waits for
