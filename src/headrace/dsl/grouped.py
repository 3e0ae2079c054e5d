"""`KGrouped`: a stream grouped by key, perhaps within windows of time, and what can be aggregated from it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.dsl import stream_cursor as flows
from headrace.dsl.functions import checked_arguments, label_of, returned
from headrace.dsl.ktable import KTable
from headrace.dsl.rekeying import Grouping, behind_table
from headrace.dsl.stream_cursor import SerdeSlot, StreamCursor, checked_function, checked_serde, needed
from headrace.errors import TopologyError
from headrace.model.serde import Serde
from headrace.model.topology import Aggregate, AggregateKind, Function, NamedAggregate, StoreKind, StoreSpec
from headrace.model.windows import AnyWindows, SessionWindows, SlidingWindows, UnlimitedWindows
from headrace.serdes.ddl import (
    ArrayType,
    MapType,
    ScalarType,
    SparkType,
    StructField,
    StructType,
    fields_ddl,
    parse_type,
    to_ddl,
)
from headrace.serdes.json_serde import Json
from headrace.serdes.scalars import Long
from headrace.serdes.serdes import natural_serde
from headrace.serdes.windowed import Windowed

if TYPE_CHECKING:
    from headrace.dsl.app_declaration import AppDeclaration
    from headrace.dsl.cogrouped import KCogrouped

_WHOLE = frozenset({"tinyint", "smallint", "int", "bigint"})
_REAL = frozenset({"float", "double"})
_PLAIN = _WHOLE | _REAL | {"string", "boolean"}  # what JSON gives back as it was
_BIGINT, _DOUBLE = ScalarType("bigint"), ScalarType("double")
ABSENT: Any = object()


class Groups:
    """What a grouped stream and a grouped table have in common: how an aggregate is put behind the group."""

    def __init__(self, app: AppDeclaration, grouping: Grouping, windows: AnyWindows | None = None) -> None:
        self.app = app
        self.grouping = grouping
        self.windows = windows

    def aggregated(
        self,
        kind: str,
        make: Callable[..., Aggregate],
        value: Serde | None,
        store: str | None,
        name: str | None,
        what: str | None = None,
    ) -> KTable:
        """`make` knows how one state is made of records; `what` begins the form of the store, by default the method, `kind`."""
        own, text, store_name = self.grouping.flow.lasting_names_of(kind, name, store)
        key = self.grouping.key(text)
        spec = self._spec(store_name, what or kind, key, value)
        grouped = self.grouping.grouped(store_name, own)
        is_windowed = self.windows is not None
        # where Spark's type says what the key is, it stays open
        result_key = SerdeSlot(Windowed(key.serde)) if is_windowed and key.serde is not None else key
        node = make(name=own, parents=(grouped.node,), store=spec, windows=self.windows, key=result_key.serde, value=value)
        self.app.builder.add(kind, node)
        table = behind_table(grouped, own, text, name or store)  # a windowed key is another key than before
        return KTable(self.app, table.with_sides(result_key, SerdeSlot(value), text if is_windowed else None), self.windows)

    def _spec(self, name: str, what: str, key: SerdeSlot, value: Serde | None) -> StoreSpec:
        """The form names what the bytes depend on: not the grace, which only decides what is late."""
        form = f"{what} key={key.form} value={SerdeSlot(value).form}"
        windows = self.windows
        if windows is None:
            return StoreSpec(name, StoreKind.KEY_VALUE, form, value)
        kept_us = None if isinstance(windows, UnlimitedWindows) else windows.kept_us
        return StoreSpec(name, StoreKind.WINDOW, f"{form} windows={_shape(windows)}", value, kept_us)


def _shape(windows: AnyWindows) -> str:
    """What the bytes of a store depend on of its windows."""
    match windows:
        case SessionWindows():
            return f"session/{windows.gap_us}us"
        case SlidingWindows():
            return f"sliding/{windows.length_us}us"
        case UnlimitedWindows():
            return f"unlimited/{windows.start_us}us"
    return f"{windows.size_us}us/{windows.advance_us}us"


class KGrouped(Groups):
    """A stream grouped by its key. A record without a key is dropped, and counted."""

    def windowed_by(self, windows: AnyWindows) -> KGrouped:
        """Aggregate each window of time by itself; the key of a result is `hr.WindowedKey(key, start, end)`."""
        if not isinstance(windows, AnyWindows):
            raise TopologyError(
                f"windowed_by({windows!r}): expected windows",
                'give hr.Tumbling("1 hour"), hr.Hopping(size, advance), hr.Sliding(length), hr.Session(gap) or hr.Unlimited()',
            )
        if self.windows is not None:
            raise TopologyError("windowed_by: these rows have windows already", "call it once")
        return KGrouped(self.app, self.grouping, windows)

    def count(self, *, store: str | None = None, name: str | None = None) -> KTable:
        """How many records each key has, as a long."""
        return self.aggregated("count", partial(Aggregate, kind=AggregateKind.COUNT), Long(), store, name)

    def reduce(self, function: Any, *, value: Serde | None = None, store: str | None = None, name: str | None = None) -> KTable:
        """Fold the values of each key by `function(old value, new value)`; the first value is taken as it is.

        Where two sessions become one, `function` is given what each of them came to, the earlier one first.

        The result is of the stream's own kind, so its serde is the stream's where `value` is not given.
        """
        given = folding("reduce", function, "old", "new")
        serde = needed(self.grouping.flow.value, "value", "reduce()", value, "value=...").serde
        make = partial(Aggregate, kind=AggregateKind.REDUCE, function=given.body, label=given.label)
        return self.aggregated("reduce", make, serde, store, name)

    def aggregate(
        self,
        *,
        initial: Any = ABSENT,
        function: Any = None,
        merger: Any = None,
        value: Serde | None = None,
        store: str | None = None,
        name: str | None = None,
        **named: NamedAggregate,
    ) -> KTable:
        """Aggregate the records of each key: by names, or by a function of your own.

        `aggregate(flights=hr.count(), mean_delay=hr.mean("value.dep_delay"))` gives a dict with those names.
        `aggregate(initial=0, function=lambda state, record: ..., value=hr.Long())` folds; `initial` is a value, or a
        function without arguments that makes it. A state of None deletes the key. Of sessions it takes a `merger` too,
        which makes one state of those of two sessions, the earlier one first.
        """
        if named and (function is not None or merger is not None or initial is not ABSENT):
            raise TopologyError(f"aggregate: named aggregates ({', '.join(named)}) and a function", "give the one or the other")
        if named:
            return self._named(named, value, store, name)
        if function is None or initial is ABSENT:
            raise TopologyError(
                "aggregate(): expected named aggregates, or both initial= and function=",
                'e.g. aggregate(flights=hr.count(), mean_delay=hr.mean("value.dep_delay"))',
            )
        given = folding("aggregate", function, "state", "record")
        merging = checked_merger(merger, self.windows)
        if callable(initial):
            checked_arguments(f"aggregate(initial={label_of(initial)})", initial, ())
        serde = general_serde(given, initial, value)
        make = partial(Aggregate, kind=AggregateKind.GENERAL, function=given.body, label=given.label, initial=initial)
        if merging is not None:
            make = partial(make, merger=merging.body)
        return self.aggregated("aggregate", make, serde, store, name)

    def cogroup(self, function: Any) -> KCogrouped:
        """Fold the records of this stream into a state that other grouped streams share: `function(state, record)`.

        `clicks.cogroup(one).cogroup(views, other).aggregate(initial=...)`: each stream has a function of its own.
        """
        from headrace.dsl.cogrouped import KCogrouped, member_of  # which is made of grouped streams

        return KCogrouped(self.app, [member_of(self, function)])

    def _named(self, named: Mapping[str, NamedAggregate], value: Serde | None, store: str | None, name: str | None) -> KTable:
        types = checked_fields(named, self.grouping.flow)
        serde = result_serde_of(named, types) if value is None else checked_serde("aggregate", value)
        # what the bytes of their state depend on: names, kinds, fields, and the types of these where they are known
        forms = (f"{each}={aggregate_form(aggregate, types[each])}" for each, aggregate in named.items())
        make = partial(Aggregate, kind=AggregateKind.NAMED, named=dict(named))
        return self.aggregated("aggregate", make, serde, store, name, f"named {','.join(forms)}")


def checked_merger(merger: Any, windows: AnyWindows | None) -> Function | None:
    """`merger` if it is given where sessions merge, and only there."""
    if isinstance(windows, SessionWindows):
        if merger is None:
            raise TopologyError(
                "aggregate(initial=, function=) of sessions: expected merger= too: a record may join two sessions",
                "give merger=, a function of the states of two sessions, the earlier one first, that gives one state",
            )
        return folding("aggregate merger", merger, "earlier", "later")
    if merger is not None:
        raise TopologyError(
            "aggregate(merger=): only sessions merge, and these rows have none",
            "leave it out, or write windowed_by(hr.Session(gap)) before it",
        )
    return None


def folding(operator: str, function: Any, *arguments: str) -> Function:
    return checked_function(operator, function, flows.RECORD_ONLY, None, arguments)


def general_serde(function: Function, initial: Any, value: Serde | None) -> Serde:
    """Said, else by the function's annotation, else by the kind of the initial value."""
    if value is not None:
        return checked_serde("aggregate", value)
    serde = returned(function)
    if serde is None and initial is not None and not callable(initial):
        serde = natural_serde(initial)
    if serde is None:
        raise TopologyError(
            f"aggregate({function.label}): the serde of its state is not known",
            "give value=hr.Json() or another serde, or annotate what the function returns",
        )
    return serde


