"""Owns `headrace checkpoint`."""

from __future__ import annotations

from typing import Any

from headrace.cli.jobs import Ends
from headrace.cli.output import iso, print_json, print_table
from headrace.cli.targets import JsonOption, Target, about_an_application, opened

EXAMPLES = """Examples:

\b
  headrace checkpoint list flights.py
  headrace checkpoint list --application flight-delays --system log:./data --json
"""


@about_an_application
def list_checkpoints(target: Target, json: JsonOption = False) -> None:
    """Show what each task has committed: positions, watermarks, the version of its state, the round that made it.

    A position is the offset of the next record to process.
    """
    with opened(target) as (opened_system, store):
        ends = Ends(opened_system)
        found = [_described(checkpoint, ends) for checkpoint in store.checkpoints().values()]
    if json:
        print_json({"application": target.application, "checkpoints": found})
        return
    rows = [
        (
            checkpoint["task"],
            f"{one['stream']}/{one['partition']}",
            one["position"],
            one["end"],
            one["watermark"],
            checkpoint["state_version"],
            checkpoint["round"],
        )
        for checkpoint in found
        for one in checkpoint["positions"]
    ]
    names = ("task", "reads", "position", "end", "watermark", "state version", "round")
    print_table(names, rows, right=("position", "end", "state version"))


def _described(checkpoint: Any, ends: Ends) -> dict[str, Any]:
    return {
        "task": str(checkpoint.task),
        "round": str(checkpoint.round_id),
        "job_model": checkpoint.job_model_version,
        "positions": [
            {
                "stream": ssp.stream,
                "partition": ssp.partition,
                "position": position,
                "end": ends.of(ssp),
                "watermark": iso(checkpoint.watermarks.get(ssp)),
            }
            for ssp, position in sorted(checkpoint.positions.items())
        ],
        "state_version": None if checkpoint.head is None else checkpoint.head.version,
        "state_files": 0 if checkpoint.head is None else len(checkpoint.head.files),
        "state_bytes": 0 if checkpoint.head is None else sum(file.bytes for file in checkpoint.head.files),
        "event_timer": iso(checkpoint.event_timer_us),
        "wall_timer": iso(checkpoint.wall_timer_us),
    }
