"""Whether what a job wrote is what the model says, output by output."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any

import headrace as hr
from topologies.topology import WINDOW_US, Fact, Spec, facts_of, out_of

Pairs = list[tuple[Any, Any]]


def judge(spec: Spec, inputs: dict[str, list[hr.Record]], system: Any) -> int:
    """Compare every output with the model; the number of records that were compared."""
    facts = facts_of(spec, inputs)
    partitions = {r.value["id"]: (stream, r.key) for stream, records in inputs.items() for r in records}
    checked = 0
    existing = {stream.name for stream in system.streams()}
    for number, node in enumerate(spec.nodes):
        if node["op"] not in JUDGES:
            continue
        name = out_of(spec, number)
        windowed = node["op"] == "windows"
        key = hr.Windowed(hr.String()) if windowed else hr.String()
        value = hr.Long() if node["op"] in ("count", "windows") else hr.Json()
        assert name in existing, f"{name} was not made"
        found = [(r.key, r.value) for r in system.consume(name, key=key, value=value)]
        try:
            JUDGES[node["op"]](found, facts[number], partitions)
        except AssertionError as error:
            raise AssertionError(f"output {number}, {node['op']}: {error}\n{json.dumps(spec.nodes)}") from error
        checked += len(found) + len(facts[number])
    return checked


def _stateless(found: Pairs, facts: list[Fact], origins: dict[int, tuple[str, Any]]) -> None:
    expected = Counter((fact.key, json.dumps(fact.value, sort_keys=True)) for fact in facts)
    got = Counter((key, json.dumps(value, sort_keys=True)) for key, value in found)
    assert got == expected, f"lost {expected - got}, too many {got - expected}"
    # One key of one input, by the same keys through all repartitions: in the order in which it was written.
    ways = {(fact.value["id"], fact.value["n"], fact.key): fact.ways for fact in facts}
    last: dict[Any, int] = defaultdict(lambda: -1)
    for key, value in found:
        stream, first = origins[value["id"]]
        if first is None:
            continue  # written to any partition
        lane = (key, stream, first, ways[value["id"], value["n"], key])
        assert value["id"] >= last[lane], f"{lane}: {value['id']} came after {last[lane]}"
        last[lane] = value["id"]


def _by_key(facts: list[Fact]) -> dict[Any, list[Fact]]:
    groups: dict[Any, list[Fact]] = defaultdict(list)
    for fact in facts:
        if fact.key is not None:
            groups[fact.key].append(fact)
    return groups


def _ends_in(found: Pairs, expected: dict[Any, Any]) -> dict[Any, list[Any]]:
    updates: dict[Any, list[Any]] = defaultdict(list)
    for key, value in found:
        updates[key].append(value)
    ends = {key: values[-1] for key, values in updates.items()}
    assert ends == expected, f"ends in {ends}, expected {expected}"
    return updates


def _rising(updates: dict[Any, list[int]]) -> None:
    for key, values in updates.items():
        assert all(a < b for a, b in pairwise(values)), f"{key!r}: {values} does not rise"


def _count(found: Pairs, facts: list[Fact], origins: Any) -> None:
    _rising(_ends_in(found, {key: len(group) for key, group in _by_key(facts).items()}))


def _windows(found: Pairs, facts: list[Fact], origins: Any) -> None:
    counts = Counter((fact.key, fact.time_us // WINDOW_US * WINDOW_US) for fact in facts if fact.key is not None)
    expected = {hr.WindowedKey(key, start, start + WINDOW_US): count for (key, start), count in counts.items()}
    _rising(_ends_in(found, expected))


def _reduce(found: Pairs, facts: list[Fact], origins: Any) -> None:
    groups = _by_key(facts)
    expected = {
        key: {"id": max(f.value["id"] for f in group), "n": sum(f.value["n"] for f in group)}
        for key, group in groups.items()
    }
    _ends_in(found, expected)


def _named(found: Pairs, facts: list[Fact], origins: Any) -> None:
    numbers = {key: [fact.value["n"] for fact in group] for key, group in _by_key(facts).items()}
    updates = _ends_in(found, {key: {"n": sum(group), "least": min(group)} for key, group in numbers.items()})
    for values in updates.values():
        assert all(a["least"] >= b["least"] for a, b in pairwise(values)), values


def _table(found: Pairs, facts: list[Fact], origins: Any) -> None:
    groups = _by_key(facts)
    assert {key for key, _ in found} == set(groups)
    for key, value in found:
        assert value in [fact.value for fact in groups[key]], f"{key!r}: {value} never came"


JUDGES = {
    "to": _stateless,
    "count": _count,
    "windows": _windows,
    "reduce": _reduce,
    "named": _named,
    "table": _table,
}
