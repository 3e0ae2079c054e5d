"""How `split` and `drop_duplicates` become operators: filters inside Spark for expressions, one `Split` for functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from headrace.dsl import stream_cursor as flows
from headrace.dsl.builder import operator_text
from headrace.dsl.rekeying import Grouping
from headrace.dsl.stream_cursor import StreamCursor, checked_function
from headrace.dsl.windows import length_us
from headrace.errors import TopologyError
from headrace.model.topology import DropDuplicates, Filter, Function, FunctionKind, Split, SplitOutput, StoreKind, StoreSpec
from headrace.serdes.scalars import Long


def split_by_expressions(flow: StreamCursor, predicates: Sequence[Function], name: str | None) -> tuple[StreamCursor, ...]:
    """p1; not p1 and p2; …; none of them. A null predicate counts as false, so that each row is in exactly one."""
    own, builder = flow.name_of("split", name), flow.builder
    outputs, rests = _output_names(own, name, len(predicates)), [f"{own}-not-{n}" for n in range(1, len(predicates))]
    rests.append(outputs[-1])
    for each in {*outputs, *rests}:
        builder.checked("split", each)
    builder.reserve("split", own)
    flows: list[StreamCursor] = []
    rest = flow
    for predicate, holds_name, rest_name in zip(map(_null_is_false, predicates), outputs, rests, strict=False):
        parents = (rest.node,)
        builder.add("split", Filter(name=holds_name, parents=parents, predicate=predicate))
        builder.add("split", Filter(name=rest_name, parents=parents, predicate=predicate, negate=True))
        flows.append(_behind(flow, holds_name, own, name, in_jvm=True))
        rest = _behind(flow, rest_name, own, name, in_jvm=True)
    return (*flows, rest)


def split_by_functions(flow: StreamCursor, predicates: Sequence[Function], name: str | None) -> tuple[StreamCursor, ...]:
    """One `Split`, and an output for each predicate and one for the rest."""
    own, builder = flow.name_of("split", name), flow.builder
    outputs = _output_names(own, name, len(predicates))
    for each in outputs:
        builder.checked("split", each)
    builder.add("split", Split(name=own, parents=(flow.node,), predicates=tuple(predicates)))
    for index, output in enumerate(outputs):
        builder.add("split", SplitOutput(name=output, parents=(own,), index=index))
    return tuple(_behind(flow, output, own, name, in_jvm=False) for output in outputs)


def _output_names(own: str, given: str | None, predicates: int) -> list[str]:
    """`own-1`, `own-2`, …, `own-rest`; with a word in between where `own` is generated: its siblings have numbers."""
    stem = own if given is not None else f"{own}-output"
    return [*(f"{stem}-{number}" for number in range(1, predicates + 1)), f"{own}-rest"]


def _behind(flow: StreamCursor, output: str, own: str, given: str | None, *, in_jvm: bool) -> StreamCursor:
    """An output of a split that was given a name has a name of its own for what follows."""
    return flow.after(output, operator_text("split", own), given=None if given is None else output, in_jvm=in_jvm)


def _null_is_false(predicate: Function) -> Function:
    if predicate.kind is FunctionKind.SQL:
        return replace(predicate, body=f"coalesce(({predicate.body}), false)")
    return replace(predicate, body=predicate.body.eqNullSafe(True))


def without_duplicates(
    flow: StreamCursor, by: object, within: str | timedelta, store: str | None, name: str | None
) -> StreamCursor:
    """`flow` behind a `DropDuplicates`, and behind a repartition stream where the rows are not by key."""
    within_us = length_us("within", within, "drop_duplicates")
    if within_us <= 0:
        raise TopologyError(f"drop_duplicates(within={within!r}): expected a length of time above 0")
    given = None if by is None else checked_function("drop_duplicates", by, flows.RECORD_ONLY, None)
    grouping = Grouping(flow)
    own, text, store_name = flow.lasting_names_of("drop_duplicates", name, store)
    # The form of a Processor's store whose values expire: the time of the record that came first, as a long.
    form = f"key-value expiring key={grouping.key(text).form} value={Long().form}"
    spec = StoreSpec(store_name, StoreKind.KEY_VALUE, form, Long(), 2 * within_us)
    grouped = grouping.grouped(store_name, own)
    node = DropDuplicates(name=own, parents=(grouped.node,), store=spec, by=given, within_us=within_us)
    return grouped.put("drop_duplicates", node, name or store or own)
