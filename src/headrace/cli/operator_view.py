"""What the pages of `headrace ui` show of one application, and do to it: read from its system, so that it makes no difference
whether it runs, or where. Texts that may name files of this machine are shown without their folders."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from headrace import wiring
from headrace.cli.dead_letters import document, opened_letters
from headrace.cli.elasticity import opened_elasticity, scale_document
from headrace.cli.expand import carried_out, checked_readers, expansion_document, running_of
from headrace.cli.json_values import plain
from headrace.cli.kept_look import KeptLook
from headrace.cli.previews import described
from headrace.cli.startpoints import opened_startpoints, startpoint_document
from headrace.cli.states import entry_document, key_of_text, view_of
from headrace.cli.targets import Target
from headrace.client.job_documents import change_document, status_document, tasks_document
from headrace.client.job_look import JobLook
from headrace.client.kept_system import KeptSystem
from headrace.client.startpoint_previews import startpoint_of
from headrace.codec.job_records import history_of
from headrace.core.topology.picture import picture_of
from headrace.errors import ConfigError
from headrace.model.checkpoint import Checkpoint
from headrace.model.durations import time_ago_us, time_text
from headrace.model.serde import Serde

LOG = logging.getLogger("headrace.http")
HISTORY_MAX, STARTPOINTS_MAX, ENTRIES_MAX, LETTERS_MAX = 100, 100, 200, 50
_PATH = re.compile(r"(?<![\w/.])/(?:[^\s/'\"`,;:()]+/)+")
_CHANGES_OFF = "changes are off here: start this with --allow-changes"


class OperatorView:
    """One application, for the pages. Any thread may ask. `stop`: ends the job where it runs in this process."""

    def __init__(self, target: Target, *, allow_changes: bool = False, stop: Callable[[], None] | None = None) -> None:
        self._target, self._stop = target, stop
        self.allow_changes = allow_changes
        self._system = KeptSystem(target.config)
        self._kept = KeptLook(lambda: msgspec.json.encode(shown(self._overview())))
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
        target = self._target
        found: dict[str, Any] = {
            "application": target.application,
            "at": time_text(time.time_ns() // 1000),
            "allow_changes": self.allow_changes,
            "can_stop": self._stop is not None and self.allow_changes,
            "problem": None,
        }
        with self._system.opened() as system:
            if not system.has_run(target.application) or system.job_reader(target.application).job_model() is None:
                return found | {"problem": f"{target.application} has not run there yet"}
            job, metadata = JobLook(system, target.application), system.metadata_store(target.application)
            changes = list(history_of(metadata, lambda error: None).values())[-HISTORY_MAX:]
            tasks = tasks_document(job)
            url = target.config.system
            found |= {
                "status": status_document(job, "log" if url.startswith("log:") else url),
                "tasks": tasks["tasks"],
                "notes": tasks["notes"],
                "history": [change_document(one) for one in reversed(changes)],
                "streams": self._streams(job),
                "stores": sorted(job.model.stores),
            }
            if target.config.dead_letter_stream is not None:
                with opened_letters(target, system) as letters:
                    newest = letters.newest(LETTERS_MAX)
                    found["dead_letters"] = [document(letters, one, values=True) for one in newest]
            with opened_startpoints(target, system) as points:
                found["startpoints"] = [startpoint_document(one) for one in points.list()[-STARTPOINTS_MAX:]][::-1]
        return found

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
        return _document({"store": store, "key": plain(typed), "entries": plain(entries), "as_of": _as_of(checkpoints)})

    def range(self, store: str, start: str | None, end: str | None, limit: int) -> dict[str, Any]:
        """Keys from `start` to before `end` with what is under them, in no order of the keys; at most `limit`."""

        def wanted_by(serde: Serde) -> Callable[[Any], bool]:
            low, high = (None if text is None else key_of_text(text, serde) for text in (start, end))
            return lambda key: _between(key, low, high)

        rows, checkpoints = view_of(store, self._target, self._system).some_rows(limit + 1, wanted_by)
        is_whole = len(rows) <= limit
        return _document({"store": store, "rows": plain(rows[:limit]), "is_whole": is_whole, "as_of": _as_of(checkpoints)})

    def cleaned(self, value: Any) -> Any:
        """What may be shown of a value."""
        return shown(value)

    # --- changes ----------------------------------------------------------------------------------------------------

    def change(self, what: str, given: Mapping[str, Any], *, is_wanted: bool) -> dict[str, Any]:
        """Look at a change, or make it where that `is_wanted`: `startpoint`, `elasticity`, `expansion`, `dead-letters`
        or `stop`. `ConfigError` for what is not allowed; for what cannot be done the error that says why."""
        if not self.allow_changes:
            raise ConfigError(_CHANGES_OFF)
        changes = {
            "startpoint": self._startpoint,
            "elasticity": self._elasticity,
            "expansion": self._expansion,
            "stop": self._stopped,
        }
        if self._target.config.dead_letter_stream is not None:
            changes["dead-letters"] = self._dead_letters
        if what not in changes:
            raise ConfigError(f"there is no change {what!r}", f"there are: {', '.join(changes)}")
        found = _document(changes[what](given, is_wanted))
        if is_wanted:
            self._kept.outdate()  # what was done is to be seen in the next answer
        return found

    def _startpoint(self, given: Mapping[str, Any], is_wanted: bool) -> dict[str, Any]:
        now_us = time.time_ns() // 1000
        position, partition = given.get("position", ""), given.get("partition")
        if isinstance(position, str) and position.endswith(" ago"):
            position = time_text(time_ago_us(position.removesuffix(" ago"), now_us))
        if isinstance(position, str) and position.isascii() and position.isdecimal():
            position = int(position[:19])
        with self._system.opened() as system, opened_startpoints(self._target, system) as points:
            preview = points.preview(
                _text(given, "stream"),
                startpoint_of(position, now_us),
                partition=partition if isinstance(partition, int) else None,
                state=_text(given, "state", "keep"),
            )
            return described(preview, points.write(preview) if is_wanted else ())

    def _elasticity(self, given: Mapping[str, Any], is_wanted: bool) -> dict[str, Any]:
        factor, containers = (_number(given, name) for name in ("factor", "containers"))
        sub_topology = _text(given, "sub_topology", "") or None
        with opened_elasticity(self._target) as scales:
            preview = scales.preview(factor, containers=containers, sub_topology=sub_topology, reason="headrace ui")
            if preview.refusal is not None:
                raise ConfigError(preview.refusal)
            return scale_document(preview, scales.write(preview) if is_wanted else None)

    def _expansion(self, given: Mapping[str, Any], is_wanted: bool) -> dict[str, Any]:
        partitions = _number(given, "partitions")
        if partitions is None:
            raise ConfigError("partitions: expected a whole number")
        with wiring.open_configured(self._target.config, create=False, wait_s=wiring.LOOK_UP_WAIT_S) as system:
            stream = system.describe_stream(_text(given, "stream"))
            readers = checked_readers(system, stream, partitions)
            running = running_of(system, readers)
            if is_wanted:
                carried_out(system, stream, partitions, readers, LOG.warning)
            return expansion_document(stream, replace(stream, partitions=partitions), readers, running)

    def _dead_letters(self, given: Mapping[str, Any], is_wanted: bool) -> dict[str, Any]:
        """`ids`: with spaces between them; `action`: put them back (`retry`), or `discard`."""
        ids, action = _text(given, "ids").split(), _text(given, "action", "retry")
        if action not in ("retry", "discard") or not ids:
            raise ConfigError("expected ids, and retry or discard")
        with opened_letters(self._target) as letters:
            chosen = [letters.get(id_) for id_ in dict.fromkeys(ids)]
            if action == "retry" and (refused := [one for one in chosen if one.why_not_retried]):
                raise ConfigError(f"dead letter {refused[0].id} cannot be put back: {refused[0].why_not_retried}")
            if is_wanted:
                letters.retry(chosen) if action == "retry" else letters.discard(chosen)
            return {"action": action, "letters": [document(letters, one, values=False) for one in chosen]}

    def _stopped(self, given: Mapping[str, Any], is_wanted: bool) -> dict[str, Any]:
        if self._stop is None:
            raise ConfigError("the job does not run in this process", "stop it where it runs: Ctrl-C, or SIGTERM")
        if is_wanted:
            threading.Thread(target=self._stop, name="headrace-stop", daemon=True).start()
        return {"application": self._target.application, "stopped": is_wanted}


def _document(value: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = shown(value)
    return found


def shown(value: Any) -> Any:
    """The same with every text in it without the folders of files.

    >>> shown({"why": "cannot read /var/lib/a/b.arrow (moved)", "at": "a/b", "n": 1})
    {'why': 'cannot read b.arrow (moved)', 'at': 'a/b', 'n': 1}
    """
    if isinstance(value, str):
        return _PATH.sub("", value)
    if isinstance(value, Mapping):
        return {key: shown(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [shown(one) for one in value]
    return value


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


def _text(given: Mapping[str, Any], name: str, default: str | None = None) -> str:
    found = given.get(name, default)
    if not isinstance(found, str) or len(found) > 1_000:
        raise ConfigError(f"{name}: expected a text")
    return found


def _number(given: Mapping[str, Any], name: str) -> int | None:
    found = given.get(name)
    if found is not None and (isinstance(found, bool) or not isinstance(found, int)):
        raise ConfigError(f"{name}: expected a whole number")
    return found
