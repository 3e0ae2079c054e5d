"""What a round's sums and means may not do: go beyond 64 bits, beyond 38 digits of decimals, or beyond a float.

Arrow adds without looking. So before its sums count, a bound is put on them: first of the whole round (the largest number
times the rows), then, where that is too much, of each group. Only in groups that may overflow is every record added by
itself, in order: the one that goes too far is its own error, whatever rounds the records came in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import pairwise
from math import isfinite
from sys import float_info
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.accumulators import DECIMAL, INT64_MAX, INT64_MIN, PARTS, REAL, TOTALS, Accumulator, Total
from headrace.core.decimals import DIGITS_MAX, plain_decimal, plus
from headrace.errors import OutOfRangeError

GroupKey = tuple[Any, ...]  # key bytes, and a window's start
_WHOLE_SAFE = float(1 << 62)  # half of what fits: the bounds are floats, and rounded
_REAL_SAFE = float_info.max / 4
_WHOLE, _REAL, _DECIMAL = range(len(PARTS))  # of a `Total`
_ONE_TYPE: tuple[type, ...] = (int, float, Decimal)
_ABS = "|abs"
_AS_FLOAT = "sum it as a float: hr.sum of a field of doubles"
_SCALED_DOWN = "scale the values down before"
_ROUNDED = "round the values before, or sum them as floats"


@dataclass(slots=True)
class Exact:
    """What adding record by record has found: records (their ordinals) to refuse, and the totals of the others. `totals`: per
    group, the total of each accumulator (by its number) that is a sum or mean."""

    refused: dict[int, OutOfRangeError] = field(default_factory=dict)
    totals: dict[GroupKey, dict[int, Total]] = field(default_factory=dict)


def exact_of(
    table: Any, groups: Any, by: Sequence[str], accumulators: Sequence[Accumulator], old: Sequence[Sequence[Any] | None]
) -> Exact | None:
    """None where no sum can go too far, as in nearly all rounds. `groups` are those of `table`, `old` their states."""
    summing = {number: each for number, each in enumerate(accumulators) if each.kind in TOTALS}
    suspects: set[GroupKey] = set()
    keys: list[GroupKey] = []
    started: dict[GroupKey, Sequence[Any] | None] = {}
    for column, numbers in _columns_of(table, summing).items():
        part = _REAL if column.endswith(REAL) else _DECIMAL if column.endswith(DECIMAL) else _WHOLE
        safe = min(_safe(summing[number], part) for number in numbers)
        highest = max(_highest(summing[number], number, old, part) for number in numbers)
        if highest + _reach(table[column], table.num_rows) < safe:
            continue
        if not keys:
            keys = list(zip(*(groups[name].to_pylist() for name in by), strict=True))
            started = dict(zip(keys, old, strict=True))
        reach = _reach_by_group(table, column, by)
        held = [max(_held(summing[number], number, state, part) for number in numbers) for state in old]
        suspects.update(key for key, mine in zip(keys, held, strict=True) if mine + reach[key] >= safe)
    return _added_one_by_one(table, by, summing, {key: started[key] for key in suspects}) if suspects else None


def _columns_of(table: Any, summing: Mapping[int, Accumulator]) -> dict[str, list[int]]:
    """The columns that are added up, and which accumulators do."""
    columns: dict[str, list[int]] = {}
    for number, accumulator in summing.items():
        assert accumulator.field is not None
        for part in PARTS:
            if (column := accumulator.field + part) in table.column_names:
                columns.setdefault(column, []).append(number)
    return columns


def _safe(accumulator: Accumulator, part: int) -> float:
    return _REAL_SAFE if part == _REAL else _WHOLE_SAFE if part == _WHOLE else float(accumulator.limit) / 2


def _highest(accumulator: Accumulator, number: int, old: Sequence[Sequence[Any] | None], part: int) -> float:
    """The largest total in all the groups' states; cheap where all are of one kind."""
    states = [state[number] for state in old if state is not None]
    if accumulator.kind == "sum" and set(map(type, states)) <= {type(None), _ONE_TYPE[part]}:
        return float(max(map(abs, filter(None, states)), default=0.0))
    return max((_held(accumulator, number, state, part) for state in old), default=0.0)


def _held(accumulator: Accumulator, number: int, state: Sequence[Any] | None, part: int) -> float:
    """The total in a group's state. What a mean adds up exactly may be any size: nothing is held against it."""
    if state is None or (accumulator.kind == "mean" and part != _REAL):
        return 0.0
    assert accumulator.total is not None
    return abs(float(accumulator.total(state[number])[part] or 0.0))


def _reach(column: Any, rows: int) -> float:
    """At most this far the numbers of a column add up, in any order and in any direction."""
    ends = pc.min_max(column)
    return float(rows) * max(abs(float(ends[end].as_py() or 0)) for end in ("min", "max"))


