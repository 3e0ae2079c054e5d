"""The named aggregates: what each asks of Arrow's group-by, how a round's partial result is merged into the stored
state, and what the state means.

Nulls are skipped by all of them, but counted by `count()` without a field. Numbers are whole (64 bits with a sign), decimals
or floats; a field without a schema may have texts and booleans beside them. Each kind has a column of its own, so that neither
is made another and a result does not depend on which records came in one round:

- `sum` adds whole numbers and decimals exactly, floats beside them. It is a whole number until a decimal comes, a decimal
  until a float comes, then the float of all. A decimal keeps the scale of its field (its digits behind the point), where the
  field declares one. A record that would take the whole part out of 64 bits, a decimal beyond 38 digits, or the floats to
  infinity, is refused (`worker/operators/totals`).
- `mean` is the same total, of any size, divided by the count: a float, of decimals too, rounded once.
- `min` and `max` compare whole numbers, decimals and floats exactly; of equal ones either is given. Values of different kinds
  are in the order of these kinds' names: booleans, bytes, numbers, texts. `first`, `last` and `count_distinct` keep values as
  they came; 1 and 1.0 are not distinct.
- NaN and infinity are refused by all but the counts: a sum that has met one never leaves it, and JSON, the form of
  results, has neither. To `count_distinct` all NaN are one value.
- A count is 64 bits and not checked: a thousand million records a second would take 292 years to get there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from operator import add
from typing import Any

from headrace.core.decimals import limit_of, of_float, plain_decimal, plus, scaled
from headrace.model.topology import NamedAggregate

REAL = "|real"  # after a field's name: the column of its floats; no field's name has the character
DECIMAL = "|decimal"  # that of its decimals, which all have one type
DIGITS = "|digits"  # these as texts, where the first or last is wanted: Arrow finds it of no decimals
PARTS = ("", REAL, DECIMAL)  # the columns of numbers, in the order of a `Total`
OF_TYPE = "|of "  # so is this, with a type behind it: the column of its values that are no numbers
KIND = "|kind"  # where a field has several columns: which of them (by its place) has the value, null where it is null
COUNTS = frozenset({"count", "count_distinct"})
TOTALS = frozenset({"sum", "mean"})
ENDS = frozenset({"first", "last"})
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1

_ONE_PART = frozenset({int, float})

# of the whole numbers, of the floats, and of the decimals; None where there was none
Total = tuple[int | None, float | None, Decimal | None]


@dataclass(frozen=True, slots=True)
class Accumulator:
    """One named aggregate.

    `wanted` gives the pairs (column, Arrow's aggregation) for the group-by, from the columns that there are; `partials`
    takes one state per group from its result; the rest works on one group's state. `total` and `with_total` are those of
    a sum or mean: what it has added up, and the state with another total. `scale`: the digits behind the point of a decimal
    field, None where it declares none.
    """

    kind: str
    field: str | None
    wanted: Callable[[Collection[str]], list[tuple[str, str]]]
    partials: Callable[[Any], list[Any]]
    merged: Callable[[Any, Any], Any]
    result: Callable[[Any], Any]
    total: Callable[[Any], Total] | None = None
    with_total: Callable[[Any, Total], Any] | None = None
    scale: int | None = None

    @property
    def limit(self) -> Decimal:
        """What a sum's decimals stay below."""
        return limit_of(self.scale)


def accumulators_of(named: Mapping[str, NamedAggregate], scales: Mapping[str, int]) -> list[Accumulator]:
    """`scales`: of the aggregates of decimal fields, by their names (`core.topology.store_forms.scales_in`)."""
    return [_of_scale(_accumulator(one.kind, one.field), scales.get(name)) for name, one in named.items()]


def _of_scale(accumulator: Accumulator, scale: int | None) -> Accumulator:
    if scale is None or accumulator.kind in COUNTS:
        return replace(accumulator, scale=scale)
    result = accumulator.result
    return replace(accumulator, scale=scale, result=lambda state: _scaled(result(state), scale))


def _scaled(value: Any, scale: int) -> Any:
    return scaled(value, scale) if isinstance(value, Decimal) else value


def exact_of_stored(accumulators: Sequence[Accumulator]) -> Callable[[list[Any]], list[Any]]:
    """What takes stored states, in which older versions made floats of the decimals of fields that declare them."""
    scales = [accumulator.scale for accumulator in accumulators]
    if set(scales) <= {None}:
        return _same

    def exact(states: list[Any]) -> list[Any]:
        found = [state if scale is None else _exact(state, scale) for scale, state in zip(scales, states, strict=False)]
        return found + states[len(found) :]  # a time may follow

    return exact


def _exact(state: Any, scale: int) -> Any:
    if isinstance(state, list):
        return [_exact(part, scale) for part in state]
    return of_float(state, scale) if isinstance(state, float) else state


def _accumulator(kind: str, field: str | None) -> Accumulator:
    if kind == "count":
        column = field or "ordinal"
        return Accumulator(kind, field, _each(column, "count"), _joined(column, "count", add), add, _same)
    assert field is not None, kind
    if kind == "sum":
        wanted, sums = _each(field, "sum"), _joined(field, "sum", _sums_merged)
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
    """The columns that have values of a field, of those there are: its whole numbers, or it has a schema; floats; decimals;
    others."""
    others = sorted(column for column in present if column.startswith(field + OF_TYPE))
    return [field + part for part in PARTS if field + part in present] + others


def _each(field: str, *aggregations: str) -> Callable[[Collection[str]], list[tuple[str, str]]]:
    def wanted(present: Collection[str]) -> list[tuple[str, str]]:
        return [(_asked(column, one), one) for column in columns_of(field, present) for one in aggregations]

    return wanted


def _with_kind(field: str, aggregation: str) -> Callable[[Collection[str]], list[tuple[str, str]]]:
    def wanted(present: Collection[str]) -> list[tuple[str, str]]:
        kind = [(field + KIND, aggregation)] if field + KIND in present else []
        return [*_each(field, aggregation)(present), *kind]

    return wanted


def _asked(column: str, aggregation: str) -> str:
    """The column that Arrow aggregates of one that has values."""
    return column.removesuffix(DECIMAL) + DIGITS if aggregation in ENDS and column.endswith(DECIMAL) else column


def _parts_of(groups: Any, field: str, aggregation: str) -> list[list[Any]]:
    """What the groups have of an aggregation, by the field's columns."""
    end = f"_{aggregation}"
    asked = {name.removesuffix(end) for name in groups.column_names if name.endswith(end)}
    columns = columns_of(field, {name.removesuffix(DIGITS) + DECIMAL if name.endswith(DIGITS) else name for name in asked})
    return [_values(groups[_asked(column, aggregation) + end].to_pylist(), column) for column in columns]


def _values(found: list[Any], column: str) -> list[Any]:
    """What Arrow has made of a column; of decimals as they are kept."""
    return list(map(_plain, found)) if column.endswith(DECIMAL) else found


def _plain(found: Any) -> Any:
    if isinstance(found, list):
        return list(map(_plain, found))
    return plain_decimal(Decimal(found)) if isinstance(found, (str, Decimal)) else found


def _joined(field: str, aggregation: str, join: Callable[[Any, Any], Any]) -> Callable[[Any], list[Any]]:
    """`join` of a field's columns, one after the other; where there is only one, as for most fields, that one."""

    def joined(groups: Any) -> list[Any]:
        first, *others = _parts_of(groups, field, aggregation)
        for other in others:
            first = list(map(join, first, other))
        return first

    return joined


# --- counts, sums and means -----------------------------------------------------------------------------------------


def _packed(whole: int | None, real: float | None, exact: Decimal | None = None) -> Any:
    """A total as a sum's state: one number, or its parts."""
    if exact is None:
        return whole if real is None else real if whole is None else [whole, real]
    return exact if whole is None and real is None else [whole, real, exact]


def _parts(state: Any) -> Total:
    if isinstance(state, list):
        return state[0], state[1], state[2] if len(state) > len(PARTS) - 1 else None
    if isinstance(state, Decimal):
        return None, None, state
    return (None, state, None) if isinstance(state, float) else (state, None, None)


def _sums_merged(a: Any, b: Any) -> Any:
    if type(a) is type(b) and type(a) in _ONE_PART:
        return a + b
    return _packed(*_added(_parts(a), _parts(b)))


def _added(a: Total, b: Total) -> Total:
    return _plus(a[0], b[0]), _plus(a[1], b[1]), _plus(a[2], b[2])


def _plus(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return b if a is None else a
    return plain_decimal(plus(a, b)) if isinstance(a, Decimal) else a + b


def _sum(state: Any) -> Any:
    return _together(_parts(state)) if isinstance(state, list) else state


def _together(total: Total) -> Any:
    whole, real, exact = total
    if real is None:
        return _plus(exact, whole)
    return _plus(real, whole) + float(exact or 0)


def _mean_parts(field: str) -> Callable[[Any], list[Any]]:
    sums, counts = _joined(field, "sum", _sums_merged), _joined(field, "count", add)
    return lambda groups: [list(pair) for pair in zip(sums(groups), counts(groups), strict=True)]


def _mean_total(state: list[Any]) -> Total:
    whole, real, exact = _parts(state[0])
    return None if whole is None else int(whole), real, exact


def _with_total(state: list[Any], total: Total) -> list[Any]:
    """A state of a mean: total and count. A whole part beyond 64 bits is kept as its digits."""
    whole: Any = total[0]
    if whole is not None and not INT64_MIN <= whole <= INT64_MAX:
        whole = str(whole)
    return [_packed(whole, *total[1:]), state[1]]


def _means_merged(a: list[Any], b: list[Any]) -> list[Any]:
    count = a[1] + b[1]
    if type(a[0]) is float and type(b[0]) is float:  # as most means are
        return [a[0] + b[0], count]
    return _with_total([None, count], _added(_mean_total(a), _mean_total(b)))


def _mean(state: list[Any]) -> float | None:
    total = _together(_mean_total(state))
    if isinstance(total, Decimal):
        return float(Fraction(total) / state[1])
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
    is_number = isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
    return ("number" if is_number else type(value).__name__, value)


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
