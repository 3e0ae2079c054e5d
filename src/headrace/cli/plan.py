"""`headrace plan`: what the next start would change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headrace import wiring
from headrace.cli.output import print_json
from headrace.cli.targets import AppArgument, JsonOption, SetOption, SystemOption, target_of, whole_number

if TYPE_CHECKING:
    from headrace.client.plan_preview import PlanPreview

EXAMPLES = """\
headrace plan flights.py                       after an edit: what its next start would change
headrace plan flights.py --expand flights=8    what 8 partitions of the stream would change
headrace plan flights.py --set containers=2"""


def plan(
    app: AppArgument,
    expand: Annotated[
        list[str] | None, typer.Option("--expand", metavar="STREAM=N", help="As if the stream had N partitions. Repeatable.")
    ] = None,
    system: SystemOption = None,
    set_: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Show what the next start of an application would change, or what an expansion would. Nothing is stored or started.

    The plan that is in force is compared with the one that a start would make now, of the application as it is edited, its
    streams, and the startpoints that wait: lines with - go, lines with + come. Exits with 1 if the start would be refused.
    """
    from headrace.client.plan_preview import plan_preview

    expanded = dict(_expansion(text) for text in expand or ())
    target = target_of(app, None, system, set_)
    with wiring.open_configured(target.config, create=False, wait_s=wiring.LOOK_UP_WAIT_S) as opened:
        preview = plan_preview(target.app.topology(), target.config, opened, expanded)
    if json:
        print_json(_described(preview))
        if preview.error is not None:
            raise typer.Exit(1)
        return
    if preview.error is not None:
        raise preview.error
    was = "not run yet" if preview.before is None else f"job model {preview.before}"
    print(f"application {preview.application}, {was}")
    for line in preview.lines:
        print(line)
    if not preview.lines:
        print("a start would change nothing")


def _expansion(text: str) -> tuple[str, int]:
    stream, separator, count = text.rpartition("=")
    if not (separator and stream):
        raise typer.BadParameter(f"--expand {text}: expected STREAM=N")
    return stream, whole_number(1)(count)


def _described(preview: PlanPreview) -> dict[str, object]:
    error = preview.error
    return {
        "application": preview.application,
        "job_model": {"before": preview.before, "after": preview.after},
        "lines": list(preview.lines),
        "refused": None if error is None else {"error": error.message, "hint": error.hint},
    }
