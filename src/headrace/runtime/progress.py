"""Owns the progress display of a job that runs in the foreground: a live table on a terminal, else a line every few
seconds. It reads `job.status()` and nothing else.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

LINE_INTERVAL_S = 3.0
LIVE_INTERVAL_S = 0.25


@contextmanager
def shown(job: Any, stream: TextIO, *, enabled: bool = True) -> Iterator[None]:
    """Show the progress of `job` on `stream` while the context is open."""
    if not enabled:
        yield
        return
    ended = threading.Event()
    show = _live if stream.isatty() else _lines
    thread = threading.Thread(target=show, args=(job, stream, ended), name="headrace-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(5)


def line_of(status: dict[str, Any]) -> str:
    """One line: per sub-topology the records read, their rate, the lag, the round, the tasks."""
    parts = [
        f"{name}: {sub['records']:,} records, {sub['records_per_s']:,}/s, lag {sub['lag']:,}, "
        f"round {sub['round']}, {sub['tasks']} tasks"
        for name, sub in status["sub_topologies"].items()
    ]
    return " | ".join(parts)


def _lines(job: Any, stream: TextIO, ended: threading.Event) -> None:
    while not ended.wait(LINE_INTERVAL_S):
        print(line_of(job.status()), file=stream, flush=True)
    print(line_of(job.status()), file=stream, flush=True)


def _live(job: Any, stream: TextIO, ended: threading.Event) -> None:
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(file=stream), refresh_per_second=1 / LIVE_INTERVAL_S, transient=False) as live:
        while True:
            live.update(_table(job.status()))
            if ended.wait(LIVE_INTERVAL_S):
                live.update(_table(job.status()))
                return


def _table(status: dict[str, Any]) -> Any:
    from rich.table import Table

    table = Table(title=f"{status['application']}", title_justify="left", box=None, pad_edge=False)
    for name in ("sub-topology", "records", "records/s", "lag", "round", "tasks", "now"):
        table.add_column(name, justify="left" if name in ("sub-topology", "now") else "right")
    for name, sub in status["sub_topologies"].items():
        table.add_row(
            name,
            f"{sub['records']:,}",
            f"{sub['records_per_s']:,}",
            f"{sub['lag']:,}",
            str(sub["round"]),
            str(sub["tasks"]),
            sub["waiting_for"],
        )
    return table
