"""Owns `headrace run`."""

from __future__ import annotations

from enum import StrEnum
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


class Until(StrEnum):
    CAUGHT_UP = "caught-up"


def run(
    app: AppArgument,
    until: Annotated[
        Until | None, typer.Option("--until", help="`caught-up`: end once the inputs' present end is worked off.")
    ] = None,
    set_: SetOption = None,
    no_progress: Annotated[bool, typer.Option("--no-progress", help="Show no progress.")] = False,
    json: JsonOption = False,
) -> None:
    """Run an application on Spark, with its progress, until it is stopped or has caught up.

    Ctrl-C and SIGTERM stop it cleanly: the round that runs is dropped whole, and the next run goes on from there.
    """
    from headrace.wiring.loading import load_app

    loaded = load_app(app, set_ or (), say)
    status = wiring.run(loaded, None if until is None else str(until), overrides=set_ or (), log=say, progress=not no_progress)
    if json:
        print_json(status)
    if status.get("stopped"):
        say(f"stopped {loaded.name}: what is committed stays, the next run goes on from there")
    elif not json:
        say(_summary(status))


def _summary(status: dict[str, Any]) -> str:
    subs = status["sub_topologies"].values()
    records = sum(sub["records"] for sub in subs)
    lag = sum(sub["lag"] for sub in subs)
    behind = f", {lag:,} came meanwhile" if lag else ""
    return f"{status['application']} has caught up: {records:,} records read{behind}"
