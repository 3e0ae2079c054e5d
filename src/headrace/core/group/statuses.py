"""The status of a job of which several processors have each published their share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.core.metrics.phases import ROUNDS_KEPT

FRESH_US = 15_000_000  # what a processor has published that much before the newest is of one that is not there any more
_SUMMED = ("records_per_s", "known_failures")
_OF_EACH = ("updated_us", "records", "waiting_for", "ended_by")
_NUMBERS, _COUNTED = ("records", "records_written"), ("counters", "counters_of_all_runs")  # of a run
_OF_RUN = ("run", "round", *_NUMBERS, *_COUNTED)
RATE = "records-per-s-60s"
_BY = "@"  # between a sub-topology and the processor that has published; no name has it

Status = dict[str, Any]


def published_name(title: str, processor_id: str | None) -> str:
    """Under what name a processor publishes the status of a sub-topology; None: a single driver."""
    return title if processor_id is None else f"{title}{_BY}{processor_id}"


def counted_on(status: Status, before: Status) -> Status:
    """`status` with what the same processor had counted `before`, in the same run as another process.

    >>> counted_on({"records": 2, "round": 1, "lag": 3}, {"records": 40, "round": 7, "lag": 9})
    {'records': 42, 'round': 8, 'lag': 3}
    """
    numbers = {name: status[name] + before.get(name, 0) for name in (*_NUMBERS, "round") if name in status}
    return {**status, **numbers, **{name: _added([status[name], before.get(name, {})]) for name in _COUNTED if name in status}}


def counted_by(joined: Mapping[str, Status], processor_id: str, run: str) -> dict[str, Status]:
    """By sub-topology what a processor has counted in this run, as `joined_statuses` has it; none of one that has not."""
    shares = {title: status.get("counted_by", {}).get(processor_id, {}) for title, status in joined.items()}
    return {title: one for title, one in shares.items() if one.get("run") == run}


def fresh(published: Mapping[str, Status]) -> dict[str, Status]:
    """Of what processors have published, each of itself, that of those that are there still.

    >>> fresh({"a": {"updated_us": 1}, "b": {"updated_us": 2 + FRESH_US}})
    {'b': {'updated_us': 15000002}}
    """
    last_us = max((one.get("updated_us", 0) for one in published.values()), default=0)
    return {id_: one for id_, one in sorted(published.items()) if last_us - one.get("updated_us", 0) <= FRESH_US}


def joined_statuses(published: Mapping[str, Status]) -> dict[str, Status]:
    """By sub-topology the status of all processors together: what they count is added, with what those have counted in this run
    that are not there any more; `round` is the highest, and the rest is of the newest; `processors` says when each has
    published, and what it waits for. Where one driver has published last, its status alone.

    >>> found = joined_statuses({"source@a": {"records": 1, "updated_us": 5}, "source@b": {"records": 2, "updated_us": 6}})
    >>> found["source"]["records"], sorted(found["source"]["processors"])
    (3, ['a', 'b'])
    """
    shares: dict[str, dict[str | None, Status]] = {}
    for name, status in published.items():
        title, is_shared, processor = name.partition(_BY)
        shares.setdefault(title, {})[processor if is_shared else None] = status
    return {title: _joined(mine) for title, mine in sorted(shares.items())}


def processors_at_work(processors: Mapping[str, Status], now_us: int) -> list[str]:
    """The processors of a group that have published lately that they are there, and have not left. They work on while a leader
    that was lost has no follower yet, and wait for a ZooKeeper that is away."""
    return sorted(id_ for id_, one in processors.items() if now_us - one.get("updated_us", 0) <= FRESH_US)


def _joined(shares: Mapping[str | None, Status]) -> Status:
    newest = max(shares, key=lambda one: shares[one].get("updated_us", 0))
    if newest is None:
        return shares[None]
    last = shares[newest]
    there = fresh({id_: status for id_, status in shares.items() if id_ is not None})
    mine, run = list(there.values()), last.get("run")
    of_run = {id_: one for id_, one in shares.items() if id_ is not None and run is not None and one.get("run") == run}
    counted = list(of_run.values()) or mine
    return {
        **last,
        **{name: sum(one.get(name, 0) for one in mine) for name in _SUMMED if name in last},
        **{name: sum(one.get(name, 0) for one in counted) for name in _NUMBERS if name in last},
        **{name: _added([one.get(name, {}) for one in counted]) for name in _COUNTED if name in last},
        **{name: max(one.get(name, 0) for one in counted) for name in ("round",) if name in last},
        "metrics": {**last.get("metrics", {}), **_rate([one["last_minute"] for one in mine if "last_minute" in one])},
        "ended_by": "",  # of each processor
        "scale_waits_for": next((why for one in mine if (why := one.get("scale_waits_for"))), ""),  # the leader knows
        "notes": [note for one in mine for note in one.get("notes", ())][-3:],
        "restoring": [task for one in mine for task in one.get("restoring", ())],
        "task_commits": {task: at_us for one in mine for task, at_us in sorted(one.get("task_commits", {}).items())},
        "task_errors": [error for one in mine for error in one.get("task_errors", ())],
        "last_rounds": _last_of([one["last_rounds"] for one in mine if "last_rounds" in one]),
        "task_metrics": _highest([one.get("task_metrics", {}) for one in mine]),
        "counted_by": {id_: {name: one.get(name) for name in _OF_RUN if name in one} for id_, one in of_run.items()},
        "processors": {id_: {name: one.get(name) for name in _OF_EACH} for id_, one in there.items()},
    }


def _rate(minutes: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """What all of them have read per second of the last minute. Not the sum of their rates: one that has just come, and reads
    what a lost one has left, does so for some seconds."""
    seconds = max((one["seconds"] for one in minutes), default=0.0)
    return {RATE: round(sum(one["records"] for one in minutes) / seconds, 4)} if seconds > 0 else {}


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
