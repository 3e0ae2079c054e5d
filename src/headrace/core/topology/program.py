"""One sub-topology as its containers need it, the same for all rounds of a plan. It holds the user's functions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from headrace.core.rounds.stream_limits import StreamLimits
from headrace.core.topology.emission import Emission
from headrace.core.topology.engine_prefix import PARTS, Endpoint
from headrace.model.serde import Serde
from headrace.model.topology import ForEachRound, Node, Source


@dataclass(frozen=True, slots=True, eq=False)
class EndpointSide:
    """The serdes of the keys and values that an endpoint gives, and whether its chain made them (else: as read). `parts`: the
    parts of the records that are used (`core.topology.engine_prefix`); the others may be null. `headers_changed`: the chain may
    have made the headers."""

    key: Serde | None
    value: Serde | None
    key_changed: bool
    value_changed: bool
    parts: frozenset[str] = PARTS
    headers_changed: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """One sub-topology as a container needs it. `id` names it for caches of worker processes.

    `partition_counts`: of every stream that is written; `dead_letter`: the stream for records that fail, or None;
    `key_serdes`: operators with state, and processors, to the serde of the keys that reach them; `removed_stores`: stores that
    the application had here once, whose entries are deleted; `read_by_the_job`: its inputs and repartition streams, which no
    function of a record may name as an output; `limits`: what streams that are written take, where that is known;
    `emission`: which operators of the whole topology give every update of a table; `marked_endpoints`: those whose
    records may have been written in a replay of this application (`core.rewind.replays`); `timer_owners`: operators whose
    timers are kept under a name that they had before; `far_us`: an event time that lies further from its record's own is
    reported (`core.rounds.event_times`), 0: none is; `is_elastic`: tasks are virtual ones, which share out the rows of a
    partition by their keys as they were read; `keyed_behind`: see `core.topology.keyed_behind`."""

    id: str
    application: str
    sub_topology: str | None
    nodes: tuple[Node, ...]
    endpoints: tuple[Endpoint, ...]
    endpoint_sides: tuple[EndpointSide, ...]
    partition_counts: dict[str, int]
    dead_letter: str | None
    stateful: bool
    key_serdes: dict[str, Serde | None] = field(default_factory=dict)
    removed_stores: tuple[str, ...] = ()
    read_by_the_job: frozenset[str] = frozenset()
    limits: dict[str, StreamLimits] = field(default_factory=dict)
    emission: Emission = field(default_factory=Emission)
    marked_endpoints: frozenset[int] = frozenset()
    timer_owners: dict[str, str] = field(default_factory=dict)
    far_us: int = 0
    is_elastic: bool = False
    keyed_behind: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def is_plain(self) -> bool:
        """Whether nothing of it runs in the engine."""
        return not any(endpoint.chain for endpoint in self.endpoints)

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    def source(self, endpoint: int) -> Source:
        """What an endpoint reads."""
        source = self.node(self.endpoints[endpoint].source)
        assert isinstance(source, Source)
        return source

    def timer_owner_of(self, operator: str) -> str:
        """The name that the timers of an operator are kept under: its own, or the one it had before it was renamed."""
        return self.timer_owners.get(operator, operator)

    def without_columns(self) -> Program:
        """As workers get it: what runs in the JVM or in the driver stays behind. A Column cannot travel, a session neither."""
        in_jvm = {node.name for endpoint in self.endpoints for node in endpoint.chain}
        endpoints = tuple(
            replace(endpoint, chain=tuple(Node(name=node.name, parents=node.parents) for node in endpoint.chain))
            for endpoint in self.endpoints
        )
        nodes = tuple(_of_the_worker(node) for node in self.nodes if node.name not in in_jvm)
        return replace(self, nodes=nodes, endpoints=endpoints)


def _of_the_worker(node: Node) -> Node:
    """An operator without what only the driver or the engine calls."""
    match node:
        case Source(timestamp=time) if time is not None and time.in_jvm:
            return replace(node, timestamp=None)
        case ForEachRound():
            return replace(node, function=_called_by_the_driver)
        case _:
            return node


def _called_by_the_driver(rows: Any, number: int) -> None:
    raise AssertionError("the functions of for_each_round are called by the driver")
