"""What people are shown and asked before startpoints are written: which positions move, how far, and what of state."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import typer

from headrace.cli.output import EXIT_USAGE, counted, fail, iso, print_json, print_table, report
from headrace.core.rewind.previews import Move, StartpointPreview, state_text

if TYPE_CHECKING:
    from headrace.client.startpoints import Startpoints


def print_preview(preview: StartpointPreview, title: str) -> None:
    """As a table, with what is to be said about it below."""
    print(f"application {preview.application}: {title}")
    rows = [_described(move) for move in preview.moves]
    keys = ["stream", "partition", "task", "now", "new", "read_again", "skipped"]
    keys += ["in_skipped_ranges"] if any(row["in_skipped_ranges"] for row in rows) else []
    names = [key.replace("_", " ") for key in keys]
    print_table(names, [[row[key] for key in keys] for row in rows], right=("partition", *names[3:]))
    skipped = "1 is skipped" if preview.skipped == 1 else f"{preview.skipped:,} are skipped"
    print(f"{again_text(preview.read_again, preview.unit)}, {skipped}")
    print(state_text(preview))
    for note in preview.notes:
        print(f"note: {note}")


def again_text(count: int, unit: str) -> str:
    """
    >>> again_text(1, "records"), again_text(2_000, "offsets")
    ('1 record is read again', '2,000 offsets are read again')
    """
    return f"1 {unit.removesuffix('s')} is read again" if count == 1 else f"{count:,} {unit} are read again"


def described(preview: StartpointPreview, ids: tuple[str, ...]) -> dict[str, Any]:
    """For programs. `ids`: of the startpoints that were written; none where it was only shown."""
    rewinds = [
        {"task": str(task), "version_of": iso(one.kept_us) if one.kept_us else None} for task, one in preview.rewinds.items()
    ]
    skipped_ranges = [
        {"stream": ssp.stream, "partition": ssp.partition, "start": start, "end": end}
        for ssp, (start, end) in preview.skipped_ranges.items()
    ]
    return {
        "application": preview.application,
        "startpoints": list(ids),
        "moves": list(map(_described, preview.moves)),
        "unit": preview.unit,
        "read_again": preview.read_again,
        "skipped": preview.skipped,
        "state": preview.state.value,
        "state_detail": state_text(preview),
        "stores": [*preview.stores.own, *preview.stores.later],
        "stores_are_certain": preview.stores.is_certain,
        "rewinds": rewinds,
        "skipped_ranges": skipped_ranges,
        "notes": list(preview.notes),
    }


def _described(move: Move) -> dict[str, Any]:
    return {
        "stream": move.ssp.stream,
        "partition": move.ssp.partition,
        "task": None if move.task is None else str(move.task),
        "now": move.before,
        "new": move.after,
        "read_again": move.read_again,
        "skipped": move.skipped,
        "in_skipped_ranges": move.in_skipped_ranges,
    }


def confirm(question: str, yes: bool, json: bool) -> None:
    """Prompt, unless `yes` is given; wrong usage where there is no terminal. Returns if it may be done."""
    if yes:
        return
    if json:
        raise typer.BadParameter("--json does not prompt; nothing was written: add --yes")
    if not is_somebody_there():
        fail("standard input is no terminal to confirm this; nothing was written", "add --yes", EXIT_USAGE)
    typer.confirm(question, abort=True, err=True)


def is_somebody_there() -> bool:
    """Whether standard input is a terminal."""
    return sys.stdin.isatty()


def write_confirmed(points: Startpoints, preview: StartpointPreview, title: str, yes: bool, json: bool) -> None:
    """Show what would be done, as text, or as JSON where it will not be done; prompt, and do it."""
    if not json:
        print_preview(preview, title)
    elif not yes:
        print_json(described(preview, ()))
    count = counted(len(preview.entries), "startpoint")
    confirm(f"set {count}?", yes, json)
    ids = points.write(preview)
    when = "it takes effect at the next start"
    if points.is_running:
        when = "the job is running: it resumes from there at its next round"
    report(json, described(preview, ids), f"set {count}: {' '.join(ids)}\n{when}")
