"""Owns the named aggregates: what each asks of Arrow's group-by, how a round's partial result is merged into the stored
state, and what the state means. Nulls are skipped by all of them, but counted by `count()` without a field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.model.topology import NamedAggregate


@dataclass(frozen=True, slots=True)
class Accumulator:
    """`wanted`: pairs (column, Arrow's aggregation) for the group-by; the rest works on one group's state."""

    wanted: tuple[Any, ...]
    partials: Callable[[Any], list[Any]]
    merged: Callable[[Any, Any], Any]
    result: Callable[[Any], Any]


def accumulators_of(named: Mapping[str, NamedAggregate]) -> list[Accumulator]:
    return [_accumulator(aggregate.kind, aggregate.field) for aggregate in named.values()]


def _accumulator(kind: str, field: str | None) -> Accumulator:
    if kind == "count":
        column = field or "ordinal"
        return Accumulator(((column, "count"),), _column(f"{column}_count"), lambda a, b: a + b, _same)
    assert field is not None, kind
    if kind == "sum":
        return Accumulator(((field, "sum"),), _column(f"{field}_sum"), _added, _same)
    if kind == "mean":
        return Accumulator(((field, "sum"), (field, "count")), _sum_and_count(field), _means_merged, _mean)
    if kind in ("min", "max"):
        choose = _least if kind == "min" else _greatest
        return Accumulator(((field, kind),), _column(f"{field}_{kind}"), _either(choose), _same)
    if kind == "first":
        return Accumulator(((field, "first"),), _column(f"{field}_first"), lambda a, b: b if a is None else a, _same)
    if kind == "last":
        return Accumulator(((field, "last"),), _column(f"{field}_last"), lambda a, b: a if b is None else b, _same)
    assert kind == "count_distinct", kind
    return Accumulator(((field, "distinct"),), _distinct(field), _union, len)


def _same(state: Any) -> Any:
    return state


def _column(name: str) -> Callable[[Any], list[Any]]:
    return lambda groups: groups[name].to_pylist()


def _added(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return b if a is None else a
    return _storable(a + b)


def _storable(total: Any) -> Any:
    """A sum that has outgrown 64 bits goes on as a float."""
    return float(total) if isinstance(total, int) and not -(1 << 63) <= total < 1 << 63 else total


def _sum_and_count(field: str) -> Callable[[Any], list[Any]]:
    return lambda groups: [
        [0 if total is None else total, count]
        for total, count in zip(groups[f"{field}_sum"].to_pylist(), groups[f"{field}_count"].to_pylist(), strict=True)
    ]


def _means_merged(a: list[Any], b: list[Any]) -> list[Any]:
    return [_storable(a[0] + b[0]), a[1] + b[1]]


def _mean(state: list[Any]) -> float | None:
    return state[0] / state[1] if state[1] else None


def _either(choose: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: b if a is None else a if b is None else choose(a, b)


def _least(a: Any, b: Any) -> Any:
    return b if _rank(b) < _rank(a) else a


def _greatest(a: Any, b: Any) -> Any:
    return b if _rank(b) > _rank(a) else a


def _rank(value: Any) -> tuple[str, Any]:
    """Values of different kinds, which different rounds may bring where there is no schema, have an order too."""
    return ("number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__, value)


def _distinct(field: str) -> Callable[[Any], list[Any]]:
    return lambda groups: [_union([], values) for values in groups[f"{field}_distinct"].to_pylist()]


def _union(a: list[Any], b: list[Any]) -> list[Any]:
    """`a` and what else is in `b`, each once as Python compares: 0.0 and -0.0 are one to it, and two to Arrow."""
    known = {_hashable(value): value for value in a}
    for value in b:
        if value is not None:
            known.setdefault(_hashable(value), value)
    return list(known.values())


def _hashable(value: Any) -> Any:
    return value if value == value else "not a number"  # which equals nothing, itself included
