"""The command `headrace demo`: its options, and what it writes to the screen: totals per carrier, and what to look at next."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.output import print_json, say
from headrace.cli.targets import JsonOption, whole_number
from headrace.environment import checked_java
from headrace.model.durations import datetime_of
from headrace.terminal_text import raw_of, safe_line

KAFKA_FOLDER, DEFAULT_DIR = "kafka", Path("headrace-demo")
HOUR_FLIGHTS_MIN = 5  # fewer flights in an hour make its mean delay a matter of chance
Windows = Mapping[tuple[str, int], Mapping[str, Any]]  # (carrier, start of the hour in µs): flights, mean_delay

if TYPE_CHECKING:
    from headrace.demo.run import Place, Result


def demo(
    folder: Annotated[Path, typer.Option("--dir", help="Folder for the log, the state and the example.")] = DEFAULT_DIR,
    json: JsonOption = False,
    system: Annotated[
        str | None, typer.Option("--system", metavar="URL", help="A Kafka cluster for the streams, kafka://HOST:PORT.")
    ] = None,
    with_kafka: Annotated[
        bool, typer.Option("--with-kafka", help="Start a Kafka broker for the demo; it stops with the demo and keeps its data.")
    ] = False,
    partitions: Annotated[
        int,
        typer.Option(parser=whole_number(1, 1024), metavar="N", help="Partitions of the input and of the repartition stream."),
    ] = 4,
    max_records_per_round: Annotated[
        int | None, typer.Option(parser=whole_number(1), metavar="N", help="Maximum records per round.")
    ] = None,
    containers: Annotated[
        int | None,
        typer.Option(parser=whole_number(1), metavar="N", help="Containers per sub-topology; default: the number of cores."),
    ] = None,
) -> None:
    """Run the demonstration: a year of real flights, their number and mean delay per carrier and hour.

    336,776 flights are produced into an embedded log, keyed by tail number. A job filters them, keys them by carrier,
    sends them through a repartition stream and aggregates them in hourly windows, exactly once. Then: the busiest and
    the most delayed carriers, and what to look at next. With --system or --with-kafka all streams are Kafka topics.

    Run again in the same folder, it starts over; it deletes only its own files.
    """
    from headrace.demo import data, run

    if system is not None and with_kafka:
        raise typer.BadParameter("give either --system or --with-kafka, not both")
    if system is not None and not system.startswith("kafka://"):
        raise typer.BadParameter(f"--system {system}: expected kafka://HOST:PORT; the log is in --dir, without this option")
    data.data_folder()
    settings = {"max_records_per_round": max_records_per_round or run.ROUND_RECORDS}
    if containers is not None:
        settings["containers"] = containers
    with ExitStack() as stack:
        place = run.Place(run.own_folder(folder), system)
        checked_java(os.environ)
        if with_kafka:
            place = run.Place(place.path, _started_broker(stack, place.path / KAFKA_FOLDER))
        found = run.prepare(place, partitions, own_cluster=with_kafka)
        say(found or f"everything goes to {_shown(place.path) if system is None else system}")
        result = run.run(place, partitions, settings, say)
    broker = f"{_program(place.path)} kafka start --dir {KAFKA_FOLDER} --port {place.system.rpartition(':')[2]}"
    if result.status["stopped"]:
        there = shlex.quote(_shown(place.path))
        say("stopped: committed rounds are kept. To resume:")
        say(f"  cd {there} && {_program(place.path)} run {run.EXAMPLE} --until caught-up")
        if with_kafka:
            say(f"after this, in another terminal: {broker}")
        raise typer.Exit(128 + result.status["signal"])
    names = data.airline_names()
    if json:
        print_json(_described(place, result, names))
    else:
        _show(result, names, next_steps(place, broker if with_kafka else None))


def _started_broker(stack: ExitStack, folder: Path) -> str:
    from headrace.wiring.kafka_server import KafkaServer

    say("starting a Kafka broker")
    kafka = stack.enter_context(KafkaServer(folder=folder, heap_mb=512, tell=say))
    say(f"Kafka is at {kafka.bootstrap}, with its data in {_shown(folder)}; it ends with this command")
    return f"kafka://{kafka.bootstrap}"


def _show(result: Result, names: Mapping[str, str], steps: Sequence[tuple[str, str]]) -> None:
    from rich.console import Console

    totals, worst = totals_of(result.windows, names), worst_hour_of(result.windows, names)
    console = Console(file=raw_of(sys.stdout), highlight=False, markup=False)
    console.print()
    console.print(report_tables(totals))
    console.print()
    if worst is not None:
        console.print(
            f"The worst hour: {worst['start'].day} {worst['start']:%B, %H:%M} UTC, {worst['flights']} flights of "
            f"{safe_line(worst['name'])}, {worst['mean_delay']:.0f} min late."
        )
    flown = sum(total.flights for total in totals)
    console.print(
        f"{result.produced:,} flights, {result.produced - flown:,} of them cancelled: {len(result.windows):,} windows of "
        f"a carrier and an hour, {result.seconds['total']:.0f} s in all.\n\nWhere to look next:"
    )
    for meaning, command in steps:
        console.print(f"  {meaning:<22}", end="", style="dim")
        console.print(safe_line(command), soft_wrap=True)


def next_steps(place: Place, broker: str | None = None) -> list[tuple[str, str]]:
    """What each command shows that one may run now, and the command, all to be run in the folder of `place`. `broker` is the
    command that starts the demonstration's own again."""
    from headrace.demo.run import EXAMPLE

    headrace, example = _program(place.path), EXAMPLE
    there = "" if place.url is None else f" --system {place.url}"
    named = there and f" {example}"
    flight = '{"key": "N380HA", "value": {"carrier": "HA", "dep_delay": 7}}'
    return [
        ("go there", f"cd {shlex.quote(_shown(place.path))}"),
        *([("start its broker", f"{broker} &")] if broker else []),
        ("the job's code", f"less {example}"),
        ("what it is made of", f"{headrace} describe {example}"),
        ("its progress", f"{headrace} status{named}"),
        ("its streams", f"{headrace} stream list{there}"),
        ("its output", f"{headrace} stream consume delays-by-carrier --key windowed:string --value json --limit 5{there}"),
        ("a carrier's state", f"{headrace} state get delays HA{named}"),
        ("one more flight, now", f"echo '{flight}' | {headrace} stream produce flights --key string --value json{there}"),
        ("continue it", f"{headrace} run {example} --until caught-up"),
    ]


