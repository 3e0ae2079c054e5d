"""A model that knows nothing of tasks, rounds or partitions: what must come of the inputs however a job is cut.

It says it of what has no state (record for record, in the order of each key), and of tables that do not depend on the
order of records: their updates rise to one last value.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from topologies import functions as f
from topologies.spec import Node, Spec

Found = tuple[Any, str, int]  # key, value as text, time


@dataclass(frozen=True)
class Fact:
    """A record as the model has it. `ways`: the keys by which it was written into repartition streams, where it went by
    its key; None once a partitioner has chosen. `first`: input and key of the record that it comes of, and its number."""

    key: str | None
    value: Any
    time_us: int
    first: tuple[str, str | None, int]
    ways: tuple[str | None, ...] | None = ()


def judge_without_cuts(
    spec: Spec,
    sent: Iterable[tuple[str, Any, Any, int]],
    counts: Mapping[str, int],
    found: Mapping[str, Mapping[int, Sequence[Found]]],
) -> int:
    """Compare the outputs that it knows; the number of facts that were compared."""
    facts = facts_of(spec, sent, counts)
    compared = 0
    for number, node in enumerate(spec.nodes):
        if node["op"] != "to":
            continue
        there = [one for mine in found[spec.output_name(number)].values() for one in mine]
        known = facts[number]
        table = _table_of(spec, number)
        try:
            if known is not None:
                _stateless(known, there)
                compared += len(known)
            elif table is not None and (known := facts[spec.nodes[table]["of"][0]]) is not None:
                _counted(spec.nodes[table], known, there)
                compared += len(known)
        except AssertionError as error:
            raise AssertionError(f"output {number}: {error}\n{json.dumps(spec.nodes)}") from None
    return compared


def facts_of(
    spec: Spec, sent: Iterable[tuple[str, Any, Any, int]], counts: Mapping[str, int]
) -> list[list[Fact] | None]:
    """What every node gives; None where it depends on more than the inputs."""
    records = list(sent)
    found: list[list[Fact] | None] = []
    for number, node in enumerate(spec.nodes):
        above = [found[parent] for parent in node["of"]]
        if node["op"] == "stream":
            found.append(
                [
                    Fact(key, value, time_us, (stream, key, place))
                    for place, (stream, key, value, time_us) in enumerate(records)
                    if stream == node["stream"]
                ]
            )
        elif node["op"] not in _GIVEN or None in above:
            found.append(None)
        else:
            count = counts.get(spec.between(number), 0)
            rows = [fact for facts in above for fact in facts or ()]
            found.append([given for fact in rows for given in _GIVEN[node["op"]](node, fact, count)])
    return found


def _repartitioned(node: Node, fact: Fact, count: int) -> list[Fact]:
    if node["mapped"]:
        fact = replace(fact, key=f.new_key(fact.value, node["by"]))
    if node["partitioner"] is None:
        return [replace(fact, ways=None if fact.ways is None else (*fact.ways, fact.key))]
    given = f.chosen(node["partitioner"], fact.value, count)
    copies = 1 if given is None or isinstance(given, int) else len(set(given))
    return [replace(fact, ways=None)] * copies


_GIVEN: dict[str, Any] = {
    "filter": lambda node, fact, count: [fact] if f.kept(fact.value, node["by"]) else [],
    "branch": lambda node, fact, count: [fact] if f.taken(fact.value, node["by"]) else [],
    "map_values": lambda node, fact, count: [replace(fact, value=f.doubled(fact.value, node["by"]))],
    "flat_map_values": lambda node, fact, count: [replace(fact, value=v) for v in f.several(fact.value, node["by"])],
    "map": lambda node, fact, count: [
        replace(fact, key=f.new_key(fact.value, node["by"]), value=f.doubled(fact.value, node["by"]))
    ],
    "flat_map": lambda node, fact, count: [replace(fact, key=k, value=v) for k, v in f.pairs(fact.value, node["by"])],
    "select_key": lambda node, fact, count: [replace(fact, key=f.new_key(fact.value, node["by"]))],
    "merge": lambda node, fact, count: [fact],
    "repartition": _repartitioned,
    "to": lambda node, fact, count: [fact],
}


def _stateless(facts: Sequence[Fact], found: Sequence[Found]) -> None:
    expected = Counter((fact.key, _text(fact.value), fact.time_us) for fact in facts)
    got = Counter(found)
    assert got == expected, f"lost {dict(expected - got)}, too many {dict(got - expected)}"
    # One key of one input, by the same keys through all repartitions: in the order in which it was written.
    firsts: dict[Found, set[Any]] = defaultdict(set)
    for fact in facts:
        firsts[fact.key, _text(fact.value), fact.time_us].add((fact.first, fact.ways))
    last: dict[Any, int] = defaultdict(lambda: -1)
    for one in found:
        for (stream, key, number), ways in firsts[one] if len(firsts[one]) == 1 else ():
            if ways is None or None in (key, one[0], *ways):
                continue  # written to any partition
            lane = one[0], stream, key, ways
            assert number >= last[lane], f"{lane}: {number} came after {last[lane]}"
            last[lane] = number


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _table_of(spec: Spec, number: int) -> int | None:
    """The aggregate whose updates output `number` has as they are, if no window of it closes."""
    stream = spec.nodes[number]["of"][0]
    if spec.nodes[stream]["op"] != "to_stream" or spec.nodes[stream]["emit"] == "closed":
        return None
    table: int = spec.nodes[stream]["of"][0]
    node = spec.nodes[table]
    if node["op"] != "aggregate" or node["how"] not in ("count", "named") or node["partitioner"] is not None:
        return None
    windows = node["windows"]
    return table if windows is None or windows["kind"] in ("tumbling", "hopping") and windows["grace_us"] is None else None


def _counted(node: Node, facts: Sequence[Fact], found: Sequence[Found]) -> None:
    """The last values are those of the whole, and on the way counts rise and minima fall."""
    if any(fact.ways is None for fact in facts) and not node["selector"]:
        return  # a partitioner has chosen: the records of a key are counted where they are
    groups: dict[Any, list[int]] = defaultdict(list)
    for fact in facts:
        key = f.new_key(fact.value, node["by"]) if node["selector"] else fact.key
        if key is not None:
            for at in _windows(node["windows"], key, fact.time_us):
                groups[at].append(fact.value["n"])
    updates: dict[Any, list[Any]] = defaultdict(list)
    for key, value, _ in found:
        updates[key].append(json.loads(value))
    if node["how"] == "count":
        values = {key: [(count, 0, 0) for count in mine] for key, mine in updates.items()}
        expected = {key: (len(mine), 0, 0) for key, mine in groups.items()}
    else:
        values = {key: [(one["count"], one["n"], one["least"]) for one in mine] for key, mine in updates.items()}
        expected = {key: (len(mine), sum(mine), min(mine)) for key, mine in groups.items()}
    ends = {key: mine[-1] for key, mine in values.items()}
    assert ends == expected, f"ends in {ends}, expected {expected}"
    for key, mine in values.items():
        assert all(a[0] < b[0] and a[2] >= b[2] for a, b in pairwise(mine)), f"{key!r}: {mine} does not rise"


def _windows(windows: Node | None, key: str, time_us: int) -> list[Any]:
    if windows is None:
        return [key]
    size_us, advance_us = windows["size_us"], windows["advance_us"]
    starts = range(time_us // advance_us * advance_us, time_us - size_us, -advance_us)
    return [(key, start, start + size_us) for start in starts]
