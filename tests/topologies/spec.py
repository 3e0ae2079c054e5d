"""Random topologies as plain data: numbers are drawn, and a topology is read off them.

A node is a dict. `op` is what it does, `of` the numbers of the nodes that it takes, `gives` is "stream", "table" or
"global", `keys` is "plain" or "windowed", `values` is "json" or "long"; the rest depends on the operator. Any numbers mean
a topology, and smaller ones a simpler one, so that hypothesis can make an example that fails shorter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

SECOND_US = 1_000_000
START_US = 1_700_000_000_000_000
STREAMS = ("a", "b")  # inputs that are read as streams; t is read as a table, g as a global one
HOW_MAX = 10**6
KEYS = 5  # and a record whose key is this number has none

Node = dict[str, Any]
_WINDOWED: Node = {"keys": "windowed"}
Step = tuple[int, int, int, int]  # the operator, its parents, and how it does it
Sent = tuple[int, int, int, int]  # to which input, with which key, with which number, how many ms from its turn
Accepts = Callable[[Sequence[Node]], bool]


@dataclass(frozen=True)
class Spec:
    """`partitions`: of each input; `nodes` in an order in which parents come first; `keys`: of the application."""

    name: str
    partitions: dict[str, int]
    nodes: list[Node]
    keys: dict[str, Any] = field(default_factory=dict)

    @property
    def inputs(self) -> list[str]:
        return [node["stream"] for node in self.nodes if node["op"] in ("stream", "table", "global")]

    def input_name(self, stream: str) -> str:
        return f"{self.name}-{stream}"

    def output_name(self, number: int) -> str:
        return f"{self.name}-out-{number}"

    def between(self, number: int, side: str = "") -> str:
        """The repartition stream that node `number` reads, if there is one before it."""
        return f"{self.name}-n{number}{side and '-' + side}-repartition"


class Digits:
    """Choices read off one number, the first option where the number is 0."""

    def __init__(self, number: int) -> None:
        self._number = number

    def of(self, options: Sequence[Any]) -> Any:
        self._number, place = divmod(self._number, len(options))
        return options[place]


# --- nodes ----------------------------------------------------------------------------------------------------------

_OPS = {  # and how often they are drawn
    "filter": 1,
    "map_values": 1,
    "select_key": 1,
    "merge": 2,
    "branch": 1,
    "flat_map_values": 1,
    "map": 1,
    "flat_map": 1,
    "repartition": 2,
    "aggregate": 3,
    "to_table": 2,
    "join_table": 3,
    "join_stream": 2,
    "join_tables": 2,
    "join_global": 1,
    "drop_duplicates": 1,
    "process": 3,
    "share": 1,
    "to_stream": 3,
    "table_filter": 1,
    "table_map": 1,
    "suppress": 2,
    "limit": 2,
    "cogroup": 2,
    "group_table": 3,
    "join_foreign": 3,
}
OPS = tuple(op for op, times in _OPS.items() for _ in range(times))
_OF_TABLES = ("join_tables", "to_stream", "table_filter", "table_map", "suppress", "group_table", "join_foreign", "limit")
_GIVING_SEVERAL = ("join_stream", "flat_map_values", "flat_map", "merge", "share")  # of one record
PARTITIONERS = (None, None, None, "one", "some", "several")


def nodes_of(steps: Sequence[Step], accepts: Accepts) -> list[Node]:
    """The nodes that `steps` mean, without those that `accepts` does not let in; all that leads nowhere is written."""
    nodes: list[Node] = [
        {"op": "stream", "stream": "a", "of": [], "gives": "stream", "keys": "plain", "values": "json"},
        {"op": "stream", "stream": "b", "of": [], "gives": "stream", "keys": "plain", "values": "json"},
        {"op": "table", "stream": "t", "of": [], "gives": "table", "keys": "plain", "values": "json"},
        {"op": "global", "stream": "g", "of": [], "gives": "global", "keys": "plain", "values": "json"},
    ]
    for step in steps:
        node = _node(step, nodes)
        if node is not None and accepts([*nodes, node]):
            nodes.append(node)
    nodes = _used(nodes)
    _ended(nodes, accepts)
    return nodes


def _node(step: Step, nodes: Sequence[Node]) -> Node | None:
    op, one, other, how = step
    digits = Digits(how)
    kind = OPS[op % len(OPS)]
    takes = "table" if kind in _OF_TABLES else "stream"
    parent = _chosen(nodes, one, takes, _WINDOWED if kind == "suppress" else None)
    if parent is None:
        return None
    above = nodes[parent]
    node: Node = {"op": kind, "of": [parent], "gives": above["gives"], "keys": above["keys"], "values": above["values"]}
    node["by"] = digits.of((2, 3, 4, 5))
    made = _MADE.get(kind, _as_it_is)(node, nodes, other, digits)
    return node if made else None


def _chosen(nodes: Sequence[Node], which: int, gives: str, like: Node | None = None) -> int | None:
    """A node of a kind (and with keys like those of another), the last one for 0: chains before bushes."""
    fitting = [
        number
        for number, node in enumerate(nodes)
        if node["gives"] == gives and (like is None or node["keys"] == like["keys"])
    ]
    return fitting[-1 - which % len(fitting)] if fitting else None


def _second(node: Node, nodes: Sequence[Node], other: int, gives: str) -> bool:
    like = None if gives == "global" else nodes[node["of"][0]]
    second = _chosen(nodes, other, gives, like)
    if second is None:
        return False
    node["of"].append(second)
    return True


def _as_it_is(node: Node, nodes: Sequence[Node], other: int, digits: Digits) -> bool:
    return True


def _mapped(node: Node, nodes: Sequence[Node], other: int, digits: Digits) -> bool:
    node["values"] = "json"
    return True


def _rekeyed(node: Node, nodes: Sequence[Node], other: int, digits: Digits) -> bool:
    node["keys"] = "plain"
    return True


def _rekeyed_and_mapped(node: Node, nodes: Sequence[Node], other: int, digits: Digits) -> bool:
    return _rekeyed(node, nodes, other, digits) and _mapped(node, nodes, other, digits)


def _merge(node: Node, nodes: Sequence[Node], other: int, digits: Digits) -> bool:
    if not _second(node, nodes, other, "stream"):
        return False
    first, second = (nodes[number] for number in node["of"])
    return first is not second and first["values"] == second["values"] and _have_order(nodes, *node["of"])


def _have_order(nodes: Sequence[Node], one: int, other: int) -> bool:
    """Where several come of one record, those that come on two ways have no order among each other."""
    both = _on_the_way_to(nodes, one) & _on_the_way_to(nodes, other)
    return not any(nodes[number]["op"] in _GIVING_SEVERAL for number in both)


def _on_the_way_to(nodes: Sequence[Node], number: int) -> set[int]:
    return {number}.union(*(_on_the_way_to(nodes, parent) for parent in nodes[number]["of"]))


def _repartition(node: Node, nodes: Sequence[Node], other: int, digits: Digits) -> bool:
    node["partitions"] = digits.of((None, 1, 2, 4))
    node["partitioner"] = digits.of(PARTITIONERS)
    node["mapped"] = digits.of((False, True))
    if node["mapped"]:
        node["keys"] = "plain"
    return True


def _aggregate(node: Node, nodes: Sequence[Node], other: int, digits: Digits) -> bool:
    node["gives"] = "table"
    node["how"] = digits.of(("count", "reduce", "named", "general"))
    if node["how"] in ("reduce", "named") and node["values"] != "json":
        return False
    node["windows"] = _windows(digits)
    node["selector"] = digits.of((False, True))
    node["hint"] = digits.of((None, None, 1, 2, 3))
    node["partitioner"] = digits.of((None, None, None, None, "one", "several"))
    if node["selector"]:
        node["keys"] = "plain"
    if node["windows"] is not None:
        if node["keys"] == "windowed":
            return False
        node["keys"] = "windowed"
    node["values"] = "long" if node["how"] == "count" else "json"
    return True


def _group_table(node: Node, nodes: Sequence[Node], other: int, digits: Digits) -> bool:
    node["how"] = digits.of(("count", "folded", "named"))
    if node["how"] == "named" and node["values"] != "json":
        return False
    node["hint"] = digits.of((None, None, 1, 2, 3))
    node["rows"] = node["values"]
    node["keys"] = "plain"
    node["values"] = "long" if node["how"] == "count" else "json"
    return True


def _cogroup(node: Node, nodes: Sequence[Node], other: int, digits: Digits) -> bool:
    node["gives"], node["how"] = "table", "cogroup"
    if not _second(node, nodes, other, "stream") or not _have_order(nodes, *node["of"]):
        return False
    node["windows"] = _windows(digits)
    if node["windows"] is not None:
        if node["keys"] == "windowed":
            return False
        node["keys"] = "windowed"
    node["values"] = "json"
    return True


def _limit(node: Node, nodes: Sequence[Node], other: int, digits: Digits) -> bool:
    node["limit_us"] = digits.of((4 * SECOND_US, 15 * SECOND_US))
    return True


def _windows(digits: Digits) -> Node | None:
    kind = digits.of((None, "tumbling", "hopping", "session", "sliding", "unlimited"))
    if kind is None:
        return None
    if kind == "unlimited":
        return {"kind": kind, "start_us": START_US + digits.of((0, 10 * SECOND_US)), "grace_us": None}
    grace_us = digits.of((3 * SECOND_US, None, 0, 10 * SECOND_US))
    size_us = digits.of((5 * SECOND_US, 12 * SECOND_US))
    if kind == "session":
        size_us //= 5  # the gap
    advance_us = {"tumbling": size_us, "hopping": 4 * SECOND_US}.get(kind, 0)
    return {"kind": kind, "size_us": size_us, "advance_us": advance_us, "grace_us": grace_us}


def _to_table(node: Node, nodes: Sequence[Node], other: int, digits: Digits) -> bool:
    node["gives"] = "table"
    node["history_us"] = digits.of((None, 20 * SECOND_US, 6 * SECOND_US))
    return True


def _join_table(node: Node, nodes: Sequence[Node], other: int, digits: Digits) -> bool:
    node["kind"] = digits.of(("inner", "left"))
    node["values"] = "json"
    if not _second(node, nodes, other, "table"):
        return False
    node["grace_us"] = None
    if nodes[node["of"][1]].get("history_us") is not None:
        node["grace_us"] = digits.of((4 * SECOND_US, None, 0))
    return True


def _join_tables(node: Node, nodes: Sequence[Node], other: int, digits: Digits) -> bool:
    node["kind"] = digits.of(("inner", "left", "outer"))
    node["values"] = "json"
    return _second(node, nodes, other, "table")


def _join_foreign(node: Node, nodes: Sequence[Node], other: int, digits: Digits) -> bool:
    node["kind"] = digits.of(("inner", "left"))
    node["rows"], node["values"] = node["values"], "json"
    return node["keys"] == "plain" and _second(node, nodes, other, "table")


def _join_stream(node: Node, nodes: Sequence[Node], other: int, digits: Digits) -> bool:
    node["kind"] = digits.of(("inner", "left", "outer"))
    node["within_us"] = digits.of((8 * SECOND_US, 3 * SECOND_US, 0))
    node["after_us"] = digits.of((None, 0, 5 * SECOND_US))
    node["grace_us"] = digits.of((4 * SECOND_US, None, 0))
    node["values"] = "json"
    return _second(node, nodes, other, "stream") and _have_order(nodes, *node["of"])


def _join_global(node: Node, nodes: Sequence[Node], other: int, digits: Digits) -> bool:
    node["kind"] = digits.of(("inner", "left"))
    node["own_key"] = node["keys"] == "plain" and digits.of((False, True))
    node["values"] = "json"
    return _second(node, nodes, other, "global")


def _process(node: Node, nodes: Sequence[Node], other: int, digits: Digits) -> bool:
    """`every_us`: of event time, how long until a timer, or from one punctuation to the next."""
    node["how"] = digits.of(("count", "list", "map", "timed", "punctuated"))
    node["every_us"] = digits.of((5 * SECOND_US, 2 * SECOND_US))
    return _mapped(node, nodes, other, digits)


def _share(node: Node, nodes: Sequence[Node], other: int, digits: Digits) -> bool:
    """Two processors with one store, each behind a stream of its own, and what both give."""
    return _second(node, nodes, other, "stream") and _have_order(nodes, *node["of"]) and _mapped(node, nodes, other, digits)


def _drop_duplicates(node: Node, nodes: Sequence[Node], other: int, digits: Digits) -> bool:
    node["within_us"] = digits.of((4 * SECOND_US, 12 * SECOND_US))
    node["by_kind"] = digits.of((False, True))
    return True


def _to_stream(node: Node, nodes: Sequence[Node], other: int, digits: Digits) -> bool:
    node["gives"] = "stream"
    node["emit"] = digits.of(("each", "closed", "round"))
    return True


_MADE: dict[str, Callable[[Node, Sequence[Node], int, Digits], bool]] = {
    "map_values": _mapped,
    "flat_map_values": _mapped,
    "map": _rekeyed_and_mapped,
    "flat_map": _rekeyed_and_mapped,
    "table_map": _mapped,
    "process": _process,
    "share": _share,
    "select_key": _rekeyed,
    "merge": _merge,
    "repartition": _repartition,
    "aggregate": _aggregate,
    "to_table": _to_table,
    "group_table": _group_table,
    "limit": _limit,
    "cogroup": _cogroup,
    "join_table": _join_table,
    "join_tables": _join_tables,
    "join_foreign": _join_foreign,
    "join_stream": _join_stream,
    "join_global": _join_global,
    "drop_duplicates": _drop_duplicates,
    "to_stream": _to_stream,
}


def _used(nodes: Sequence[Node]) -> list[Node]:
    """Without the inputs that nobody reads; but one stream there must be."""
    taken = {parent for node in nodes for parent in node["of"]} | {0}
    kept = [number for number, node in enumerate(nodes) if node["of"] or number in taken]
    place = {number: at for at, number in enumerate(kept)}
    return [{**nodes[number], "of": [place[parent] for parent in nodes[number]["of"]]} for number in kept]


_ENDS = (("round",), ("each", "round"), ("closed", "round"))  # the first that is accepted


def _ended(nodes: list[Node], accepts: Accepts) -> None:
    """Write all that is not taken further, and of each table its updates."""
    for gives, op in (("table", "to_stream"), ("stream", "to")):
        taken = {parent for node in nodes for parent in node["of"] if node["op"] == op or gives == "stream"}
        for number, above in enumerate(list(nodes)):
            if above["gives"] != gives or number in taken or not above["of"] and gives == "table":
                continue
            node: Node = {"op": op, "of": [number], "keys": above["keys"], "values": above["values"]}
            ways: list[Node] = [{"gives": "nothing"}]
            if op == "to_stream":
                ways = [{"gives": "stream", "emit": emit} for emit in _ENDS[above.get("by", 2) % len(_ENDS)]]
            node |= next(way for way in ways if accepts([*nodes, {**node, **way}]))
            nodes.append(node)


def sent_of(spec_inputs: Sequence[str], drawn: Sequence[Sent]) -> list[tuple[str, str | None, Any, int]]:
    """(input, key, value, time) of what is sent, in this order. Tables are told to forget a key now and then."""
    found: list[tuple[str, str | None, Any, int]] = []
    for number, (which, key, n, shift) in enumerate(drawn):
        stream = spec_inputs[which % len(spec_inputs)]
        value = None if stream in ("t", "g") and n % 10 == 9 else {"id": number, "n": n}
        time_us = START_US + number * SECOND_US + shift * 1000
        found.append((stream, None if key == KEYS else f"k{key}", value, time_us))
    return found
