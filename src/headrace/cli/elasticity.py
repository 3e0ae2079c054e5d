"""`headrace elasticity`: sets and shows how far an application is spread: virtual tasks and containers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.output import counted, fail, iso, print_json, print_table, report
from headrace.cli.previews import confirm
from headrace.cli.targets import JsonOption, Target, YesOption, about_an_application, whole_number
from headrace.client.job_documents import change_document
from headrace.model.change import Change
from headrace.model.scale import request_text, scale_text
from headrace.terminal_text import safe_line

if TYPE_CHECKING:
    from headrace.client.autosizing import Autosizing
    from headrace.client.scales import ScaleEffect, ScalePreview

SET_EXAMPLES = """\
headrace elasticity set 8 flights.py
headrace elasticity set 4 --application flight-delays --sub-topology by-carrier --yes
headrace elasticity set keep --containers 2 --application flight-delays"""
SHOW_EXAMPLES = """\
headrace elasticity show flights.py
headrace elasticity show --application flight-delays --system log:./data --json"""


def _factor(text: str) -> str:
    """A number, or `keep`: seen before anything is loaded, as it is easily confused with the application."""
    if text.endswith(".py") or ".py:" in text:
        raise typer.BadParameter(f"expected a whole number or keep, found {text!r}; the application comes after it: N {text}")
    if text != "keep":
        whole_number(or_else="keep")(text)
    return text


def _containers(text: str) -> str:
    """A number, or `auto`."""
    if text != "auto":
        whole_number(1, or_else="auto")(text)
    return text


@contextmanager
def opened_elasticity(target: Target) -> Iterator[Autosizing]:
    from headrace.client.autosizing import Autosizing

    topology = None if target.app is None else target.app.topology()
    with Autosizing(target.application, target.config, topology) as opened:
        yield opened


@about_an_application
def set_scale(
    target: Target,
    factor: Annotated[
        str, typer.Argument(parser=_factor, metavar="N|keep", help="Virtual tasks per task: a power of two, 1 to 1,024.")
    ],
    containers: Annotated[
        str | None,
        typer.Option("--containers", parser=_containers, metavar="N|auto", help="In how many containers the tasks run."),
    ] = None,
    sub_topology: Annotated[
        str | None, typer.Option("--sub-topology", metavar="S", help="Only this one: its name, or source. Default: all.")
    ] = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the history.")] = "",
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Change how far an application is spread, while it runs or not. Shows first what would change, then prompts.

    The factor cuts each task into virtual tasks, each with the keys of one bucket, its positions and its state. A running job
    applies it within a second, another at its next start. State files stay where they are. Where tasks are merged, those that
    are behind first read up to the others. The same command with the former number undoes it.
    """
    if factor == "keep" and containers is None:
        raise typer.BadParameter("keep alone changes nothing: give a factor N, or --containers N, or both")
    number = None if factor == "keep" else whole_number()(factor)
    wanted = None if containers is None else 0 if containers == "auto" else int(containers)
    with opened_elasticity(target) as scales:
        preview = scales.preview(number, containers=wanted, sub_topology=sub_topology, reason=reason)
        if preview.refusal is not None:
            fail(preview.refusal)
        if not (preview.effects or preview.superseded):
            there = f"application {target.application} has {request_text(preview.request)} already"
            report(json, scale_document(preview, None), there)
            return
        if preview.is_requested:
            soon = "the running job applies it as soon as it can, see headrace status"
            when = soon if scales.is_running else "it takes effect at the next start"
            already = f"application {target.application}: {request_text(preview.request)} is requested already; {when}"
            report(json, scale_document(preview, None), already)
            return
        if not json:
            _print_preview(target.application, preview, scales.is_running)
        elif not yes:
            print_json(scale_document(preview, None))
        confirm("change it?", yes, json)
        id_ = scales.write(preview)
        when = _when(preview) if scales.is_running else "it takes effect at the next start"
        report(json, scale_document(preview, id_), f"requested {request_text(preview.request)}: {id_}\n{when}")


def _when(preview: ScalePreview) -> str:
    if any(one.after.factor < one.before.factor for one in preview.effects):
        return "the job is running: it changes once the tasks that are merged have read up to the same position"
    if preview.is_large:
        return "the job is running, and first makes local stores for its new tasks; see headrace status"
    return "the job is running: it changes within a second"


