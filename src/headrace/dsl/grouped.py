"""`KGrouped`: a stream grouped by key, perhaps within windows of time, and what can be aggregated from it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headrace.dsl import stream_cursor as flows
from headrace.dsl.builder import operator_text
from headrace.dsl.functions import checked_arguments, label_of
from headrace.dsl.ktable import KTable
from headrace.dsl.rekeying import Grouping
from headrace.dsl.returns import returned
from headrace.dsl.stream_cursor import SerdeSlot, StreamCursor, checked_function, checked_serde, needed, with_sides
from headrace.errors import TopologyError
from headrace.model.serde import Serde
from headrace.model.topology import Aggregate, AggregateKind, Function, NamedAggregate, StoreKind, StoreSpec, Table
from headrace.model.windows import AnyWindows, SessionWindows, Windows
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

_WHOLE = frozenset({"tinyint", "smallint", "int", "bigint"})
_REAL = frozenset({"float", "double"})
_PLAIN = _WHOLE | _REAL | {"string", "boolean"}  # what JSON gives back as it was
_COUNTS = frozenset({"count", "count_distinct"})
_BIGINT, _DOUBLE = ScalarType("bigint"), ScalarType("double")
_ABSENT: Any = object()


@dataclass(frozen=True, slots=True)
class _Fold:
    """How an aggregation makes one state of records; see `model.topology.Aggregate`."""

    kind: AggregateKind
    function: Function | None = None
    initial: Any = None
    merger: Function | None = None
    named: Mapping[str, NamedAggregate] | None = None


class KGrouped:
    """A stream grouped by its key. A record without a key is dropped, and counted."""

    def __init__(self, app: AppDeclaration, grouping: Grouping, windows: AnyWindows | None = None) -> None:
        self.app = app
        self.grouping = grouping
        self.windows = windows

    def windowed_by(self, windows: AnyWindows) -> KGrouped:
        """Aggregate each window of time by itself; the key of a result is `hr.WindowedKey(key, start, end)`."""
        if not isinstance(windows, AnyWindows):
            raise TopologyError(
                f"windowed_by({windows!r}): expected windows",
                'give hr.Tumbling("1 hour"), hr.Hopping(size, advance) or hr.Session(gap)',
            )
        if self.windows is not None:
            raise TopologyError("windowed_by: these rows have windows already", "call it once")
        return KGrouped(self.app, self.grouping, windows)

    def count(self, *, store: str | None = None, name: str | None = None) -> KTable:
        """How many records each key has, as a long."""
        return self._aggregated("count", _Fold(AggregateKind.COUNT), Long(), store, name)

    def reduce(self, function: Any, *, value: Serde | None = None, store: str | None = None, name: str | None = None) -> KTable:
        """Fold the values of each key by `function(old value, new value)`; the first value is taken as it is.

        Where two sessions become one, `function` is given what each of them came to, the earlier one first.

        The result is of the stream's own kind, so its serde is the stream's where `value` is not given.
        """
        given = _folding("reduce", function, "old", "new")
        serde = needed(self.grouping.value, "value", "reduce()", value, "value=...").serde
        return self._aggregated("reduce", _Fold(AggregateKind.REDUCE, given), serde, store, name)

    def aggregate(
        self,
        *,
        initial: Any = _ABSENT,
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
        if named and (function is not None or merger is not None or initial is not _ABSENT):
            raise TopologyError(f"aggregate: named aggregates ({', '.join(named)}) and a function", "give the one or the other")
        if named:
            return self._named(named, value, store, name)
        if function is None or initial is _ABSENT:
            raise TopologyError(
                "aggregate(): expected named aggregates, or both initial= and function=",
                'e.g. aggregate(flights=hr.count(), mean_delay=hr.mean("value.dep_delay"))',
            )
        given = _folding("aggregate", function, "state", "record")
        merging = self._merging(merger)
        if callable(initial):
            checked_arguments(f"aggregate(initial={label_of(initial)})", initial, ())
        serde = _general_serde(given, initial, value)
        return self._aggregated("aggregate", _Fold(AggregateKind.GENERAL, given, initial, merging), serde, store, name)

    def _merging(self, merger: Any) -> Function | None:
        """`merger` if it is given where sessions merge, and only there."""
        if isinstance(self.windows, SessionWindows):
            if merger is None:
                raise TopologyError(
                    "aggregate(initial=, function=) of sessions: expected merger= too: a record may join two sessions",
                    "give merger=, a function of the states of two sessions, the earlier one first, that gives one state",
                )
            return _folding("aggregate merger", merger, "earlier", "later")
        if merger is not None:
            raise TopologyError(
                "aggregate(merger=): only sessions merge, and these rows have none",
                "leave it out, or write windowed_by(hr.Session(gap)) before it",
            )
        return None

    def _named(self, named: Mapping[str, NamedAggregate], value: Serde | None, store: str | None, name: str | None) -> KTable:
        side = self.grouping.value
        _checked_fields(named, side.serde, self.grouping.known_key.serde)
        serde = checked_serde("aggregate", value) if value is not None else _result_serde_of(named, side.serde)
        fold = _Fold(AggregateKind.NAMED, named=dict(named))
        return self._aggregated("aggregate", fold, serde, store, name, f"named {_named_form(named, side.serde)}")

    def _aggregated(
        self, kind: str, fold: _Fold, value: Serde | None, store: str | None, name: str | None, what: str | None = None
    ) -> KTable:
        """`what` begins the form of the store, by default the name of the method, `kind`."""
        builder = self.app.builder
        own = builder.lasting_name_of(kind, self.grouping.anchor, name or store, say="store")
        text = operator_text(kind, own)
        store_name = builder.checked_store(kind, store or own)
        key = self.grouping.key(text)
        spec = self._spec(store_name, what or kind, key, value)
        grouped = self.grouping.grouped(store_name, own)
        # where Spark's type says what the key is, it stays open
        result_key = key if self.windows is None or key.serde is None else SerdeSlot(Windowed(key.serde))
        node = Aggregate(
            name=own,
            parents=(grouped.node,),
            kind=fold.kind,
            store=spec,
            named=fold.named,
            function=None if fold.function is None else fold.function.body,
            initial=fold.initial,
            merger=None if fold.merger is None else fold.merger.body,
            windows=self.windows,
            key=result_key.serde,
            value=value,
            label="" if fold.function is None else fold.function.label,
        )
        builder.add(kind, node)
        behind = _behind(grouped, own, text, result_key, SerdeSlot(value), windowed=self.windows is not None)
        return KTable(self.app, behind, self.windows)

    def _spec(self, name: str, what: str, key: SerdeSlot, value: Serde | None) -> StoreSpec:
        """The form names what the bytes depend on: not the grace, which only decides what is late."""
        form = f"{what} key={key.form} value={SerdeSlot(value).form}"
        windows = self.windows
        if windows is None:
            return StoreSpec(name, StoreKind.KEY_VALUE, form, value)
        shape = f"{windows.size_us}us/{windows.advance_us}us" if isinstance(windows, Windows) else f"session/{windows.gap_us}us"
        return StoreSpec(name, StoreKind.WINDOW, f"{form} windows={shape}", value, windows.kept_us)


def table_of(app: AppDeclaration, flow: StreamCursor, store: str | None, name: str | None) -> KTable:
    """The last value of each key of a stream, for `KStream.to_table`."""
    grouping = Grouping(app.builder, flow)
    own = app.builder.lasting_name_of("table", flow.anchor, name or store, say="store")
    text = operator_text("table", own)
    store_name = app.builder.checked_store("table", store or own)
    key, value = grouping.key(text), needed(flow.value, "value", text, None)
    grouped = grouping.grouped(store_name, own)
    return added_table(app, grouped, own, store_name, key, value)


def added_table(
    app: AppDeclaration, flow: StreamCursor, own: str, store: str, key: SerdeSlot, value: SerdeSlot, what: str = "table"
) -> KTable:
    """Add the `Table` operator `own` behind `flow`; its names are checked by the caller. `what` begins the store's form."""
    spec = StoreSpec(store, StoreKind.KEY_VALUE, f"{what} key={key.form} value={value.form}", value.serde)
    app.builder.add("table", Table(name=own, parents=(flow.node,), store=spec, value=value.serde))
    return KTable(app, _behind(flow, own, operator_text("table", store), key, value, windowed=False))


