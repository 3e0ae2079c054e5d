"""Owns the command `headrace demo`: its options, and what it writes to the screen."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

DEFAULT_DIR = Path("headrace-demo")


def demo(
    folder: Annotated[Path, typer.Option("--dir", help="Where the log, the state and the example go.")] = DEFAULT_DIR,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
    partitions: Annotated[
        int, typer.Option(min=1, max=1024, help="Partitions of the input and of the repartition stream.")
    ] = 4,
    max_records_per_round: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="The most records that a round reads.")
    ] = None,
    containers: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Containers per part of the job; as many as cores if unset.")
    ] = None,
) -> None:
    """Run the demonstration: a year of real flights, their number and mean delay per carrier and hour.

    336,776 flights are produced into an embedded log, keyed by tail number. A job filters them, keys them by carrier,
    sends them through a repartition stream and aggregates them in hourly windows, exactly once. Then: the busiest and
    the most delayed carriers, and what to look at next.

    Run again in the same folder, it begins anew; it deletes nothing but what it made itself.
    """
    from headrace.demo import folder as folders
    from headrace.demo import job
    from headrace.demo import run as runs

    defaults = runs.Options()
    options = runs.Options(partitions, max_records_per_round or defaults.max_records_per_round, containers)

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    with folders.begun_anew(folder, job.APPLICATION, job.example_text(partitions)) as place:
        say(place.found or f"everything goes to {_shown(place.path)}")
        result = runs.run(place, options, say, sys.stderr)
    if as_json:
        print(json.dumps(_as_json(place, result), indent=2))
    else:
        _show(place, result)


def _show(place: Any, result: Any) -> None:
    from rich.console import Console

    from headrace.demo import data, report

    names = data.airline_names()
    totals = report.totals_of(result.windows, names)
    worst = report.worst_hour_of(result.windows, names)
    console = Console(highlight=False)
    console.print()
    console.print(report.report_table(totals))
    console.print()
    if worst is not None:
        console.print(report.worst_hour_text(worst))
    read = sum(total.flights for total in totals)
    console.print(
        f"{result.produced:,} flights produced, {result.produced - read:,} of them cancelled; {len(result.windows):,} "
        f"carrier-hours from {result.updates:,} updates, in {result.seconds['total']:.0f} s."
    )
    console.print()
    console.print("Where to look next:")
    for command, meaning in next_steps(place):
        console.print(f"  {command}", soft_wrap=True)
        console.print(f"      {meaning}", style="dim")


def next_steps(place: Any) -> list[tuple[str, str]]:
    """Commands to run after the demonstration, and what each shows."""
    from headrace.demo import job

    system = f"--system log:{shlex.quote(_shown(place.log))}"
    example = shlex.quote(_shown(place.example))
    produced = '{"key": "N14228", "value": {"carrier": "UA", "origin": "EWR", "dep_delay": 7}}'
    return [
        (f"headrace describe {example}", "the job: its operators, streams and stores"),
        (f"headrace status --application {job.APPLICATION} {system}", "where it stands"),
        (
            f"headrace stream consume {job.OUTPUT} {system} --key 'windowed(string)' --value json --limit 5",
            "its output, as JSON lines",
        ),
        (f"headrace state get {job.STORE} HA --application {job.APPLICATION} {system}", "the state of one key"),
        (
            f"echo '{produced}' | headrace stream produce {job.INPUT} {system} --key string --value json",
            "one more flight, now",
        ),
        (f"headrace run {example} --until caught-up --set system=log:{_shown(place.log)}", "goes on where it stopped"),
        (_shown(place.example), "the job's code: change it, run it again"),
    ]


def _as_json(place: Any, result: Any) -> dict[str, Any]:
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


if __name__ == "__main__":
    typer.run(demo)
