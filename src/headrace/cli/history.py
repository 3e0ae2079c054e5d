"""`headrace history`: what has changed the plan of a job, who requested it, and what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.cli.output import iso, print_json, print_table, say
from headrace.cli.targets import JsonOption, Target, about_an_application, opened

if TYPE_CHECKING:
    from headrace.model.change import Change

EXAMPLES = """\
headrace history flights.py
headrace history --application flight-delays --system log:./data --json"""
_NAMES = ("when", "what", "requested by", "outcome", "job model", "pause", "from", "to", "why")


@about_an_application
def history(target: Target, json: JsonOption = False) -> None:
    """Show what has changed the plan of a job, oldest first: starts with another plan, expansions, startpoints.

    A request that could not be done is there too, with the reason; the job kept running. The pause is how long no round
    ran. The newest thousand are kept.
    """
    from headrace.codec.history import history_of

    with opened(target) as (system, _):
        changes = list(history_of(system.metadata_store(target.application)).values())
    if json:
        print_json({"application": target.application, "changes": [_described(one) for one in changes]})
    elif changes:
        print_table(_NAMES, [_row(one) for one in changes], right=("job model", "pause"))
    else:
        say(f"application {target.application} has no history: it last ran under an older version")


def _row(one: Change) -> tuple[Any, ...]:
    pause = None if one.pause_us is None else f"{one.pause_us / 1e6:.2f} s"
    texts = [text or None for text in (one.before, one.after, one.why)]
    return iso(one.at_us), f"{one.kind}: {one.what}", one.requested_by or None, one.outcome.value, one.job_model, pause, *texts


def _described(one: Change) -> dict[str, Any]:
    return {
        "at": iso(one.at_us),
        "kind": one.kind.value,
        "what": one.what,
        "requested_by": one.requested_by or None,
        "outcome": one.outcome.value,
        "job_model": one.job_model,
        "from": one.before or None,
        "to": one.after or None,
        "pause_ms": None if one.pause_us is None else one.pause_us / 1000,
        "why": one.why or None,
    }
