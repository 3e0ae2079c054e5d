"""`KCogrouped`: several grouped streams that make one state of each key, each by a function of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import structs

from headrace.dsl.functions import checked_arguments, label_of
from headrace.dsl.grouped import Groups, KGrouped, checked_merger, folding, general_serde
from headrace.dsl.joins import LoopError, check_keys, check_partitioners, has_loop
from headrace.dsl.ktable import KTable
from headrace.dsl.rekeying import Grouping, with_repartition
from headrace.dsl.stream_cursor import StreamCursor, merged
from headrace.errors import TopologyError
from headrace.model.serde import Serde
from headrace.model.topology import Aggregate, AggregateKind, Function, FunctionKind, MapValues, Merge
from headrace.model.windows import AnyWindows, skips_null_values

if TYPE_CHECKING:
    from headrace.dsl.app_declaration import AppDeclaration


@dataclass(frozen=True, slots=True)
class _Member:
    """A grouped stream, and how its records are folded into the state."""

    grouping: Grouping
    function: Function


class KCogrouped:
    """Grouped streams of one state, `grouped.cogroup(...).cogroup(other, ...)`, before it is said what the state is."""

    def __init__(self, app: AppDeclaration, members: Sequence[_Member], windows: AnyWindows | None = None) -> None:
        self.app = app
        self._members = tuple(members)
        self._windows = windows

    def cogroup(self, grouped: KGrouped, function: Any) -> KCogrouped:
        """With one stream more, whose records `function(state, record)` folds."""
        member = member_of(grouped, function)
        if grouped.app is not self.app:
            raise TopologyError(
                f"cogroup: one stream is of application {self.app.name!r}, another of {grouped.app.name!r}",
                "what one App reads can be grouped together",
            )
        return KCogrouped(self.app, [*self._members, member], self._windows)

    def windowed_by(self, windows: AnyWindows) -> KCogrouped:
        """Aggregate the records of each window of time, as `KGrouped.windowed_by`."""
        checked = KGrouped(self.app, self._members[0].grouping, self._windows).windowed_by(windows)
        return KCogrouped(self.app, self._members, checked.windows)

    def aggregate(
        self, *, initial: Any, value: Serde | None = None, merger: Any = None, store: str | None = None, name: str | None = None
    ) -> KTable:
        """The states as a table: each takes the records of all streams, in the order in which the task takes them.

        It begins as `initial`, a value or a function without arguments that makes it. A state of None deletes the key. Of
        sessions it takes a `merger` too, as `KGrouped.aggregate`.
        """
        merging = checked_merger(merger, self._windows)
        if callable(initial):
            checked_arguments(f"aggregate(initial={label_of(initial)})", initial, ())
        functions = [member.function for member in self._members]
        make = partial(
            Aggregate,
            kind=AggregateKind.GENERAL,
            function=_ByStream([function.body for function in functions]),
            initial=initial,
            merger=None if merging is None else merging.body,
            label=", ".join(function.label for function in functions),
        )
        together = _Together([member.grouping.again() for member in self._members], skips_null_values(self._windows))
        serde = general_serde(functions[0], initial, value)
        return Groups(self.app, together, self._windows).aggregated("cogroup", make, serde, store, name, "aggregate")


def member_of(grouped: Any, function: Any) -> _Member:
    if not isinstance(grouped, KGrouped):
        raise TopologyError(
            f"cogroup({type(grouped).__name__}): expected a grouped stream", "give what group_by(...) or group_by_key() gave"
        )
    if grouped.windows is not None:
        raise TopologyError("cogroup: these rows have windows already", "call windowed_by behind the last cogroup")
    return _Member(grouped.grouping, folding("cogroup", function, "state", "record"))


class _Together(Grouping):
    """Several groupings as one: where one of them has to be repartitioned, so have those that its tasks would not meet else."""

    def __init__(self, parts: Sequence[Grouping], skips_nulls: bool) -> None:
        self._parts, self._grouped, self.flow, self._skips_nulls = parts, None, parts[0].flow, skips_nulls

    def grouped(self, name: str, operator: str) -> StreamCursor:
        builder = self.flow.builder
        for is_forced in (False, True):
            try:
                with builder.all_or_nothing():
                    found = self._merged([part.again() for part in self._parts], name, operator, is_forced)
                    if not is_forced and has_loop(builder):
                        raise LoopError
                    return found
            except LoopError:
                continue
        raise AssertionError("the second try raises, or gives what it made")

    def _merged(self, parts: Sequence[Grouping], name: str, operator: str, is_forced: bool) -> StreamCursor:
        flows = [self._tagged(part, number, name, operator, is_forced) for number, part in enumerate(parts)]
        first, builder = flows[0], self.flow.builder
        for flow in flows[1:]:
            check_keys(f"cogroup({operator!r})", first.key, flow.key)
            check_partitioners(builder, f"cogroup({operator!r})", first, flow)
        if len(flows) == 1:
            return first
        own = builder.checked("cogroup", f"{operator}-merged")
        builder.add("cogroup", Merge(name=own, parents=tuple(flow.node for flow in flows)))
        return replace(merged(flows, own, f"cogroup({operator!r})", None), key=first.key)

    def _tagged(self, part: Grouping, number: int, name: str, operator: str, is_forced: bool) -> StreamCursor:
        """The rows of a stream, each value with the number of the stream."""
        stream = f"{name}-{number + 1}"
        if is_forced and part.flow.is_by_key:
            part = Grouping(with_repartition(part.flow, stream, for_operator=operator))
        flow = part.grouped(stream, operator)
        function = partial(_with_number, number, self._skips_nulls)
        tag = Function(FunctionKind.RECORD, function, f"the number of the stream, {number + 1}")
        own = flow.builder.checked("cogroup", f"{operator}-{number + 1}")
        return flow.put("cogroup", MapValues(name=own, parents=(flow.node,), function=tag))


def _with_number(number: int, skips_nulls: bool, record: Any) -> tuple[int, Any] | None:
    return None if skips_nulls and record.value is None else (number, record.value)


class _ByStream:
    """Folds a record by the function of its stream, whose number its value has."""

    def __init__(self, functions: Sequence[Any]) -> None:
        self._functions = tuple(functions)

    def __call__(self, state: Any, record: Any) -> Any:
        number, value = record.value
        return self._functions[number](state, structs.replace(record, value=value))
