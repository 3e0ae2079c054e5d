"""Owns `headrace run`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from headrace import wiring
from headrace.cli.output import print_json, say
from headrace.cli.targets import AppArgument, JsonOption, SetOption

EXAMPLES = """Examples:

\b
  headrace run flights.py                       until Ctrl-C or SIGTERM
  headrace run flights.py --until caught-up     work off what is there now, then end
  headrace run flights.py --set containers=2 --set dead_letter_stream=bad-flights
"""


CAUGHT_UP = "caught-up"


def _until(text: str) -> str:
    if text != CAUGHT_UP:
        raise typer.BadParameter(f"expected {CAUGHT_UP}, found {text!r}; did you mean {CAUGHT_UP!r}?")
    return text


def run(
    app: AppArgument,
    until: Annotated[
        str | None,
        typer.Option(
            "--until", parser=_until, metavar=CAUGHT_UP, help="`caught-up`: end once the inputs' present end is worked off."
        ),
    ] = None,
    set_: SetOption = None,
    no_progress: Annotated[bool, typer.Option("--no-progress", help="Show no progress.")] = False,
    json: JsonOption = False,
) -> None:
    """Run an application on Spark, with its progress, until it is stopped or has caught up.

    The file is read first, and refused if it can hold no application. Then it is imported: its whole top level is executed,
    but not what stands under `if __name__ == "__main__":`. All commands that take APP do so.

    Ctrl-C and SIGTERM stop it cleanly: the round that runs is dropped whole, and the next run continues from there.
    """
    from headrace.wiring.loading import load_app

    loaded = load_app(app, set_ or (), say)
    status = wiring.run(loaded, until, overrides=set_ or (), log=say, progress=not no_progress)
    if json:
        print_json(status)
    if status.get("stopped"):
        say(f"stopped {loaded.name}: what is committed stays, the next run goes on from there")
    elif not json:
        # Kafka's transactions take an offset each for their markers, which are no records.
        on_kafka = wiring.config_of(loaded, set_ or ()).system.startswith("kafka:")
        say(_summary(status, "offset" if on_kafka else "record"))


def _summary(status: dict[str, Any], unit: str) -> str:
    """Of the inputs only: what goes through a repartition stream is read there once more, and is no other record."""
    source = status["sub_topologies"]["source"]
    records, lag = source["records"], source["lag"]
    behind = f", {lag:,} came meanwhile" if lag else ""
    read = f"{records:,} input {unit}{'' if records == 1 else 's'}"
    return f"{status['application']} has caught up: {read} read{behind}"