def checked_fields(named: Mapping[str, NamedAggregate], flow: StreamCursor) -> dict[str, SparkType | None]:
    """The type of what each aggregates, None where it is not known or is no field of the value. `TopologyError` where one is
    no aggregate, or reads what the keys and values cannot have, or cannot do."""
    types: dict[str, SparkType | None] = {}
    for name, aggregate in named.items():
        if not isinstance(aggregate, NamedAggregate):
            raise TopologyError(f"aggregate({name}={aggregate!r}): expected a named aggregate", f"e.g. {name}=hr.count()")
        text = f"aggregate({name}=hr.{aggregate.kind}({aggregate.field!r}))"
        found = types[name] = _field_type(aggregate, flow.value.serde, text)
        if aggregate.field == "key" and flow.key.serde is not None and flow.key.serde.spark_type is not None:
            found = parse_type(flow.key.serde.spark_type)
        if aggregate.kind != "count" and isinstance(found, StructType | ArrayType | MapType):
            raise TopologyError(
                f"{text}: expected a field with one plain value, found {to_ddl(found)}", _instead(aggregate, found)
            )
        if aggregate.kind in ("sum", "mean") and isinstance(found, ScalarType) and found.name not in _WHOLE | _REAL:
            raise TopologyError(
                f"{text}: expected a field of numbers, found {found.name}",
                "aggregate another field, or turn it into a number by map_values before",
            )
    return types


