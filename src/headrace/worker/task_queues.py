"""The rows that the tasks of a container have been given and not taken yet, and whose turn it is. It only decides: threads are
in `task_threads`, and hold one lock around each call.

What a task has taken it processes to the end, and takes the next only then. So whenever a round is cut, where a task has come
is the first row that it has not taken, or, with none left, where reading stopped (`TaskQueue.left`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from headrace.worker.merging import FIRST_ROWS, PIECE_S, Merged, next_size
from headrace.worker.rows import Rows

QUEUE_ROWS = 100_000  # of one task: with more, reading waits
QUEUE_BYTES = 64 * 1024 * 1024  # of keys, values and headers, in all queues of a container
STRAGGLER_S = 0.5  # so long in all half of the tasks have nothing to do before a round is cut for them


class Part(NamedTuple):
    """Rows of one endpoint. `is_table`: it is read as a table; `is_prepared`: the rows came out of Spark's engine."""

    endpoint: int
    is_table: bool
    is_prepared: bool
    rows: Rows


class TaskQueue:
    """The rows that wait for one task. `is_merging`: it takes them in an order that is known once all are there
    (`worker.merging`); any other task reads one SSP by one endpoint, and takes its rows as they come."""

    def __init__(self, is_merging: bool) -> None:
        self.is_merging = is_merging
        self.rows = self.bytes = 0
        self._waiting: deque[Part] = deque()
        self._merged: Merged | None = None
        self.done = 0  # of the rows of `_merged`

    def add(self, part: Part) -> None:
        self.rows += len(part.rows)
        self.bytes += part.rows.nbytes
        self._waiting.append(part)

    def first(self) -> int | None:
        """The offset of the first row that waits; of a task that takes them as they come."""
        return int(self._waiting[0].rows.offset[0]) if self._waiting else None

    def taken(self, size: int) -> list[Part]:
        """The next rows to process, about `size`; at least one, and of each record all."""
        if self.is_merging:
            return self._taken_merged(size)
        part = self._waiting.popleft()
        offsets = part.rows.offset
        stop = len(offsets) if size >= len(offsets) else int(np.searchsorted(offsets, offsets[size - 1], side="right"))
        if stop < len(offsets):
            left = part._replace(rows=part.rows.slice(stop, len(offsets)))
            self._waiting.appendleft(left)
            part = part._replace(rows=part.rows.slice(0, stop))
        self.rows -= stop
        self.bytes = max(0, self.bytes - part.rows.nbytes) if self._waiting else 0
        return [part]

    def _taken_merged(self, size: int) -> list[Part]:
        if self._merged is None:
            self._merged = Merged(self._waiting)
        start = self.done
        self.done = self._merged.stop_from(start + size)
        self.rows -= self.done - start
        return [Part(endpoint, False, was, rows) for endpoint, was, rows in self._merged.piece(start, self.done)]

    def left(self) -> dict[int, int]:
        """Of each SSP with rows that were not taken, the lowest of their offsets."""
        if self._merged is not None:
            return self._merged.left_from(self.done)
        found: dict[int, int] = {}
        for part in self._waiting:
            ssp, offset = int(part.rows.ssp[0]), int(part.rows.offset[0])
            found[ssp] = min(offset, found.get(ssp, offset))
        return found


class Step(Enum):
    """What a task does next: each of them in one go, by one thread."""

    BEGIN = "begin"
    TAKE = "take"
    FINISH = "finish"


@dataclass(slots=True, eq=False)
class Turn:
    """One task in its round. `start`: the first offset of what the round reads of its SSP."""

    number: int
    queue: TaskQueue
    start: int = 0
    size: int = FIRST_ROWS
    has_begun: bool = False
    has_taken: bool = False
    has_finished: bool = False
    is_at_work: bool = False
    at: int | None = None  # the first offset of what it is at, of a task that takes rows as they come

    @property
    def position(self) -> int | None:
        """The first offset that it was given and has not processed."""
        return self.queue.first() if self.at is None else self.at

    @property
    def is_busy(self) -> bool:
        return self.is_at_work or (self.queue.rows > 0 and not self.has_finished)


