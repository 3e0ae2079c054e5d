"""What a sub-topology has done since this driver started, and what is to be said of its last rounds and of its tasks."""

from __future__ import annotations

import logging
import socket
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

from headrace.core.metrics.observations import OBSERVED_TASKS_MAX
from headrace.core.metrics.phases import PHASES, ROUNDS_KEPT
from headrace.exchange.messages import Summary
from headrace.exchange.texts import ERROR_CHARS_MAX, cut
from headrace.model.checkpoint import RoundId

LOG = logging.getLogger("headrace.job")
_COLUMNS = ("epoch", "round", "ended_us", "records", *PHASES)


class LastRounds(TypedDict):
    """The last rounds that were committed, the newest last, at most `ROUNDS_KEPT`: each a row of numbers, named by `columns`.
    `epoch` and `round` name it, as in logs and traces; `ended_us` is since 1970, phases are in ms."""

    columns: list[str]
    rows: list[list[float]]


@dataclass(slots=True)
class Progress:
    """What a sub-topology has done since this driver started, and its status. The thread of its rounds writes it, and any other
    may read it: a mapping is replaced by another, and never changed.

    `committed_us`: by task when it has committed last, `errors`: what went wrong last in it, and when; of earlier runs too, as
    far as they have published it. `host_before`: where the run before this one was.
    """

    rounds: int = 0
    records: int = 0
    records_written: int = 0
    lag: int = 0
    counters: Mapping[str, int] = field(default_factory=dict)
    earlier: Mapping[str, int] = field(default_factory=dict)  # the counters of earlier runs, as they were published
    notes: list[str] = field(default_factory=list)
    timings_ms: dict[str, float] = field(default_factory=dict)
    warned_of: set[str] = field(default_factory=set)  # streams with event times that lie far from their records' own
    committed_us: Mapping[str, int] = field(default_factory=dict)
    errors: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    host_before: str | None = None
    _last: deque[list[float]] = field(default_factory=lambda: deque(maxlen=ROUNDS_KEPT))

    def add(
        self, round_id: RoundId, summaries: Sequence[Summary], records: int, phases_ns: Mapping[str, float], now_us: int
    ) -> None:
        """A round was committed, which has brought the tasks on by so many records."""
        self.rounds += 1
        for summary in summaries:
            self.records_written += summary.counters.get("records_written", 0)
            self.count(summary.counters)
            self.notes.extend(summary.notes)
            if summary.task_errors:
                self.errors = {**self.errors, **{task: (now_us, text) for task, text in summary.task_errors.items()}}
        del self.notes[:-20]
        self.timings_ms = {phase: round(phases_ns.get(phase, 0) / 1e6, 1) for phase in PHASES}
        self._last.append([round_id.epoch, round_id.number, now_us, records, *self.timings_ms.values()])

    def failed(self, tasks: Iterable[str], error: str, now_us: int) -> None:
        """A round could not be committed, and so it was with these tasks."""
        self.errors = {**self.errors, **dict.fromkeys(tasks, (now_us, cut(error, ERROR_CHARS_MAX)))}

    def count(self, more: Mapping[str, int]) -> None:
        """Add to the counters."""
        before = self.counters
        self.counters = {**before, **{name: before.get(name, 0) + count for name, count in more.items()}}

    def committed(self, tasks: Iterable[str], now_us: int) -> None:
        """These have committed."""
        self.committed_us = {**self.committed_us, **dict.fromkeys(tasks, now_us)}

    def counters_of_all_runs(self) -> dict[str, int]:
        """The counters of this run and of earlier ones. A run that was killed may have published less than it committed."""
        now = self.counters
        names = sorted({*self.earlier, *now})
        return {name: self.earlier.get(name, 0) + now.get(name, 0) for name in names}

    def last_rounds(self) -> LastRounds:
        return {"columns": list(_COLUMNS), "rows": [list(one) for one in tuple(self._last)]}

    def lose(self, offsets: int, note: str) -> None:
        """Count what was deleted before it was read."""
        self.count({"lost_offsets": offsets})
        self.note(note)

    def note(self, note: str) -> None:
        """Warn of something, in the log and the status."""
        self.notes.append(note)
        LOG.warning("%s", note)

    # --- from one run to the next -----------------------------------------------------------------------------------

    def of_tasks(self, tasks: Collection[str]) -> dict[str, Any]:
        """What is published of these besides the metrics: where they run, when they have committed, and their last errors, each
        once with its tasks. Of more than `OBSERVED_TASKS_MAX` nothing of each."""
        found: dict[str, Any] = {"host": socket.gethostname(), "host_before": self.host_before}
        if len(tasks) > OBSERVED_TASKS_MAX:
            return found
        by_error: dict[tuple[int, str], list[str]] = {}
        for task, error in self.errors.items():
            if task in tasks:
                by_error.setdefault(error, []).append(task)
        errors = [[at_us, text, sorted(mine)] for (at_us, text), mine in sorted(by_error.items())]
        commits = {task: at_us for task, at_us in self.committed_us.items() if task in tasks}
        return found | {"task_commits": commits, "task_errors": errors}

    def remember(self, published: Mapping[str, Any]) -> None:
        """Count on from what an earlier run has published."""
        self.earlier = published.get("counters_of_all_runs", published.get("counters", {}))
        self.host_before = published.get("host")
        self.committed_us = dict(published.get("task_commits", {}))
        self.errors = {task: (at_us, text) for at_us, text, tasks in published.get("task_errors", ()) for task in tasks}
        last = published.get("last_rounds", {})
        if last.get("columns") == list(_COLUMNS):
            self._last.extend(last["rows"])
