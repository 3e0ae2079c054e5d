"""The jobs that are killed while their elasticity factor changes, and what they should have made of it.

Each record carries its number among those of its key, so that what is lost, doubled or out of order can be told of every
one of them; what has state says in which task it was. `judge` compares with plain counts, by Kafka's or the log's own files.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import headrace as hr
from expansion.growing_job import GROUPS, OFTEN, VALUE, WINDOW_MS, Seen, group_of
from headrace.core.elasticity import preparation
from kafka_expansion.checker import as_written, counted, counted_by_window, counts_are, last_values, once_and_in_order
from kafka_expansion.producers import Ledger
from support.checker import KillReport, Row, key_of, long_of, state_equals, window_of
from support.log_states import stored_fields, stored_time_us

GRACE_MS = 4_000
FIRST_FACTOR = {"stateful": 1, "prepared": 1, "gated": 8}
GATED_KEY = "quick-0"
OUTPUTS = ("passed", "windows", "finals", "groups")


def gated(run: Any) -> hr.App:
    """As `stateful`; the records of one key wait while there is a file `gate`, and the tasks of others read on."""
    gate = Path(run.folder, "gate")

    class Waiting(Seen):
        def process(self, record: Any) -> None:
            while record.key == GATED_KEY and gate.exists():
                time.sleep(0.01)
            super().process(record)

    keys = {"elasticity_factor": FIRST_FACTOR["gated"], "task_threads": 8, "max_records_per_round": 400}
    return stateful(run, Waiting, **keys)


def prepared(run: Any) -> hr.App:
    """As `stateful`; local stores are made before a change, as if the state were large."""
    preparation.PREPARED_BYTES_MIN = 1
    return stateful(run)


def stateful(run: Any, counting: type[Seen] = Seen, **keys: Any) -> hr.App:
    """A count by hand, a windowed one with and without its final results, one behind a repartition stream."""
    app = run.app(**{**OFTEN, **keys})
    name = app.name
    records = app.stream(run.source, key=hr.String(), value=hr.Json(VALUE))
    records.process(counting, value=hr.Json()).to(f"{name}-passed")
    windows = records.group_by_key().windowed_by(hr.Tumbling(f"{WINDOW_MS} milliseconds", grace=f"{GRACE_MS} milliseconds"))
    counts = windows.aggregate(n=hr.count(), store="windows")
    counts.to_stream().to(f"{name}-windows", value=hr.Json())
    counts.suppress(hr.until_window_closes()).to_stream().to(f"{name}-finals", value=hr.Json())
    groups = records.select_key(group_of, key=hr.String())
    groups = groups.repartition(hr.Repartitioned(name="by-group", number_of_partitions=2))
    groups.group_by_key().count(store="groups").to_stream().to(f"{name}-groups")
    return app


def judge(
    rows: Callable[[str], list[Row]],
    ledger: Ledger,
    report: KillReport,
    state: Callable[[str], dict[tuple[bytes, bytes], bytes]],
) -> None:
    """Judge all that a job wrote by what it read. `state`: what a store holds."""
    inputs, passed = rows("in"), rows("passed")
    report.checked("input, as the ledger has it", as_written(inputs, ledger))
    report.checked("passed on: each once, in order of its key", once_and_in_order(passed, ledger))
    report.checked("keys in one task under each factor", one_task_per_key_and_factor(passed))
    wrong = [(row["key"], value) for row in passed if (value := json.loads(row["value"]))["n"] != value["seq"]]
    assert not wrong, f"{len(wrong)} counts by hand are wrong, the first: {wrong[0]}"
    seen = {key: long_of(held) for (key, _), held in state("seen").items()}
    report.checked("count by hand, its state", state_equals(counted(inputs), seen))
    windows = counted_by_window(inputs, WINDOW_MS)
    found = last_values(rows("windows"), _window, _count)
    report.checked("windows", counts_are(found, windows))
    report.checked("final results: each once, and right", finals_are(rows("finals"), inputs))
    held = {
        (key, stored_time_us(start) // 1000): stored_fields(value)[0] for (key, start), value in state("windows").items()
    }
    newest = max(row["timestamp_us"] for row in inputs) // 1000
    kept = {window: count for window, count in windows.items() if window in held or window[1] + WINDOW_MS + GRACE_MS > newest}
    report.checked("windows that are not closed, their state", state_equals(kept, held))
    groups = Counter(b"g%d" % (json.loads(row["value"])["seq"] % GROUPS) for row in inputs)
    found = last_values(rows("groups"), key_of, lambda row: long_of(row["value"]))
    report.checked("groups, behind a repartition", counts_are(found, groups))


def one_task_per_key_and_factor(passed: Iterable[Row]) -> int:
    """Under no factor a key was in two tasks."""
    found: dict[tuple[bytes, str], set[str]] = defaultdict(set)
    for row in passed:
        task = str(json.loads(row["value"])["task"])
        factor = parts[2] if len(parts := task.split("-")) == 3 else "1"
        found[row["key"], factor].add(task)
    wrong = {where: tasks for where, tasks in found.items() if len(tasks) > 1}
    assert not wrong, f"keys in two tasks: {wrong}"
    return len(found)


def finals_are(finals: list[Row], inputs: list[Row]) -> int:
    """Each window's final result was given at most once, and is its count; none is missing that is certain to have closed:
    every partition has records that are a grace and more behind its end."""
    given = Counter(_window(row) for row in finals)
    assert not (twice := [window for window, count in given.items() if count > 1]), f"given twice: {twice[:5]}"
    windows = counted_by_window(inputs, WINDOW_MS)
    shown = [(window, _count(row), windows.get(window)) for row in finals for window in [_window(row)]]
    wrong = [one for one in shown if one[1] != one[2]]
    assert not wrong, f"{len(wrong)} final results are wrong, the first (window, given, counted): {wrong[0]}"
    newest: dict[int, int] = {}
    for row in inputs:
        newest[row["partition"]] = max(row["timestamp_us"] // 1000, newest.get(row["partition"], 0))
    closed = {window for window in windows if window[1] + WINDOW_MS + GRACE_MS < min(newest.values())}
    # what has closed is given by a round behind the one that has read so far: the last ones may be still to come
    late = sorted(closed - given.keys(), key=lambda window: window[1])
    ends = sorted({start for _, start in closed})
    assert all(start in ends[-2:] for _, start in late), f"{len(late)} windows were never given: {late[:5]}"
    return len(finals)


def _window(row: Row) -> tuple[bytes, int]:
    key, start_us = window_of(row["key"])
    return key, start_us // 1000


def _count(row: Row) -> int:
    return int(json.loads(row["value"])["n"])
