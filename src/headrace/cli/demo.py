"""The command `headrace demo`: its options, and what it writes to the screen."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.numbers import whole_number
from headrace.cli.output import print_json, say
from headrace.cli.targets import JsonOption
from headrace.visible import raw_of, visible_line

MEANING_WIDTH = 22
BROKER_HEAP_MB = 512

if TYPE_CHECKING:
    from headrace.demo.folder import DemoFolder
    from headrace.demo.run import Result

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
    from headrace.demo import data, job
    from headrace.demo import folder as folders
    from headrace.demo import run as runs

    _check_system(system, with_kafka)
    data.check_data()
    options = runs.Options(partitions, max_records_per_round or runs.ROUND_RECORDS, containers)
    with ExitStack() as stack:
        place = stack.enter_context(folders.begun_anew(folder, job.APPLICATION, job.example_text(partitions)))
        say(place.found or f"everything goes to {_shown(place.path)}")
        url = _started_broker(stack, place) if with_kafka else system
        if url is not None and not url.startswith("log:"):
            place = _on_kafka(place, url, partitions, is_new=with_kafka)
        result = runs.run(place, options, say, sys.stderr)
    if result.status["stopped"]:
        there = shlex.quote(_shown(place.path))
        say("stopped: committed rounds are kept. To resume:")
        say(f"  cd {there} && {_program(place.path)} run {folders.EXAMPLE} --until caught-up")
        if with_kafka:
            say(f"after this, in another terminal: {_broker_again(place)}")
        raise typer.Exit(128 + result.status["signal"])
    if json:
        print_json(_described(place, result))
    else:
        _show(place, result)


def _check_system(system: str | None, with_kafka: bool) -> None:
    if system is None:
        return
    if with_kafka:
        raise typer.BadParameter("give either --system or --with-kafka, not both")
    if not system.startswith("kafka://"):
        raise typer.BadParameter(f"--system {system}: expected kafka://HOST:PORT; the log is in --dir, without this option")


def _started_broker(stack: ExitStack, place: DemoFolder) -> str:
    from headrace.wiring.kafka_server import KafkaServer

    say("starting a Kafka broker")
    kafka = stack.enter_context(KafkaServer(folder=place.kafka, heap_mb=BROKER_HEAP_MB, tell=say))
    say(f"Kafka is at {kafka.bootstrap}, with its data in {_shown(place.kafka)}; it ends with this command")
    return f"kafka://{kafka.bootstrap}"


def _on_kafka(place: DemoFolder, url: str, partitions: int, *, is_new: bool) -> DemoFolder:
    """The folder with its streams on that cluster, where there are none of an earlier demonstration any more."""
    from headrace.demo import cluster, job

    found = None if is_new else cluster.begin_anew(url, is_ours=place.noted == url)
    say(found or f"streams, positions and checkpoints go to {url}")
    return place.on(url, job.example_text(partitions, url))


def _broker_again(place: DemoFolder) -> str:
    port = place.system.rpartition(":")[2]
    return f"{_program(place.path)} kafka start --dir {place.kafka.name} --port {port}"


def _show(place: DemoFolder, result: Result) -> None:
    from rich.console import Console

    from headrace.demo import data, report

    names = data.airline_names()
    totals = report.totals_of(result.windows, names)
    worst = report.worst_hour_of(result.windows, names)
    console = Console(file=raw_of(sys.stdout), highlight=False, markup=False)
    console.print()
    console.print(report.report_table(totals, console))
    console.print()
    if worst is not None:
        console.print(report.worst_hour_text(worst))
    flown = sum(total.flights for total in totals)
    console.print(
        f"{result.produced:,} flights, {result.produced - flown:,} of them cancelled: {len(result.windows):,} windows of "
        f"a carrier and an hour, {result.seconds['total']:.0f} s in all."
    )
    console.print()
    console.print("Where to look next:")
    for meaning, command in next_steps(place):
        console.print(f"  {meaning:<{MEANING_WIDTH}}", end="", style="dim")
        console.print(visible_line(command), soft_wrap=True)


def next_steps(place: DemoFolder) -> list[tuple[str, str]]:
    """What each command shows that one may run now, and the command, all to be run in the folder of `place`."""
    from headrace.demo import folder as folders
    from headrace.demo import job

    headrace, example = _program(place.path), folders.EXAMPLE
    there = "" if place.url is None else f" --system {place.url}"
    started = [("start its broker", f"{_broker_again(place)} &")] if place.kafka.is_dir() else []
    flight = '{"key": "N380HA", "value": {"carrier": "HA", "dep_delay": 7}}'
    return [
        ("go there", f"cd {shlex.quote(_shown(place.path))}"),
        *started,
        ("the job's code", f"less {example}"),
        ("what it is made of", f"{headrace} describe {example}"),
        ("its progress", f"{headrace} status{there and f' {example}'}"),
        ("its streams", f"{headrace} stream list{there}"),
        ("its output", f"{headrace} stream consume {job.OUTPUT} --key windowed:string --value json --limit 5{there}"),
        ("a carrier's state", f"{headrace} state get {job.STORE} HA{there and f' {example}'}"),
        (
            "one more flight, now",
            f"echo '{flight}' | {headrace} stream produce {job.INPUT} --key string --value json{there}",
        ),
        ("continue it", f"{headrace} run {example} --until caught-up"),
    ]


def _program(folder: Path) -> str:
    """How to call `headrace` from `folder`: by its name if the shell finds it."""
    own = Path(sys.argv[0])
    if own.name != "headrace" or shutil.which("headrace") is not None:
        return "headrace"
    relative = os.path.relpath(own.absolute(), folder)
    return shlex.quote(min(relative, str(own.absolute()), key=len))


def _described(place: DemoFolder, result: Result) -> dict[str, Any]:
    from headrace.demo import data, report

    names = data.airline_names()
    totals = report.totals_of(result.windows, names)
    return {
        "folder": str(place.path),
        "system": place.system,
        "flights_produced": result.produced,
        "windows": len(result.windows),
        "updates": result.updates,
        "seconds": result.seconds,
        **report.as_json(totals, report.worst_hour_of(result.windows, names)),
        "status": result.status,
    }


def _shown(path: Path) -> str:
    """A path as one would type it from here."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
