"""What a stored job has written and holds, in the form of `plain.expected_of`, read by the public API alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import headrace as hr
from stored.jobs import StoredJob
from stored.plain import MINUTE_US, START_US, Result

DEAD = "sums-dead"
_WINDOWED = frozenset({"per-hour", "hours-closed", "half-hours", "visits-over", "ledger-hours"})
_SERDES = {
    "counts": hr.Long(),
    "event-counts": hr.Long(),
    "event-groups": hr.Long(),
    "half-hours": hr.Long(),
    "visits-over": hr.Long(),
    "sides": hr.Long(),
    "parities": hr.Long(),
    "taken": hr.Long(),
    "view-counts": hr.Long(),
    "seen": hr.Long(),
    "notes-read": hr.Long(),
    "late": hr.Long(),
    "late-counts": hr.Long(),
    "named": hr.String(),
    "once": hr.String(),
    "both": hr.String(),
    "paid": hr.String(),
    "either": hr.String(),
    "costs": hr.Double(),
    "ledger-counts": hr.Long(),
    "ledger-hours": hr.Long(),
    "ledger-groups": hr.Long(),
    DEAD: hr.String(),
}


def minutes(time_us: int) -> int:
    return (time_us - START_US) // MINUTE_US


def result_of(job: StoredJob, folder: Path, url: str, expected: Result) -> Result:
    """The outputs and stores that `expected` names."""
    outputs = {stream: output_of(job, url, stream) for stream in expected["outputs"]}
    stores = {store: store_of(job, folder, url, store) for store in expected["stores"]}
    return {"outputs": outputs, "stores": stores, "startpoints": startpoints_of(job, folder, url)}


def startpoints_of(job: StoredJob, folder: Path, url: str) -> dict[str, int]:
    """How many there are of each outcome; `None` where one waits. None must be unreadable."""
    with hr.startpoints(job.app(folder, url)) as points:
        assert not points.unreadable(), points.unreadable()
        return dict(Counter(str(known.status) for known in points.list()))


def output_of(job: StoredJob, url: str, stream: str) -> dict[str, list[Any]]:
    """By key the values; of a stream that is in `job.kept` the last one, if it is no deletion."""
    windowed = stream in _WINDOWED
    key, found = hr.Windowed(hr.String()) if windowed else hr.String(), defaultdict(list)
    with hr.open_system(url) as log:
        for record in log.consume(stream, key=key, value=_SERDES.get(stream, hr.Json())):
            text = record.key
            if windowed:
                text = f"{record.key.key}|{minutes(record.key.start_us)}|{minutes(record.key.end_us)}"
            found[text].append(record.value)
    if stream in job.kept:
        return {text: values[-1:] for text, values in found.items() if values[-1] is not None}
    return {text: sorted(values) if stream in job.any_order else values for text, values in found.items()}


def store_of(job: StoredJob, folder: Path, url: str, store: str) -> dict[str, Any]:
    table = job.app(folder, url).state(store).to_arrow()
    found = {}
    for row in table.to_pylist():
        key = row["key"]
        if "window_start" in row:
            key = f"{key}|{_minutes_of(row['window_start'])}|{_minutes_of(row['window_end'])}"
        elif "at" in row:
            key = f"{key}|{_minutes_of(row['at'])}"
        elif row.get("sub"):
            key = f"{key}|{row['sub'].decode()}"
        found[key] = row["value"]
    return found


def _minutes_of(time: Any) -> int:
    return minutes(round(time.timestamp() * 1_000_000))
