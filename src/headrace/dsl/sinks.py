"""Owns what is said when a stream is written to an output: where to, as which bytes, and to which partition."""

from __future__ import annotations

from typing import Any

from headrace.dsl import stream_cursor as flows
from headrace.dsl.builder import Builder, operator_text
from headrace.dsl.repartitioned import checked_partitioner
from headrace.dsl.stream_cursor import Flow, checked_function, needed
from headrace.model.names import checked_name
from headrace.model.serde import Serde, of_stream
from headrace.model.topology import Function, Sink


def written_to(
    builder: Builder, flow: Flow, name: Any, key: Serde | None, value: Serde | None, partitioner: Any, headers: Any
) -> None:
    """Write `flow` to the output `name`, a text or a function of the record; `KStream.to` says what the others are."""
    stream: str | Function
    if isinstance(name, str):
        stream = builder.checked_sink(checked_name("stream", name), flow.node)
    else:
        stream = checked_function("to", name, flows.RECORD_ONLY, None)
    text = operator_text("to", stream if isinstance(stream, str) else stream.label)
    keys = needed(flow.key, "key", text, key, "key=...").serde
    values = needed(flow.value, "value", text, value, "value=...").serde
    sink = Sink(
        name=builder.name_of("to", flow.node, None),
        parents=(flow.node,),
        stream=stream,
        key=of_stream(keys, stream, "key") if isinstance(stream, str) else keys,
        value=of_stream(values, stream, "value") if isinstance(stream, str) else values,
        partitioner=checked_partitioner(text, partitioner),
        headers=None if headers is None else checked_function(text, headers, flows.RECORD_ONLY, None),
    )
    builder.add("to", sink)
