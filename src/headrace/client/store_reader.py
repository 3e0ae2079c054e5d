"""Reading stores from outside, as committed: which operator a store belongs to, and what its entries mean.

It reads the state files that a checkpoint names, never the local store of a task at work (protocol.md 15).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec

from headrace.core.accumulators import accumulators_of
from headrace.core.keys.key_layout import TIME_BYTES, split_state_key, time_from
from headrace.core.keys.long_keys import entry_of
from headrace.core.topology.program import Program
from headrace.core.topology.sub_topologies import stores_of
from headrace.model import topology as t
from headrace.model.checkpoint import Head
from headrace.model.windows import SessionWindows
from headrace.state.batches import db_of, merged
from headrace.state.files import StateFiles
from headrace.worker.operators.stream_joins import waiting_value


@dataclass(frozen=True, slots=True, eq=False)
class StoredForm:
    """What the bytes of one store mean. `key` is the serde of the keys that reach its operator.

    `timed`: the sub-key of an entry is a time in µs: the start of an aggregate's window, or a window store's time.
    """

    operator: t.Node
    store: t.StoreSpec
    key: Any
    timed: bool
    value_of: Callable[[bytes], Any]

    def parts_of(self, layout: bytes) -> tuple[Any, bytes | int]:
        """The key and the sub-key or time of an entry."""
        key, sub = split_state_key(layout)
        return self.key.decode(key), time_from(sub[:TIME_BYTES]) if self.timed else sub


def form_of(program: Program, store: str) -> StoredForm | None:
    """The form of a store of the sub-topology, None if it has none of that name."""
    for node in program.nodes:
        for spec in stores_of(node):
            if spec.name == store:
                timed = spec.kind is t.StoreKind.WINDOW
                key: Any = program.key_serdes[node.name]
                if isinstance(node, t.Suppress):  # stored under the key that the windows are of
                    key = key.inner
                return StoredForm(node, spec, key, timed, _value_of(node, spec))
    return None


def _value_of(node: t.Node, spec: t.StoreSpec) -> Callable[[bytes], Any]:
    if isinstance(node, t.Aggregate) and isinstance(node.windows, SessionWindows):
        value_of = _value_of(replace(node, windows=None), spec)
        return lambda data: value_of(data[TIME_BYTES:])
    if isinstance(node, t.Aggregate) and node.kind is t.AggregateKind.COUNT:
        return lambda data: int.from_bytes(data, "little", signed=True)
    if isinstance(node, t.Aggregate) and node.kind is t.AggregateKind.NAMED:
        return _results_of(node)
    if isinstance(node, t.Join):
        return partial(waiting_value, spec.value)
    serde = spec.value or getattr(node, "value", None)
    assert serde is not None, f"store {spec.name!r} has no serde; resolving the topology must have given it one"
    if isinstance(node, t.Suppress):
        return lambda data: serde.decode(data[2 * TIME_BYTES :])
    if isinstance(node, (t.Process, t.DropDuplicates)) and spec.ttl_us is not None:
        return lambda data: serde.decode(data[TIME_BYTES:])
    return serde.decode


def _results_of(node: t.Aggregate) -> Callable[[bytes], Any]:
    named = node.named or {}
    accumulators = accumulators_of(named)
    decode = msgspec.msgpack.Decoder(list[Any]).decode

    def results(data: bytes) -> dict[str, Any]:
        states = zip(named, accumulators, decode(data), strict=True)
        return {name: accumulator.result(state) for name, accumulator, state in states}

    return results


def entries_of(heads: Iterable[Head | None], files: StateFiles, database: str) -> Iterator[tuple[bytes, bytes]]:
    """The entries (layout key, bytes) of one database of tasks whose states are `heads`."""
    for head in heads:
        for batch in merged([files.batches(file) for file in head.files]) if head is not None else ():
            if db_of(batch) == database:
                for key, value in zip(batch.column(1).to_pylist(), batch.column(2).to_pylist(), strict=True):
                    if value is not None:
                        yield entry_of(key, value)
