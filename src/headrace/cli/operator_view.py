"""What the pages of `headrace ui` show of one application, and do to it: read from its system, so that it makes no difference
whether it runs, or where.

What users have written (keys, values, headers) is given as it is. Texts of ours, such as the reason why something was refused,
name no files: where one may, it is left out, and is in the log.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from headrace.cli.json_values import plain
from headrace.cli.kept_look import KeptLook
from headrace.cli.operator_changes import OperatorChanges
from headrace.cli.operator_letters import OperatorLetters
from headrace.cli.startpoints import opened_startpoints, startpoint_document
from headrace.cli.states import entry_document, key_of_text, view_of
from headrace.cli.targets import Target
from headrace.client.job_documents import change_document, status_document, tasks_document
from headrace.client.job_look import JobLook
from headrace.client.kept_system import KeptSystem
from headrace.codec.job_records import history_of
from headrace.core.file_paths import NOT_SHOWN, document_without_paths
from headrace.core.topology.picture import picture_of
from headrace.errors import ConfigError, HeadraceError
from headrace.model.checkpoint import Checkpoint
from headrace.model.durations import time_text
from headrace.model.serde import Serde

LOG = logging.getLogger("headrace.http")
HISTORY_MAX, STARTPOINTS_MAX, ENTRIES_MAX, LETTERS_MAX = 100, 100, 200, 50
_CHANGES_OFF = "changes are off here: start this with --allow-changes"


class OperatorView:
    """One application, for the pages. Any thread may ask. `stop`: ends the job where it runs in this process."""

    def __init__(self, target: Target, *, allow_changes: bool = False, stop: Callable[[], None] | None = None) -> None:
        self._target = target
        self.allow_changes = allow_changes
        self._system = KeptSystem(target.config)
        self._letters = OperatorLetters(target, self._system)
        self._changes = OperatorChanges(target, self._system, self._letters, stop)
        self._kept = KeptLook(lambda: msgspec.json.encode(self._overview(), enc_hook=str))
        self._streams_read: frozenset[str] = frozenset()
        self._withheld = ""  # what was logged last, as it was not shown
        self._read: dict[str, tuple[float, int]] = {}  # by stream when it was looked at, and up to where it was read then

    # --- what is shown ----------------------------------------------------------------------------------------------

    def overview(self) -> bytes:
        """Everything but the state, as JSON, and how old that is: it is looked up in the background, see `kept_look`."""
        age_s, found = self._kept.get()
        return b'{"age_s":%.1f,' % age_s + found[1:]

    def keep_fresh(self) -> None:
        """Look it up now, before somebody asks."""
        self._kept.ask()

    def close(self) -> None:
        self._kept.close()
        self._system.close()

    def _overview(self) -> dict[str, Any]:
        found = {
            "application": self._target.application,
            "at": time_text(time.time_ns() // 1000),
            "allow_changes": self.allow_changes,
            "problem": None,
            **self._of_the_job(),
        }
        letters = self._letters.shown_or_why_not(LETTERS_MAX)
        return found | {"dead_letters": letters | {"problem": self._ours(letters["problem"])}}

    def _of_the_job(self) -> dict[str, Any]:
        """What is known of how it has run. Names (of tasks, places, streams, stores) are given as they are."""
        target = self._target
        with self._system.opened() as system:
            if not system.has_run(target.application) or system.job_reader(target.application).job_model() is None:
                return {"problem": f"{target.application} has not run there yet"}
            job, metadata = JobLook(system, target.application), system.metadata_store(target.application)
            changes = list(history_of(metadata, lambda error: None).values())[-HISTORY_MAX:]
            tasks = tasks_document(job)
            url = target.config.system
            streams = self._streams(job)
            self._streams_read = frozenset(one["stream"] for one in streams)
            found = {
                "status": self._ours(status_document(job, "log" if url.startswith("log:") else url)),
                "tasks": [one | {"last_error": self._ours(one["last_error"])} for one in tasks["tasks"]],
                "notes": self._ours(tasks["notes"]),
                "history": self._ours([change_document(one) for one in reversed(changes)]),
                "streams": streams,
                "stores": sorted(job.model.stores),
            }
            with opened_startpoints(target, system) as points:
                startpoints = [startpoint_document(one) for one in points.list()[-STARTPOINTS_MAX:]]
        return found | {"startpoints": self._ours(startpoints[::-1])}

    def _streams(self, job: JobLook) -> list[dict[str, Any]]:
        """Each stream that is read: how far its readers are behind, and how fast they were since the last look."""
        found, now_s = [], time.monotonic()
        by_stream: dict[str, list[Any]] = {}
        for task in job.model.tasks:
            for stream in sorted({ssp.stream for ssp in task.partitions}):
                by_stream.setdefault(stream, []).append(task)
        for stream, tasks in sorted(by_stream.items()):
            lowest: dict[int, int] = {}
            for task in tasks:
                positions = job.checkpoints[task.name].positions if task.name in job.checkpoints else {}
                for ssp in (one for one in task.partitions if one.stream == stream):
                    lowest[ssp.partition] = min(positions.get(ssp, 0), lowest.get(ssp.partition, 1 << 62))
            ends, read = job.ends(stream), sum(lowest.values())
            before_s, before = self._read.get(stream, (now_s, read))
            self._read[stream] = now_s, read
            rate = max(0, read - before) / (now_s - before_s) if now_s > before_s else 0.0
            lag = sum(max(0, ends.get(number, 0) - position) for number, position in lowest.items())
            found.append({"stream": stream, "partitions": len(lowest), "lag": lag, "records_per_s": round(rate, 1)})
        return found

    def picture(self) -> str:
        """The topology as an SVG, or a line of text; where the file of the application is not known, that."""
        app = self._target.app
        return picture_of(app.topology()) if app is not None else "<pre>name the application's file to see its topology</pre>"

    # --- state ------------------------------------------------------------------------------------------------------

    def state(self, store: str, key: str) -> dict[str, Any]:
        """What is under a key, and up to where that counts: what the tasks that may have it had read."""
        view = view_of(store, self._target, self._system)
        typed, found, checkpoints = view.looked_up(lambda serde: key_of_text(key, serde))
        entries = [entry_document(one) for one in found[:ENTRIES_MAX]]
        return {"store": store, "key": plain(typed), "entries": plain(entries), "as_of": _as_of(checkpoints)}

    def range(self, store: str, start: str | None, end: str | None, limit: int) -> dict[str, Any]:
        """Keys from `start` to before `end` with what is under them, in no order of the keys; at most `limit`."""

        def wanted_by(serde: Serde) -> Callable[[Any], bool]:
            low, high = (None if text is None else key_of_text(text, serde) for text in (start, end))
            return lambda key: _between(key, low, high)

        rows, checkpoints = view_of(store, self._target, self._system).some_rows(limit + 1, wanted_by)
        is_whole = len(rows) <= limit
        return {"store": store, "rows": plain(rows[:limit]), "is_whole": is_whole, "as_of": _as_of(checkpoints)}

    def letters(self, given: Mapping[str, str]) -> dict[str, Any]:
        """The newest open dead letters that `given` chooses, and how many there are."""
        return self._letters.shown(given, LETTERS_MAX)

    # --- changes ----------------------------------------------------------------------------------------------------

    def change(self, what: str, given: Mapping[str, Any], *, is_wanted: bool) -> dict[str, Any]:
        """Look at a change, or make it where that `is_wanted`; `ConfigError` where changes are not allowed."""
        if not self.allow_changes:
            raise ConfigError(_CHANGES_OFF)
        found: dict[str, Any] = self._ours(self._changes.change(what, given, is_wanted=is_wanted))
        if is_wanted:
            self._kept.outdate()  # what was done is to be seen in the next answer
        return found

    # --- texts of ours ----------------------------------------------------------------------------------------------

    def refused(self, error: HeadraceError) -> dict[str, Any]:
        """What an error says, as far as it names no file. All of it is in the log."""
        found: dict[str, Any] = self._ours({"error": error.message, "hint": error.hint})
        if found != {"error": error.message, "hint": error.hint} and error.message != self._withheld:
            self._withheld = error.message  # an event a second does not fill the log
            LOG.warning("%s", error)
        return found | {"hint": None if found["hint"] == NOT_SHOWN else found["hint"]}

    def _ours(self, value: Any) -> Any:
        return document_without_paths(value, self._streams_read | self._letters.streams)


def _as_of(checkpoints: Iterable[Checkpoint]) -> list[dict[str, Any]]:
    """Of each task up to where it has read, and up to which event time."""
    return [
        {
            "task": str(one.task),
            "positions": {f"{ssp.stream}/{ssp.partition}": position for ssp, position in sorted(one.positions.items())},
            "event_time": time_text(max(one.watermarks.values())) if one.watermarks else None,
        }
        for one in sorted(checkpoints, key=lambda one: str(one.task))
    ]


def _between(key: Any, low: Any, high: Any) -> bool:
    try:
        return (low is None or key >= low) and (high is None or key < high)
    except TypeError:
        return False
