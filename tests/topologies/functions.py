"""The users' functions of random topologies, over plain values: the application calls them, and so does the model.

A value is a dict {"id": number of the input record, "n": a number}, a number (of a count), or None (a deletion).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

MODULUS = 10_007
START = {"id": -1, "n": 0}
Value = Any


def number(value: Value) -> int:
    if isinstance(value, dict):
        value = value["n"]
    return -1 if value is None else int(value)


def ident(value: Value) -> int:
    found = value["id"] if isinstance(value, dict) else None
    return -1 if found is None else int(found)


def kept(value: Value, by: int) -> bool:
    return number(value) % by != 0


def taken(value: Value, by: int) -> bool:
    return number(value) % by == 1


def doubled(value: Value, by: int) -> Value:
    return {"id": ident(value), "n": (number(value) * 2 + by) % MODULUS}


def several(value: Value, by: int) -> list[Value]:
    return [{"id": ident(value), "n": number(value) + more} for more in range(number(value) % by)]


def pairs(value: Value, by: int) -> list[tuple[str | None, Value]]:
    """Keys and values, of which some have the same key."""
    return [(new_key(one, by), one) for one in several(value, by)]


def new_key(value: Value, by: int) -> str | None:
    return None if number(value) % 11 == 0 else f"g{number(value) % by}"


def kind_of(value: Value) -> int:
    """By what duplicates are told apart, where the key alone does not."""
    return number(value) % 3


def looked_up(key: Any, value: Value, by: int) -> str | None:
    """The key of a global table that a record asks for."""
    return None if number(value) % 7 == 0 else f"k{number(value) % by}"


def followed(old: Value, new: Value) -> Value:
    """A reduction that depends on the order."""
    return {"id": ident(new), "n": (number(old) * 2 + number(new)) % MODULUS}


def folded(state: Value, value: Value) -> Value:
    """A fold that depends on the order, and that some values end."""
    if number(value) % 13 == 0:
        return None
    return {"id": ident(value), "n": (number(state) * 3 + number(value)) % MODULUS}


def added(state: Value, value: Value, by: int) -> Value:
    """The state of a group with a row's value more (`by` 1) or less (-1); none where no row is left."""
    count = state["id"] + by
    return {"id": count, "n": state["n"] + by * number(value)} if count else None


def united(earlier: Value, later: Value) -> Value:
    """The state of a session that two have become."""
    return {"id": ident(later), "n": (number(earlier) * 5 + number(later)) % MODULUS}


def joined(left: Value, right: Value) -> Value:
    return {"id": ident(right if left is None else left), "n": (number(left) * 7 + number(right) * 13) % MODULUS}


def counted(value: Value, seen: int) -> Value:
    """What a Processor makes of a value, and of what it has kept of the key."""
    return {"id": ident(value), "n": (number(value) + 100 * seen) % MODULUS}


def told(seen: int) -> Value:
    """What it gives when time alone has passed."""
    return {"id": -1, "n": (1000 + seen) % MODULUS}


def is_forgotten(seen: int) -> bool:
    return seen % 3 == 0


LIST_MAX = 3


def digest(values: Iterable[int]) -> int:
    """Of numbers in their order."""
    found = 0
    for one in values:
        found = (found * 7 + one) % MODULUS
    return found


def sub_key(value: Value) -> int:
    """Under which sub-key of its key a value is kept: some are below 0."""
    return number(value) % 6 - 2


def is_removed(value: Value) -> bool:
    """Whether it takes out what is kept under its sub-key."""
    return number(value) % 7 == 3


SUB_KEYS = (-1, 3)  # those that are looked at: from, up to
SUB_KEYS_MAX = 3


def chosen(partitioner: str, value: Value, count: int) -> int | list[int] | None:
    """What a partitioner of a user's chooses: one; one, none or that of the key; or several."""
    n = number(value)
    if partitioner == "one":
        return n % count
    if partitioner == "some":
        return [] if n % 3 == 0 else None if n % 3 == 1 else n % count
    return [n % count, (n + 1) % count, n % count] if n % 5 else []
