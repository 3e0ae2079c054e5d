"""Random topologies as applications, built with the public API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import headrace as hr
from topologies import functions as f
from topologies.building_processors import process, share
from topologies.spec import Node, Spec


def build(spec: Spec, **keys: Any) -> hr.App:
    app = hr.App(spec.name, **{**spec.keys, **keys})
    made: list[Any] = []
    for number, node in enumerate(spec.nodes):
        parents = [made[i] for i in node["of"]]
        made.append(_BUILT[node["op"]](app, spec, number, node, parents))
    return app


def is_accepted(nodes: Sequence[Node]) -> bool:
    """Whether an application of these nodes can be written."""
    try:
        build(Spec("accepted", {}, list(nodes))).topology()
    except (hr.TopologyError, hr.NotSupportedError):
        return False
    return True


def _input(app: hr.App, spec: Spec, number: int, node: Node, parents: list[Any]) -> Any:
    read: Any = {"stream": app.stream, "table": app.table, "global": app.global_table}[node["op"]]
    return read(spec.input_name(node["stream"]), key=hr.String(), value=hr.Json())


def _called(number: int, function: Callable[[hr.Record], Any]) -> Callable[[hr.Record], Any]:
    """Of every other operator an async function, of which some calls take longer: what comes out must be the same."""

    async def later(record: hr.Record) -> Any:
        await asyncio.sleep(f.number(record.value) % 3 / 10_000)
        return function(record)

    return later if number % 2 else function


def _filter(app: hr.App, spec: Spec, number: int, node: Node, parents: list[Any]) -> Any:
    function: Any = lambda r: f.kept(r.value, node["by"])  # noqa: E731
    return parents[0].filter(function if node["gives"] == "table" else _called(number, function), name=f"n{number}")


def _map_values(app: hr.App, spec: Spec, number: int, node: Node, parents: list[Any]) -> Any:
    function: Any = lambda r: f.doubled(r.value, node["by"])  # noqa: E731
    called = function if node["gives"] == "table" else _called(number, function)
    return parents[0].map_values(called, value=hr.Json(), name=f"n{number}")


def _flat_map_values(app: hr.App, spec: Spec, number: int, node: Node, parents: list[Any]) -> Any:
    function = _called(number, lambda r: f.several(r.value, node["by"]))
    return parents[0].flat_map_values(function, value=hr.Json(), name=f"n{number}")


def _map(app: hr.App, spec: Spec, number: int, node: Node, parents: list[Any]) -> Any:
    function = _called(number, lambda r: (f.new_key(r.value, node["by"]), f.doubled(r.value, node["by"])))
    return parents[0].map(function, key=hr.String(), value=hr.Json(), name=f"n{number}")


def _flat_map(app: hr.App, spec: Spec, number: int, node: Node, parents: list[Any]) -> Any:
    function = _called(number, lambda r: f.pairs(r.value, node["by"]))
    return parents[0].flat_map(function, key=hr.String(), value=hr.Json(), name=f"n{number}")


def _select_key(app: hr.App, spec: Spec, number: int, node: Node, parents: list[Any]) -> Any:
    function = _called(number, lambda r: f.new_key(r.value, node["by"]))
    return parents[0].select_key(function, key=hr.String(), name=f"n{number}")


def _merge(app: hr.App, spec: Spec, number: int, node: Node, parents: list[Any]) -> Any:
    return parents[0].merge(parents[1], name=f"n{number}")


def _branch(app: hr.App, spec: Spec, number: int, node: Node, parents: list[Any]) -> Any:
    return parents[0].split(_called(number, lambda r: f.taken(r.value, node["by"])), name=f"n{number}")[0]


def _partitioner(kind: str | None) -> Any:
    return None if kind is None else lambda record, count: f.chosen(kind, record.value, count)


def _repartition(app: hr.App, spec: Spec, number: int, node: Node, parents: list[Any]) -> Any:
    options = hr.Repartitioned(
        name=f"n{number}",
        number_of_partitions=node["partitions"],
        partitioner=_partitioner(node["partitioner"]),
    )
    if node["mapped"]:
        return parents[0].repartition(lambda r: f.new_key(r.value, node["by"]), options, key=hr.String())
    return parents[0].repartition(options)


def _aggregate(app: hr.App, spec: Spec, number: int, node: Node, parents: list[Any]) -> Any:
    options = hr.Repartitioned(number_of_partitions=node["hint"], partitioner=_partitioner(node["partitioner"]))
    if node["selector"]:
        grouped = parents[0].group_by(lambda r: f.new_key(r.value, node["by"]), options, key=hr.String())
    else:
        grouped = parents[0].group_by_key(options)
    windows = node["windows"]
    if windows is not None:
        grouped = grouped.windowed_by(_windows(windows))
    store = f"n{number}"
    match node["how"]:
        case "count":
            return grouped.count(store=store)
        case "reduce":
            return grouped.reduce(f.followed, value=hr.Json(), store=store)
        case "named":
            named = {"n": hr.sum("value.n"), "least": hr.min("value.n"), "id": hr.last("value.id"), "count": hr.count()}
            return grouped.aggregate(**named, value=hr.Json(), store=store)
    merger = f.united if windows is not None and windows["kind"] == "session" else None
    return grouped.aggregate(
        initial=f.START,
        function=lambda state, r: f.folded(state, r.value),
        merger=merger,
        value=hr.Json(),
        store=store,
    )


def _group_table(app: hr.App, spec: Spec, number: int, node: Node, parents: list[Any]) -> Any:
    options = hr.Repartitioned(number_of_partitions=node["hint"])
    grouped = parents[0].group_by(lambda r: f.new_key(r.value, node["by"]), options, key=hr.String())
    store = f"n{number}"
    match node["how"]:
        case "count":
            return grouped.count(store=store)
        case "named":
            named = {"n": hr.sum("value.n"), "mean": hr.mean("value.n"), "id": hr.count()}
            return grouped.aggregate(**named, value=hr.Json(), store=store)
    return grouped.aggregate(
        initial=lambda: {"id": 0, "n": 0},
        adder=lambda state, r: f.added(state, r.value, 1),
        subtractor=lambda state, r: f.added(state, r.value, -1),
        value=hr.Json(),
        store=store,
    )


def _windows(windows: Node) -> Any:
    if windows["kind"] == "unlimited":
        return hr.Unlimited(start=windows["start_us"])
    size, advance, grace = (_length(windows[name]) for name in ("size_us", "advance_us", "grace_us"))
    match windows["kind"]:
        case "tumbling":
            return hr.Tumbling(size, grace=grace)
        case "hopping":
            return hr.Hopping(size, advance, grace=grace)
        case "sliding":
            return hr.Sliding(size, grace=grace)
    return hr.Session(size, grace=grace)


def _length(length_us: int | None) -> Any:
    return None if length_us is None else timedelta(microseconds=length_us)


def _to_table(app: hr.App, spec: Spec, number: int, node: Node, parents: list[Any]) -> Any:
    return parents[0].to_table(store=f"n{number}", history=_length(node["history_us"]))


def _join(app: hr.App, spec: Spec, number: int, node: Node, parents: list[Any]) -> Any:
    """With a table, or of two tables."""
    left, right = parents
    method = {"inner": left.join, "left": left.left_join, "outer": getattr(left, "outer_join", None)}[node["kind"]]
    grace = {} if node.get("grace_us") is None else {"grace": _length(node["grace_us"])}
    return method(right, f.joined, value=hr.Json(), name=f"n{number}", **grace)


def _join_foreign(app: hr.App, spec: Spec, number: int, node: Node, parents: list[Any]) -> Any:
    left, right = parents
    method = {"inner": left.join, "left": left.left_join}[node["kind"]]
    by = lambda r: f.looked_up(r.key, r.value, node["by"])  # noqa: E731
    return method(right, f.joined, foreign_key=by, value=hr.Json(), store=f"n{number}")


def _join_stream(app: hr.App, spec: Spec, number: int, node: Node, parents: list[Any]) -> Any:
    left, right = parents
    method = {"inner": left.join, "left": left.left_join, "outer": left.outer_join}[node["kind"]]
    within, after, grace = (_length(node[f"{part}_us"]) for part in ("within", "after", "grace"))
    return method(right, f.joined, within=within, after=after, grace=grace, value=hr.Json(), name=f"n{number}")


def _join_global(app: hr.App, spec: Spec, number: int, node: Node, parents: list[Any]) -> Any:
    left, right = parents
    method = {"inner": left.join, "left": left.left_join}[node["kind"]]
    key = None if node["own_key"] else lambda r: f.looked_up(r.key, r.value, node["by"])
    return method(right, f.joined, key=key, value=hr.Json(), name=f"n{number}")


def _drop_duplicates(app: hr.App, spec: Spec, number: int, node: Node, parents: list[Any]) -> Any:
    by = (lambda r: f.kind_of(r.value)) if node["by_kind"] else None
    return parents[0].drop_duplicates(by, within=_length(node["within_us"]), store=f"n{number}")


def _to_stream(app: hr.App, spec: Spec, number: int, node: Node, parents: list[Any]) -> Any:
    return parents[0].to_stream(emit=node["emit"], name=f"n{number}")


def _suppress(app: hr.App, spec: Spec, number: int, node: Node, parents: list[Any]) -> Any:
    return parents[0].suppress(hr.until_window_closes(), store=f"n{number}")


def _cogroup(app: hr.App, spec: Spec, number: int, node: Node, parents: list[Any]) -> Any:
    one, other = (parent.group_by_key() for parent in parents)
    together = one.cogroup(lambda state, r: f.folded(state, r.value))
    together = together.cogroup(other, lambda state, r: f.followed(state, r.value))
    windows = node["windows"]
    if windows is not None:
        together = together.windowed_by(_windows(windows))
    merger = f.united if windows is not None and windows["kind"] == "session" else None
    return together.aggregate(initial=f.START, merger=merger, value=hr.Json(), store=f"n{number}")


def _limit(app: hr.App, spec: Spec, number: int, node: Node, parents: list[Any]) -> Any:
    return parents[0].suppress(hr.until_time_limit(_length(node["limit_us"])), store=f"n{number}")


def _to(app: hr.App, spec: Spec, number: int, node: Node, parents: list[Any]) -> Any:
    return parents[0].to(spec.output_name(number))


_BUILT = {
    "stream": _input,
    "table": _input,
    "global": _input,
    "filter": _filter,
    "table_filter": _filter,
    "map_values": _map_values,
    "table_map": _map_values,
    "flat_map_values": _flat_map_values,
    "map": _map,
    "flat_map": _flat_map,
    "select_key": _select_key,
    "merge": _merge,
    "branch": _branch,
    "repartition": _repartition,
    "aggregate": _aggregate,
    "to_table": _to_table,
    "group_table": _group_table,
    "join_table": _join,
    "join_tables": _join,
    "join_foreign": _join_foreign,
    "join_stream": _join_stream,
    "join_global": _join_global,
    "drop_duplicates": _drop_duplicates,
    "process": process,
    "share": share,
    "to_stream": _to_stream,
    "suppress": _suppress,
    "limit": _limit,
    "cogroup": _cogroup,
    "to": _to,
}
