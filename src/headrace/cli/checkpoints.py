"""`headrace checkpoint`: what tasks have committed, and their positions as a file, out and in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.output import iso, print_json, print_table, report, shortened
from headrace.cli.previews import described, write_confirmed
from headrace.cli.startpoints import StateOption, opened_startpoints
from headrace.cli.targets import JsonOption, Target, YesOption, about_an_application, opened
from headrace.client.job_look import JobLook
from headrace.model.checkpoint import Checkpoint
from headrace.wiring.folders import bytes_of_file, whole_file

EXAMPLES = """\
headrace checkpoint list flights.py
headrace checkpoint list --application flight-delays --system log:./data --json"""
EXPORT_EXAMPLES = """\
headrace checkpoint export flights.py --output positions.json
headrace checkpoint export --application flight-delays --system log:./data > positions.json"""
_BYTES_MAX = 256 * 1024 * 1024  # of a file of positions: some million
IMPORT_EXAMPLES = """\
headrace checkpoint import positions.json flights.py
headrace checkpoint import positions.json --application flight-delays --yes"""


@about_an_application
def list_checkpoints(target: Target, json: JsonOption = False) -> None:
    """Show what each task has committed: positions, watermarks, the version of its state, the round that made it.

    A position is the offset of the next record to process.
    """
    with opened(target) as job:
        found = [_described(checkpoint, job) for checkpoint in job.checkpoints.values()]
        notes = job.notes(job.model.sub_topologies)
    if json:
        print_json({"application": target.application, "checkpoints": found, "notes": notes})
        return
    rows = []
    for one in found:
        for at in one["positions"]:
            reads, position = f"{at['stream']}/{at['partition']}", (at["position"], at["end"], at["watermark"])
            rows.append((one["task"], reads, *position, one["state_version"], one["round"]))
    names = ("task", "reads", "position", "end", "watermark", "state version", "round")
    print_table(names, rows, right=("position", "end", "state version"))
    for note in notes:
        print(note)


def _described(checkpoint: Checkpoint, job: JobLook) -> dict[str, Any]:
    head = checkpoint.head
    return {
        "task": str(checkpoint.task),
        "round": str(checkpoint.round_id),
        "job_model": checkpoint.job_model_version,
        "positions": [
            {
                "stream": ssp.stream,
                "partition": ssp.partition,
                "position": position,
                "end": job.ends(ssp.stream).get(ssp.partition),
                "watermark": iso(checkpoint.watermarks.get(ssp)),
            }
            for ssp, position in sorted(checkpoint.positions.items())
        ],
        "state_version": head and head.version,
        "state_files": len(head.files) if head else 0,
        "state_bytes": sum(file.counted_bytes for file in head.files) if head else 0,
        "event_timer": iso(checkpoint.event_timer_us),
        "wall_timer": iso(checkpoint.wall_timer_us),
    }


@about_an_application
def export(
    target: Target,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file instead of standard output.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write the positions of all tasks as JSON, for `checkpoint import`: whether the application runs or not.

    Standard output is always JSON; with --output, --json sets the format of the report about the file.
    """
    from headrace.client.positions_file import encode_positions

    with opened_startpoints(target) as points:
        exported = points.export_positions()
    data = encode_positions(exported)
    if output is None:
        print(data.decode(), end="")
        return
    with whole_file(output) as file:
        file.write(data)
    count = len(exported.positions)
    written = {"application": exported.application, "positions": count, "file": str(output)}
    report(json, written, f"wrote {count:,} positions to {output}")


@about_an_application
def import_(
    target: Target,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file from `headrace checkpoint export`.")],
    state: StateOption = "keep",
    force: Annotated[bool, typer.Option("--force", help="Accept positions of another application.")] = False,
    repartitions: Annotated[
        bool, typer.Option("--repartitions", help="Also set positions in the application's repartition streams.")
    ] = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Resume from exported positions: a startpoint for each partition whose position differs. Shows them first, then prompts.

    Positions in repartition streams are not set, because replayed inputs are written to them again; but --state rewind
    rewinds them as far as necessary.
    """
    from headrace.client.positions_file import decode_positions

    exported = decode_positions(bytes_of_file(file, _BYTES_MAX), shortened(str(file)))
    with opened_startpoints(target) as points:
        preview = points.preview_import(exported, state=state, force=force, repartitions=repartitions)
        if preview.entries:
            write_confirmed(points, preview, f"positions of {exported.exported_at}", yes, json)
            return
    none = f"application {target.application} is at these positions already: there is nothing to set"
    report(json, described(preview, ()), none)
