"""`KStream`: a stream of keyed records while the topology is being written. Each method adds operators to the app.

A function over records is given one `headrace.Record`. Where `name` is not given, it is made of the names before it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.dsl import stream_cursor as flows
from headrace.dsl.builder import operator_text
from headrace.dsl.displayable import Displayable
from headrace.dsl.filters import split_by_expressions, split_by_functions, without_duplicates
from headrace.dsl.grouped import KGrouped
from headrace.dsl.joinable import StreamJoins
from headrace.dsl.ktable import KTable
from headrace.dsl.processor import declared_by
from headrace.dsl.rekeying import Grouping, check_by_key, repartition_arguments, with_repartition, with_table
from headrace.dsl.repartitioned import Repartitioned, checked_options, checked_partitioner
from headrace.dsl.stream_cursor import SerdeSlot, checked_function, checked_serde, merged, needed
from headrace.dsl.windows import Duration, length_us
from headrace.errors import TopologyError
from headrace.model.names import checked_name
from headrace.model.serde import Serde, of_stream
from headrace.model.stream_operators import SetHeaders
from headrace.model.topology import (
    Filter,
    FlatMap,
    FlatMapValues,
    ForEachRound,
    Function,
    Map,
    MapValues,
    Merge,
    Peek,
    Process,
    SelectKey,
    Sink,
    Transform,
)

_OF_GROUPED = frozenset({"windowed_by", "count", "reduce", "aggregate"})


class KStream(StreamJoins, Displayable):
    """A stream of records. It is a value: a method leaves it as it is and gives a new stream."""

    if not TYPE_CHECKING:  # a type checker would take it to mean that any name is there

        def __getattr__(self, name: str) -> object:
            if name in _OF_GROUPED:
                raise AttributeError(
                    f"a KStream has no {name!r}: group it first, by group_by_key().{name}(...) or group_by(...).{name}(...)"
                )
            raise AttributeError(f"a KStream has no {name!r}", name=name, obj=self)

    def filter(self, predicate: Any, *, name: str | None = None) -> KStream:
        """Keep the records for which `predicate` holds; null counts as false."""
        return self._filter("filter", predicate, name, negate=False)

    def filter_not(self, predicate: Any, *, name: str | None = None) -> KStream:
        """Keep the records that `filter` would drop."""
        return self._filter("filter_not", predicate, name, negate=True)

    def _filter(self, kind: str, predicate: Any, name: str | None, negate: bool) -> KStream:
        function = checked_function(kind, predicate, flows.ANY, self.flow)
        node = Filter(name=self.flow.name_of(kind, name), parents=(self.flow.node,), predicate=function, negate=negate)
        return KStream(self.app, self.flow.put(kind, node, name, in_jvm=function.in_jvm))

    def map_values(self, function: Any, *, value: Serde | None = None, name: str | None = None) -> KStream:
        """Give each record the value that `function` returns; the key stays, so nothing is repartitioned later."""
        return KStream(self.app, self.flow.apply("map_values", MapValues, function, flows.ANY, name, value=value))

    def select_key(self, function: Any, *, key: Serde | None = None, name: str | None = None) -> KStream:
        """Give each record the key that `function` returns."""
        return KStream(self.app, self.flow.apply("select_key", SelectKey, function, flows.ANY, name, key=key))

    def map(self, function: Any, *, key: Serde | None = None, value: Serde | None = None, name: str | None = None) -> KStream:
        """Give each record the (key, value) that `function` returns. Prefer `map_values` where the key stays."""
        return KStream(self.app, self.flow.apply("map", Map, function, flows.CALLED, name, key=key, value=value))

    def peek(self, function: Any, *, name: str | None = None) -> KStream:
        """Call `function` with each record for its effect; after a failure it may be called again for the same one."""
        return KStream(self.app, self.flow.apply("peek", Peek, function, flows.CALLED, name))

    def with_headers(self, function: Any, *, name: str | None = None) -> KStream:
        """Give each record the headers that `function` returns, in place of its own: (name, value) pairs, or a mapping.

        A value is bytes, text or None. A batch function or a Spark expression gives arrays of structs of `name` and `value`, as
        the column `headers` is.
        """
        kinds = flows.JVM | flows.WORKER
        return KStream(self.app, self.flow.apply("with_headers", SetHeaders, function, kinds, name))

    def flat_map_values(self, function: Any, *, value: Serde | None = None, name: str | None = None) -> KStream:
        """Make a record with the same key of each value that `function` gives."""
        behind = self.flow.apply("flat_map_values", FlatMapValues, function, flows.EACH, name, each=True, value=value)
        return KStream(self.app, behind)

    def flat_map(
        self, function: Any, *, key: Serde | None = None, value: Serde | None = None, name: str | None = None
    ) -> KStream:
        """Make a record of each (key, value) that `function` gives."""
        behind = self.flow.apply("flat_map", FlatMap, function, flows.EACH, name, each=True, key=key, value=value)
        return KStream(self.app, behind)

    def transform(
        self, function: Any, *, key: Serde | None = None, value: Serde | None = None, name: str | None = None
    ) -> KStream:
        """Put the rows through `function`, DataFrame to DataFrame, inside Spark's engine.

        Only what needs no shuffle: `select`, `explode`, broadcast joins. The column `_at` must come back.
        """
        given = checked_function("transform", function, flows.RECORD_ONLY, None, ("df",))
        if self.flow.left_at is not None:
            raise TopologyError(
                f"transform({given.label}) after {self.flow.left_at}: these rows have left Spark's engine; "
                "use a function, @hr.batch, or .repartition() before it"
            )
        keys = SerdeSlot(None if key is None else checked_serde("transform", key))
        values = SerdeSlot(None if value is None else checked_serde("transform", value))
        node = Transform(
            name=self.flow.name_of("transform", name),
            parents=(self.flow.node,),
            function=function,
            label=given.label,
            given_at=given.given_at,
            key=keys.serde,
            value=values.serde,
        )
        return KStream(self.app, self.flow.put("transform", node, name, in_jvm=True, key=keys, value=values, rekeyed=True))

    def process(
        self, processor: Any, *, name: str | None = None, key: Serde | None = None, value: Serde | None = None
    ) -> KStream:
        """Process the records with `processor`, a class derived from `hr.Processor`; the result is what it forwards.

        Say `key` if it forwards other keys than it was given.
        """
        declared, flow = declared_by(processor), self.flow
        if not declared.stateful:
            own = flow.name_of("process", name)
        else:
            own = flow.builder.lasting_name_of("process", flow.anchor, name)
            check_by_key(operator_text("process", own), flow)
        text = operator_text("process", own)
        specs = tuple(store.spec(flow.key.form) for store in declared.stores)
        for spec in specs:
            flow.builder.checked_processor_store(text, spec)
        given = declared.value if value is None else checked_serde(text, value)
        values = SerdeSlot(given, None if given else f"{text} ({processor.__qualname__})")
        keys = flow.key if key is None else SerdeSlot(checked_serde(text, key))
        node = Process(
            name=own,
            parents=(flow.node,),
            processor=processor,
            stores=specs,
            timers=declared.timers,
            calls=declared.calls,
            rekeys=key is not None,
            key=keys.serde,
            value=values.serde,
        )
        with flow.builder.all_or_nothing():
            behind = flow.put("process", node, name, key=keys, value=values, rekeyed=key is not None)
            flow.builder.check_sharing(own)
        return KStream(self.app, behind)

    def drop_duplicates(self, by: Any = None, *, within: Any, store: str | None = None, name: str | None = None) -> KStream:
        """Of the records of one key that are less than `within` apart in event time, keep the first that comes.

        With `by`, a function of the record, of those that have one key and one result of it. To drop duplicates across
        keys, make what is to be unique the key first (`select_key`). The time runs from the last record that was kept. A
        record that comes more than `within` after the watermark has passed it may be kept again.
        """
        return KStream(self.app, without_duplicates(self.flow, by, within, store, name))

    def merge(self, *others: KStream, name: str | None = None) -> KStream:
        """All records of this stream and of `others`; the order within each is kept. Of one that is given twice, each twice."""
        streams = (self, *others)
        for other in others:
            if not isinstance(other, KStream):
                raise TopologyError(f"merge({type(other).__name__}): expected streams", "a table has .to_stream()")
            if other.app is not self.app:
                raise TopologyError(
                    f"merge: one stream is of application {self.app.name!r}, another of {other.app.name!r}",
                    "streams of one App can be merged",
                )
        if not others:
            raise TopologyError("merge: expected other streams")
        own, builder, parents = self.flow.name_of("merge", name), self.app.builder, list[str]()
        for node in (stream.flow.node for stream in streams):
            parents.append(node if node not in parents else builder.name_of("again", own, None))
            if parents[-1] != node:  # an operator takes what another one gives once
                builder.add("merge", Merge(name=parents[-1], parents=(node,)))
        builder.add("merge", Merge(name=own, parents=tuple(parents)))
        return KStream(self.app, merged([stream.flow for stream in streams], own, operator_text("merge", own), name))

    def split(self, *predicates: Any, name: str | None = None) -> tuple[KStream, ...]:
        """One stream per predicate, of the records for which it is the first to hold, and a last one for the rest."""
        if not predicates:
            raise TopologyError("split(): expected at least one predicate")
        given = [checked_function("split", predicate, flows.ANY, self.flow) for predicate in predicates]
        in_jvm = {function.in_jvm for function in given}
        if len(in_jvm) == 2:
            raise TopologyError(
                "split: some predicates are Spark expressions and some are functions",
                "give all of one kind: expressions run in Spark's engine, functions in the worker",
            )
        parts = split_by_expressions if in_jvm == {True} else split_by_functions
        return tuple(KStream(self.app, flow) for flow in parts(self.flow, given, name))

    def repartition(
        self,
        mapper: Any = None,
        repartitioned: Repartitioned | None = None,
        *,
        key: Serde | None = None,
        name: str | None = None,
    ) -> KStream:
        """Write the stream by its key into an internal stream; what follows has tasks of its own.

        `repartition()`, `repartition(hr.Repartitioned(...))`, or with another key `repartition("value.carrier",
        hr.Repartitioned(...))`; the mapper is as that of `select_key`. It always makes a stream, whether the key was changed
        or not. After it, Spark expressions work again.
        """
        mapper, options = repartition_arguments(mapper, repartitioned, name)
        with self.app.builder.all_or_nothing():
            rekeyed = self
            if mapper is not None:
                checked_function("repartition", mapper, flows.ANY, self.flow)
                rekeyed = self.select_key(mapper, key=key)
            elif key is not None:
                raise TopologyError(
                    "repartition(key=...): no mapper gives another key", "hr.Repartitioned(key_serde=...) writes the one it has"
                )
            return KStream(self.app, with_repartition(rekeyed.flow, options=options))

    def group_by_key(self, repartitioned: Repartitioned | None = None) -> KGrouped:
        """Group by the current key; a repartition stream is put in where the key was changed, and only there.

        A stream that is declared `partitioning="other"` counts as one whose key was changed.
        `hr.Repartitioned(...)` says how that stream is written; without one it has no effect.
        """
        return KGrouped(self.app, Grouping(self.flow, checked_options("group_by_key", repartitioned)))

    def group_by(self, selector: Any, repartitioned: Repartitioned | None = None, *, key: Serde | None = None) -> KGrouped:
        """Group by the key that `selector` gives: `select_key` and `group_by_key`."""
        options = checked_options("group_by", repartitioned)
        return self.select_key(selector, key=key).group_by_key(options)

    def to_table(self, *, store: str | None = None, name: str | None = None, history: Duration | None = None) -> KTable:
        """The last value of each key as a table; a null value deletes the key. `history`: as of `app.table`."""
        grouping = Grouping(self.flow)
        own, text, store_name = grouping.flow.lasting_names_of("table", name, store)
        key, value = grouping.key(text), needed(self.flow.value, "value", text, None)
        history_us = None if history is None else length_us("history", history, text)
        flow = grouping.grouped(store_name, own)
        table = with_table(flow, own, store_name, key, value, history_us=history_us)
        return KTable(self.app, replace(table, anchor=name or store or own))

    def to(
        self,
        name: Any,
        key: Serde | None = None,
        value: Serde | None = None,
        partitioner: Any = None,
        headers: Any = None,
        *,
        feedback: bool = False,
    ) -> None:
        """Write the stream to the output `name`: a text, or a function of the record that gives the name.

        The serdes are those of the stream where not given. `headers` is a function of the record that gives pairs;
        `partitioner` is one as in `hr.Repartitioned`. `feedback=True` lets the output be an input that the records come of: it
        is for the program to see that they come to an end.
        """
        builder = self.app.builder
        if isinstance(name, str):
            stream: str | Function = builder.checked_sink(checked_name("stream", name), self.flow.node, feedback)
        else:
            stream = checked_function("to", name, flows.RECORD_ONLY, None)
        text = operator_text("to", stream if isinstance(stream, str) else stream.label)
        keys = needed(self.flow.key, "key", text, key, "key=...").serde
        values = needed(self.flow.value, "value", text, value, "value=...").serde
        sink = Sink(
            name=self.flow.name_of("to", None),
            parents=(self.flow.node,),
            stream=stream,
            key=of_stream(keys, stream, "key") if isinstance(stream, str) else keys,
            value=of_stream(values, stream, "value") if isinstance(stream, str) else values,
            partitioner=checked_partitioner(text, partitioner),
            headers=None if headers is None else checked_function(text, headers, flows.RECORD_ONLY, None),
        )
        builder.add("to", sink)

    def for_each_round(self, function: Any, *, name: str | None = None) -> None:
        """Hand the rows of each round to `function(df, round_id)` as a DataFrame, for Spark's own sinks: AT LEAST ONCE.

        It is called in the driver, before the round is committed, and again after a failure: the same id always comes with
        the same records, so let a write under an id replace an earlier write under it. The columns are those that
        expressions see: `key`, `value`, `timestamp`, `partition`, `offset`, `headers`.
        """
        given = checked_function("for_each_round", function, flows.RECORD_ONLY, None, ("df", "round_id"))
        builder, flow = self.app.builder, self.flow
        with builder.all_or_nothing():
            if flow.left_at is None:
                own = flow.name_of("for_each_round", name)
            else:  # a repartition stream brings the rows back into Spark's engine
                own = builder.lasting_name_of("for_each_round", flow.anchor, name)
                flow = with_repartition(flow, own, for_operator=own)
            node = ForEachRound(name=own, parents=(flow.node,), function=function, label=given.label, given_at=given.given_at)
            builder.add("for_each_round", node)
