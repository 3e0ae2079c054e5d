"""What must be alike on both sides of a join: the serdes of their keys, and how they are partitioned."""

from __future__ import annotations

from headrace.core.topology.partitioning import same_partitioner
from headrace.core.topology.resolution import key_mismatch
from headrace.dsl.builder import Builder
from headrace.dsl.stream_cursor import Flow, Side, needed
from headrace.errors import TopologyError
from headrace.model.topology import Function, Repartition


def check_keys(text: str, left: Side, right: Side) -> None:
    """Two serdes make other bytes of one key. What follows from Spark's types is checked when they are known."""
    for side in (left, right):
        needed(side, "key", text, None)
    if left.serde is not None and right.serde is not None and left.serde.form != right.serde.form:
        raise key_mismatch(text, left.serde, right.serde)


def check_partitioners(builder: Builder, text: str, left: Flow, right: Flow) -> None:
    found = [
        (stream, partitioner)
        for flow in (left, right)
        for stream, partitioner in sorted(_partitioners(builder, flow).items(), key=lambda pair: pair[0])
    ]
    first_stream, first = found[0]
    for stream, partitioner in found[1:]:
        if not same_partitioner(first, partitioner):
            raise TopologyError(
                f"{text}: {_partitioned(first_stream, first)}, and {_partitioned(stream, partitioner)}: a key's records "
                "would come to different tasks",
                "put .repartition(hr.Repartitioned(partitioner=...)) with one and the same function before both sides, "
                "or with none",
            )


def _partitioners(builder: Builder, flow: Flow) -> dict[str, Function | None]:
    """The streams that a flow comes from within its sub-topology, and by what their partitions were chosen."""
    by_stream = {node.stream: node.partitioner for node in builder.topology().nodes if isinstance(node, Repartition)}
    return {stream: by_stream.get(stream) for stream in builder.sources_of(flow.node)}


def _partitioned(stream: str, partitioner: Function | None) -> str:
    return f"stream {stream!r} is partitioned by {'the key' if partitioner is None else partitioner.label}"
