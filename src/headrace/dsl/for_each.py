"""Owns `KStream.for_each_round` while the topology is written: its operator, and the way of its rows into Spark's engine."""

from __future__ import annotations

from typing import Any

from headrace.dsl import stream_cursor as flows
from headrace.dsl.builder import Builder
from headrace.dsl.rekeying import written_anew
from headrace.dsl.repartitioned import Repartitioned
from headrace.dsl.stream_cursor import Flow, checked_function
from headrace.model.topology import ForEachRound


def handed_to(builder: Builder, flow: Flow, function: Any, name: str | None) -> None:
    """End `flow` in a `ForEachRound`; where its rows have left Spark's engine, a repartition stream brings them back."""
    given = checked_function("for_each_round", function, flows.RECORD_ONLY, None, ("df", "round_id"))
    with builder.all_or_nothing():
        if flow.left_at is None:
            own = builder.name_of("for_each_round", flow.node, name)
        else:
            own = builder.lasting_name_of("for_each_round", flow.anchor, name)
            flow = written_anew(builder, flow, Repartitioned(), own, generated=True, beside=own)
        node = ForEachRound(
            name=own, parents=(flow.node,), function=function, label=given.label, given_at=given.given_at
        )
        builder.add("for_each_round", node)
