"""Decimals of aggregates: exact, with at most 38 digits before the point and 38 behind it, as Spark's largest have.

In a state they have no zeros at their end, so that equal ones are one. A result has the digits behind the point that its field
declares, where that does.
"""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Context, Decimal

from headrace.errors import OutOfRangeError

DIGITS_MAX = 38
_EXACT = Context(prec=400, rounding=ROUND_HALF_EVEN)  # more digits than any total of them has
_ONE = Decimal(1)
_BOUND, _STEP = Decimal(10) ** DIGITS_MAX, Decimal(1).scaleb(-DIGITS_MAX)


def plain_decimal(value: Decimal) -> Decimal:
    """The same number without zeros behind its last digit.

    >>> plain_decimal(Decimal("0.10")), plain_decimal(Decimal("1E+2")), plain_decimal(Decimal("0.00"))
    (Decimal('0.1'), Decimal('100'), Decimal('0'))
    """
    short = _EXACT.normalize(value)
    if short.is_zero():
        return Decimal(0)
    return short if short.adjusted() < len(short.as_tuple().digits) else _EXACT.quantize(short, _ONE)


def checked_decimal(value: Decimal, what: str) -> Decimal:
    """`value` as a state has it; `OutOfRangeError` names `what` for one that is not finite, or has too many digits."""
    if not value.is_finite():
        raise OutOfRangeError(
            f"{what}: expected a finite number, found {value}",
            "filter such records out before, or make it None by map_values where it means that there is no value",
        )
    if value.copy_abs() >= _BOUND or (value and _EXACT.remainder_near(value, _STEP) != 0):
        raise OutOfRangeError(
            f"{what}: expected at most {DIGITS_MAX} digits before the point and {DIGITS_MAX} behind it, found {value!s:.100}",
            "round it by map_values before",
        )
    return plain_decimal(value)


def plus(one: Decimal, other: Decimal | int) -> Decimal:
    return _EXACT.add(one, Decimal(other))


def scaled(value: Decimal, scale: int | None) -> Decimal:
    """With `scale` digits behind the point; as it is where that is None.

    >>> scaled(Decimal("0.3"), 2)
    Decimal('0.30')
    """
    return value if scale is None else _EXACT.quantize(value, _ONE.scaleb(-scale))


def of_float(value: float, scale: int) -> Decimal:
    """What older versions have stored of a decimal field: its decimals were made floats.

    >>> of_float(0.30000000000000004, 2)
    Decimal('0.3')
    """
    return plain_decimal(scaled(Decimal(value), scale))


def limit_of(scale: int | None) -> Decimal:
    """What a sum stays below: it has at most 38 digits, with those behind the point where it is known how many these are."""
    return Decimal(10) ** (DIGITS_MAX - (scale or 0))
