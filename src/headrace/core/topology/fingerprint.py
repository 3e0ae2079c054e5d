"""The fingerprint of an application: equal in all processes that would make the same plans. Processors of a group compare
theirs, so that none runs a plan that was made from other code."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

from headrace.model.serde import Serde
from headrace.model.startpoint import PositionType, Startpoint
from headrace.model.topology import Function, Topology

_GIVEN_AT = "given_at"  # the user's file and line
_LABEL = "label"  # a name, and behind it the user's file and line


def code_fingerprint(topology: Topology, settings: Mapping[str, object], versions: Mapping[str, str]) -> str:
    """32 hexadecimal digits: BLAKE2b of `code_lines`. `topology`: as it was declared, before Spark has said its types.
    `settings`: those that shape plans; `versions`: of what makes and runs plans."""
    text = "\n".join(code_lines(topology, settings, versions))
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def code_lines(topology: Topology, settings: Mapping[str, object], versions: Mapping[str, str]) -> Iterator[str]:
    """What is compared: a line for each version and setting, by name, and for each operator, in the order of the topology.

    Of an operator it is all that it holds: name, parents, streams, serdes by their forms, stores, windows, numbers of
    partitions. Functions and classes cannot be compared: what counts is their qualified names, and the text of an expression.
    So what a function does may differ between two processes with one fingerprint, as it does while new code is rolled out. Of
    an object of a user's class only the class counts. Left out is the moment of a start by time, which an application may
    compute, and what says where a process runs: folders, files, lines, hosts.
    """
    yield f"application {topology.application!r}"
    yield from (f"version {name} {versions[name]!r}" for name in sorted(versions))
    yield from (f"setting {name} {_text(settings[name])}" for name in sorted(settings))
    yield from (f"operator {_text(node)}" for node in topology.nodes)


def _text(value: Any) -> str:
    """Equal for values that are equal in all that makes a difference to a plan."""
    match value:
        case Enum():
            return _text(value.value)
        case None | bool() | int() | float() | str() | bytes():
            return repr(value)
        case Function():
            shown = value.label if value.in_jvm else _without_line(value.label)
            return f"{value.kind.value} {shown!r}"
        case Startpoint(position_type=PositionType.TIMESTAMP):
            return "Startpoint(TIMESTAMP)"
        case type():
            return f"class {value.__qualname__}"
        case tuple() | list():
            return f"[{', '.join(map(_text, value))}]"
        case Mapping():
            return f"{{{', '.join(f'{_text(key)}: {_text(item)}' for key, item in value.items())}}}"
    if isinstance(value, Serde):
        return f"serde {value.form!r}"
    if dataclasses.is_dataclass(value) and type(value).__module__.startswith("headrace.model."):
        held = {one.name: getattr(value, one.name) for one in dataclasses.fields(value) if one.name != _GIVEN_AT}
        parts = (f"{name}={_text(_without_line(each) if name == _LABEL else each)}" for name, each in held.items())
        return f"{type(value).__qualname__}({', '.join(parts)})"
    name = getattr(value, "__qualname__", None)
    return f"object of {type(value).__qualname__}" if name is None else f"function {name}"


def _without_line(label: str) -> str:
    """
    >>> _without_line("is_late (flights.py:12)"), _without_line("len")
    ('is_late', 'len')
    """
    return label.partition(" (")[0]
