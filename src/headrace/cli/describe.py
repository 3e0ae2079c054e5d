"""`headrace describe`."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.output import print_json, say
from headrace.cli.targets import AppArgument, JsonOption

EXAMPLES = """\
headrace describe flights.py
headrace describe flights.py --mermaid > flights.mmd"""


def describe(
    app: AppArgument,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print a mermaid diagram.")] = False,
    json: JsonOption = False,
) -> None:
    """Show an application's topology: its sub-topologies, operators, streams and stores. Nothing is run."""
    from headrace.cli.app_loading import load_app

    if mermaid and json:
        raise typer.BadParameter("give either --mermaid or --json")
    loaded = load_app(app, (), say)
    if json:
        print_json(loaded.describe("dict"))
    else:
        print(loaded.describe("mermaid" if mermaid else "text").rstrip())
