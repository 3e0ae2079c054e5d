"""Holds the barrier of an expansion against a simulated stream: producers that learn late, readers that read in any order."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.rounds.partition_barrier import (
    allowed_ends,
    born_in,
    held,
    inherited_watermarks,
    needs_barrier,
    recorded,
    settled,
    to_settle,
)
from headrace.model.expansion import Expansion, PartitionRecord
from headrace.model.streams import SSP


def ssp(partition: int) -> SSP:
    return SSP("k", "s", partition)


class Log:
    """Partitions as lists of (key, sequence number); what stands behind `stable` cannot be read yet."""

    def __init__(self, partitions: int) -> None:
        self.partitions: list[list[tuple[int, int]]] = [[] for _ in range(partitions)]
        self.unstable: set[int] = set()
        self._stable: dict[int, int] = {}

    def hold(self, partition: int) -> None:
        self._stable.setdefault(partition, len(self.partitions[partition]))

    def let_go(self) -> None:
        self._stable.clear()

    def ends(self) -> dict[SSP, int]:
        return {ssp(p): min(len(records), self._stable.get(p, len(records))) for p, records in enumerate(self.partitions)}

    def highs(self) -> dict[SSP, int]:
        return {ssp(p): len(records) for p, records in enumerate(self.partitions)}


class Producer:
    """Writes its own keys, each key's records one after the other, by the number of partitions that it knows of."""

    def __init__(self, keys: range, knows: int) -> None:
        self.keys, self.knows = keys, knows
        self.written = dict.fromkeys(keys, 0)

    def write(self, log: Log, draw: random.Random) -> None:
        key = draw.choice(self.keys)
        log.partitions[key % self.knows].append((key, self.written[key]))
        self.written[key] += 1


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.integers(2, 4), min_size=1, max_size=3), st.booleans())
def test_a_keys_records_come_in_order_whatever_producers_know(seed: int, growth: list[int], settles: bool) -> None:
    draw = random.Random(seed)
    count = draw.randint(1, 3)
    log = Log(count)
    producers = [Producer(range(i * 7, i * 7 + 7), count) for i in range(3)]
    expansions: tuple[Expansion, ...] = ()
    positions = {ssp(p): 0 for p in range(count)}
    holds: dict = {}
    seen: dict[int, int] = {}
    left, noticed = list(growth), count
    for step in range(150):
        for _ in range(draw.randint(0, 6)):
            draw.choice(producers).write(log, draw)
        if draw.random() < 0.1:
            log.hold(draw.randrange(len(log.partitions)))
        if draw.random() < 0.2:
            log.let_go()
        if left and draw.random() < 0.05:
            log.partitions += [[] for _ in range(len(log.partitions) * (left.pop() - 1))]
        if noticed < len(log.partitions) and draw.random() < 0.3:  # perhaps only after it has grown once more
            expansions = (*expansions, Expansion(noticed, len(log.partitions), step))
            positions |= {ssp(p): 0 for p in range(noticed, len(log.partitions))}
            noticed = len(log.partitions)
        if draw.random() < 0.15:
            draw.choice(producers).knows = len(log.partitions)
        if settles and noticed == len(log.partitions) and all(p.knows == len(log.partitions) for p in producers):
            record = settled(PartitionRecord("id", len(log.partitions), expansions), _by_partition(log.highs()), 10**9, 0)
            expansions = record.expansions
        read_some(log, producers, draw, expansions, positions, holds, seen)
    log.let_go()
    if noticed < len(log.partitions):
        expansions = (*expansions, Expansion(noticed, len(log.partitions), 150))
        positions |= {ssp(p): 0 for p in range(noticed, len(log.partitions))}
    for _ in range(20):
        read_some(log, [], random.Random(0), expansions, positions, holds, seen, greedy=True)
    assert positions == log.highs(), "something was never read"
    for producer in producers:
        for key, written in producer.written.items():
            assert seen.get(key, 0) == written


def _by_partition(offsets: dict[SSP, int]) -> dict[int, int]:
    return {found.partition: offset for found, offset in offsets.items()}


def read_some(log, producers, draw, expansions, positions, holds, seen, greedy=False) -> None:
    """One round: ends first, what is written in between, high watermarks after; read any of it, in any order of partitions."""
    born = born_in(positions, {"s": expansions})
    ends = log.ends()
    for _ in range(draw.randint(0, 5) if producers else 0):
        draw.choice(producers).write(log, draw)
    wanting = needs_barrier(born, holds, positions, ends)
    holds.update(held(born, wanting, ends, log.highs()))
    allowed = allowed_ends(born, holds, positions, ends)
    order = sorted(positions)
    draw.shuffle(order)
    for one in order:
        assert positions[one] <= allowed[one] <= ends[one]
        end = allowed[one] if greedy else draw.randint(positions[one], allowed[one])
        for key, number in log.partitions[one.partition][positions[one] : end]:
            assert seen.get(key, 0) == number, f"key {key}: record {number} after {seen.get(key, 0) - 1}"
            seen[key] = number + 1
        positions[one] = end


def test_a_rewind_behind_a_settled_expansion_reads_the_parents_first() -> None:
    grown = Expansion(1, 2, 0, settled={0: 30})
    born = born_in([ssp(0), ssp(1)], {"s": [grown]})
    assert needs_barrier(born, {}, {ssp(0): 0, ssp(1): 0}, {ssp(0): 90, ssp(1): 50}) == frozenset()
    for position, allowed in ((29, 5), (30, 50), (90, 50)):
        assert allowed_ends(born, {}, {ssp(0): position, ssp(1): 5}, {ssp(0): 90, ssp(1): 50})[ssp(1)] == allowed


