"""The status of a job of which several processors have each published their share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.core.metrics.phases import ROUNDS_KEPT

FRESH_US = 15_000_000  # what a processor has published that much before the newest is of one that is not there any more
_SUMMED = ("records", "records_per_s", "records_written", "known_failures")
_OF_EACH = ("updated_us", "records", "waiting_for", "ended_by", "has_ended")
_COUNTED = ("counters", "counters_of_all_runs")
_BY = "@"  # between a sub-topology and the processor that has published; no name has it

Status = dict[str, Any]


def published_name(title: str, processor_id: str | None) -> str:
    """Under what name a processor publishes the status of a sub-topology; None: a single driver."""
    return title if processor_id is None else f"{title}{_BY}{processor_id}"


def joined_statuses(published: Mapping[str, Status]) -> dict[str, Status]:
    """By sub-topology the status of all processors together: what they count is added, the rest is of the newest; `processors`
    says when each has published, and what it waits for. Where one driver has published last, its status alone.

    >>> found = joined_statuses({"source@a": {"records": 1, "updated_us": 5}, "source@b": {"records": 2, "updated_us": 6}})
    >>> found["source"]["records"], sorted(found["source"]["processors"])
    (3, ['a', 'b'])
    """
    shares: dict[str, dict[str | None, Status]] = {}
    for name, status in published.items():
        title, is_shared, processor = name.partition(_BY)
        shares.setdefault(title, {})[processor if is_shared else None] = status
    return {title: _joined(mine) for title, mine in sorted(shares.items())}


def processors_at_work(statuses: Mapping[str, Status], now_us: int) -> list[str]:
    """The processors of a group that have reported lately, and that their rounds have not ended: by the joined statuses. They
    work whoever leads, also while a leader that was lost has no follower yet."""
    reports = (report for status in statuses.values() for report in status.get("processors", {}).items())
    return sorted({id_ for id_, one in reports if now_us - (one["updated_us"] or 0) <= FRESH_US and not one.get("has_ended")})


def _joined(shares: Mapping[str | None, Status]) -> Status:
    newest = max(shares, key=lambda one: shares[one].get("updated_us", 0))
    if newest is None:
        return shares[None]
    last_us = shares[newest].get("updated_us", 0)
    fresh = {
        id_: status
        for id_, status in sorted((id_, status) for id_, status in shares.items() if id_ is not None)
        if last_us - status.get("updated_us", 0) <= FRESH_US
    }
    mine = list(fresh.values())
    return {
        **shares[newest],
        **{name: sum(one.get(name, 0) for one in mine) for name in _SUMMED if name in shares[newest]},
        **{name: _added([one.get(name, {}) for one in mine]) for name in _COUNTED if name in shares[newest]},
        "ended_by": "",  # of each processor
        "notes": [note for one in mine for note in one.get("notes", ())][-3:],
        "restoring": [task for one in mine for task in one.get("restoring", ())],
        "task_commits": {task: at_us for one in mine for task, at_us in sorted(one.get("task_commits", {}).items())},
        "task_errors": [error for one in mine for error in one.get("task_errors", ())],
        "last_rounds": _last_of([one["last_rounds"] for one in mine if "last_rounds" in one]),
        "task_metrics": _highest([one.get("task_metrics", {}) for one in mine]),
        "processors": {id_: {name: one.get(name) for name in _OF_EACH} for id_, one in fresh.items()},
    }


def _added(counters: Sequence[Mapping[str, int]]) -> dict[str, int]:
    total = Counter[str]()
    for one in counters:
        total.update(one)
    return dict(sorted(total.items()))


def _last_of(tables: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The last rounds of all of them."""
    columns: list[str] = max((one["columns"] for one in tables), key=len, default=[])
    if "ended_us" not in columns:
        return {"columns": columns, "rows": []}
    at = columns.index("ended_us")
    rows = [row for one in tables if one["columns"] == columns for row in one["rows"]]
    return {"columns": columns, "rows": sorted(rows, key=lambda row: row[at])[-ROUNDS_KEPT:]}


def _highest(tables: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Of each task what the processor has measured that runs it: the others have measured nothing of it."""
    columns: list[str] = max((one.get("columns", []) for one in tables), key=len, default=[])
    rows: dict[str, list[float]] = {}
    for one in tables:
        if one.get("columns") == columns:
            for task, row in one.get("rows", {}).items():
                before = rows.get(task, row)
                rows[task] = [max(pair) for pair in zip(before, row, strict=True)]
    return {"columns": columns, "rows": rows} if columns else {}
