"""Ends a stream: in an output (where to, as which bytes, to which partition), or in a function for each round."""

from __future__ import annotations

from typing import Any

from headrace.dsl import stream_cursor as flows
from headrace.dsl.builder import Builder, operator_text
from headrace.dsl.rekeying import with_repartition
from headrace.dsl.repartitioned import Repartitioned, checked_partitioner
from headrace.dsl.stream_cursor import StreamCursor, checked_function, needed
from headrace.model.names import checked_name
from headrace.model.serde import Serde, of_stream
from headrace.model.topology import ForEachRound, Function, Sink


def written_to(
    builder: Builder, flow: StreamCursor, name: Any, key: Serde | None, value: Serde | None, partitioner: Any, headers: Any
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


def handed_to(builder: Builder, flow: StreamCursor, function: Any, name: str | None) -> None:
    """End `flow` in a `ForEachRound`; where its rows have left Spark's engine, a repartition stream brings them back."""
    given = checked_function("for_each_round", function, flows.RECORD_ONLY, None, ("df", "round_id"))
    with builder.all_or_nothing():
        if flow.left_at is None:
            own = builder.name_of("for_each_round", flow.node, name)
        else:
            own = builder.lasting_name_of("for_each_round", flow.anchor, name)
            flow = with_repartition(builder, flow, Repartitioned(), own, generated=True, beside=own)
        node = ForEachRound(
            name=own, parents=(flow.node,), function=function, label=given.label, given_at=given.given_at
        )
        builder.add("for_each_round", node)
