"""How rows come together by key: through a repartition stream, requested or added by a grouping."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headrace.core.topology.sub_topologies import REPARTITION_SUFFIX, short_name_of
from headrace.dsl.builder import operator_text
from headrace.dsl.repartitioned import Repartitioned, checked_options, checked_partitioner
from headrace.dsl.stream_cursor import SerdeSlot, StreamCursor, needed
from headrace.errors import TopologyError
from headrace.model.table_operators import VersionedTable
from headrace.model.topology import Group, Repartition, Source, SourceKind, StoreKind, StoreSpec, Table


def repartition_arguments(mapper: Any, repartitioned: Any, name: str | None) -> tuple[Any, Repartitioned]:
    """The key mapper (None: the key stays) and the options of `repartition(...)`, in all the forms that it takes.

    A mapper comes with a `Repartitioned` or a name: `repartition("by-carrier")` is more likely to mean a name than
    the expression `by - carrier`.
    """
    if isinstance(mapper, Repartitioned):
        if repartitioned is not None:
            raise TopologyError("repartition: two hr.Repartitioned(...)", "give one, with all that is to be said")
        mapper, repartitioned = None, mapper
    elif mapper is not None and repartitioned is None and name is None:
        raise TopologyError(
            f"repartition({mapper!r:.60}): expected hr.Repartitioned(...), or a key and hr.Repartitioned(...)",
            'write .repartition(name="...") for a name, or .repartition(KEY, hr.Repartitioned(...)) for another key',
        )
    options = checked_options("repartition", repartitioned)
    if name is None:
        return mapper, options
    if options.name not in (None, name):
        raise TopologyError(f"repartition: named {name!r} and {options.name!r}", "give one name")
    return mapper, options.with_name(name)


def check_by_key(text: str, flow: StreamCursor) -> None:
    """`TopologyError` where the rows of a key are in several partitions, and `text` keeps state under it."""
    if flow.is_by_key:
        return
    at = flow.rekeyed_at or flow.otherwise_at
    reason = "changed the key: state is kept where the old key was"
    if flow.rekeyed_at is None:
        reason = 'is declared partitioning="other": a key\'s records may be in any partition, and state is kept by partition'
    raise TopologyError(
        f"{text} has state, and {at} {reason}", f".repartition() between {at} and {text} brings equal keys together"
    )


def check_rows_by_key(text: str, flow: StreamCursor) -> None:
    """`TopologyError` where the rows of a table are not where their keys are, as `text` needs them: those of windows."""
    if not flow.is_by_key:
        raise TopologyError(
            f"{text}, and the keys of this table are windows, whose rows are where the keys within them are",
            "put to_stream().repartition().to_table() before it",
        )


def with_repartition(
    flow: StreamCursor,
    name: str | None = None,
    options: Repartitioned | None = None,
    *,
    for_operator: str | None = None,
    of_table: bool = False,
) -> StreamCursor:
    """Write `flow` into a repartition stream and read it back; what comes behind has tasks of its own.

    Of a repartition `by-carrier` the writing operator is `by-carrier-repartition` and the reading one `by-carrier`. Of one
    that the user did not name the reading one is `…-by-key`: the plain name is that of the operator behind it; so it is,
    too, where an operator before it has the name, such as a `select_key`. `name`, where the user names none, is given by
    what puts the stream in without being asked; a number of partitions is a hint then. `for_operator` is the name of that
    operator, which is added later. `of_table`: the rows are a table's updates.
    """
    builder, generated, options = flow.builder, name is not None, options or Repartitioned()
    stream = builder.repartition_stream(options.name or name or builder.lasting_name_of("repartition", flow.anchor, None))
    short = short_name_of(builder.application, stream)
    is_plain = options.name is not None and short != for_operator and not builder.has_operator(short)
    writer = builder.checked("repartition", f"{short}-repartition")
    reader = builder.checked("repartition", short if is_plain else f"{short}-by-key")
    text = operator_text("repartition", short)
    if for_operator in (writer, reader):
        raise TopologyError(
            f"{text} reads and writes its stream by operators named {reader!r} and {writer!r}, and the aggregation behind it"
            f" is named {for_operator!r}",
            "give one of them another name",
        )
    argument = None if generated else "hr.Repartitioned({}_serde=...)"
    key = needed(flow.key, "key", text, options.key_serde, argument and argument.format("key"))
    value = needed(flow.value, "value", text, options.value_serde, argument and argument.format("value"))
    writes = Repartition(
        name=writer,
        parents=(flow.node,),
        stream=stream,
        key=key.serde,
        value=value.serde,
        partitions=options.number_of_partitions,
        partitions_is_hint=generated and options.number_of_partitions is not None,
        partitioner=checked_partitioner(text, options.partitioner),
        generated=generated,
    )
    reads = Source(name=reader, stream=stream, key=key.serde, value=value.serde, kind=SourceKind.REPARTITION, of_table=of_table)
    builder.add("repartition", writes)
    builder.add("repartition", reads)
    return StreamCursor(builder=builder, node=reader, anchor=reader, key=key, value=value)


def with_table(
    flow: StreamCursor,
    own: str,
    store: str,
    key: SerdeSlot,
    value: SerdeSlot,
    what: str = "table",
    history_us: int | None = None,
) -> StreamCursor:
    """`flow` behind a `Table` operator `own`; its names are checked by the caller. `what` begins the store's form.
    `history_us`: how long versions are kept, None for the newest ones alone."""

    def spec(name: str, kind: StoreKind, what: str) -> StoreSpec:
        return StoreSpec(name, kind, f"{what} key={key.form} value={value.form}", value.serde)

    parents = (flow.node,)
    if history_us is None:
        table = Table(name=own, parents=parents, store=spec(store, StoreKind.KEY_VALUE, what), value=value.serde)
    else:
        table = VersionedTable(
            name=own,
            parents=parents,
            store=spec(store, StoreKind.KEY_VALUE, "versioned"),
            versions=spec(flow.builder.checked_store("table", f"{store}-versions"), StoreKind.WINDOW, "versions"),
            value=value.serde,
            history_us=history_us,
        )
    flow.builder.add("table", table)
    return behind_table(flow, own, operator_text("table", store)).with_sides(key, value)


def behind_table(flow: StreamCursor, own: str, text: str, anchor: str | None = None) -> StreamCursor:
    """The flow of a table: its name, or `anchor`, is that of what follows, and its rows come from a store."""
    return replace(flow, left_at=None).after(own, text, given=anchor or own)


class Grouping:
    """Rows grouped by key: made when the first aggregation asks for it, which then names its repartition stream.

    `options` say how that stream is written; where the rows are by key already there is none, and nothing of them is used.
    `flow` has what is known of the rows that are grouped, and the name after which an aggregation without one is named.
    """

    def __init__(self, flow: StreamCursor, options: Repartitioned | None = None) -> None:
        self._options = options = Repartitioned() if flow.is_by_key else (options or Repartitioned())
        self._ungrouped = flow
        self._grouped: StreamCursor | None = None
        key, value = (None if serde is None else SerdeSlot(serde) for serde in (options.key_serde, options.value_serde))
        anchor = flow.anchor if options.name is None else options.name.removesuffix(REPARTITION_SUFFIX)
        self.flow = replace(flow, anchor=anchor).with_sides(key, value)

    def again(self) -> Grouping:
        """The same rows, to be grouped by themselves."""
        return Grouping(self._ungrouped, self._options)

    def grouped(self, name: str, operator: str) -> StreamCursor:
        """The flow behind the group; `name` names its stream where the user did not, `operator` is the one that asks."""
        if self._grouped is None:
            flow, options = self._ungrouped, self._options
            if not flow.is_by_key:
                flow = with_repartition(flow, name, options, for_operator=operator)
            own = flow.name_of("group", None)
            self._grouped = flow.put("group", Group(name=own, parents=(flow.node,)))
        return self._grouped

    def key(self, operator: str) -> SerdeSlot:
        """What is known of the key, which `operator` keeps state under."""
        return needed(self.flow.key, "key", operator, None)