class Turns:
    """Whose turn it is: of the tasks that can work, that of the one that has come least far. `starts`: as `Turn.start`."""

    def __init__(self, queues: Sequence[TaskQueue], starts: Sequence[int]) -> None:
        self.all = [Turn(number, queue, start) for number, (queue, start) in enumerate(zip(queues, starts, strict=True))]
        self.is_read = self.is_cut = False
        self.bytes = 0  # in the queues, but for what is to be merged: of that all must be there
        self._ready = [(-1, turn.number) for turn in self.all]  # a heap; of a task there may be several, or one too early
        self._unfinished = len(self.all)
        self._uneven_s = 0.0
        self._looked_s: float | None = None  # when they were last seen to be uneven, and still may be

    def add(self, number: int, part: Part) -> None:
        """Give a task rows, behind all that it was given of their SSP."""
        turn = self.all[number]
        if not turn.is_busy:
            self._looked_s = None
        before = turn.queue.bytes
        turn.queue.add(part)
        if not turn.queue.is_merging:
            self.bytes += turn.queue.bytes - before
        self._note(turn)

    def read(self) -> None:
        """No more rows will come."""
        self.is_read = True
        for turn in self.all:
            self._note(turn)

    def cut(self) -> None:
        """No more rows are taken."""
        if not self.is_cut:
            self.is_cut = True
            for turn in self.all:
                self._note(turn)

    def _note(self, turn: Turn) -> None:
        """Remember that the task can work, if it can."""
        step = self._step_of(turn)
        if step is Step.TAKE:
            position = turn.position
            heappush(self._ready, (turn.queue.done if position is None else position - turn.start, turn.number))
        elif step is not None:
            heappush(self._ready, (-1, turn.number))

    def next(self) -> tuple[Turn, Step, list[Part]] | None:
        """A task, now at work until `done`, what it does, and with which rows; None where all that can are at work. The rows of
        a task that merges are for the caller to take."""
        while self._ready:
            turn = self.all[heappop(self._ready)[1]]
            step = self._step_of(turn)
            if step is None:
                continue
            turn.is_at_work = True
            if step is not Step.TAKE:
                return turn, step, []
            turn.has_taken = True
            if turn.queue.is_merging:
                return turn, step, []
            turn.at, before = turn.queue.first(), turn.queue.bytes
            parts = turn.queue.taken(turn.size)
            self.bytes += turn.queue.bytes - before
            return turn, step, parts
        return None

    def _step_of(self, turn: Turn) -> Step | None:
        if turn.is_at_work or turn.has_finished:
            return None
        if not turn.has_begun:
            return Step.BEGIN
        if turn.queue.rows and not self.is_cut:
            return Step.TAKE if self.is_read or not turn.queue.is_merging else None
        return Step.FINISH if self.is_cut or self.is_read else None

    def done(self, turn: Turn, step: Step, rows: int = 0, seconds: float = 0.0, fills: float | None = None) -> None:
        """The task has done the step, with so many rows in so many seconds; `fills`: as of `next_size`."""
        turn.is_at_work, turn.at = False, None
        turn.has_begun = True
        if step is Step.FINISH:
            turn.has_finished = True
            self._unfinished -= 1
        if step is Step.TAKE and (rows >= turn.size or seconds > PIECE_S):  # of fewer rows the time says less
            turn.size = next_size(rows, seconds, fills)
        self._note(turn)

    @property
    def is_finished(self) -> bool:
        return not self._unfinished

    def has_room(self, numbers: Collection[int]) -> bool:
        """Whether these tasks may be given more rows now."""
        return self.bytes < QUEUE_BYTES and all(self.all[number].queue.rows < QUEUE_ROWS for number in numbers)

    def lowest(self, numbers: Collection[int], offset: int) -> int:
        """The first offset that one of these tasks has not processed, of those before `offset`, up to which rows were given."""
        positions = (self.all[number].position for number in numbers)
        return min((position for position in positions if position is not None), default=offset)

    def is_uneven(self, now_s: float) -> bool:
        """Whether, while reading waited or was over, at least half of the tasks that had rows have had nothing to do for
        `STRAGGLER_S` in all: a few hold back what the others have done, which could be committed."""
        taking = [turn for turn in self.all if turn.has_taken]
        busy = sum(turn.is_busy for turn in taking)
        if not busy or len(taking) - busy < busy:
            self._looked_s = None
            return False
        if self._looked_s is not None:
            self._uneven_s += now_s - self._looked_s
        self._looked_s = now_s
        return self._uneven_s >= STRAGGLER_S
