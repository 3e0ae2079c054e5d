"""A run of the demonstration from its beginning to its result: produce the flights, run the job, read what came out.

Spark takes seconds to start, so it starts while the flights are produced.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from headrace import wiring
from headrace.config.loading import load_config
from headrace.demo import cluster, data, job, report
from headrace.demo.folder import DemoFolder
from headrace.driver.progress_display import shown_count
from headrace.environment import checked_java
from headrace.serdes.json_serde import Json
from headrace.serdes.scalars import String
from headrace.serdes.windowed import Windowed

ROUND_RECORDS = 100_000  # the whole year would fit into one round: several show how a job continues from round to round
_COUNTED_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class Options:
    """How the demonstration is run; see the help of `headrace demo`."""

    partitions: int = job.PARTITIONS
    max_records_per_round: int = ROUND_RECORDS
    containers: int | None = None


@dataclass(slots=True)
class Result:
    """What came of it: the last update of each carrier and hour, the job's last status, seconds per part."""

    produced: int = 0
    windows: Mapping[tuple[str, int], Mapping[str, Any]] = field(default_factory=dict)
    updates: int = 0
    status: Mapping[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


def run(
    folder: DemoFolder, options: Options, say: Callable[[str], None], progress: TextIO | None, spark: Any = None
) -> Result:
    """Run all of it in `folder`; `say` reports what happens, `progress` is where progress is shown (None: nowhere).

    A signal that stops the job ends the run without its `windows`; `status["stopped"]` is set then.
    `spark` is a session to run in; without one, one is started, and stopped at the end.
    """
    if spark is None:
        checked_java(os.environ)
    result = Result()
    app = job.flight_delays(options.partitions, spark=spark, **_arguments(folder, options))
    with _timed(result, "total"), _spark_of(app) as spark_started:
        with _timed(result, "produce"):
            result.produced = _produced(folder, options.partitions, say, progress)
        if not spark_started():
            say("Spark is still starting")
        with _timed(result, "spark start, beyond that"):
            spark_started(wait=True)
        say(f"running the job: {job.INPUT} → {job.REPARTITION} → {job.OUTPUT}")
        with _timed(result, "job"):
            result.status = wiring.run(app, "caught-up", progress=progress is not None)
        if result.status["stopped"]:
            return result
        with _timed(result, "read the result"), _system(folder, create=False) as system:
            windows = report.last_updates_of(system.consume(job.OUTPUT, key=Windowed(String()), value=Json()))
            result.windows = windows
            result.updates = sum(system.end_offsets(job.OUTPUT).values())
    return result


def _arguments(folder: DemoFolder, options: Options) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "system": folder.system,
        "local_store_dir": str(folder.local_stores),
        "max_records_per_round": options.max_records_per_round,
    }
    if folder.url is not None:
        arguments["kafka"] = cluster.FOREVER
    return arguments if options.containers is None else arguments | {"containers": options.containers}


def _system(folder: DemoFolder, create: bool = True) -> Any:
    """The folder's system, with settings that its configuration here gives it."""
    if folder.url is None:
        return wiring.open_system(folder.system, create=create)
    settings = load_config(Path.cwd(), os.environ, {"kafka": cluster.FOREVER}).kafka
    return wiring.open_system(folder.system, kafka=settings)


def _produced(folder: DemoFolder, partitions: int, say: Callable[[str], None], progress: TextIO | None) -> int:
    table = data.flights_table()
    say(f"producing {table.num_rows:,} flights, in the order of time, to {job.INPUT} in {partitions} partitions")
    with _system(folder) as system:
        system.create_stream(job.INPUT, partitions)
        if progress is None:
            return int(system.produce(job.INPUT, data.flight_records(table), key=String(), value=Json()))
        with shown_count("produced", table.num_rows, progress) as add:
            counted = _counted(data.flight_records(table), add)
            return int(system.produce(job.INPUT, counted, key=String(), value=Json()))


def _counted(records: Iterator[Any], add: Callable[[int], None]) -> Iterator[Any]:
    for number, record in enumerate(records, 1):
        yield record
        if number % _COUNTED_AT_ONCE == 0:
            add(_COUNTED_AT_ONCE)
    add(number % _COUNTED_AT_ONCE)


@contextmanager
def _spark_of(app: Any) -> Iterator[Callable[..., bool]]:
    """Spark, started in the background and stopped at the end, unless the application was given a session.

    The context is a function that says whether it has started, `wait=True` after waiting for it; it raises what went
    wrong.
    """
    failed: list[BaseException] = []

    def start() -> None:
        try:
            _ = app.spark
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=start, name="headrace-demo-spark", daemon=True)
    thread.start()

    def started(wait: bool = False) -> bool:
        if wait:
            thread.join()
        if failed:
            raise failed[0]
        return not thread.is_alive()

    try:
        yield started
    except BaseException:
        if thread.is_alive():
            raise  # an interrupt does not wait for Spark to start: its JVM ends with this process
        _stop_spark(app, failed)
        raise
    thread.join()
    _stop_spark(app, failed)


def _stop_spark(app: Any, failed: Sequence[BaseException]) -> None:
    if not failed and app.session.given is None:
        app.spark.stop()


@contextmanager
def _timed(result: Result, part: str) -> Iterator[None]:
    began_s = time.monotonic()
    try:
        yield
    finally:
        result.seconds[part] = round(time.monotonic() - began_s, 1)
