"""The command `headrace demo`: its options, and what it writes to the screen."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.numbers import whole_number
from headrace.cli.output import print_json, say
from headrace.cli.targets import JsonOption
from headrace.environment import checked_java
from headrace.visible import raw_of, visible_line

MEANING_WIDTH = 22
BROKER_HEAP_MB = 512
KAFKA_FOLDER = "kafka"

if TYPE_CHECKING:
    from headrace.demo.run import Place, Result

DEFAULT_DIR = Path("headrace-demo")


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
        typer.Option(
            parser=whole_number(1, 1024), metavar="N", help="Partitions of the input and of the repartition stream."
        ),
    ] = 4,
    max_records_per_round: Annotated[
        int | None, typer.Option(parser=whole_number(1), metavar="N", help="Maximum records per round.")
    ] = None,
    containers: Annotated[
        int | None,
        typer.Option(
            parser=whole_number(1), metavar="N", help="Containers per sub-topology; default: the number of cores."
        ),
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
    kafka = stack.enter_context(KafkaServer(folder=folder, heap_mb=BROKER_HEAP_MB, tell=say))
    say(f"Kafka is at {kafka.bootstrap}, with its data in {_shown(folder)}; it ends with this command")
    return f"kafka://{kafka.bootstrap}"


def _show(result: Result, names: Mapping[str, str], steps: Sequence[tuple[str, str]]) -> None:
    from rich.console import Console

    from headrace.demo import report

    totals = report.totals_of(result.windows, names)
    console = Console(file=raw_of(sys.stdout), highlight=False, markup=False)
    console.print(report.report_tables(totals))
    console.print()
    worst = report.worst_hour_of(result.windows, names)
    if worst is not None:
        console.print(report.worst_hour_text(worst))
    flown = sum(total.flights for total in totals)
    console.print(
        f"{result.produced:,} flights, {result.produced - flown:,} of them cancelled: {len(result.windows):,} windows of "
        f"a carrier and an hour, {result.seconds['total']:.0f} s in all.\n\nWhere to look next:"
    )
    for meaning, command in steps:
        console.print(f"  {meaning:<{MEANING_WIDTH}}", end="", style="dim")
        console.print(visible_line(command), soft_wrap=True)


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
    from headrace.demo import report

    worst = report.worst_hour_of(result.windows, names)
    return {
        "folder": str(place.path),
        "system": place.system,
        "flights_produced": result.produced,
        "windows": len(result.windows),
        "updates": result.updates,
        "seconds": result.seconds,
        "carriers": [asdict(total) for total in report.totals_of(result.windows, names)],
        "worst_hour": worst and {**worst, "start": worst["start"].isoformat()},
        "status": result.status,
    }


def _shown(path: Path) -> str:
    """A path as one would type it from here."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
