"""The named aggregates that can take a row out again: `count`, `sum` and `mean` of a grouped table's rows.

Their states depend on the rows that are there and on nothing else: not on the order in which rows came and went, nor on what
was there once. So whole numbers and floats are added exactly, of any size, and are rounded once, in the result: a
float that is added and taken out again leaves nothing behind. A sum is a whole number while no row has a float. A sum beyond
64 bits, or beyond what a float can be, has no result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from math import isfinite
from typing import Any

from headrace.core.accumulators import INT64_MAX, INT64_MIN
from headrace.errors import OutOfRangeError
from headrace.model.topology import NamedAggregate

KINDS = ("count", "sum", "mean")
State = list[Any]  # of a count [rows]; of a sum or mean [whole numbers, their sum, floats, m, e]: the floats' sum is m * 2 ** e


@dataclass(frozen=True, slots=True)
class Retractable:
    """One aggregate. `moved(state, value, by)` is the state with a row's value more (`by` 1) or less (-1); `result` raises
    `OutOfRangeError` where there is none."""

    field: str | None
    initial: State
    moved: Callable[[State, Any, int], State]
    result: Callable[[State], Any]


def retractable_of(aggregate: NamedAggregate) -> Retractable:
    """
    >>> mean = retractable_of(NamedAggregate("mean", "value.x"))
    >>> state = mean.moved(mean.moved(mean.initial, 0.1, 1), 2, 1)
    >>> mean.result(state), mean.result(mean.moved(state, 0.1, -1)), mean.result(mean.initial)
    (1.05, 2.0, None)
    """
    name = f"{aggregate.kind} of {aggregate.field}"
    if aggregate.kind == "count":
        return Retractable(aggregate.field, [0], _counted if aggregate.field else _row_counted, lambda state: state[0])
    assert aggregate.kind in KINDS, aggregate.kind
    moved, result = partial(_added, name=name), partial(_sum if aggregate.kind == "sum" else _mean, name=name)
    return Retractable(aggregate.field, [0, 0, 0, 0, 0], moved, result)


def _row_counted(state: State, value: Any, by: int) -> State:
    return [state[0] + by]


def _counted(state: State, value: Any, by: int) -> State:
    return state if value is None else [state[0] + by]


def _added(state: State, value: Any, by: int, name: str) -> State:
    if value is None:
        return state
    wholes, whole, reals, mantissa, exponent = state
    if isinstance(value, int) and not isinstance(value, bool):
        return [wholes + by, whole + by * value, reals, mantissa, exponent]
    if not isinstance(value, (float, Decimal)):
        raise TypeError(f"{name}: expected a number, found {value!r:.60}")
    if not isfinite(value):
        raise OutOfRangeError(
            f"{name}: expected a finite number, found {value}",
            "filter such rows out before, or make it None by map_values where it means that there is no value",
        )
    numerator, denominator = float(value).as_integer_ratio()  # a power of two
    return [wholes, whole, reals + by, *_plus(mantissa, exponent, by * numerator, 1 - denominator.bit_length())]


def _plus(mantissa: int, exponent: int, other: int, at: int) -> tuple[int, int]:
    """The sum of two numbers m * 2 ** e, with the largest e."""
    lowest = min(exponent, at)
    total = (mantissa << exponent - lowest) + (other << at - lowest)
    if total == 0:
        return 0, 0
    zeros = (total & -total).bit_length() - 1
    return total >> zeros, lowest + zeros


def _sum(state: State, name: str) -> Any:
    wholes, whole, reals, _, _ = state
    if not wholes and not reals:
        return None
    if reals:
        return _ratio(state, 1, name)
    if not INT64_MIN <= whole <= INT64_MAX:
        raise OutOfRangeError(
            f"{name}: the total {whole} would be out of 64 bits",
            "make it a float by map_values before, where it may be rounded",
        )
    return whole


def _mean(state: State, name: str) -> float | None:
    count = state[0] + state[2]
    return _ratio(state, count, name) if count else None


def _ratio(state: State, divisor: int, name: str) -> float:
    """What was added up, divided, and rounded once."""
    _, whole, _, mantissa, exponent = state
    shift = max(0, -exponent)
    try:
        total: float = ((whole << shift) + (mantissa << exponent + shift)) / (divisor << shift)
    except OverflowError:
        raise OutOfRangeError(f"{name}: the total would be infinite", "scale the numbers down by map_values before") from None
    return total


# --- states as they are stored ---------------------------------------------------------------------------------------


def plain(states: Sequence[State]) -> list[list[Any]]:
    """The states of a group with numbers of any size as bytes, which MessagePack takes.

    >>> restored(plain([[1], [1, 2**70, 0, 0, 0]])) == [[1], [1, 2**70, 0, 0, 0]]
    True
    """
    return [[part if INT64_MIN <= part <= INT64_MAX else _bytes(part) for part in state] for state in states]


def restored(stored: Sequence[Sequence[Any]]) -> list[State]:
    return [[int.from_bytes(part, "big", signed=True) if isinstance(part, bytes) else part for part in one] for one in stored]


def _bytes(number: int) -> bytes:
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)
