"""Records what a job's containers are told: of each round its tasks, their watermarks, and the records that they read.

A round counts once a later one builds on it, or once the job has come to its end after it: `rounds_of` leaves out what was
planned and thrown away.
"""

from __future__ import annotations

import json
import re
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import xxhash

Told = dict[str, Any]
Positions = Mapping[tuple[str, int], int]


@dataclass(frozen=True)
class Read:
    """A record as a task read it, in bytes. `order_us`: the highest time of what the task has read of the partition up to it,
    in this round; of a task that is regarded as the several that it became, it is that of the one that was there."""

    stream: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    time_us: int
    order_us: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Growth:
    """An input that was given twice as many partitions, when `at` plans had been told."""

    at: int
    stream: str
    before: int


@dataclass(frozen=True)
class Round:
    """One task's part of a round. `streams`: the partitions that its sub-topology reads, `ssps`: those that it reads itself;
    `at`: the number of its plan among all that were told."""

    at: int
    id: str
    task: str
    watermark_us: int | None
    streams: tuple[tuple[str, int], ...]
    ssps: tuple[tuple[str, int], ...]
    read: tuple[Read, ...]


def recording(run_container: Callable[..., bytes], system: Callable[[], Any], write: Callable[[Told], None]) -> Any:
    """`run_container`, which first writes down what it is told."""

    def run(payload: bytes, *more: Any) -> bytes:
        plan = json.loads(payload)
        told = {name: plan[name] for name in ("round_id", "ssps", "tasks")}
        told["read"] = [_read(system(), plan["ssps"][piece["ssp"]], piece) for piece in plan["ranges"]]
        write(told)
        return run_container(payload, *more)

    return run


def _read(system: Any, ssp: list[Any], piece: Mapping[str, int]) -> Told:
    _, stream, partition = ssp
    records = []
    for record in system.consume(stream, partitions=[partition], start={partition: piece["start"]}):
        if record.offset >= piece["end"]:
            break
        records.append([record.offset, _hex(record.key), _hex(record.value), record.timestamp_us])
    return {"ssp": piece["ssp"], "start": piece["start"], "end": piece["end"], "records": records}


def rounds_of(told: Iterable[Told], whole: str) -> dict[tuple[str, str], list[Round]]:
    """Per sub-topology and task the rounds that count, each building on the one before. `whole`: the stream that every virtual
    task reads whole, whatever its name says.

    Where the elasticity factor changes, a task is what the highest factor makes of it, all the time: of a round of a task that
    has the keys of several, each has its part.
    """
    every = [plan | {"at": at} for at, plan in enumerate(told)]
    finest: dict[str, int] = defaultdict(int)
    for plan in every:
        for task in plan["tasks"]:
            finest[_sub_of(plan)] = max(_bucket_of(task["name"])[2], finest[_sub_of(plan)])
    plans: dict[tuple[str, str], dict[str, tuple[Told, Told]]] = defaultdict(dict)
    for plan in every:
        sub = _sub_of(plan)
        for task in plan["tasks"]:
            name, index, factor = _bucket_of(task["name"])
            for part in range(index, finest[sub], factor):
                plans[sub, f"{name}-{part}-{finest[sub]}"][plan["round_id"]] = plan, task
    return {name: _chain(name, mine, whole) for name, mine in plans.items()}


def _sub_of(plan: Told) -> str:
    return str(plan["round_id"].partition(":")[2].rpartition(":")[0])


def _bucket_of(task: str) -> tuple[str, int, int]:
    """The name of a task as a whole, and which part of how many it is."""
    virtual = re.fullmatch(r"(.*)-(\d+)-(\d+)", task)
    return (virtual[1], int(virtual[2]), int(virtual[3])) if virtual else (task, 0, 1)


def _chain(name: tuple[str, str], plans: dict[str, tuple[Told, Told]], whole: str) -> list[Round]:
    last = list(plans)[-1]
    chain: list[Round] = []
    following: Positions | None = None
    while last in plans:
        plan, task = plans.pop(last)
        began, ends = _bounds(plan, task)
        is_next = following is None or _continues(ends, following)
        assert is_next, f"{name}: round {last} ended at {ends}, the next one began at {following}"
        following = began
        chain.append(_round(last, plan, task, name[1], whole))
        last = task["round_id"]
        if last not in plans:  # a merged task builds on the newest round of its parts, which not all of them had a part in
            last = next((id_ for id_ in reversed(plans) if _is_before(plans[id_], following)), last)
    assert following is not None and not any(following.values()), f"{name}: the first round, after {last}, began at {following}"
    return chain[::-1]


def by_task(rounds: Mapping[tuple[str, str], Sequence[Round]]) -> Iterable[dict[tuple[str, str], Round]]:
    """Of each round of a task what its parts had of it, the rounds in their order."""
    found: dict[tuple[int, int, str, str], dict[tuple[str, str], Round]] = defaultdict(dict)
    for (sub, part), mine in rounds.items():
        for each in mine:
            epoch, number = (int(each.id.split(":")[at]) for at in (0, -1))
            found[epoch, number, sub, each.task][sub, part] = each
    return [found[at] for at in sorted(found)]


def _is_before(round_: tuple[Told, Told], following: Positions) -> bool:
    """Whether a round that comes before has ended where another began."""
    return _continues(_bounds(*round_)[1], following)


def _bounds(plan: Told, task: Told) -> tuple[Positions, Positions]:
    """Where a task begins in a round, and where it ends, by stream and partition."""
    ssps = [(stream, partition) for _, stream, partition in plan["ssps"]]
    began = {ssps[int(number)]: position for number, position in task["positions"].items()}
    read = {ssps[piece["ssp"]]: piece["end"] for piece in plan["read"]}
    return began, began | {ssp: end for ssp, end in read.items() if ssp in began}


def _continues(ends: Positions, began: Positions) -> bool:
    """Whether a round began where another had ended; new partitions begin at 0."""
    return ends.keys() <= began.keys() and all(position == ends.get(ssp, 0) for ssp, position in began.items())


def _round(round_id: str, plan: Told, task: Told, part: str, whole: str) -> Round:
    """What `part` of the task, the task itself perhaps, had of a round."""
    read = []
    _, index, factor = _bucket_of(part)
    _, own_index, own_factor = _bucket_of(task["name"])
    for piece in plan["read"]:
        position = task["positions"].get(str(piece["ssp"]))
        if position is None:
            continue
        _, stream, partition = plan["ssps"][piece["ssp"]]
        order_us: int | None = None
        for offset, key, value, time_us in piece["records"]:
            low = _hash(key, offset)
            if offset < position or (stream != whole and low % own_factor != own_index):
                continue
            order_us = time_us if order_us is None else max(order_us, time_us)
            if stream == whole or low % factor == index:
                read.append(Read(stream, partition, offset, _bytes(key), _bytes(value), time_us, order_us))
    streams = tuple((stream, partition) for _, stream, partition in plan["ssps"])
    own = tuple(streams[int(number)] for number in task["positions"])
    return Round(plan["at"], round_id, task["name"], task["watermark_us"], streams, own, tuple(read))


def _hash(key: str | None, offset: int) -> int:
    return xxhash.xxh64(bytes.fromhex(key) if key is not None else struct.pack("<q", offset), seed=42).intdigest()


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)