def _behind(flow: StreamCursor, own: str, text: str, key: SerdeSlot, value: SerdeSlot, *, windowed: bool) -> StreamCursor:
    """The flow of a table: its name is the anchor of what follows, and a windowed key is another key than before."""
    after = replace(flow, left_at=None).after(own, text, given=own)
    return with_sides(after, key, value, text if windowed else None)


def _folding(operator: str, function: Any, *arguments: str) -> Function:
    return checked_function(operator, function, flows.RECORD_ONLY, None, arguments)


def _general_serde(function: Function, initial: Any, value: Serde | None) -> Serde:
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


def _checked_fields(named: Mapping[str, NamedAggregate], value: Serde | None, key: Serde | None = None) -> None:
    """Raise `TopologyError` where an aggregate is none, or reads what the keys and values cannot have, or cannot do."""
    for name, aggregate in named.items():
        if not isinstance(aggregate, NamedAggregate):
            raise TopologyError(f"aggregate({name}={aggregate!r}): expected a named aggregate", f"e.g. {name}=hr.count()")
        text = f"aggregate({name}=hr.{aggregate.kind}({aggregate.field!r}))"
        found = _field_type(aggregate, value, text)
        if aggregate.field == "key" and key is not None and key.spark_type is not None:
            found = parse_type(key.spark_type)
        if aggregate.kind != "count" and isinstance(found, StructType | ArrayType | MapType):
            raise TopologyError(
                f"{text}: expected a field with one plain value, found {to_ddl(found)}", _instead(aggregate, found)
            )
        if aggregate.kind in ("sum", "mean") and isinstance(found, ScalarType) and found.name not in _WHOLE | _REAL:
            raise TopologyError(
                f"{text}: expected a field of numbers, found {found.name}",
                "aggregate another field, or turn it into a number by map_values before",
            )


