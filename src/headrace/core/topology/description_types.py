"""The types of what `App.describe("dict")` returns."""

from __future__ import annotations

from typing import NotRequired, TypedDict


class WindowsDescription(TypedDict):
    """Windows by their lengths: `size` and `advance`, of sliding ones the `length`, of sessions the `gap`; of one without an
    end its `start`."""

    size: NotRequired[str]
    advance: NotRequired[str]
    length: NotRequired[str]
    gap: NotRequired[str]
    start: NotRequired[str]
    grace: str | None
    kept: str


class OperatorDescription(TypedDict):
    """An operator: its name, its kind, its parents, its engine ("spark" or "worker"), and what its kind has."""

    name: str
    kind: str
    parents: list[str]
    engine: str
    aggregates: NotRequired[dict[str, str]]
    broadcast: NotRequired[bool]
    by: NotRequired[str]
    emit: NotRequired[str]
    function: NotRequired[str]
    generated: NotRequired[bool]
    kept: NotRequired[str]
    key: NotRequired[str | None]
    key_of: NotRequired[str]
    output: NotRequired[int]
    partitioner: NotRequired[str | None]
    partitioning: NotRequired[str]
    partitions: NotRequired[int | None]
    partitions_are: NotRequired[str]
    partitions_if_new: NotRequired[bool]
    partitions_of: NotRequired[list[str]]
    predicates: NotRequired[list[str]]
    processor: NotRequired[str]
    reset_offset: NotRequired[bool]
    sides: NotRequired[str]
    start: NotRequired[str | int]
    stores: NotRequired[list[str]]
    stream: NotRequired[str]
    sub_topology: NotRequired[str]
    timers: NotRequired[bool]
    timestamp: NotRequired[str]
    timestamp_unit: NotRequired[str]
    value: NotRequired[str | None]
    windows: NotRequired[WindowsDescription]
    limit: NotRequired[str]
    history: NotRequired[str]
    grace: NotRequired[str]
    within: NotRequired[str]
    before: NotRequired[str]
    after: NotRequired[str]


class StoreDescription(TypedDict):
    """A store: its operator, its form, and how long it keeps an entry."""

    name: str
    kind: str
    operator: str
    form: str
    kept: str


class SubTopologyDescription(TypedDict):
    """A sub-topology. `upstream`: the sub-topologies that write what it reads."""

    name: str
    has_state: bool
    upstream: list[str]
    reads: list[str]
    writes: list[str]
    operators: list[OperatorDescription]
    stores: list[StoreDescription]


class TopologyDescription(TypedDict):
    """A topology as dicts, lists, texts, numbers, booleans and None."""

    application: str
    sub_topologies: list[SubTopologyDescription]
