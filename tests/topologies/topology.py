"""Random topologies as plain data: drawn from a seed, built with the public API, and worked out by a dumb model.

A node is a dict with `op` and `of` (the numbers of the nodes before it that it takes); records have a text key or none, and
the value {"id": number of the input record, "n": a number}. The model knows nothing of tasks, rounds or partitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import headrace as hr

WINDOW_US = 10_000_000
INPUTS = ("a", "b")
Node = dict[str, Any]


@dataclass(frozen=True)
class Spec:
    """`partitions`: of each input; `nodes` in an order in which parents come first."""

    name: str
    partitions: int
    nodes: list[Node]
    keys: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Fact:
    """A record as the model has it. `ways`: the keys by which it was written into repartition streams."""

    key: str | None
    value: dict[str, int]
    time_us: int
    ways: tuple[str | None, ...] = ()


# --- drawing --------------------------------------------------------------------------------------------------------


def drawn(draw: Random, name: str) -> Spec:
    nodes: list[Node] = [{"op": "stream", "stream": stream, "of": []} for stream in INPUTS[: draw.randint(1, 2)]]
    part_of = [0] * len(nodes)  # which sub-topology a node is in: those of one can be merged
    for _ in range(draw.randint(2, 8)):
        parent = draw.randrange(len(nodes))
        node = _step(draw, parent, nodes, part_of)
        nodes.append(node)
        part_of.append(len(nodes) if node["op"] == "repartition" else part_of[parent])
    for number in range(len(nodes)):
        if draw.random() < 0.4 or number == len(nodes) - 1:
            nodes.append(_end(draw, number))
    keys = {"max_records_per_round": draw.choice([1, 5, 40, 1000]), "containers": draw.randint(1, 3)}
    return Spec(name, draw.randint(1, 3), nodes, keys)


def _step(draw: Random, parent: int, nodes: list[Node], part_of: list[int]) -> Node:
    op = draw.choice(["filter", "map_values", "flat_map_values", "select_key", "merge", "repartition", "branch"])
    node: Node = {"op": op, "of": [parent]}
    if op == "merge":
        others = [i for i in range(len(nodes)) if part_of[i] == part_of[parent] and i != parent]
        if not others:
            return {"op": "filter", "of": [parent], "by": 3}
        node["of"].append(draw.choice(others))
    elif op == "repartition":
        node["partitions"] = draw.choice([None, 1, 2, 4])
    else:
        node["by"] = draw.randint(2, 5)
    return node


def _end(draw: Random, parent: int) -> Node:
    return {"op": draw.choice(["to", "count", "windows", "reduce", "named", "table"]), "of": [parent]}


def inputs_of(draw: Random, spec: Spec, count: int) -> dict[str, list[hr.Record]]:
    """Records of each input, in the order in which they are written."""
    streams = [node["stream"] for node in spec.nodes if node["op"] == "stream"]
    found: dict[str, list[hr.Record]] = {stream: [] for stream in streams}
    for number in range(count):
        key = None if draw.random() < 0.05 else f"k{draw.randrange(6)}"
        time_us = 1_700_000_000_000_000 + number * 1_000_000 + draw.randrange(-3_000_000, 3_000_000)
        found[draw.choice(streams)].append(hr.Record(key, {"id": number, "n": draw.randrange(100)}, time_us))
    return found


# --- building -------------------------------------------------------------------------------------------------------


def build(spec: Spec, **keys: Any) -> hr.App:
    app = hr.App(spec.name, **{**spec.keys, **keys})
    made: list[Any] = []
    for number, node in enumerate(spec.nodes):
        parents = [made[i] for i in node["of"]]
        made.append(_built(app, spec, number, node, parents))
    return app


def out_of(spec: Spec, number: int) -> str:
    return f"{spec.name}-out-{number}"


def _built(app: hr.App, spec: Spec, number: int, node: Node, parents: list[Any]) -> Any:
    name, by = f"n{number}", node.get("by", 2)
    match node["op"]:
        case "stream":
            return app.stream(f"{spec.name}-{node['stream']}", key=hr.String(), value=hr.Json())
        case "filter":
            return parents[0].filter(lambda r: r.value["n"] % by != 0, name=name)
        case "map_values":
            return parents[0].map_values(lambda r: {**r.value, "n": r.value["n"] * 2 + by}, value=hr.Json(), name=name)
        case "flat_map_values":
            return parents[0].flat_map_values(lambda r: _several(r.value, by), value=hr.Json(), name=name)
        case "select_key":
            return parents[0].select_key(lambda r: _new_key(r.value, by), key=hr.String(), name=name)
        case "merge":
            return parents[0].merge(parents[1], name=name)
        case "branch":
            return parents[0].split(lambda r: r.value["n"] % by == 1, name=name)[0]
        case "repartition":
            return parents[0].repartition(hr.Repartitioned(name=name, number_of_partitions=node["partitions"]))
        case "to":
            return parents[0].to(out_of(spec, number))
    grouped = parents[0].group_by_key()
    match node["op"]:
        case "count":
            table = grouped.count(store=name)
        case "windows":
            table = grouped.windowed_by(hr.Tumbling("10 seconds")).count(store=name)
        case "reduce":
            table = grouped.reduce(_summed, value=hr.Json(), store=name)
        case "named":
            table = grouped.aggregate(n=hr.sum("value.n"), least=hr.min("value.n"), store=name)
        case "table":
            table = parents[0].to_table(store=name)
    return table.to_stream().to(out_of(spec, number))


def _several(value: dict[str, int], by: int) -> Iterator[dict[str, int]]:
    for more in range(value["n"] % by):
        yield {**value, "n": value["n"] + more}


def _new_key(value: dict[str, int], by: int) -> str | None:
    return None if value["n"] % 11 == 0 else f"g{value['n'] % by}"


def _summed(old: dict[str, int], new: dict[str, int]) -> dict[str, int]:
    return {"id": max(old["id"], new["id"]), "n": old["n"] + new["n"]}


# --- the model ------------------------------------------------------------------------------------------------------


def facts_of(spec: Spec, inputs: dict[str, list[hr.Record]]) -> list[list[Fact]]:
    """What every node gives. Of a node that ends a branch: what comes to it."""
    found: list[list[Fact]] = []
    for node in spec.nodes:
        if node["op"] == "stream":
            found.append([Fact(r.key, r.value, r.timestamp_us) for r in inputs[node["stream"]]])
            continue
        rows = [fact for parent in node["of"] for fact in found[parent]]
        found.append([out for fact in rows for out in _modelled(node, fact)])
    return found


def _modelled(node: Node, fact: Fact) -> Iterator[Fact]:
    n, by = fact.value["n"], node.get("by", 2)
    match node["op"]:
        case "filter" if n % by == 0:
            return
        case "branch" if n % by != 1:
            return
        case "map_values":
            yield Fact(fact.key, {**fact.value, "n": n * 2 + by}, fact.time_us, fact.ways)
        case "flat_map_values":
            for more in range(n % by):
                yield Fact(fact.key, {**fact.value, "n": n + more}, fact.time_us, fact.ways)
        case "select_key":
            yield Fact(None if n % 11 == 0 else f"g{n % by}", fact.value, fact.time_us, fact.ways)
        case "repartition":
            yield Fact(fact.key, fact.value, fact.time_us, (*fact.ways, fact.key))
        case _:
            yield fact