def _program(folder: Path) -> str:
    """How to call `headrace` from `folder`: by its name if the shell finds it."""
    own = Path(sys.argv[0])
    if own.name != "headrace" or shutil.which("headrace") is not None:
        return "headrace"
    relative = os.path.relpath(own.absolute(), folder)
    return shlex.quote(min(relative, str(own.absolute()), key=len))


def _described(place: Place, result: Result, names: Mapping[str, str]) -> dict[str, Any]:
    worst = worst_hour_of(result.windows, names)
    return {
        "folder": str(place.path),
        "system": place.system,
        "flights_produced": result.produced,
        "windows": len(result.windows),
        "updates": result.updates,
        "seconds": result.seconds,
        "carriers": [asdict(total) for total in totals_of(result.windows, names)],
        "worst_hour": worst and {**worst, "start": worst["start"].isoformat()},
        "status": result.status,
    }


def _shown(path: Path) -> str:
    """A path as one would type it from here."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


@dataclass(frozen=True, slots=True)
class CarrierTotal:
    """A carrier's year: flights that left, and their mean delay in minutes (negative: they left early)."""

    carrier: str
    name: str
    flights: int
    mean_delay: float
    hours: int


def totals_of(windows: Windows, names: Mapping[str, str]) -> list[CarrierTotal]:
    """The year of each carrier, the one with the most flights first.

    >>> totals_of({("UA", 0): {"flights": 3, "mean_delay": 10.0}, ("UA", 1): {"flights": 1, "mean_delay": 30.0}}, {})
    [CarrierTotal(carrier='UA', name='UA', flights=4, mean_delay=15.0, hours=2)]
    """
    by_carrier: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for (carrier, _), value in sorted(windows.items()):
        by_carrier[carrier].append(value)
    totals = []
    for carrier, hours in by_carrier.items():
        flights = sum(hour["flights"] for hour in hours)
        minutes = sum(hour["flights"] * hour["mean_delay"] for hour in hours)
        totals.append(CarrierTotal(carrier, names.get(carrier, carrier), flights, minutes / flights, len(hours)))
    return sorted(totals, key=lambda total: (-total.flights, total.carrier))


def worst_hour_of(windows: Windows, names: Mapping[str, str]) -> dict[str, Any] | None:
    """The carrier and hour with the largest mean delay, with its `start` as a datetime; None if no hour had enough flights."""
    candidates = [
        (value["mean_delay"], carrier, start_us, value["flights"])
        for (carrier, start_us), value in windows.items()
        if value["flights"] >= HOUR_FLIGHTS_MIN
    ]
    if not candidates:
        return None
    delay, carrier, start_us, flights = max(candidates)
    start, name = datetime_of(start_us), names.get(carrier, carrier)
    return {"carrier": carrier, "name": name, "start": start, "flights": flights, "mean_delay": delay}


def report_tables(totals: Sequence[CarrierTotal]) -> Any:
    """The busiest and the most delayed carriers, for rich: side by side where there is room for both."""
    from rich.columns import Columns

    delayed = sorted(totals, key=lambda total: (-total.mean_delay, total.carrier))
    return Columns([_carriers("Busiest carriers", totals), _carriers("Most delayed carriers", delayed)], padding=(1, 3))


def _carriers(title: str, totals: Sequence[CarrierTotal]) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(title, no_wrap=True)
    table.add_column("flights", justify="right", no_wrap=True)
    table.add_column("delay", justify="right", no_wrap=True)
    for total in totals[:5]:
        table.add_row(safe_line(f"{total.carrier} {total.name}"), f"{total.flights:,}", f"{total.mean_delay:.1f} min")
    return table
