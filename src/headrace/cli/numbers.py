"""How commands read whole numbers: what was expected and found is said in the same words everywhere."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import typer

_BEYOND = 2**63
_WHOLE = re.compile(r"[+-]?[0-9]{1,100}")


def whole_number(least: int | None = None, most: int | None = None) -> Callable[[Any], int]:
    """A parser for an option: a whole number within these bounds, else wrong usage.

    >>> whole_number(1)("12")
    12
    """
    bounds = [f", at least {least:,}" if least is not None else "", f", at most {most:,}" if most is not None else ""]
    expected = f"expected a whole number{''.join(bounds)}"

    def parsed(given: Any) -> int:
        text = str(given)  # a default comes as the number that it is
        if not _WHOLE.fullmatch(text):  # int() takes 1_0, and digits of other scripts
            raise typer.BadParameter(f"{expected}, found {text!r}")
        number = int(text)
        if (least is not None and number < least) or (most is not None and number > most):
            raise typer.BadParameter(f"{expected}, found {number}")
        if not -_BEYOND <= number < _BEYOND:  # nothing counts so far
            raise typer.BadParameter(f"{expected}, of 64 bits, found {number}")
        return number

    return parsed
