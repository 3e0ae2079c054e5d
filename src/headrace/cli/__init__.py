"""The command line, `headrace`. `commands` puts it together, `output` says how results and errors look.

Nothing here decides anything about a job. What a command needs is imported when it runs: most start no Spark and load
no Arrow, and answer at once.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and end the process: 0 for success, 1 for an error, 2 for wrong usage, 130 and 143 for signals."""
    from headrace import signals

    signals.end_at_once()
    from headrace.cli.commands import application

    application(args=None if arguments is None else list(arguments), prog_name="headrace")
