"""What a configuration key has besides its name: `declared` for a field of `Config`, and `Key` for who reads them."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal


def declared(
    default: object,
    meaning: str,
    *,
    least: float | None = None,
    per_sub_topology: bool = False,
    takes: str | None = None,
    method: str = "",
    shapes_plan: bool = False,
) -> Any:
    """A key as a dataclass field: its name and type are the field's. `least` is the smallest value allowed. `takes`: what it
    takes besides text, in words: anything that can be called, or that has `method`. `shapes_plan`: with another value other
    job models are made, so it is the same in all processors of a group."""
    details = {
        "meaning": meaning,
        "least": least,
        "per_sub_topology": per_sub_topology,
        "takes": takes,
        "method": method,
        "shapes_plan": shapes_plan,
    }
    return dataclasses.field(default=default, metadata=details)


@dataclass(frozen=True, slots=True)
class Key:
    """One key: what `load_config` checks values against, and a row of the documentation. The fields of `declared`, and: `type`
    is str, int or float; `choices` are all its values, if not empty. None is never set: it is the default of a key that may be
    unset."""

    name: str
    type: type
    choices: tuple[str, ...]
    takes: str | None
    method: str
    default: object
    least: float | None
    per_sub_topology: bool
    meaning: str
    shapes_plan: bool

    @property
    def most(self) -> int:
        """The largest number that is taken: some 285 years of time, which all that waits can wait, else what a double holds."""
        return {"s": 9_000_000_000, "ms": 9_000_000_000_000}.get(self.name.rpartition("_")[2], 2**53 - 1)

    @property
    def expected(self) -> str:
        """What values are taken, in words.

        >>> Key("max_lag", int, (), None, "", 7, 1, False, "", False).expected
        'a whole number, at least 1'
        """
        if self.choices:
            return " or ".join(repr(choice) for choice in self.choices)
        words = {int: "a whole number", float: "a number", str: "a text that is not empty"}
        text = words[self.type] + ("" if self.takes is None else f" or {self.takes}")
        return text if self.least is None else f"{text}, at least {self.least:g}"


def declared_keys(config: type) -> Iterator[Key]:
    """The keys that are declared in a dataclass, in their order."""
    hints = typing.get_type_hints(config)
    for field in dataclasses.fields(config):
        if "meaning" not in field.metadata:
            continue
        hint = hints[field.name]
        choices = typing.get_args(hint) if typing.get_origin(hint) is Literal else ()
        parts = typing.get_args(hint) or (hint,)
        yield Key(
            name=field.name,
            type=next((part for part in parts if part in (str, int, float)), str),
            choices=choices,
            default=field.default,
            **field.metadata,
        )
