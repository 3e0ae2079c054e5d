"""Owns how rows come together by key: through a repartition stream, asked for or put in by a grouping."""

from __future__ import annotations

from headrace.core.sub_topologies import short_name_of
from headrace.dsl.builder import Builder, operator_text
from headrace.dsl.flow import Flow, Side, needed
from headrace.dsl.repartitioned import Repartitioned
from headrace.model.topology import Group, Repartition, Source, SourceKind


def written_anew(
    builder: Builder, flow: Flow, options: Repartitioned, name: str | None, *, generated: bool = False
) -> Flow:
    """Write `flow` into a repartition stream and read it back; what comes behind has tasks of its own.

    Of a repartition `by-carrier` the writing operator is `by-carrier-repartition` and the reading one `by-carrier`.
    Of one that nobody named, or that a grouping put in, the reading one is `…-by-key`: the plain name is the
    aggregation's.
    """
    asked = builder.lasting_name_of("repartition", flow.anchor, None) if name is None else name
    stream = builder.repartition_stream(asked)
    short = short_name_of(builder.application, stream)
    writer = builder.checked("repartition", f"{short}-repartition")
    reader = builder.checked("repartition", f"{short}-by-key" if generated or name is None else short)
    text = operator_text("repartition", short)
    argument = None if generated else "hr.Repartitioned({}_serde"
    key = needed(flow.key, "key", text, options.key_serde, argument and argument.format("key"))
    value = needed(flow.value, "value", text, options.value_serde, argument and argument.format("value"))
    writes = Repartition(
        name=writer,
        parents=(flow.node,),
        stream=stream,
        key=key.serde,
        value=value.serde,
        partitions=options.number_of_partitions,
        generated=generated,
    )
    reads = Source(name=reader, stream=stream, key=key.serde, value=value.serde, kind=SourceKind.REPARTITION)
    builder.add("repartition", writes)
    builder.add("repartition", reads)
    return Flow(node=reader, anchor=reader, key=key, value=value)


class Grouping:
    """Rows grouped by key: made when the first aggregation asks for it, which then names its repartition stream."""

    def __init__(self, builder: Builder, flow: Flow) -> None:
        self.builder = builder
        self.flow = flow
        self._grouped: Flow | None = None

    def grouped(self, name: str) -> Flow:
        """The flow behind the group; `name` is that of the operator which asks."""
        if self._grouped is None:
            flow = self.flow
            if flow.rekeyed_at is not None:
                flow = written_anew(self.builder, flow, Repartitioned(), name, generated=True)
            own = self.builder.name_of("group", flow.node, None)
            self.builder.add("group", Group(name=own, parents=(flow.node,)))
            self._grouped = flow.after(own, operator_text("group", own), given=None)
        return self._grouped

    def key(self, operator: str) -> Side:
        """What is known of the key, which `operator` keeps state under."""
        return needed(self.flow.key, "key", operator, None)
