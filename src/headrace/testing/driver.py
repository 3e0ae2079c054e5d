"""`Driver`: an application at work under a test's control, one round after the other, on a clock that only a test moves.
Rounds, state and commits are those of a job; containers run in this process, mostly without Spark, and without threads unless
`task_threads` is set."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Self

from headrace.client.scales import Elasticity
from headrace.client.startpoint_previews import startpoint_of
from headrace.client.startpoints import Startpoints
from headrace.client.state_reader import entries_of, no_such_store
from headrace.client.store_form import form_of
from headrace.config.loading import Config
from headrace.core.rewind.startpoint_rules import start_of
from headrace.core.topology.compatibility import in_use
from headrace.core.topology.resolution import has_open_types
from headrace.core.topology.sub_topologies import upstream_names_of
from headrace.driver.change_requests import ChangeRequests
from headrace.driver.job import LaunchedJob
from headrace.driver.planning.job_plan import Pace
from headrace.driver.prepared_job import PreparedJob
from headrace.driver.rounds.planned_round import PlannedRound
from headrace.driver.rounds.poison_records import find_poison_records
from headrace.driver.rounds.scheduling import CaughtUp, RoundScheduler, unread_of_own
from headrace.driver.rounds.sub_topology_runner import SubTopologyRunner, inherit
from headrace.errors import ConfigError, RoundFailedError, StorageError, StreamNotFoundError
from headrace.exchange.engine import EngineFailure
from headrace.exchange.messages import Summary
from headrace.model.change import ChangeRequest
from headrace.model.durations import duration_us, time_us
from headrace.model.serde import Serde
from headrace.model.startpoint import PositionType
from headrace.model.tasks import TaskName
from headrace.model.topology import Process, Source, Topology
from headrace.record import Record
from headrace.state_files.files import StateFiles
from headrace.testing.stores import StoredView, encoded, serdes_of
from headrace.wiring import config_of, open_configured
from headrace.wiring.launch import launched
from headrace.wiring.matched_streams import as_matched
from headrace.wiring.spark_sessions import shared_spark
from headrace.wiring.worker.entry import run_container
from headrace.wiring.worker.worker_state import forget
from headrace.worker.inline_engine import InlineEngine

START = "2026-01-01T00:00:00Z"
_MEMORY = Path("/dev/shm")  # an fsync costs nothing there, and milliseconds on a disk
_FREE_BYTES_MIN = 512 * 1024 * 1024  # containers often have 64 MB there, which a larger test would fill
ROUNDS_MAX = 10_000  # of one `run`, one after the other, that read no record

LOG = logging.getLogger("headrace.testing")


class Driver:
    """Runs `app` on records that a test sends; use it in a `with`.

    `start`: where its clock begins, as ISO text, an aware datetime or µs. `partitions`: of every input stream that has to be
    made, or a mapping of streams to numbers; every stream in that is made, and one that is written by a function of the record
    must be in it. `directory`: a folder to keep everything in, so that a driver of the edited application can carry on there;
    without one all is deleted at the end. `overrides`: configuration, as `--set` takes it (`"max_records_per_round=10"`).

    The clock is the job's wall clock: it times records that are sent without a time, wall-clock timers, how long an input
    has been idle, and the versions of the state that are kept at the end of a `run`. It moves only by `advance`. Event time
    is the records' own, and moves only by records.
    """

    def __init__(
        self,
        app: Any,
        start: str | datetime | int = START,
        *,
        partitions: int | Mapping[str, int] = 1,
        directory: str | Path | None = None,
        overrides: Sequence[str] = (),
    ) -> None:
        if not callable(getattr(app, "topology", None)):
            raise ConfigError(f"{app!r} is no application", "give the hr.App itself: Driver(app)")
        self.app = app
        self.now_us = time_us(start, "start")
        self._partitions = partitions
        self._kept = None if directory is None else Path(directory).absolute()
        self._overrides = list(overrides)
        self._root: Path | None = None
        self._job: LaunchedJob | None = None
        self._system: Any = None
        self._sources: Sequence[Source] = ()
        self._pending: dict[str, list[Record]] = {}
        self._refused = False  # some of `_pending` cannot be written, whatever the disk
        self._read: dict[str, dict[int, int]] = {}

    def open(self) -> Self:
        """Make the streams that are not there and plan the job; raises what refuses it.

        A job that begins at an offset, at a time or by a bootstrap is planned by the first `run`: what is sent before that is
        in its streams when it begins.
        """
        topology = self.app.topology()
        self._root = _new_folder() if self._kept is None else self._kept
        try:
            config = self._config()
            self._system = open_configured(config)
            self._make_streams(topology)
            self._sources = tuple(as_matched(topology, config, self._system).sources)
            starts = [start_of(source.start).position_type for source in topology.sources]
            if not set(starts) - {PositionType.EARLIEST, PositionType.LATEST}:  # others depend on what is there
                self._launch()
        except BaseException:
            self.close()
            raise
        return self

    def _launch(self) -> None:
        self._flush()
        config = self._config()
        engine = shared_spark(self.app, config) if has_open_types(self.app.topology()) else InlineEngine(run_container)
        self._job = launched(self.app, config, engine, LOG.info, lambda: self.now_us)
        self._run_with(self._job.prepared)

    def close(self) -> None:
        """Give the application back and close everything; records that were sent and not run stay in their streams."""
        job, self._job = self._job, None
        system, root = self._system, self._root
        with ExitStack() as stack:
            if root is not None and self._kept is None:
                stack.callback(shutil.rmtree, root, ignore_errors=True)
            self._root = None
            if job is not None:
                stack.callback(job.close)
                stack.callback(forget, self.app.name, job.preparer.files.uri)
                stack.callback(job.backend.store.release, self._prepared.plan.epoch)
            if system is not None:
                stack.callback(setattr, self, "_system", None)
                stack.callback(system.close)
                if not self._refused:  # `run` has raised what is wrong with a record, and would again
                    with suppress(StreamNotFoundError):
                        self._flush()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *error: object) -> None:
        self.close()

    def send(
        self,
        stream: str,
        key: Any,
        value: Any,
        at: str | datetime | int | None = None,
        headers: Mapping[str, Any] | Sequence[tuple[str, Any]] | None = None,
        partition: int | None = None,
        *,
        raw: bool = False,
    ) -> None:
        """Send a record to an input stream, encoded as the application decodes it; `run` processes it.

        `at` is its time, by default the clock's. `partition` is by default the one that any producer would choose for the key.
        With `raw` key and value are bytes (or None) and taken as they are, for any stream: they need not decode.
        """
        self._check_open()
        source = next((source for source in self._sources if source.stream == stream), None)
        if source is None and not raw:
            known = ", ".join(sorted({source.stream for source in self._sources}))
            raise StreamNotFoundError(f"send: the application reads no stream {stream!r}", f"it reads: {known}")
        serdes = (None, None) if raw or source is None else (source.key, source.value)
        key, value = (encoded(stream, *one, raw) for one in zip(("key", "value"), serdes, (key, value), strict=True))
        pairs = headers.items() if isinstance(headers, Mapping) else headers or ()
        given = tuple((name, data.encode() if isinstance(data, str) else data) for name, data in pairs)
        when = self.now_us if at is None else time_us(at, "at")
        self._pending.setdefault(stream, []).append(Record(key, value, when, given, partition))

    def run(self) -> int:
        """Run rounds until nothing is left to do: no record, no due timer. The number of rounds.

        Raises what a job would end with, such as `RecordError`; nothing of that round is committed then. Records that could not
        be written (`StorageError`, such as on a full disk) are written by the next `run`: none is lost, and none doubled.
        """
        self._check_open()
        self._flush()
        assert self._held
        if requests := (*self._requests.found(0.0, with_streams=False), *self._scales()):
            self._replan(requests)
        done = self._run_rounds()
        if scales := self._scales():  # of tasks that were too far apart before
            self._replan(scales)
            done += self._run_rounds()
        self._requests.settle_startpoints(self.now_us)
        self._prepared.maintenance.keep()
        return done

    def _run_rounds(self) -> int:
        done = without_records = 0
        runners, most = self._opened.runners, self._config().caught_up_passes_max
        caught_up = CaughtUp(sources := [one for one in runners if one.sub.name is None and unread_of_own(runners)])
        while True:
            worked = False
            for runner in runners:
                planned = self._scheduler.next(runner, self.now_us / 1_000_000, self.now_us, caught_up.limit_of(runner))
                if planned is not None:
                    caught_up.wrote(runner, self._run_round(runner, planned))
                    worked, done = True, done + 1
                    without_records = 0 if any(piece.records for piece in planned.ranges) else without_records + 1
                    if without_records > ROUNDS_MAX:
                        raise _not_caught_up(runner)
            if not worked and not caught_up.begins_pass(runners, sources, most):
                return done

    def _scales(self) -> Sequence[ChangeRequest]:
        """Another scale that is requested; before tasks are merged those that are behind read up to the others."""
        runners = self._prepared.runners
        requests, merging = self._requests.scales(0.0, runners)
        for runner in runners:
            recut = merging.get(runner.sub.title)
            while recut is not None and (limit := runner.limit_to_merge(recut)) is not None:
                planned = self._scheduler.next(runner, self.now_us / 1_000_000, self.now_us, limit)
                assert planned is not None, "what other tasks have read can be read"
                self._run_round(runner, planned)
        return requests

    def elasticity(
        self, factor: int | None = None, *, containers: int | None = None, sub_topology: str | None = None
    ) -> None:
        """Change how many virtual tasks there are to a task, from the next `run` on, as `headrace elasticity set` does."""
        with Elasticity(self.app.name, self._config(), self._opened.plan.topology, self._system) as scales:
            scales.set(factor, containers=containers, sub_topology=sub_topology)

    def expand(self, stream: str, partitions: int) -> None:
        """Give a stream more partitions, and continue as a job that has noticed it; raises what would stop its readers.

        What was sent before goes to the old partitions, what is sent after to all of them.
        """
        assert self._held
        self._flush()
        self._system.expand_stream(stream, partitions)
        self._replan()
        for error in self._prepared.plan.refused.values():
            raise error

    def startpoint(
        self,
        stream: str,
        startpoint: Any,
        partition: int | None = None,
        *,
        task: str | TaskName | None = None,
        state: str = "keep",
    ) -> tuple[str, ...]:
        """Set where `stream` resumes, from the next `run` on, as `headrace startpoint set` does; the startpoints' ids.

        `startpoint`: "earliest", "latest", "bootstrap", an offset, a time, a timedelta before the clock's time, or an
        `hr.Startpoint`. `partition` None: all of them. `state`: "keep" it as it is, so that aggregates count replayed records
        again; or "rewind" it too, across repartition streams, to versions that were kept at the end of a `run`.
        """
        self._opened.maintenance.keep()  # a job has done so since the clock moved; the plan goes back to what is on record now
        self._flush()
        chosen = startpoint_of(startpoint, self.now_us)
        with Startpoints(self.app.name, self._config(), self._opened.plan.topology, self._system) as points:
            return points.set(stream, chosen, partition=partition, task=task, state=state)

    def advance(self, by: str | timedelta) -> None:
        """Move the clock forward, `"1 hour"` or a timedelta. Nothing runs before the next `run`."""
        self.now_us += duration_us(by, "advance")

    def read(
        self, stream: str, *, key: Serde | None = None, value: Serde | None = None, from_start: bool = False
    ) -> list[Record]:
        """The records written to a stream since it was last read (`from_start`: all), partition after partition.

        Decoded by the serdes of the operator that writes it, where not given; dead letters are bytes.
        """
        keys, values = serdes_of(stream, self._opened.plan.topology, self._opened.runners[0].program.dead_letter)
        ends = self._system.end_offsets(stream)
        begin = {} if from_start else self._read.get(stream, {})
        self._read[stream] = ends
        start = {partition: begin.get(partition, 0) for partition in ends}
        return list(self._system.consume(stream, key=key or keys, value=value or values, start=start))

    def store(self, name: str) -> StoredView:
        """A store of the application, as committed."""
        database = self._opened.plan.model.databases.get(name, name)
        for runner in self._opened.runners:
            if (form := form_of(runner.program, name)) is not None:
                return StoredView(name, form, partial(_entries, runner, self._held.preparer.files, database))
        raise no_such_store(self.app.name, name, in_use(self._opened.plan.model.stores))

    @property
    def counters(self) -> dict[str, int]:
        """The counters of the job so far (`late_records`, `dead_letters`, a Processor's own), over all sub-topologies."""
        found: Counter[str] = Counter()
        for runner in self._opened.runners:
            found.update(runner.progress.counters)
        return dict(found)

    def _check_open(self) -> None:
        if self._system is None:
            raise RoundFailedError("this driver is not open", "use it in a `with`, or call open() first")

    @property
    def _held(self) -> LaunchedJob:
        self._check_open()
        if self._job is None:
            self._launch()
        assert self._job is not None
        return self._job

    @property
    def _opened(self) -> PreparedJob:
        assert self._held
        return self._prepared

    def _replan(self, requests: Sequence[ChangeRequest] = ()) -> None:
        """Continue by another plan, as a job does whose streams or startpoints have changed."""
        before = {runner.sub.name: runner for runner in self._prepared.runners}
        self._run_with(self._held.prepare_again(self._prepared.plan, self.now_us, requests))
        inherit(self._prepared.runners, before)

    def _run_with(self, prepared: PreparedJob) -> None:
        self._prepared, idle_timeout_s = prepared, self._config().idle_timeout_s
        self._requests = ChangeRequests(self._held.backend, Pace(0.0, idle_timeout_s, 0, 0.0, 0.0))
        self._requests.begin(prepared.plan, 0.0)
        by_name = {runner.sub.name: runner for runner in prepared.runners}
        self._scheduler = RoundScheduler(by_name, upstream_names_of(prepared.plan.subs), idle_timeout_s)

    def _config(self) -> Config:
        assert self._root is not None
        places = [
            f"system=log:{self._root / 'log'}",
            f"state_uri={self._root / 'state'}",
            f"local_store_dir={self._root / 'stores'}",
        ]
        config = config_of(self.app, [*self._overrides, *places])
        return config if config.task_threads is not None else replace(config, task_threads=1)

    def _make_streams(self, topology: Topology) -> None:
        numbers, default = ({}, self._partitions) if isinstance(self._partitions, int) else (self._partitions, 1)
        there = {stream.name for stream in self._system.streams()}
        named = {one.stream for one in topology.sources if not one.patterns}.intersection(topology.inputs)
        for stream in sorted({*named, *numbers} - there):
            self._system.create_stream(stream, numbers.get(stream, default))

    def _flush(self) -> None:
        """Write what was sent, all of a stream at once. What a failure left unwritten waits for the next time."""
        for stream, records in list(self._pending.items()):
            ends = self._ends_of(stream)
            try:
                self._system.produce(stream, records)
            except BaseException as error:
                del records[: self._ends_of(stream) - ends]  # many records are several commits
                self._refused = not isinstance(error, StorageError)
                raise
            del self._pending[stream]

    def _ends_of(self, stream: str) -> int:
        return sum(self._system.end_offsets(stream).values())

    def _run_round(self, runner: SubTopologyRunner, planned: PlannedRound) -> list[Summary]:
        self._opened.maintenance.began(runner)
        try:
            summaries = runner.run(planned)
        except EngineFailure as failure:
            if failure.in_expression and find_poison_records(self._held.backend.engine, runner, planned):
                return []  # the record is known now, and the next round rejects it
            raise RoundFailedError(f"round {planned.id}: {failure.message}") from None
        runner.commit(planned, summaries)
        self._opened.maintenance.committed(runner)
        return summaries


def _new_folder() -> Path:
    """A new, private folder for what a driver does not keep: in memory where there is room."""
    try:
        has_room = os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _FREE_BYTES_MIN
    except OSError:
        has_room = False
    return Path(tempfile.mkdtemp(prefix="headrace-test-", dir=_MEMORY if has_room else None))


def _not_caught_up(runner: SubTopologyRunner) -> RoundFailedError:
    timing = [node.name for node in runner.program.nodes if isinstance(node, Process) and node.timers]
    return RoundFailedError(
        f"run: not caught up after {ROUNDS_MAX:,} rounds without a record, the last one of sub-topology {runner.sub.title!r}",
        f"look at its timers, those of {', '.join(timing)}: they are due again and again" if timing else None,
    )


def _entries(runner: SubTopologyRunner, files: StateFiles, store: str) -> Iterable[tuple[bytes, bytes]]:
    return entries_of([checkpoint.head for checkpoint in runner.checkpoints.values()], files, store)
