"""Named aggregates of every kind over whole numbers, and what they make of a list of these."""

from __future__ import annotations

from typing import Any

import headrace as hr

NAMED = {
    "n": hr.count(),
    "t": hr.sum("value"),
    "m": hr.mean("value"),
    "f": hr.first("value"),
    "l": hr.last("value"),
    "h": hr.max("value"),
    "d": hr.count_distinct("value"),
}


def named_result(values: list[int]) -> dict[str, Any]:
    """The result of `NAMED` for the values of a key."""
    return {
        "n": len(values),
        "t": sum(values),
        "m": sum(values) / len(values),
        "f": values[0],
        "l": values[-1],
        "h": max(values),
        "d": len(set(values)),
    }
