"""What must hold after any number of deaths of the jobs in `usual_job`: its outputs and state against dumb models."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

from support.checker import (
    KillReport,
    Row,
    last_of,
    long_of,
    model_count,
    model_windowed,
    order_kept_per_key,
    partitioned_by_murmur2,
    same_records,
    state_equals,
    subsequence_ending_in_last,
    values_by_key,
    window_of,
)
from support.log_states import stored_count, stored_fields, stored_time_us

WINDOW_US = 10_000_000


def judge_job(
    rows: Callable[[str], list[Row]],
    state: Callable[[str], dict[tuple[bytes, bytes], bytes]],
    report: KillReport,
    *,
    calm: list[Row] | None = None,
    partitions: int = 3,
) -> None:
    """Judge a job by what it read and wrote: `rows` of "in", "mapped", "counts", "windows", and its committed `state`.

    `calm`: what "mapped" is of an undisturbed job. `partitions`: of "in".
    """
    inputs, mapped = rows("in"), rows("mapped")
    report.checked("mapped, by the model", same_records(mapped, [_doubled(row) for row in inputs], by="key"))
    report.checked("mapped, in order", order_kept_per_key(inputs, mapped, identity=_id))
    report.checked("mapped, in place", partitioned_by_murmur2(mapped, partitions))
    if calm is not None:
        report.checked("mapped, as undisturbed", same_records(mapped, calm, by="key"))
        report.checked("mapped, per partition", _same_multisets(mapped, calm))

    counts = model_count([_by_group(row) for row in inputs if _value(row)["n"] % 5])
    found = values_by_key(rows("counts"), lambda row: long_of(row["value"]))
    report.checked("counts, updates", subsequence_ending_in_last(found, counts))
    dump = {key: stored_count(value) for (key, _), value in state("counts").items()}
    report.checked("counts, state", state_equals(last_of(counts), dump))

    windows = model_windowed(inputs, WINDOW_US, initial=(0, 0), fold=_totalled)
    updates = values_by_key(rows("windows"), _totals, lambda row: window_of(row["key"]))
    report.checked("windows, updates", subsequence_ending_in_last(updates, windows))
    totals = {
        (key, stored_time_us(sub)): stored_fields(value)
        for (key, sub), value in state("windows").items()
    }
    report.checked("windows, state", state_equals(last_of(windows), totals))


def _value(row: Row) -> Any:
    return json.loads(row["value"])


def _id(row: Row) -> Any:
    return _value(row)["id"]


def _doubled(row: Row) -> Row:
    value = _value(row)
    made = json.dumps({"id": value["id"], "n": value["n"] * 2}, separators=(",", ":"))
    return {**row, "value": made.encode()}


def _by_group(row: Row) -> Row:
    return {**row, "key": _value(row)["g"].encode()}


def _totalled(before: tuple[int, int], row: Row) -> tuple[int, int]:
    return before[0] + 1, before[1] + _value(row)["n"]


def _totals(row: Row) -> tuple[int, int]:
    value = _value(row)
    return value["n"], value["total"]


def _same_multisets(actual: list[Row], expected: list[Row]) -> int:
    """The same records in each partition, in whatever order."""
    found, wanted = (
        Counter((row["partition"], row["key"], row["value"], row["timestamp_us"]) for row in rows)
        for rows in (actual, expected)
    )
    assert found == wanted, f"only found: {list((found - wanted).items())[:3]}, missing: {list((wanted - found).items())[:3]}"
    return found.total()
