"""What the driver tells a container about one round, and what the container answers. Values, as msgspec structs. `Program` is
the part that stays the same for a whole plan (and holds the user's functions); `ContainerPlan` is the part that changes from
round to round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from headrace.core.rounds.event_times import FarTime
from headrace.core.rounds.stream_limits import StreamLimits
from headrace.core.topology.emission import Emission
from headrace.core.topology.engine_prefix import Endpoint
from headrace.core.topology.record_parts import PARTS
from headrace.model.serde import Serde
from headrace.model.topology import ForEachRound, Node, Source


@dataclass(frozen=True, slots=True, eq=False)
class EndpointSide:
    """The serdes of the keys and values that an endpoint gives, and whether its chain made them (else: as read). `parts`: the
    parts of the records that are used (`core.topology.record_parts`); the others may be null."""

    key: Serde | None
    value: Serde | None
    key_changed: bool
    value_changed: bool
    parts: frozenset[str] = PARTS


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """One sub-topology as a container needs it. `id` names it for caches of worker processes.

    `partition_counts`: of every stream that is written; `dead_letter`: the stream for records that fail, or None;
    `key_serdes`: operators with state to the serde of the keys that reach them; `removed_stores`: stores that the
    application had here once, whose entries are deleted; `read_by_the_job`: its inputs and repartition streams, which no
    function of a record may name as an output; `limits`: what streams that are written take, where that is known;
    `emission`: which operators of the whole topology give every update of a table; `marked_endpoints`: those whose
    records may have been written in a replay of this application (`core.rewind.replays`); `timer_owners`: operators whose
    timers are kept under a name that they had before; `far_us`: an event time that lies further from its record's own is
    reported (`core.rounds.event_times`), 0: none is."""

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


class InputRange(msgspec.Struct, frozen=True):
    """Offsets start <= o < end of SSP number `ssp`. `terms`: where the worker finds them by itself, as the system said
    (`ports.System.range_terms`); None where the engine reads them, and they come with the prepared rows."""

    ssp: int
    start: int
    end: int
    terms: Any = None


class TaskPlan(msgspec.Struct, frozen=True):
    """One task's share, and its base: the round that made it (`round_id`), positions and own reports of watermarks (by
    SSP number), the head of its state in wire form, timers. `watermark_us`: the task's as it was before the round.
    `startpoints`: by SSP number the id and the offset of a startpoint that is not known to be spent. `replay`: the number of
    the replay that the task is in (`core.rewind.replays`)."""

    name: str
    positions: dict[int, int]
    head: Any = None
    watermark_us: int | None = None
    event_timer_us: int | None = None
    wall_timer_us: int | None = None
    round_id: str = ""
    watermarks: dict[int, int] = {}
    startpoints: dict[int, tuple[str, int]] = {}
    replay: int | None = None


class KnownFailure(msgspec.Struct, frozen=True):
    """A record that is known to fail inside Spark's engine: it never enters the Columns, and is rejected instead."""

    ssp: int
    offset: int
    error_class: str
    message: str


class ContainerPlan(msgspec.Struct, frozen=True):
    """One container's work in one round. `ssps`: number to (system, stream, partition). `system` is the kind of system that the
    job runs on, and `terms` what its driver's side says to its worker's side (`ports.JobStore.container_terms`). `upstream`: of
    repartition streams, by SSP number, an offset and the event time up to which a task knows all once it is there. `control`:
    how the container gets the signals of its round (`ports.RoundControl.terms_of`); None: it gets none. `local_store_dir` is a
    folder of the worker's machine, and `state_uri` one that all machines see; `has_other_machines`: the worker may not be on
    the driver's."""

    round_id: str
    epoch: int
    lane: int
    ssps: list[tuple[str, str, int]]
    tasks: list[TaskPlan]
    ranges: list[InputRange]
    now_us: int
    deadline_s: float
    run_id: str
    local_store_dir: str
    state_uri: str
    system: str
    job_model_version: int
    terms: Any = None
    control: Any = None
    has_other_machines: bool = False
    known_failures: list[KnownFailure] = []
    upstream: dict[int, tuple[int, int]] = {}


class Failure(msgspec.Struct, frozen=True):
    """A record that could not be processed where no dead-letter stream is set: the round must not be committed."""

    stream: str
    partition: int
    offset: int
    operator: str
    error_class: str
    message: str
    traceback: str


class Summary(msgspec.Struct, frozen=True):
    """The one row that a container yields. `checkpoints`: of its tasks, in the form of `wire`. `receipt`: what the worker's
    side of the system gave for the writes (`ports.ContainerCommit`). `counters` by metric name.
    `far_times`: the first of each stream."""

    lane: int
    checkpoints: list[msgspec.Raw] = []
    receipt: Any = None
    state_files: list[str] = []
    counters: dict[str, int] = {}
    failure: Failure | None = None
    notes: list[str] = []
    timings_ms: dict[str, float] = {}
    far_times: list[FarTime] = []
    cut_short: bool = False
    stopped: bool = False
    error: str | None = None


encoded: Callable[[ContainerPlan | Summary], bytes] = msgspec.json.Encoder().encode
decoded_plan = msgspec.json.Decoder(ContainerPlan).decode
decoded_summary = msgspec.json.Decoder(Summary).decode
