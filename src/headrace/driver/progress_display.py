"""The progress display of a job in the foreground: a live table on a terminal, else a line every few seconds, as long as
something changes. It reads `job.status()` and nothing else.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TextIO

from headrace.driver.start_times import start_text
from headrace.terminal_text import raw_of, safe_line

LINE_INTERVAL_S = 3.0
SAME_LINE_S = 60.0  # a line that says what the last one said comes this long after it
LIVE_INTERVAL_S = 0.25
RATE_S = 10.0  # a rate is that of so many last seconds, of which there are at most RATE_S / LIVE_INTERVAL_S samples
_BAR_WIDTH = 16
_JOIN_S = 5


@contextmanager
def shown(job: Any, stream: TextIO, *, enabled: bool = True) -> Iterator[None]:
    """Show the progress of `job` on `stream` while the context is open, and how it ended when it closes."""
    if not enabled:
        yield
        return
    view, ended = _JobView(job), threading.Event()
    show, what = (_live, view.table) if _is_live(stream) else (_lines, view.line)
    thread = threading.Thread(target=show, args=(what, stream, ended), name="headrace-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_JOIN_S)


def line_of(status: Mapping[str, Any], rates: Mapping[str, int] | None = None) -> str:
    """One line: per sub-topology the records read, their rate (the mean of all the time, or that of `rates`), the lag, the
    round, the tasks, the elasticity factor if there is one and what another one waits for, dead letters if there are any, and
    whether it has stopped while others keep running."""
    parts = []
    for name, sub in status["sub_topologies"].items():
        rate = f"{sub['records_per_s']:,}/s on average" if rates is None else f"{rates[name]:,}/s"
        dead = sub.get("counters", {}).get("dead_letters", 0)
        parts.append(
            f"{name}: {sub['records']:,} records, {rate}, lag {sub['lag']:,}, "
            f"round {sub['round']}, {sub['tasks']} task{'' if sub['tasks'] == 1 else 's'}"
            + _factor_text(sub)
            + (f", {dead:,} dead letter{'' if dead == 1 else 's'}" if dead else "")
            + (", STOPPED" if sub.get("stopped_by") else "")
        )
    start = status.get("metrics", {}).get("start-phase-ns")
    return (" | ".join(parts) or f"waiting for {status.get('waiting_for') or 'tasks'}") + (
        f"; {start_text(start)}" if start and rates is None else ""
    )


def _factor_text(sub: Mapping[str, Any]) -> str:
    factor, waits_for = sub.get("elasticity_factor", 1), sub.get("scale_waits_for", "")
    return (f", factor {factor}" if factor > 1 else "") + (f", {waits_for}" if waits_for else "")


class Rate:
    """How fast a count grows: over the last `RATE_S` seconds of what was counted."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def add(self, now_s: float, count: int) -> int:
        """The count as it is now; its growth per second since the oldest sample that is kept, or the one before it."""
        while len(self._samples) > 1 and self._samples[1][0] <= now_s - RATE_S:
            self._samples.popleft()
        self._samples.append((now_s, count))
        then_s, before = self._samples[0]
        return round((count - before) / (now_s - then_s)) if now_s > then_s else 0


class _JobView:
    """What is shown of a job."""

    def __init__(self, job: Any) -> None:
        self._job = job
        self._rates: dict[str, Rate] = {}
        began_s = time.monotonic()
        for name in job.status()["sub_topologies"]:
            self._rates.setdefault(name, Rate()).add(began_s, 0)

    def line(self, ended: bool) -> str:
        return line_of(*self._status(ended))

    def table(self, ended: bool) -> Any:
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        status, rates = self._status(ended)
        table = Table(box=None, pad_edge=False, header_style="dim")
        for name in ("", "records", "records/s", "lag", "round", "tasks", "", "now"):
            table.add_column(name, justify="right" if name not in ("", "now") else "left", no_wrap=True)
        for name, sub in status["sub_topologies"].items():
            known = sub["records"] + sub["lag"]
            table.add_row(
                safe_line(name),
                f"{sub['records']:,}",
                f"{sub['records_per_s'] if rates is None else rates[name]:,}",
                f"{sub['lag']:,}",
                str(sub["round"]),
                f"{sub['tasks']}{_factor_text(sub)}",
                ProgressBar(total=max(known, 1), completed=sub["records"], width=_BAR_WIDTH),
                safe_line(_now(status, sub)),
            )
        start = status.get("metrics", {}).get("start-phase-ns")
        table.caption = start_text(start) if start and ended else None
        return table

    def _status(self, ended: bool) -> tuple[Mapping[str, Any], dict[str, int] | None]:
        """The status now, and the rates; None at the end, where the mean of all the time counts."""
        status, now_s = self._job.status(), time.monotonic()
        subs = status["sub_topologies"].items()
        rates = {name: self._rates.setdefault(name, Rate()).add(now_s, sub["records"]) for name, sub in subs}
        return status, None if ended else rates


def _now(status: Mapping[str, Any], sub: Mapping[str, Any]) -> str:
    """What a sub-topology does at the moment, in a few words."""
    if sub.get("stopped_by"):
        return "stopped"
    if not status["running"]:
        return "ended"
    waiting_for = str(sub["waiting_for"])
    if waiting_for.startswith("round "):
        return "working"
    return f"waiting for {waiting_for}" if waiting_for == "new records" else waiting_for


def _is_live(stream: TextIO) -> bool:
    """Whether `stream` is a terminal that can draw over what it has drawn."""
    if not stream.isatty():
        return False
    from rich.console import Console

    return not Console(file=raw_of(stream)).is_dumb_terminal


def _lines(line: Callable[[bool], str], stream: TextIO, ended: threading.Event) -> None:
    began_s = printed_s = time.monotonic()
    before = ""
    while not ended.wait(LINE_INTERVAL_S):
        now_s, text = time.monotonic(), line(False)
        if text != before or now_s - printed_s >= SAME_LINE_S:
            print(safe_line(f"{now_s - began_s:4.0f} s  {text}"), file=stream, flush=True)
            before, printed_s = text, now_s
    print(safe_line(f"{time.monotonic() - began_s:4.0f} s  {line(True)}"), file=stream, flush=True)


def _live(table: Callable[[bool], Any], stream: TextIO, ended: threading.Event) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console(file=raw_of(stream), markup=False, emoji=False, highlight=False)  # names are no markup
    with Live(console=console, auto_refresh=False) as live:
        while not ended.wait(LIVE_INTERVAL_S):
            live.update(table(False), refresh=True)
        live.update(table(True), refresh=True)
