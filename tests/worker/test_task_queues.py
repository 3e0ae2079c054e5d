"""Whose turn it is, and where each task has come: for any interleaving of reading, work and cuts, against a plain model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.serdes.scalars import Bytes
from headrace.worker import task_queues
from headrace.worker.rows import Field, Rows
from headrace.worker.task_queues import STRAGGLER_S, Part, Step, TaskQueue, Turns

END = 10**6


def rows_of(offsets: list[int], ssp: int = 0, times: list[int] | None = None) -> Rows:
    values = Field(Bytes(), raw=pa.array([b"v"] * len(offsets)))
    own = np.array(offsets if times is None else times, np.int64)
    return Rows(np.full(len(offsets), ssp, np.int32), np.array(offsets, np.int64), own, values, values, None)


def part_of(offsets: list[int], ssp: int = 0) -> Part:
    return Part(0, False, False, rows_of(offsets, ssp))


class Interleaving:
    """One reader and some threads over `Turns`, each step when it is told to."""

    def __init__(self, owners: list[list[tuple[int, int]]], tasks: int, merging: frozenset[int]) -> None:
        self.turns = Turns([TaskQueue(number in merging) for number in range(tasks)], [0] * tasks)
        self.batches, self.tasks = list(owners), tasks
        self.read_to: int | None = None  # where reading stopped
        self.given: list[list[int]] = [[] for _ in range(tasks)]
        self.processed: list[list[int]] = [[] for _ in range(tasks)]
        self.steps: list[list[Step]] = [[] for _ in range(tasks)]
        self.at_work: list[tuple[Any, Step, list[Part]]] = []

    def give(self) -> None:
        """The next batch to the tasks that own its records; after a cut it goes by, and the reader notes where it stopped."""
        if not self.batches:
            self.turns.read()
            return
        batch = self.batches.pop(0)
        if self.turns.is_cut and not any(turn.queue.is_merging for turn in self.turns.all):
            self.read_to = batch[0][0] if self.read_to is None else self.read_to
            return
        for task in range(self.tasks):
            mine = [offset for offset, owner in batch if owner == task]
            if mine:
                self.given[task] += mine
                self.turns.add(task, part_of(mine))

    def begin_step(self) -> bool:
        found = self.turns.next()
        if found is None:
            return False
        turn, step, parts = found
        assert all(other is not turn for other, *_ in self.at_work), "a task in two threads"
        self.steps[turn.number].append(step)
        if step is Step.TAKE and turn.queue.is_merging:
            parts = turn.queue.taken(turn.size)
        self.at_work.append((turn, step, parts))
        return True

    def end_step(self, number: int, seconds: float) -> None:
        turn, step, parts = self.at_work.pop(number)
        for part in parts:
            self.processed[turn.number] += part.rows.offset.tolist()
        self.turns.done(turn, step, sum(len(part.rows) for part in parts), seconds)

    def finish(self) -> None:
        while not self.turns.is_finished:
            if not self.begin_step():
                if self.at_work:
                    self.end_step(0, 0.0)
                else:
                    self.give()
        assert not self.begin_step() and not self.at_work
        while self.batches:
            self.give()

    def check(self, owned: list[list[int]]) -> None:
        for number, turn in enumerate(self.turns.all):
            assert self.steps[number][0] is Step.BEGIN and self.steps[number][-1] is Step.FINISH
            assert set(self.steps[number][1:-1]) <= {Step.TAKE}
            left = turn.queue.left() if turn.queue.rows else {}
            position = left.get(0, END if self.read_to is None else self.read_to)
            assert sorted(self.processed[number]) == [offset for offset in owned[number] if offset < position], "covered"
            if not turn.queue.is_merging:
                assert self.processed[number] == sorted(self.processed[number]), "order"
            assert turn.queue.rows == len(self.given[number]) - len(self.processed[number])
        assert self.turns.bytes == sum(turn.queue.bytes for turn in self.turns.all if not turn.queue.is_merging)


ACTIONS = st.lists(
    st.one_of(
        st.just("give"), st.just("give"), st.just("begin"), st.just("begin"), st.just("cut"),
        st.tuples(st.integers(0, 3), st.sampled_from([0.0, 0.05, 0.15, 0.3, 5.0])),
    ),
    max_size=60,
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(
    tasks=st.integers(1, 4),
    gaps=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=40),  # to the next offset (0: same record); owner
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=40),
    actions=ACTIONS,
    merging=st.booleans(),
    first=st.integers(1, 4),
)
def test_a_task_has_processed_what_lies_before_where_it_came_and_no_more(
    tasks: int, gaps: list[tuple[int, int]], sizes: list[int], actions: list[Any], merging: bool, first: int
) -> None:
    records: list[tuple[int, int]] = []
    for gap, owner in gaps:
        if gap == 0 and records:
            records.append(records[-1])  # several rows came of one record
        else:
            records.append((records[-1][0] + gap if records else 3, owner % tasks))
    batches = []
    while records:  # no record is in two batches
        size = sizes[len(batches) % len(sizes)]
        while size < len(records) and records[size][0] == records[size - 1][0]:
            size += 1
        batches.append(records[:size])
        records = records[size:]
    owned = [[offset for batch in batches for offset, owner in batch if owner == task] for task in range(tasks)]
    world = Interleaving(batches, tasks, frozenset(range(tasks)) if merging else frozenset())
    for turn in world.turns.all:
        turn.size = first
    for action in actions:
        match action:
            case "give":
                world.give()
            case "begin":
                world.begin_step()
            case "cut":
                world.turns.cut()
            case (number, seconds):
                if world.at_work:
                    world.end_step(number % len(world.at_work), seconds)
        assert world.turns.lowest(range(tasks), END) <= END
    world.finish()
    world.check(owned)


def test_pieces_follow_the_speed_of_the_function() -> None:
    """From the first piece on, a piece of a function that takes 1 ms a record is done in half a second at most."""
    turns = Turns([TaskQueue(False)], [0])
    turns.add(0, part_of(list(range(50_000))))
    turns.read()
    lengths = []
    while (found := turns.next()) is not None:
        turn, step, parts = found
        rows = sum(len(part.rows) for part in parts)
        lengths.append(rows)
        turns.done(turn, step, rows, rows / 1_000)
    assert sum(lengths) == 50_000
    assert max(lengths) <= 500
    assert len(lengths) < 200


def test_a_function_that_becomes_slow_is_given_less_at_once() -> None:
    turns = Turns([TaskQueue(False)], [0])
    turns.add(0, part_of(list(range(100_000))))
    turns.read()
    done, longest_after = 0, []
    while (found := turns.next()) is not None:
        turn, step, parts = found
        rows = sum(len(part.rows) for part in parts)
        slow = done >= 50_000
        if slow:
            longest_after.append(rows)
        done += rows
        turns.done(turn, step, rows, rows / (100 if slow else 1_000_000))
    assert max(longest_after[1:]) <= 50


def test_the_task_that_has_come_least_far_is_next_whatever_the_offsets_of_its_partition() -> None:
    turns = Turns([TaskQueue(False), TaskQueue(False)], [1_000_000, 5])
    for number, first in enumerate((1_000_000, 5)):
        turns.add(number, part_of(list(range(first, first + 1_000))))
        turns.all[number].size = 100
    order = []
    while (found := turns.next()) is not None:
        turn, step, parts = found
        if step is Step.TAKE:
            order.append(turn.number)
        turns.done(turn, step, sum(len(part.rows) for part in parts), 0.2)
    assert sorted(order[:4]) == [0, 0, 1, 1]
    assert sorted(order[:10]) == [0] * 5 + [1] * 5


def test_reading_waits_for_rows_and_for_bytes(monkeypatch: Any) -> None:
    monkeypatch.setattr(task_queues, "QUEUE_ROWS", 10)
    turns = Turns([TaskQueue(False), TaskQueue(False)], [0, 0])
    turns.add(0, part_of(list(range(9))))
    assert turns.has_room([0, 1])
    turns.add(0, part_of([9]))
    assert not turns.has_room([0, 1])
    assert turns.has_room([1])
    monkeypatch.setattr(task_queues, "QUEUE_BYTES", turns.bytes)
    assert not turns.has_room([1])


def test_the_lead_is_counted_from_what_is_at_work() -> None:
    turns = Turns([TaskQueue(False), TaskQueue(False)], [0, 0])
    turns.add(0, part_of([10, 12]))
    turns.add(1, part_of([11, 13]))
    turns.all[0].size = 1
    turns.all[0].has_begun = turns.all[1].has_begun = True
    assert turns.lowest([0, 1], 14) == 10
    found = turns.next()
    assert found is not None
    assert turns.lowest([0, 1], 14) == 10, "it is not processed yet"
    turns.done(found[0], found[1], 1, 0.0)
    assert turns.lowest([0, 1], 14) == 11
    assert turns.lowest([], 14) == 14


def test_a_round_is_uneven_once_half_of_the_tasks_had_nothing_to_do_for_long() -> None:
    turns = Turns([TaskQueue(False) for _ in range(4)], [0] * 4)
    for turn in turns.all:
        turn.has_begun = True
    turns.all[3].has_finished = True  # it never had a row: it has nothing that could be committed
    for number in range(3):
        turns.add(number, part_of([number, number + 10]))
        turns.all[number].has_taken = True
    assert not turns.is_uneven(0.0)
    assert not turns.is_uneven(100.0), "all have something to do"
    turns.all[0].queue.taken(9)
    assert not turns.is_uneven(200.0), "one of three"
    turns.all[1].queue.taken(9)
    assert not turns.is_uneven(300.0), "only now"
    assert not turns.is_uneven(300.0 + STRAGGLER_S / 2)
    turns.add(1, part_of([20]))
    assert not turns.is_uneven(400.0), "it has something to do"
    turns.all[1].queue.taken(9)
    assert not turns.is_uneven(500.0)
    assert not turns.is_uneven(500.0 + STRAGGLER_S / 4)
    assert turns.is_uneven(500.0 + STRAGGLER_S / 2), "in all"