def _instead(aggregate: NamedAggregate, found: SparkType) -> str:
    whole = {"first": "lambda old, new: old", "last": "lambda old, new: new"}.get(aggregate.kind)
    if whole is not None and aggregate.field == "value":
        return f"reduce({whole}) keeps the whole value"
    if isinstance(found, StructType):
        return f"name one of its fields, such as {f'{aggregate.field}.{found.fields[0].name}'!r}"
    return "take one plain value out of it by map_values before"


def _result_serde_of(named: Mapping[str, NamedAggregate], value: Serde | None) -> Serde:
    """JSON with one field per aggregate; with their types where all of them are known."""
    types = {name: _result_type(aggregate, value) for name, aggregate in named.items()}
    fields = tuple(StructField(name, found) for name, found in types.items() if found is not None)
    return Json(fields_ddl(StructType(fields))) if len(fields) == len(types) else Json()


def _named_form(named: Mapping[str, NamedAggregate], value: Serde | None) -> str:
    """What the bytes of their state depend on: names, kinds, fields, and the types of these where they are known."""
    return ",".join(f"{name}={_aggregate_form(aggregate, value)}" for name, aggregate in named.items())


def _aggregate_form(aggregate: NamedAggregate, value: Serde | None) -> str:
    if aggregate.field is None:
        return aggregate.kind
    found = _field_type(aggregate, value, "")
    return f"{aggregate.kind}({aggregate.field}{'' if found is None else ':' + to_ddl(found)})"


def _result_type(aggregate: NamedAggregate, value: Serde | None) -> SparkType | None:
    found = _field_type(aggregate, value, "")
    plain = found if isinstance(found, ScalarType) and found.name in _PLAIN else None
    match aggregate.kind:
        case kind if kind in _COUNTS:
            return _BIGINT
        case "mean":
            return _DOUBLE
        case "sum" if plain is not None:
            return _BIGINT if plain.name in _WHOLE else _DOUBLE
        case _:
            return plain


def _field_type(aggregate: NamedAggregate, value: Serde | None, operator: str) -> SparkType | None:
    """The type of the field that is aggregated; None where it is not known, or is no field of the value."""
    if aggregate.field is None or value is None or value.spark_type is None:
        return None
    head, *path = aggregate.field.split(".")
    if head != "value":
        return None
    here: SparkType | None = parse_type(value.spark_type)
    for depth, part in enumerate(path):
        if not isinstance(here, StructType):
            raise TopologyError(
                f"{operator}: {'.'.join([head, *path[:depth]])} is {'nothing' if here is None else to_ddl(here)}, "
                f"it has no field {part!r}",
                "name a field that the value serde declares",
            )
        names = [field.name for field in here.fields]
        if part not in names:
            near = difflib.get_close_matches(part, names, 1)
            raise TopologyError(
                f"{operator}: the values have no field {part!r}",
                f"did you mean {near[0]!r}?" if near else f"they have: {', '.join(names)}",
            )
        here = next(field.type for field in here.fields if field.name == part)
    return here
