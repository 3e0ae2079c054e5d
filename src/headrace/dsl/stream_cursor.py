"""`StreamCursor`: the place of a stream in the topology while it is being written, and what is known there.

Known are the serdes, or which operator left them open; whether the rows are still in Spark's engine, or which operator
took them out; whether a key's rows are in one partition, or what set them apart: a changed key, or the stream's producer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, is_typeddict

from headrace.dsl.builder import Builder, operator_text
from headrace.dsl.functions import function_of, returned, returned_pair
from headrace.errors import TopologyError
from headrace.model.names import checked_own_name
from headrace.model.serde import Serde
from headrace.model.topology import Function, FunctionKind, Node
from headrace.serdes.ddl import SparkType, StructType, parse_type, to_ddl
from headrace.serdes.own import unfit
from headrace.serdes.serdes import serde_of_spark_type

JVM = frozenset({FunctionKind.SQL, FunctionKind.COLUMN})
WORKER = frozenset({FunctionKind.RECORD, FunctionKind.BATCH})
RECORD_ONLY = frozenset({FunctionKind.RECORD})
EACH = RECORD_ONLY | {FunctionKind.ASYNC}  # called with each record of a stream
CALLED = WORKER | EACH
ANY = JVM | CALLED


_OF_PYTHON = {
    str: "hr.String()",
    int: "hr.Long()",
    float: "hr.Double()",
    bytes: "hr.Bytes()",
    dict: "hr.Json()",
    bool: "hr.Boolean()",
}


@dataclass(frozen=True, slots=True, eq=False)
class SerdeSlot:
    """The serde of a key or of a value. None with `open_at` None: by the Spark type, known when the job starts.

    `open_at` names the operator that made the values without saying their serde: fine until bytes are needed.
    """

    serde: Serde | None
    open_at: str | None = None

    @property
    def form(self) -> str:
        """For the form of a store; `spark` stands for what the Spark type will say."""
        return "spark" if self.serde is None else self.serde.form


@dataclass(frozen=True, slots=True, eq=False)
class StreamCursor:
    """`node`: the operator in `builder` whose output this is; `anchor`: the nearest name on the path that the user gave.

    `left_at` and `rekeyed_at` are None, or name the operator at which the rows left Spark's engine and the one that
    changed the key since they were last written by key. `otherwise_at` is None, or names the source of a stream that its
    producer partitions by something else than the key.
    """

    builder: Builder
    node: str
    anchor: str
    key: SerdeSlot
    value: SerdeSlot
    left_at: str | None = None
    rekeyed_at: str | None = None
    otherwise_at: str | None = None

    @property
    def is_by_key(self) -> bool:
        """Whether all rows of a key are in one partition, so that an operator may meet them there."""
        return self.rekeyed_at is None and self.otherwise_at is None

    def name_of(self, kind: str, given: str | None) -> str:
        """The name of a stateless operator behind this one."""
        return self.builder.name_of(kind, self.node, given)

    def lasting_names_of(self, kind: str, name: str | None, store: str | None) -> tuple[str, str, str]:
        """Of an operator with a store: its name, what errors call it, and the name of its store. What follows is named after
        `name or store` where the user gave one."""
        if name is None and store is not None:
            own = self.builder.name_after_store(kind, checked_own_name("store", store))
        else:
            own = self.builder.lasting_name_of(kind, self.anchor, name, say="store")
        return own, operator_text(kind, own), self.builder.checked_store(kind, store or own)

    def put(
        self,
        kind: str,
        node: Node,
        given: str | None = None,
        *,
        in_jvm: bool = False,
        key: SerdeSlot | None = None,
        value: SerdeSlot | None = None,
        rekeyed: bool = False,
    ) -> StreamCursor:
        """Add `node` here: the stream behind it. `given`: the name that the user gave it, which becomes the anchor; `key`,
        `value`: the serdes that it gives; `rekeyed`: it changes the key."""
        self.builder.add(kind, node)
        behind = self.after(node.name, operator_text(kind, node.name), given=given, in_jvm=in_jvm)
        return behind.with_sides(key, value, operator_text(kind, node.name) if rekeyed else None)

    def after(self, node: str, operator: str, *, given: str | None, in_jvm: bool = False) -> StreamCursor:
        """The same rows behind `node`, which errors call `operator`."""
        anchor = self.anchor if given is None else given
        return replace(self, node=node, anchor=anchor, left_at=self.left_at if in_jvm else self.left_at or operator)

    def with_sides(self, key: SerdeSlot | None, value: SerdeSlot | None, rekeyed_at: str | None = None) -> StreamCursor:
        """The same with the serdes that an operator gave it, and the mark of that operator if it changed the key."""
        return replace(self, key=key or self.key, value=value or self.value, rekeyed_at=self.rekeyed_at or rekeyed_at)

    def apply(
        self,
        kind: str,
        make: Callable[..., Node],
        function: object,
        kinds: frozenset[FunctionKind],
        name: str | None,
        *,
        each: bool = False,
        **given: Serde | None,
    ) -> StreamCursor:
        """Put in the operator that `make` makes of a user's function. `given`: the serde of each part of a record that the
        function's result is, `key`, `value`, both or none, where the user named one; `each`: it gives any number of results."""
        body = checked_function(kind, function, kinds, self)
        own = self.name_of(kind, name)
        annotated = returned_pair(body, each=each) if len(given) == 2 else (returned(body, each=each),) * len(given)
        sides = {
            part: result_side(body, serde, hint, operator_text(kind, own), self)
            for (part, serde), hint in zip(given.items(), annotated, strict=True)
        }
        serdes = {part: side.serde for part, side in sides.items()}
        node = make(name=own, parents=(self.node,), function=body, **serdes)
        key, value = sides.get("key"), sides.get("value")
        return self.put(kind, node, name, in_jvm=body.in_jvm, key=key, value=value, rekeyed=key is not None)