def _reach_by_group(table: Any, column: str, by: Sequence[str]) -> dict[GroupKey, float]:
    absolute = pc.abs(pc.cast(table[column], pa.float64(), safe=False))  # of -2**63 there is no int64
    sums = table.select(list(by)).append_column(_ABS, absolute).group_by(list(by), use_threads=False).aggregate([(_ABS, "sum")])
    keys = zip(*(sums[name].to_pylist() for name in by), strict=True)
    return {key: reach or 0.0 for key, reach in zip(keys, sums[f"{_ABS}_sum"].to_pylist(), strict=True)}


def _added_one_by_one(
    table: Any, by: Sequence[str], summing: Mapping[int, Accumulator], suspects: Mapping[GroupKey, Sequence[Any] | None]
) -> Exact:
    exact = Exact({}, {key: _totals_of(state, summing) for key, state in suspects.items()})
    names = _columns_of(table, summing)
    own = table.filter(pc.is_in(table["group"], pa.array([key[0] for key in suspects], table["group"].type)))
    own = own.sort_by("ordinal")
    columns = {name: own[name].to_pylist() for name in names}
    keys = list(zip(*(own[name].to_pylist() for name in by), strict=True))
    ordinals = own["ordinal"].to_numpy()
    bounds = [0, *(np.flatnonzero(np.diff(ordinals)) + 1).tolist(), len(ordinals)]
    for start, stop in pairwise(bounds):
        rows = [row for row in range(start, stop) if keys[row] in suspects]  # one for each of the record's windows
        after: dict[GroupKey, dict[int, Total]] = {}
        for row in rows:
            values = {name: column[row] for name, column in columns.items()}
            error = _step(exact.totals[keys[row]], values, summing, after.setdefault(keys[row], {}))
            if error is not None:
                exact.refused[int(ordinals[row])] = error
                break
        else:  # it fits into all of them: a record takes effect as a whole or not at all
            for key, totals in after.items():
                exact.totals[key] = totals
    return exact


def _totals_of(state: Sequence[Any] | None, summing: Mapping[int, Accumulator]) -> dict[int, Total]:
    if state is None:
        return dict.fromkeys(summing, (None, None, None))
    return {number: each.total(state[number]) for number, each in summing.items() if each.total is not None}


def _step(
    before: Mapping[int, Total], values: Mapping[str, Any], summing: Mapping[int, Accumulator], after: dict[int, Total]
) -> OutOfRangeError | None:
    """Add a record's values to a group's totals, into `after`; the error if one does not fit."""
    for number, accumulator in summing.items():
        name = accumulator.field
        assert name is not None
        whole, real, exact = before[number]
        added, added_real, added_exact = (values.get(name + part) for part in PARTS)
        if added is not None:
            whole = added if whole is None else whole + added
            if accumulator.kind == "sum" and not INT64_MIN <= whole <= INT64_MAX:
                return _too_far(accumulator, added, "out of 64 bits", _AS_FLOAT)
        if added_real is not None:
            real = added_real if real is None else real + added_real
            if not isfinite(real):
                return _too_far(accumulator, added_real, "to infinity", _SCALED_DOWN)
        if added_exact is not None:
            exact = plain_decimal(plus(exact or Decimal(0), added_exact))
            if _is_too_long(accumulator, exact):
                return _too_far(accumulator, plain_decimal(added_exact), f"beyond {DIGITS_MAX} digits", _ROUNDED)
        after[number] = whole, real, exact
    return None


def _is_too_long(accumulator: Accumulator, exact: Decimal) -> bool:
    return accumulator.kind == "sum" and exact.copy_abs() >= accumulator.limit


def check_totals(accumulators: Sequence[Accumulator], state: Sequence[Any]) -> None:
    """Raise `OutOfRangeError` where a state's total is beyond what it can be: the record that made it so is refused."""
    for accumulator, part in zip(accumulators, state, strict=True):
        if accumulator.total is None:
            continue
        whole, real, exact = accumulator.total(part)
        name = f"{accumulator.kind} of {accumulator.field}"
        if accumulator.kind == "sum" and whole is not None and not INT64_MIN <= whole <= INT64_MAX:
            raise OutOfRangeError(f"{name}: the total {whole} would be out of 64 bits", _AS_FLOAT)
        if real is not None and not isfinite(real):
            raise OutOfRangeError(f"{name}: the total would be infinite", _SCALED_DOWN)
        if exact is not None and _is_too_long(accumulator, exact):
            raise OutOfRangeError(f"{name}: the total {exact} would have more than {DIGITS_MAX} digits", _ROUNDED)


def _too_far(accumulator: Accumulator, value: Any, where: str, hint: str) -> OutOfRangeError:
    return OutOfRangeError(f"{accumulator.kind} of {accumulator.field}: {value} would take the total {where}", hint)