def _instead(aggregate: NamedAggregate, found: SparkType) -> str:
    whole = {"first": "lambda old, new: old", "last": "lambda old, new: new"}.get(aggregate.kind)
    if whole is not None and aggregate.field == "value":
        return f"reduce({whole}) keeps the whole value"
    if isinstance(found, StructType):
        return f"name one of its fields, such as {f'{aggregate.field}.{found.fields[0].name}'!r}"
    return "take one plain value out of it by map_values before"


def result_serde_of(named: Mapping[str, NamedAggregate], types: Mapping[str, SparkType | None]) -> Serde:
    """JSON with one field per aggregate; with their types where all of them are known."""
    results = {name: _result_type(aggregate, types[name]) for name, aggregate in named.items()}
    fields = tuple(StructField(name, found) for name, found in results.items() if found is not None)
    return Json(fields_ddl(StructType(fields))) if len(fields) == len(results) else Json()


def aggregate_form(aggregate: NamedAggregate, found: SparkType | None) -> str:
    if aggregate.field is None:
        return aggregate.kind
    return f"{aggregate.kind}({aggregate.field}{'' if found is None else ':' + to_ddl(found)})"


def _result_type(aggregate: NamedAggregate, found: SparkType | None) -> SparkType | None:
    plain = found if isinstance(found, ScalarType) and found.name in _PLAIN else None
    match aggregate.kind:
        case "count" | "count_distinct":
            return _BIGINT
        case "mean":
            return _DOUBLE
        case "sum" if plain is not None:
            return _BIGINT if plain.name in _WHOLE else _DOUBLE
        case _:
            return plain


def _field_type(aggregate: NamedAggregate, value: Serde | None, operator: str) -> SparkType | None:
    """The type of the field that is aggregated; None where it is not known, or is no field of the value."""
    if aggregate.field is None or value is None or value.spark_type is None or getattr(value, "is_loose", False):
        return None
    head, *path = aggregate.field.split(".")
    if head != "value":
        return None
    here = parse_type(value.spark_type)
    for depth, part in enumerate(path):
        if not isinstance(here, StructType):
            raise TopologyError(
                f"{operator}: {'.'.join([head, *path[:depth]])} is {to_ddl(here)}, it has no field {part!r}",
                "name a field that the value serde declares",
            )
        types = {field.name: field.type for field in here.fields}
        if part not in types:
            near = difflib.get_close_matches(part, types, 1)
            raise TopologyError(
                f"{operator}: the values have no field {part!r}",
                f"did you mean {near[0]!r}?" if near else f"they have: {', '.join(types)}",
            )
        here = types[part]
    return here