def checked_function(
    operator: str,
    given: object,
    kinds: frozenset[FunctionKind],
    flow: StreamCursor | None,
    arguments: Sequence[str] = ("record",),
) -> Function:
    """What the user gave to `operator`, if it takes that kind of function and the rows are where that kind works.

    `arguments` names what a function that is no expression is given.
    """
    function = function_of(operator, given, arguments)
    if function.in_jvm and flow is not None and flow.left_at is not None:
        raise TopologyError(
            f"{operator}('{function.label}') after {flow.left_at}: these rows have left Spark's engine; "
            "use a function, @hr.batch, or .repartition() before it"
        )
    if function.kind in kinds:
        return function
    if function.in_jvm:
        raise TopologyError(
            f"{operator}('{function.label}'): a Spark expression cannot be given here",
            f"give a function; {_elsewhere(operator)}",
        )
    if function.kind is FunctionKind.ASYNC:
        raise TopologyError(
            f"{operator}({function.label}): an async function cannot be given here",
            "write it without async, or call it before: filter, map, map_values, select_key, flat_map, flat_map_values, peek "
            "and split of a stream take async functions",
        )
    raise TopologyError(
        f"{operator}({function.label}): @hr.batch functions cannot be given here", "give a function over one record"
    )


def _elsewhere(operator: str) -> str:
    if operator in ("map", "flat_map", "flat_map_values"):
        return "expressions work in filter, map_values and select_key, and `transform` takes a whole DataFrame"
    return "expressions work in filter, map_values, select_key and split"


def result_side(
    function: Function, given: Serde | None, annotated: Serde | None, operator: str, flow: StreamCursor
) -> SerdeSlot:
    """The serde of what `function` gives: said, else by Spark's type, else by the annotation, else open."""
    if given is not None:
        return SerdeSlot(checked_serde(operator, given))
    if function.in_jvm:
        return SerdeSlot(_serde_of_path(function, flow))
    return SerdeSlot(annotated) if annotated is not None else SerdeSlot(None, f"{operator} ({function.label})")


def _serde_of_path(function: Function, flow: StreamCursor) -> Serde | None:
    """The serde of an expression that only names a field of a known type; None leaves it to Spark.

    It is what Spark's type would say, known without starting Spark: `value.carrier` of `carrier string` is String.
    """
    head, *fields = function.body.split(".") if function.kind is FunctionKind.SQL else ("",)
    side = {"key": flow.key, "value": flow.value}.get(head)
    if side is None or side.serde is None or side.serde.spark_type is None:
        return None
    if not fields:
        return side.serde
    found: SparkType | None = parse_type(side.serde.spark_type)
    for part in fields:
        types = {field.name: field.type for field in found.fields} if isinstance(found, StructType) else {}
        found = types.get(part)
    return None if found is None else serde_of_spark_type(to_ddl(found))


def checked_serde(operator: str, given: Any) -> Serde:
    """`given` if it is a serde."""
    if isinstance(given, type):
        named = _OF_PYTHON.get(given) or (f"hr.{given.__name__}()" if given.__module__.startswith("headrace.") else None)
        if named is None:
            has_fields = is_dataclass(given) or hasattr(given, "__struct_fields__") or is_typeddict(given)
            named = f"hr.Json({given.__name__})" if has_fields else "hr.String(), or another"
        raise TopologyError(f"{operator}: {given.__name__} is a class where a serde is expected", f"write {named}")
    if (why := unfit(given)) is not None:
        raise TopologyError(
            f"{operator}: {given!r} is no serde: {why}",
            "give one such as hr.String(), hr.Long() or hr.Json(), or an hr.OwnSerde",
        )
    serde: Serde = given
    return serde


def needed(side: SerdeSlot, part: str, operator: str, given: Any, argument: str | None = None) -> SerdeSlot:
    """The serde for bytes that `operator` writes: `given`, else that of the stream, else an error that says where.

    `part` is 'key' or 'value'; `argument` is how it is said at `operator`, None if it cannot be said there.
    """
    if given is not None:
        return SerdeSlot(checked_serde(operator, given))
    if side.open_at is None:
        return side
    here = f", or to {operator} ({argument})" if argument else ""
    raise TopologyError(
        f"{operator} writes {part}s, and {side.open_at} does not say the serde of the {part}s that it gives",
        f"annotate what its function returns, or give {part}=hr.Json() (or another serde) to it{here}",
    )


def merged(flows: Sequence[StreamCursor], node: str, operator: str, given: str | None) -> StreamCursor:
    """Several streams as one. Where their serdes differ it is open which one the result has."""
    first = flows[0]
    return StreamCursor(
        builder=first.builder,
        node=node,
        anchor=first.anchor if given is None else given,
        key=_common([flow.key for flow in flows], operator),
        value=_common([flow.value for flow in flows], operator),
        left_at=operator,
        rekeyed_at=next((flow.rekeyed_at for flow in flows if flow.rekeyed_at), None),
        otherwise_at=next((flow.otherwise_at for flow in flows if flow.otherwise_at), None),
    )


def _common(sides: Sequence[SerdeSlot], operator: str) -> SerdeSlot:
    if any(side.open_at for side in sides):
        return next(side for side in sides if side.open_at)
    forms = {side.serde.form for side in sides if side.serde is not None}
    if len(forms) == 1 and all(side.serde is not None for side in sides):
        return sides[0]
    return SerdeSlot(None, f"{operator} (its streams have different serdes)")
