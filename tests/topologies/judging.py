"""Whether what a job wrote is what the models say, stream by stream."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from support.checker import partition_of
from topologies.facts import judge_without_cuts
from topologies.graph import Written
from topologies.model import Task, decoded, work_together
from topologies.recording import Growth, Read, Round, Told, by_task, rounds_of
from topologies.spec import Node, Spec
from topologies.watermarks import check_watermarks

Sending = tuple[str, Any, Any, int]  # input, key, value, time
Found = tuple[Any, str, int]  # key, value as text, time


# What is in the repartition streams between the parts of an operator: by operator, and side if they are of one.
_TOLD = {("group_table", ""): "change {}", ("join_foreign", "left"): "said {}", ("join_foreign", ""): "answer"}


def judge(
    spec: Spec,
    sent: Sequence[Sending],
    told: Iterable[Told],
    system: Any,
    is_never_idle: bool = False,
    growths: Iterable[Growth] = (),
) -> int:
    """Compare all that was written with the models; the number of records that were compared."""
    counts = {stream.name: stream.partitions for stream in system.streams()}
    rounds = rounds_of(told, spec.input_name("g"))
    _all_read(spec, sent, rounds, system)
    check_watermarks(spec, rounds, is_never_idle, growths)
    for number, node in enumerate(spec.nodes):
        if node["op"] == "repartition" and node["partitions"] is not None:
            assert counts[spec.between(number)] == node["partitions"], f"n{number}: {counts[spec.between(number)]} partitions"
    models = {task: Task(spec, counts) for task in rounds}
    written: dict[Any, list[Written]] = {task: [] for task in rounds}
    for parts in by_task(rounds):
        for task, given in zip(parts, work_together([(models[task], parts[task]) for task in parts]), strict=True):
            written[task] += given
    streams = _rows_of_streams(spec, counts)
    found = {stream: _found(stream, rows, rounds, system) for stream, rows in streams.items()}
    for stream, records in found.items():
        expected = {task: [one for one in every if one.stream == stream] for task, every in written.items()}
        try:
            _same_records([one for every in expected.values() for one in every], records)
            for task, every in expected.items():
                _same_order(task, every, records, counts[stream])
        except AssertionError as error:
            raise AssertionError(f"{stream}: {error}\n{json.dumps(spec.nodes)}") from None
    strays = {one.stream for every in written.values() for one in every} - found.keys()
    assert not strays, f"{strays} were written to by the model, and are not there"
    return sum(map(len, found.values())) + judge_without_cuts(spec, sent, counts, found)


def _all_read(spec: Spec, sent: Sequence[Sending], rounds: Mapping[Any, list[Round]], system: Any) -> None:
    """Every record that was sent is in its input, and was read."""
    read = {(one.stream, one.partition, one.offset) for mine in rounds.values() for each in mine for one in each.read}
    for stream in spec.inputs:
        name = spec.input_name(stream)
        places = [(name, record.partition, record.offset) for record in system.consume(name)]
        expected = sum(1 for to, *_ in sent if to == stream)
        assert len(places) == expected, f"{name}: it has {len(places)} records, expected {expected}"
        assert read.issuperset(places), f"{name}: {sorted(set(places) - read)} were not read"


def _rows_of_streams(spec: Spec, counts: Mapping[str, int]) -> dict[str, Node]:
    """The streams that the job writes, and a node whose rows are theirs."""
    streams: dict[str, Node] = {}
    for number, node in enumerate(spec.nodes):
        if node["op"] == "to":
            streams[spec.output_name(number)] = node
        for place, side in enumerate(["left", "right"][: len(node["of"])]):
            names = {spec.between(number, side), spec.between(number, f"{place + 1}")}
            for stream in names | ({spec.between(number)} if place == 0 else set()):
                rows = spec.nodes[node["of"][place]]
                if (told := _TOLD.get((node["op"], "" if stream == spec.between(number) else side))) is not None:
                    streams[stream] = {**node, "values": told.format(node["rows"])}
                    continue
                streams[stream] = {**rows, "keys": "plain"} if node.get("selector") or node.get("mapped") else rows
    return {stream: node for stream, node in streams.items() if stream in counts}


def _found(stream: str, rows: Node, rounds: Mapping[Any, list[Round]], system: Any) -> dict[int, list[Found]]:
    """What is in each partition. Repartition streams are purged: what was read of them is what was in them."""
    if stream.endswith("-repartition"):
        read = {one for mine in rounds.values() for each in mine for one in each.read if one.stream == stream}
    else:
        read = {Read(stream, r.partition, r.offset, r.key, r.value, r.timestamp_us) for r in system.consume(stream)}
    found: dict[int, list[Found]] = defaultdict(list)
    for one in sorted(read, key=lambda one: (one.partition, one.offset)):
        key, value = decoded(rows, one)
        found[one.partition].append((key, text_of(value), one.time_us))
    return found


def text_of(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _same_records(written: Iterable[Written], found: Mapping[int, list[Found]]) -> None:
    expected = Counter((one.key, text_of(one.value), one.time_us) for one in written)
    got = Counter(one for mine in found.values() for one in mine)
    assert got == expected, f"lost {dict(expected - got)}, too many {dict(got - expected)}"


def _same_order(task: Any, written: Iterable[Written], found: Mapping[int, list[Found]], count: int) -> None:
    """The records of each key that a task wrote are in their partition, in the order in which it wrote them."""
    by_key: dict[Any, list[Found]] = defaultdict(list)
    for one in written:
        partition = one.partition if one.partition is not None else place_of(one.key, count)
        if partition is not None:  # else by its offset: it may be anywhere
            by_key[partition, one.key].append((one.key, text_of(one.value), one.time_us))
    for (partition, key), expected in by_key.items():
        there = [record for record in found.get(partition, []) if record[0] == key]
        remaining = iter(there)
        missing = next((one for one in expected if one not in remaining), None)
        assert missing is None, f"{task}, partition {partition}: {missing} is out of order: expected {expected}, found {there}"


def place_of(key: Any, count: int) -> int | None:
    """Where any producer puts a key; a windowed one goes by the key within, one without a key by its offset."""
    inner = key[0] if isinstance(key, tuple) else key
    return None if inner is None else partition_of(inner.encode(), count)
