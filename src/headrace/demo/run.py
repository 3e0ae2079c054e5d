"""A run of the demonstration: its folder, its streams, the flights, the job, and the result that is read from the output.

The job is `flight_delays.txt` beside this module, as a user writes it; the demonstration leaves it in its folder.
Nothing that the demonstration did not make is deleted: a marker file in its folder says that the folder is its own, has
the checksum of the example, so that an edited one is kept, and the cluster that has topics of it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace import wiring
from headrace.adapters.common.lease_holder import is_alive
from headrace.config.loading import load_config
from headrace.demo import data
from headrace.environment import checked_folder
from headrace.errors import JobHeldError, SetupError, StorageError, StreamExistsError, StreamNotFoundError
from headrace.serdes.json_serde import Json
from headrace.serdes.scalars import String
from headrace.serdes.windowed import Windowed
from headrace.terminal_text import raw_of

APPLICATION, INPUT, OUTPUT = "flight-delays", "flights", "delays-by-carrier"
TOPICS = (INPUT, OUTPUT, *(f"{APPLICATION}-{own}" for own in ("by-carrier-repartition", "metadata", "checkpoints")))
EXAMPLE, MARKER = "flight_delays.py", ".headrace-demo.json"
PARTITIONS = 4
ROUND_RECORDS = 100_000  # the whole year would fit into one round: several show how a job continues from round to round
# Flights are of 2013: a broker that deletes by the time of records would delete them while they are read.
_KAFKA = {"topic.retention.ms": "-1"}
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Place:
    """Where the demonstration keeps things: its folder, and the cluster with its streams, None for a log in the folder."""

    path: Path
    url: str | None = None

    @property
    def system(self) -> str:
        return self.url or f"log:{self.path / 'data'}"

    def opened(self, create: bool = True) -> Any:
        """The system, with settings that the configuration here gives it."""
        kafka = None if self.url is None else load_config(Path.cwd(), os.environ, {"kafka": _KAFKA}).kafka
        return wiring.opened_system(self.system, create=create, kafka=kafka)


@dataclass(slots=True)
class Result:
    """What came of a run: the job's last status, the last update of each carrier and hour, seconds per part."""

    produced: int
    status: Mapping[str, Any]
    windows: Mapping[tuple[str, int], Mapping[str, Any]] = field(default_factory=dict)
    updates: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)


def own_folder(path: Path) -> Path:
    """The demonstration's folder, made if it is absent. `SetupError` for one with files that is not ours."""
    path = path.expanduser().absolute()
    marker = path / MARKER
    if path.is_dir() and not marker.is_file() and any(path.iterdir()):
        raise SetupError(
            f"folder {path} is not empty, and no demonstration made it", "choose another one: headrace demo --dir FOLDER"
        )
    checked_folder(path, "the demonstration")
    marker.touch()
    return path


def prepare(place: Place, partitions: int, *, own_cluster: bool) -> str | None:
    """Delete what an earlier demonstration made there, and write the example; in words, what was found, None for nothing.
    `own_cluster`: the cluster is in the folder, so that all its topics are ours. `StreamExistsError` where topics of our names
    are not ours; `JobHeldError` while a job runs on them."""
    marker = place.path / MARKER
    made: dict[str, Any] = json.loads(marker.read_text(encoding="utf-8") or "{}")
    text = example_text(partitions, place.url)
    example = place.path / EXAMPLE
    checksum = hashlib.sha256(text.encode()).hexdigest()
    edited = example.exists() and hashlib.sha256(example.read_bytes()).hexdigest() != made.get("example")
    found = f"{place.path.name} holds an earlier demonstration; it is recreated" if made else None
    log = Place(place.path)
    if (place.path / "data").is_dir():
        with suppress(SetupError, StorageError), log.opened(create=False) as system:  # a damaged log has no job
            _refuse_while_driven(system, log)
    if place.url is not None and _deleted_topics(place, is_ours=own_cluster or made.get("system") == place.url):
        found = f"{place.url} has the topics of an earlier demonstration; they are recreated"
    for folder in (place.path / "data", place.path / ".headrace"):
        if folder.exists():
            shutil.rmtree(folder)
    if not edited:
        example.write_text(text, encoding="utf-8")
    elif found:
        found += f"; {EXAMPLE} was edited, and stays as it is"
    note = "made by `headrace demo`; running it again deletes data and .headrace in this folder, and the topics in system"
    content = {"note": note, "example": made.get("example") if edited else checksum, "system": place.url or made.get("system")}
    marker.write_text(json.dumps(content) + "\n", encoding="utf-8")
    return found


