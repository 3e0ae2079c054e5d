"""The JSON form of the operators of a run (`core.topology.operator_changes`)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from headrace.codec.checkpoint import WIRE, decoded
from headrace.core.topology.operator_changes import RunOperator


class _OperatorForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    kind: str
    sub_topology: str
    parents: tuple[str, ...]
    about: str
    databases: tuple[str, ...]
    timers: str


class _OperatorsForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    wire: int
    operators: tuple[_OperatorForm, ...]


def encode_operators(operators: Iterable[RunOperator]) -> bytes:
    forms = tuple(
        _OperatorForm(one.name, one.kind, one.sub_topology, one.parents, one.about, one.databases, one.timers)
        for one in operators
    )
    return msgspec.json.encode(_OperatorsForm(WIRE, forms))


def decode_operators(data: bytes | str, what: str = "operators of the job") -> tuple[RunOperator, ...]:
    """`StorageError` that names it as `what` where it cannot be read. They are in the order in which they were given."""
    return tuple(
        RunOperator(one.name, one.kind, one.sub_topology, one.parents, one.about, one.databases, one.timers)
        for one in decoded(data, _OperatorsForm, what).operators
    )
