"""The named aggregates: what each asks of Arrow's group-by, how a round's partial result is merged into the stored
state, and what the state means.

Nulls are skipped by all of them, but counted by `count()` without a field. Numbers are whole (64 bits with a sign) or
floats; a field without a schema may have texts and booleans beside them. Each kind has a column of its own, so that neither
is made another and a result does not depend on which records came in one round:

- `sum` adds whole numbers exactly, floats beside them. It is a whole number until a float comes, then the float of both.
  A record that would take the whole part out of 64 bits, or the floats to infinity, is refused (`worker/operators/totals`).
- `mean` is the same total, of any size, divided by the count.
- `min` and `max` compare whole numbers with floats exactly; of equal ones either is given. Values of different kinds are in
  the order of these kinds' names: booleans, bytes, numbers, texts. `first`, `last` and `count_distinct` keep values as they
  came; 1 and 1.0 are not distinct.
- NaN and infinity are refused by all but the counts: a sum that has met one never leaves it, and JSON, the form of
  results, has neither. To `count_distinct` all NaN are one value.
- A count is 64 bits and not checked: a thousand million records a second would take 292 years to get there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

from headrace.model.topology import NamedAggregate

REAL = "|real"  # after a field's name: the column of its floats; no field's name has the character
OF_TYPE = "|of "  # so is this, with a type behind it: the column of its values that are no numbers
KIND = "|kind"  # where a field has several columns: which of them (by its place) has the value, null where it is null
COUNTS = frozenset({"count", "count_distinct"})
TOTALS = frozenset({"sum", "mean"})
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1

_ONE_PART = frozenset({int, float})

Total = tuple[int | None, float | None]  # of the whole numbers and of the floats; None where there was none


@dataclass(frozen=True, slots=True)
class Accumulator:
    """One named aggregate.

    `wanted` gives the pairs (column, Arrow's aggregation) for the group-by, from the columns that there are; `partials`
    takes one state per group from its result; the rest works on one group's state. `total` and `with_total` are those of
    a sum or mean: what it has added up, and the state with another total.
    """

    kind: str
    field: str | None
    wanted: Callable[[Collection[str]], list[tuple[str, str]]]
    partials: Callable[[Any], list[Any]]
    merged: Callable[[Any, Any], Any]
    result: Callable[[Any], Any]
    total: Callable[[Any], Total] | None = None
    with_total: Callable[[Any, Total], Any] | None = None


def accumulators_of(named: Mapping[str, NamedAggregate]) -> list[Accumulator]:
    return [_accumulator(aggregate.kind, aggregate.field) for aggregate in named.values()]


def _accumulator(kind: str, field: str | None) -> Accumulator:
    if kind == "count":
        column = field or "ordinal"
        return Accumulator(kind, field, _each(column, "count"), _joined(column, "count", add), add, _same)
    assert field is not None, kind
    if kind == "sum":
        wanted, sums = _each(field, "sum"), _joined(field, "sum", _packed)
        return Accumulator(kind, field, wanted, sums, _sums_merged, _sum, _parts, lambda _, total: _packed(*total))
    if kind == "mean":
        wanted = _each(field, "sum", "count")
        return Accumulator(kind, field, wanted, _mean_parts(field), _means_merged, _mean, _mean_total, _with_total)
    if kind in ("min", "max"):
        choose = _either(_least if kind == "min" else _greatest)
        return Accumulator(kind, field, _each(field, kind), _joined(field, kind, choose), choose, _same)
    if kind == "first":
        return Accumulator(kind, field, _with_kind(field, kind), _at(field, kind), lambda a, b: b if a is None else a, _same)
    if kind == "last":
        return Accumulator(kind, field, _with_kind(field, kind), _at(field, kind), lambda a, b: a if b is None else b, _same)
    assert kind == "count_distinct", kind
    return Accumulator(kind, field, _each(field, "distinct"), _distinct(field), _union, len)


def _same(state: Any) -> Any:
    return state


# --- columns --------------------------------------------------------------------------------------------------------


def columns_of(field: str, present: Collection[str]) -> list[str]:
    """The columns that have values of a field, of those there are: its whole numbers, or it has a schema; floats; others."""
    others = sorted(column for column in present if column.startswith(field + OF_TYPE))
    return [column for column in (field, field + REAL) if column in present] + others


def _each(field: str, *aggregations: str) -> Callable[[Collection[str]], list[tuple[str, str]]]:
    def wanted(present: Collection[str]) -> list[tuple[str, str]]:
        return [(column, aggregation) for column in columns_of(field, present) for aggregation in aggregations]

    return wanted


def _with_kind(field: str, aggregation: str) -> Callable[[Collection[str]], list[tuple[str, str]]]:
    def wanted(present: Collection[str]) -> list[tuple[str, str]]:
        kind = [(field + KIND, aggregation)] if field + KIND in present else []
        return [*_each(field, aggregation)(present), *kind]

    return wanted


def _parts_of(groups: Any, field: str, aggregation: str) -> list[list[Any]]:
    """What the groups have of an aggregation, by the field's columns."""
    end = f"_{aggregation}"
    present = {name.removesuffix(end) for name in groups.column_names if name.endswith(end)}
    return [groups[column + end].to_pylist() for column in columns_of(field, present)]


def _joined(field: str, aggregation: str, join: Callable[[Any, Any], Any]) -> Callable[[Any], list[Any]]:
    """`join` of a field's columns, one after the other; where there is only one, as for most fields, that one."""

    def joined(groups: Any) -> list[Any]:
        first, *others = _parts_of(groups, field, aggregation)
        for other in others:
            first = list(map(join, first, other))
        return first

    return joined


# --- counts, sums and means -----------------------------------------------------------------------------------------


def _packed(whole: int | None, real: float | None) -> Any:
    """A total as a sum's state: one number, or both of its parts."""
    return whole if real is None else real if whole is None else [whole, real]


def _parts(state: Any) -> Total:
    if isinstance(state, list):
        return state[0], state[1]
    return (None, state) if isinstance(state, float) else (state, None)


def _sums_merged(a: Any, b: Any) -> Any:
    if type(a) is type(b) and type(a) in _ONE_PART:
        return a + b
    return _packed(*_added(_parts(a), _parts(b)))


def _added(a: Total, b: Total) -> Total:
    return _plus(a[0], b[0]), _plus(a[1], b[1])


def _plus(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else a + b


def _sum(state: Any) -> Any:
    return state[0] + state[1] if isinstance(state, list) else state


def _mean_parts(field: str) -> Callable[[Any], list[Any]]:
    sums, counts = _joined(field, "sum", _packed), _joined(field, "count", add)
    return lambda groups: [list(pair) for pair in zip(sums(groups), counts(groups), strict=True)]


def _mean_total(state: list[Any]) -> Total:
    whole, real = _parts(state[0])
    return None if whole is None else int(whole), real


def _with_total(state: list[Any], total: Total) -> list[Any]:
    """A state of a mean: total and count. A whole part beyond 64 bits is kept as its digits."""
    whole: Any = total[0]
    if whole is not None and not INT64_MIN <= whole <= INT64_MAX:
        whole = str(whole)
    return [_packed(whole, total[1]), state[1]]


def _means_merged(a: list[Any], b: list[Any]) -> list[Any]:
    count = a[1] + b[1]
    if type(a[0]) is float and type(b[0]) is float:  # as most means are
        return [a[0] + b[0], count]
    return _with_total([None, count], _added(_mean_total(a), _mean_total(b)))


def _mean(state: list[Any]) -> float | None:
    total = _plus(*_mean_total(state))
    return None if total is None else total / state[1]


# --- values as they came --------------------------------------------------------------------------------------------


def _either(choose: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: b if a is None else a if b is None else choose(a, b)


def _least(a: Any, b: Any) -> Any:
    return b if _rank(b) < _rank(a) else a


def _greatest(a: Any, b: Any) -> Any:
    return b if _rank(b) > _rank(a) else a


def _rank(value: Any) -> tuple[str, Any]:
    """Values of different kinds, which different rounds may bring where there is no schema, have an order too."""
    return ("number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__, value)


def _at(field: str, aggregation: str) -> Callable[[Any], list[Any]]:
    """The first or last value: of the column that its kind names, where there are several."""

    def values(groups: Any) -> list[Any]:
        parts = _parts_of(groups, field, aggregation)
        if len(parts) == 1:
            return parts[0]
        kinds = groups[f"{field}{KIND}_{aggregation}"].to_pylist()
        return [None if kind is None else parts[kind][row] for row, kind in enumerate(kinds)]

    return values


def _distinct(field: str) -> Callable[[Any], list[Any]]:
    def distinct(groups: Any) -> list[Any]:
        found = zip(*_parts_of(groups, field, "distinct"), strict=True)
        return [reduce(_union, (values or () for values in of_group), []) for of_group in found]

    return distinct


def _union(a: list[Any], b: Any) -> list[Any]:
    """`a` and what else is in `b`, each once as Python compares: 0.0 and -0.0 are one to it, and two to Arrow."""
    known = {_hashable(value): value for value in a}
    for value in b:
        if value is not None:
            known.setdefault(_hashable(value), value)
    return list(known.values())


_NAN = object()  # what stands for NaN, which equals nothing, itself included


def _hashable(value: Any) -> Any:
    if isinstance(value, bool):
        return ("boolean", value)  # True equals 1 to Python
    return value if value == value else _NAN