def _print_preview(application: str, preview: ScalePreview, is_running: bool) -> None:
    print(f"application {application}: {request_text(preview.request)}")
    for superseded in preview.superseded:
        print(f"request {superseded}, which is not in force yet, is withdrawn")
    if not preview.effects:
        print("all else stays as it is")
        return
    rows = [
        (one.sub_topology, scale_text(one.before), scale_text(one.after), one.tasks_before, one.tasks_after, _size(one))
        for one in preview.effects
    ]
    names = ("sub-topology", "now", "new", "tasks now", "tasks new", "state")
    print_table(names, rows, right=names[3:])
    print("state files stay where they are; local stores are made of them")
    if preview.pause_s is not None:
        print(f"expected pause: {preview.pause_s:.2f} s in which no round runs, as in earlier changes of this job")
    else:
        print("expected pause: " + ("about 1 s; none is on record yet" if is_running else "none, as the job is not running"))
    for one in preview.effects:
        if one.behind:
            worst = max(one.behind, key=lambda task: one.behind[task])
            print(
                f"note: {counted(len(one.behind), 'task')} of {one.sub_topology} first read up to those with which they are "
                f"merged: {worst} has {one.behind[worst]:,} offsets before it"
            )
    for id_ in preview.for_good:
        print(f"note: startpoint {id_} took state back; after this change it cannot be deleted any more")


def _size(effect: ScaleEffect) -> str:
    return f"{effect.state_bytes / 1e6:,.1f} MB"


def scale_document(preview: ScalePreview, id_: str | None) -> dict[str, Any]:
    """For programs."""
    return {
        "request": id_,
        "factor": preview.request.factor,
        "containers": preview.request.containers,
        "sub_topology": preview.request.sub_topology,
        "expected_pause_s": preview.pause_s,
        "withdraws": list(preview.superseded),
        "cannot_be_deleted_any_more": list(preview.for_good),
        "effects": [
            {
                "sub_topology": one.sub_topology,
                "factor": [one.before.factor, one.after.factor],
                "containers": [one.before.containers or None, one.after.containers or None],
                "tasks": [one.tasks_before, one.tasks_after],
                "state_bytes": one.state_bytes,
                "behind": {str(task): offsets for task, offsets in one.behind.items()},
            }
            for one in preview.effects
        ],
    }


@about_an_application
def show(target: Target, json: JsonOption = False) -> None:
    """Show the scale of each sub-topology, what is requested and not in force yet, what autosizing decided last and why, and
    the history of changes."""
    with opened_elasticity(target) as scales:
        views, open_, history, decisions = scales.scales(), scales.open_requests(), scales.history(), scales.decisions()
        superseded = scales.superseded_requests()
    if json:
        print_json(
            {
                "application": target.application,
                "scales": [
                    {
                        "sub_topology": one.sub_topology,
                        "factor": one.scale.factor,
                        "tasks": one.tasks,
                        "containers": one.containers,
                        "containers_wanted": one.scale.containers or None,
                        "configured_factor": one.configured.factor,
                        "configured_containers": one.configured.containers or None,
                        "set_by": one.set_by or None,
                    }
                    for one in views
                ],
                "requests": [
                    {
                        "id": id_,
                        "what": request_text(one),
                        "sub_topology": one.sub_topology,
                        "requested_by": one.requested_by,
                        "why": one.reason or None,
                        "is_superseded": id_ in superseded,
                    }
                    for id_, one in open_.items()
                ],
                "autosizing": [
                    {
                        "sub_topology": one.sub_topology,
                        "at": iso(one.at_us),
                        "cause": one.cause,
                        "reason": one.reason,
                        "requested": one.requested or None,
                    }
                    for one in decisions
                ],
                "history": [change_document(one) for one in history],
            }
        )
        return
    print(f"application {target.application}")
    rows = [
        (one.sub_topology, one.scale.factor, one.tasks, one.containers, one.set_by or None, scale_text(one.configured))
        for one in views
    ]
    names = ("sub-topology", "factor", "tasks", "containers", "set by", "configured")
    print_table(names, rows, right=names[1:4])
    for id_, asked in open_.items():
        where = asked.sub_topology or "all sub-topologies"
        then = ", superseded by a later one" if id_ in superseded else ""
        why = f": {safe_line(asked.reason)}" if asked.reason else ""
        print(f"requested by {asked.requested_by}: {request_text(asked)} of {where}{then} ({id_}){why}")
    for decided in decisions:
        did = f"requested {decided.requested}" if decided.requested else "leaves it"
        print(f"autosizing of {decided.sub_topology} {did} ({decided.cause}): {decided.reason} ({iso(decided.at_us)})")
    if history:
        of_history = ("at", "what", "from", "to", "by", "outcome", "pause", "phases", "why")
        print_table(of_history, [_row(one) for one in history], right=("pause",))


def _row(one: Change) -> tuple[Any, ...]:
    pause = None if one.pause_us is None else f"{one.pause_us / 1e6:.2f} s"
    before, after, why = (text or None for text in (one.before, one.after, one.why))
    phases = ", ".join(f"{name} {phase_us / 1e6:.2f} s" for name, phase_us in one.ordered_phases_us.items()) or None
    return iso(one.at_us), one.what, before, after, one.requested_by, one.outcome.value, pause, phases, why
