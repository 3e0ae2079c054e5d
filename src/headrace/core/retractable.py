"""The named aggregates that can take a row out again: `count`, `sum` and `mean` of a grouped table's rows.

Their states depend on the rows that are there and on nothing else: not on the order in which rows came and went, nor on what
was there once. So whole numbers, decimals and floats are added exactly, of any size, and are rounded once, in the result: a
float that is added and taken out again leaves nothing behind. A sum is a whole number while no row has a decimal or a float,
and a decimal while none has a float. A sum beyond 64 bits, beyond 38 digits of decimals, or beyond what a float can be, has no
result. A mean is a float.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import partial
from math import isfinite
from typing import Any

from headrace.core.accumulators import INT64_MAX, INT64_MIN
from headrace.core.decimals import DIGITS_MAX, checked_decimal, limit_of, scaled
from headrace.errors import OutOfRangeError
from headrace.model.topology import NamedAggregate

KINDS = ("count", "sum", "mean")
# Of a count [rows]; of a sum or mean [whole numbers, their sum, floats, m, e]: the floats' sum is m * 2 ** e. While there are
# decimals, [..., decimals, d, s]: their sum is d / 10 ** s.
State = list[Any]
_NUMBERS = 5  # that a state has without decimals


@dataclass(frozen=True, slots=True)
class Retractable:
    """One aggregate. `moved(state, value, by)` is the state with a row's value more (`by` 1) or less (-1); `result` raises
    `OutOfRangeError` where there is none. `exact`: a stored state, in which older versions made floats of decimals."""

    field: str | None
    initial: State
    moved: Callable[[State, Any, int], State]
    result: Callable[[State], Any]
    exact: Callable[[State], State]


def retractable_of(aggregate: NamedAggregate, scale: int | None = None) -> Retractable:
    """`scale`: the digits behind the point of a decimal field, None where it declares none.

    >>> mean = retractable_of(NamedAggregate("mean", "value.x"))
    >>> state = mean.moved(mean.moved(mean.initial, 0.1, 1), 2, 1)
    >>> mean.result(state), mean.result(mean.moved(state, 0.1, -1)), mean.result(mean.initial)
    (1.05, 2.0, None)
    """
    name = f"{aggregate.kind} of {aggregate.field}"
    if aggregate.kind == "count":
        moved = _counted if aggregate.field else _row_counted
        return Retractable(aggregate.field, [0], moved, lambda state: state[0], lambda state: state)
    assert aggregate.kind in KINDS, aggregate.kind
    result = partial(_sum, scale=scale, name=name) if aggregate.kind == "sum" else partial(_mean, name=name)
    return Retractable(aggregate.field, [0] * _NUMBERS, partial(_added, name=name), result, partial(_exact, scale=scale))


def _row_counted(state: State, value: Any, by: int) -> State:
    return [state[0] + by]


def _counted(state: State, value: Any, by: int) -> State:
    return state if value is None else [state[0] + by]


def _added(state: State, value: Any, by: int, name: str) -> State:
    if value is None:
        return state
    wholes, whole, reals, mantissa, exponent, *decimals = state
    if isinstance(value, int) and not isinstance(value, bool):
        return [wholes + by, whole + by * value, reals, mantissa, exponent, *decimals]
    if isinstance(value, Decimal):
        return [*state[:_NUMBERS], *_with_decimal(decimals, checked_decimal(value, name), by)]
    if not isinstance(value, float):
        raise TypeError(f"{name}: expected a number, found {value!r:.60}")
    if not isfinite(value):
        raise OutOfRangeError(
            f"{name}: expected a finite number, found {value}",
            "filter such rows out before, or make it None by map_values where it means that there is no value",
        )
    numerator, denominator = float(value).as_integer_ratio()  # a power of two
    moved = _plus(mantissa, exponent, by * numerator, 1 - denominator.bit_length())
    return [wholes, whole, reals + by, *moved, *decimals]


def _with_decimal(decimals: Sequence[int], value: Decimal, by: int) -> list[int]:
    """The part of a state that is of decimals, with one more or less."""
    count, number, scale = decimals or (0, 0, 0)
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    own = (-by if sign else by) * int("".join(map(str, digits)))
    most = max(scale, -exponent)
    return _shortest(count + by, number * 10 ** (most - scale) + own * 10 ** (most + exponent), most)


def _shortest(count: int, number: int, scale: int) -> list[int]:
    """In the one form that a sum has: nothing without decimals, and without zeros at its end."""
    while scale and number % 10 == 0:
        number, scale = number // 10, scale - 1
    return [count, number, scale] if count or number else []


def _exact(state: State, scale: int | None) -> State:
    wholes, whole, reals, mantissa, exponent, *decimals = state
    if scale is None or not reals:
        return state
    older = round(Fraction(mantissa) * Fraction(2) ** exponent * 10**scale)
    count, number, own = decimals or (0, 0, 0)
    most = max(own, scale)
    both = older * 10 ** (most - scale) + number * 10 ** (most - own)
    return [wholes, whole, 0, 0, 0, *_shortest(count + reals, both, most)]


def _plus(mantissa: int, exponent: int, other: int, at: int) -> tuple[int, int]:
    """The sum of two numbers m * 2 ** e, with the largest e."""
    lowest = min(exponent, at)
    total = (mantissa << exponent - lowest) + (other << at - lowest)
    if total == 0:
        return 0, 0
    zeros = (total & -total).bit_length() - 1
    return total >> zeros, lowest + zeros


def _sum(state: State, scale: int | None, name: str) -> Any:
    wholes, whole, reals, _, _, *decimals = state
    if not wholes and not reals and not decimals:
        return None
    if reals:
        return _ratio(state, 1, name)
    if decimals:
        return _decimal_sum(whole, decimals, scale, name)
    if not INT64_MIN <= whole <= INT64_MAX:
        raise OutOfRangeError(
            f"{name}: the total {whole} would be out of 64 bits",
            "make it a float by map_values before, where it may be rounded",
        )
    return whole


def _decimal_sum(whole: int, decimals: Sequence[int], scale: int | None, name: str) -> Decimal:
    _, number, own = decimals
    total = whole * 10**own + number
    exact = Decimal((total < 0, tuple(map(int, str(abs(total)))), -own))
    if exact.copy_abs() >= limit_of(scale):
        raise OutOfRangeError(
            f"{name}: the total {exact} would have more than {DIGITS_MAX} digits",
            "round the values by map_values before, or make them floats",
        )
    return scaled(exact, scale)


def _mean(state: State, name: str) -> float | None:
    count = state[0] + state[2] + sum(state[_NUMBERS : _NUMBERS + 1])
    return _ratio(state, count, name) if count else None


def _ratio(state: State, divisor: int, name: str) -> float:
    """What was added up, divided, and rounded once."""
    _, whole, _, mantissa, exponent, *decimals = state
    shift = max(0, -exponent)
    _, number, scale = decimals or (0, 0, 0)
    try:
        total: float = (((whole << shift) + (mantissa << exponent + shift)) * 10**scale + (number << shift)) / (
            (divisor << shift) * 10**scale
        )
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