def test_nobody_waits_for_what_lies_behind_a_limit() -> None:
    grown = [Expansion(1, 2, 0)]
    born = born_in([ssp(0), ssp(1)], {"s": grown})
    positions, ends, limit = {ssp(0): 40, ssp(1): 0}, {ssp(0): 40, ssp(1): 7}, {ssp(0): 40, ssp(1): 7}
    holds = held(born, needs_barrier(born, {}, positions, ends), ends, {ssp(0): 99, ssp(1): 9}, limit)
    assert allowed_ends(born, holds, positions, ends, limit)[ssp(1)] == 7
    lasting = born_in([ssp(0), ssp(1)], {"s": [Expansion(1, 2, 0, settled={0: 99})]})
    assert allowed_ends(lasting, {}, positions, ends, limit)[ssp(1)] == 7
    assert allowed_ends(lasting, {}, positions, ends)[ssp(1)] == 0


def parents_of(partition: SSP, expansions: list[Expansion]) -> list[int]:
    born = born_in([partition], {"s": expansions})
    return [parent.partition for _, parent in born.get(partition, ())]


def test_parents_are_of_every_age_that_is_on_record() -> None:
    grown = [Expansion(2, 4, 0), Expansion(4, 12, 1), Expansion(12, 24, 2)]
    assert parents_of(ssp(23), grown) == [11, 3, 1]
    assert parents_of(ssp(11), grown) == [3, 1]
    twice = [Expansion(2, 12, 0)]  # perhaps by way of 4, or of 6
    assert parents_of(ssp(11), twice) == [5, 3, 1]
    assert parents_of(ssp(5), twice) == [1, 1]
    assert parents_of(ssp(2), grown) == [0]
    assert parents_of(ssp(1), grown) == []


def test_a_born_partition_begins_with_its_parents_watermark() -> None:
    known = {ssp(0): 10, ssp(1): 20}
    assert inherited_watermarks([ssp(2), ssp(3), ssp(1)], known, {"s": 2}) == {ssp(2): 10, ssp(3): 20}
    assert inherited_watermarks([ssp(3)], {ssp(0): 10}, {"s": 2}) == {}
    assert inherited_watermarks([ssp(3)], known, {}) == {}


class TestRecords:
    def test_growth_is_noted_once_and_chains(self) -> None:
        first = recorded({}, {}, {"s": 4}, {"s": "a"}, (), 1)
        assert first == {"s": PartitionRecord("a", 4)}
        second = recorded(first, {"s": 4}, {"s": 8}, {"s": "a"}, (), 2)
        assert second["s"] == PartitionRecord("a", 8, (Expansion(4, 8, 2),))
        assert recorded(second, {"s": 8}, {"s": 8}, {"s": "a"}, (), 3) == second
        third = recorded(second, {"s": 8}, {"s": 32}, {"s": "a"}, (), 4)
        assert third["s"].counts == (4, 8, 32)

    def test_a_job_model_from_before_there_were_records_counts(self) -> None:
        assert recorded({}, {"s": 4}, {"s": 8}, {"s": "a"}, (), 2)["s"].expansions == (Expansion(4, 8, 2),)

    def test_a_stream_that_is_not_read_is_remembered_and_one_made_anew_is_not(self) -> None:
        first = recorded({}, {}, {"s": 4, "t": 2}, {"s": "a", "t": "b"}, (), 1)
        without = recorded(first, {"s": 4, "t": 2}, {"t": 2}, {"t": "b"}, (), 2)
        assert without["s"].partitions == 4
        back = recorded(without, {"t": 2}, {"s": 8, "t": 2}, {"s": "a", "t": "b"}, (), 3)
        assert back["s"].expansions == (Expansion(4, 8, 3),)
        anew = recorded(without, {"t": 2}, {"s": 8, "t": 2}, {"s": "z", "t": "b"}, (), 3)
        assert anew["s"] == PartitionRecord("z", 8)

    def test_a_stream_without_order_has_no_expansions(self) -> None:
        first = recorded({}, {}, {"s": 4}, {"s": "a"}, ("s",), 1)
        assert recorded(first, {"s": 4}, {"s": 6}, {"s": "a"}, ("s",), 2)["s"] == PartitionRecord("a", 6)

    def test_it_settles_when_its_time_has_come(self) -> None:
        records = {"s": PartitionRecord("a", 8, (Expansion(2, 4, 0, settled={0: 1, 1: 1}), Expansion(4, 8, 100)))}
        assert to_settle(records, ["s"], 149, 50) == ()
        assert to_settle(records, ["t"], 150, 50) == ()
        assert to_settle(records, ["s"], 150, 50) == ("s",)
        done = settled(records["s"], dict(enumerate(range(8))), 150, 50)
        assert done.expansions == (Expansion(2, 4, 0, settled={0: 1, 1: 1}), Expansion(4, 8, 100, {0: 0, 1: 1, 2: 2, 3: 3}))
        assert to_settle({"s": done}, ["s"], 10**9, 50) == ()

    def test_an_expansion_grows(self) -> None:
        with pytest.raises(ValueError, match="from 4 to 4"):
            Expansion(4, 4, 0)