def _refuse_while_driven(system: Any, place: Place) -> None:
    holder = system.job_store(APPLICATION).holder()
    if is_alive(holder, time.time_ns() // 1000):
        raise JobHeldError(
            f"application {APPLICATION!r} runs on {place.system}: process {holder.pid} on {holder.host}",
            "stop it first, or choose another folder: headrace demo --dir FOLDER",
        )


def _deleted_topics(place: Place, *, is_ours: bool) -> bool:
    """Delete what an earlier demonstration left on the cluster; whether there was anything."""
    with place.opened() as system:
        found = topics_in(system)
        if found and not is_ours:
            raise StreamExistsError(
                f"{place.url} has {', '.join(found)} already, and no demonstration of this folder made them",
                "give the demonstration a cluster of its own (headrace demo --with-kafka starts one), or delete them: "
                f"headrace stream delete {found[0]} --system {place.url} --force",
            )
        if found:
            _refuse_while_driven(system, place)
        for name in found:
            system.delete_stream(name)
    return bool(found)


def topics_in(system: Any) -> list[str]:
    """The topics of a cluster that have names of ours."""
    found = []
    for name in TOPICS:
        with suppress(StreamNotFoundError):
            system.end_offsets(name)
            found.append(name)
    return found


def example_text(partitions: int = PARTITIONS, system: str | None = None) -> str:
    """The job as a user writes it, with a repartition stream of so many partitions; `system` unless it is the log."""
    text = Path(__file__).with_name("flight_delays.txt").read_text(encoding="utf-8")
    text = text.replace(f"number_of_partitions={PARTITIONS})", f"number_of_partitions={partitions})")
    for log in ("log:./headrace-demo/data", "log:./data") if system is not None else ():
        text = text.replace(log, str(system))
    return text


def run(place: Place, partitions: int, settings: Mapping[str, Any], say: Say, spark: Any = None) -> Result:
    """Produce the flights, run the job with these `settings`, read its output. `spark`: a session to run in. A signal that
    stops the job ends the run without its `windows`; `status["stopped"]` is set then."""
    began_s = time.monotonic()
    app = _app(place, partitions, settings)
    app.session.given = spark
    produced = _produced(place, partitions, say)
    produced_s = time.monotonic()
    say(f"running the job: {INPUT} → by-carrier → {OUTPUT}")
    result = Result(produced, wiring.run(app, "caught-up"))
    seconds = {"produce": produced_s - began_s, "job": time.monotonic() - produced_s}
    if not result.status["stopped"]:
        with place.opened(create=False) as system:
            output = system.consume(OUTPUT, key=Windowed(String()), value=Json())
            result.windows = {(record.key.key, record.key.start_us): record.value for record in output}
            result.updates = sum(system.end_offsets(OUTPUT).values())
    seconds["total"] = time.monotonic() - began_s
    result.seconds = {part: round(length_s, 1) for part, length_s in seconds.items()}
    return result


def _app(place: Place, partitions: int, settings: Mapping[str, Any]) -> Any:
    """The example's application, on the streams and with the local stores of `place`."""
    names: dict[str, Any] = {"__name__": APPLICATION}
    exec(compile(example_text(partitions), EXAMPLE, "exec"), names)
    app = names["app"]
    stores = {"local_store_dir": str(place.path / ".headrace" / "stores")}
    app.config_arguments = {"system": place.system, **stores, **settings, **({} if place.url is None else {"kafka": _KAFKA})}
    return app


def _produced(place: Place, partitions: int, say: Say) -> int:
    from rich.console import Console
    from rich.progress import track

    table = data.flights_table()
    say(f"producing {table.num_rows:,} flights, in the order of time, to {INPUT} in {partitions} partitions")
    records = track(data.flight_records(table), "produced", table.num_rows, console=Console(file=raw_of(sys.stderr)))
    with place.opened() as system:
        system.create_stream(INPUT, partitions)
        return int(system.produce(INPUT, records, key=String(), value=Json()))
